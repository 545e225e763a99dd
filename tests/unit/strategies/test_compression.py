"""What is lost by compression, on ranks that are threads of this process: the codecs and sums are the real ones."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.measure.synchronisation.compression import CODECS, FewerBits, Largest

RANKS = 3


class Exchange:
    """Collectives between threads."""

    def __init__(self) -> None:
        self.barrier = Barrier(RANKS)
        self.rows: list[torch.Tensor] = [torch.empty(0)] * RANKS

    def swap(self, rank: int, sent: torch.Tensor) -> list[torch.Tensor]:
        self.rows[rank] = sent.clone()
        self.barrier.wait()
        rows = list(self.rows)
        self.barrier.wait()
        return rows


class Rank:
    """One of `RANKS` communicators."""

    ranks = RANKS

    def __init__(self, exchange: Exchange, rank: int) -> None:
        self.exchange, self.rank = exchange, rank

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        received.copy_(torch.stack([rows[self.rank] for rows in self.exchange.swap(self.rank, sent)]))
        return sent.nbytes

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        received.copy_(torch.stack(self.exchange.swap(self.rank, sent)))
        return sent.nbytes


def summed(reducers: list[FewerBits] | list[Largest], values: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """What each rank has after the sum of the rows of `values`, and the bytes it sent."""
    result = values.clone()
    with ThreadPoolExecutor(RANKS) as threads:
        sizes = list(threads.map(lambda rank: reducers[rank].sum(result[rank], 0), range(RANKS)))
    return result, sizes


def ranks() -> list[Rank]:
    exchange = Exchange()
    return [Rank(exchange, rank) for rank in range(RANKS)]


def gradients(length: int, seed: int) -> torch.Tensor:
    return torch.randn(RANKS, length, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", CODECS)
@given(st.lists(st.floats(-1000, 1000, width=32), max_size=9))
def test_decoded_values_are_within_the_codecs_error(bits: int, numbers: list[float]) -> None:
    codec, values = CODECS[bits], torch.tensor(numbers)
    data = torch.zeros(codec.size(len(values)), dtype=torch.uint8)
    assert len(data) % 4 == 0
    codec.encode(values, data)
    largest = values.abs().max().item() if numbers else 0.0
    error = {32: torch.zeros(1), 16: values.abs() * 2**-11 + 2**-25, 8: torch.tensor(largest / 127 / 2 * 1.001 + 1e-37)}
    assert ((codec.decode(data, len(values)) - values).abs() <= error[bits]).all()


@pytest.mark.parametrize(("bits", "tolerance"), [(16, 2**-10), (8, RANKS / 127)])
@pytest.mark.parametrize("length", [1, 2, 3, 1000])
def test_fewer_bits_give_all_ranks_the_same_sum_within_the_error(bits: int, tolerance: float, length: int) -> None:
    values = gradients(length, seed=bits)
    result, sizes = summed([FewerBits(rank, CODECS[bits]) for rank in ranks()], values)  # type: ignore[arg-type]
    assert (result[0] == result[1]).all()
    assert (result[0] == result[2]).all()
    scale = values.abs().max()
    torch.testing.assert_close(result[0], values.sum(0), rtol=0, atol=float(2 * tolerance * RANKS * scale))
    part = -(-length // RANKS)
    assert sizes == [(RANKS + 1) * CODECS[bits].size(part)] * RANKS


@given(st.integers(1, 40), st.sampled_from([0.01, 0.3, 0.9]), st.sampled_from(sorted(CODECS)), st.integers(1, 4))
def test_nothing_is_lost_by_sending_the_largest_alone(length: int, share: float, bits: int, rounds: int) -> None:
    device = torch.device("cpu")
    reducers = [Largest(rank, CODECS[bits], share, length, device) for rank in ranks()]  # type: ignore[arg-type]
    given_in_all, arrived = torch.zeros(length), torch.zeros(length)
    for number in range(rounds):
        values = gradients(length, seed=number)
        result, _ = summed(reducers, values)
        given_in_all += values.sum(0)
        arrived += result[0]
        assert (result == result[0]).all()
        assert result[0].count_nonzero() <= RANKS * max(1, round(length * share))
    kept = sum(reducer.residuals for reducer in reducers)
    torch.testing.assert_close(arrived + kept, given_in_all, rtol=1e-5, atol=1e-4)


def test_the_largest_are_chosen_by_magnitude_and_the_rest_comes_later() -> None:
    reducers = [Largest(rank, CODECS[32], 0.25, 4, torch.device("cpu")) for rank in ranks()]  # type: ignore[arg-type]
    values = torch.tensor([[1.0, -9.0, 2.0, 3.0]] * RANKS)
    first, sizes = summed(reducers, values)
    assert first[0].tolist() == [0, -27, 0, 0]
    assert sizes == [8] * RANKS
    second, _ = summed(reducers, torch.zeros(RANKS, 4))
    assert second[0].tolist() == [0, 0, 0, 9]


def trained(step_size: float, momentum: float, warmup: int = 0) -> float:
    """Loss of a least-squares fit by momentum SGD on 5 % of the gradients, over that at the start."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(RANKS, 40, 100, generator=generator)
    targets = inputs @ torch.randn(100, generator=generator)
    reducers = [
        Largest(rank, CODECS[32], 0.05, 100, torch.device("cpu"), momentum, warmup)  # type: ignore[arg-type]
        for rank in ranks()
    ]
    weights, velocity = torch.zeros(100), torch.zeros(100)
    for _ in range(300):
        errors = (inputs @ weights) - targets
        gradients, _sizes = summed(reducers, torch.einsum("rsv,rs->rv", inputs, errors) / (40 * RANKS))
        velocity = 0.9 * velocity + gradients[0]
        weights -= step_size * velocity
    return float(((inputs @ weights - targets) ** 2).mean() / (targets**2).mean())


def test_sparse_gradients_train_with_momentum_as_it_was_published() -> None:
    """Momentum of sums that arrive late overshoots; corrected, ranks apply it before they send."""
    assert not trained(0.03, 0.0) < 1
    assert trained(0.03, 0.9) < 0.01
    assert not trained(0.04, 0.0) < 1
    assert trained(0.04, 0.9, warmup=50) < 0.01 < trained(0.04, 0.9)


def test_the_share_that_is_sent_falls_by_equal_factors_to_that_of_the_preset() -> None:
    (rank, *_) = ranks()
    sparse = Largest(rank, CODECS[32], 0.001, 10, torch.device("cpu"), 0.9, 2)  # type: ignore[arg-type]
    assert [sparse.share(step) for step in range(5)] == pytest.approx([0.1, 0.01, 0.001, 0.001, 0.001])


def test_the_optimisers_momentum_acts_once() -> None:
    """All values sent: each update is the sum of the gradients of its step alone."""
    reducers = [Largest(rank, CODECS[32], 1.0, 4, torch.device("cpu"), 0.9) for rank in ranks()]  # type: ignore[arg-type]
    velocity = torch.zeros(4)
    for seed in range(4):
        values = gradients(4, seed)
        received, _ = summed(reducers, values)
        velocity = 0.9 * velocity + received[0]
        assert torch.allclose(velocity, values.sum(0), atol=1e-5)
