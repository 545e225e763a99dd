"""Algorithms beside synchronous SGD: what they compute where that is known, and what servers find of staleness."""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import small_algorithms
import small_training
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from resident_ranks import Ranks
from torch import nn

from stallpoint.errors import CannotRun
from stallpoint.measure import synchronisation
from stallpoint.measure.clock import HostClock
from stallpoint.measure.jobs.train import Trainer
from stallpoint.measure.synchronisation.averaging import OuterOptimiser
from stallpoint.measure.synchronisation.delayed import Delays
from stallpoint.measure.synchronisation.interface import Replica, Worker, WorkerPart
from stallpoint.measure.synchronisation.served import Asynchronous, Downpour, Elastic, Servers
from stallpoint.measure.synchronisation.server import TOKEN_BYTES, Ask, Rules, Server, ends, share
from stallpoint.measure.training.optimisers import Adagrad, RecipeOptimiser
from stallpoint.measure.world import World
from stallpoint.networks.layers import layers
from stallpoint.strategies.presets import PRESETS, Preset
from stallpoint.study.recipes import Recipe

pytestmark = pytest.mark.ranks

TOKEN = b"t" * TOKEN_BYTES
SERVED = {"asynchronous": Asynchronous, "downpour": Downpour, "elastic": Elastic}

WORKERS, ITERATIONS = small_algorithms.WORKERS, small_training.ITERATIONS


@pytest.fixture(scope="module")
def of_ranks(ranks: Ranks) -> list[dict[str, Any]]:
    """What each of four ranks found."""
    return ranks(small_algorithms.train_all)


@pytest.fixture(scope="module")
def found(of_ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """What the first of them found."""
    return of_ranks[0]


def staleness(of_ranks: list[dict[str, Any]], case: str) -> list[dict[str, Any]]:
    return [one["trained"][case].staleness for one in of_ranks]


@cache
def serial(optimiser: str) -> small_algorithms.Weights:
    """Weights of the network trained by one worker with the whole mini-batches."""
    return small_algorithms.train(World.start(1), Preset(), optimiser).weights


@pytest.mark.parametrize(
    "case",
    [
        "sgd, averaged each time", "momentum, averaged each time", "synchronous at first", "bound 0",
        "bound 0, three servers",
    ],
)  # fmt: skip
def test_averaging_each_time_and_a_bound_of_0_are_synchronous_sgd(found: dict[str, Any], case: str) -> None:
    expected = serial(small_algorithms.CASES[case][1])
    for name, values in found["trained"][case].weights.items():
        torch.testing.assert_close(values, expected[name], rtol=1e-5, atol=1e-6)


def test_between_averages_nothing_is_sent_and_workers_train_apart(found: dict[str, Any]) -> None:
    trained = found["trained"]["averaged every fifth time"]
    assert trained.sent == [step % 5 == 4 for step in range(ITERATIONS)]
    whole_way = found["trained"]["outer steps of the whole way"].weights
    expected = serial("sgd")
    for name, values in trained.weights.items():
        torch.testing.assert_close(values, whole_way[name], rtol=1e-5, atol=1e-6)
    assert any((values - expected[name]).abs().max() > 1e-5 for name, values in trained.weights.items())


@pytest.mark.parametrize("case", small_algorithms.CASES)
def test_every_algorithm_learns(found: dict[str, Any], case: str) -> None:
    start, trained = small_training.network().state_dict(), found["trained"][case]
    assert np.isfinite(trained.losses).all()
    moved = {name: (values - start[name]).norm() for name, values in trained.weights.items()}
    assert all(torch.isfinite(way) and way > 1e-4 for way in moved.values())


@pytest.mark.parametrize("case", small_algorithms.RESUMED)
def test_what_goes_on_from_a_state_finds_what_it_would_have_found_without(found: dict[str, Any], case: str) -> None:
    for once, again in zip(*found["resumed"][case], strict=True):
        for name, values in once.items():
            torch.testing.assert_close(values, again[name], rtol=1e-5, atol=1e-6)


def test_a_ring_mixes_neighbours_and_keeps_the_mean(of_ranks: list[dict[str, Any]]) -> None:
    mixed = [one["mixed"] for one in of_ranks]
    ring = sum(np.roll(np.eye(WORKERS), shift, axis=0) for shift in (-1, 0, 1)) / 3
    ranks = np.arange(WORKERS)
    expected = [np.linalg.matrix_power(ring, times) @ ranks for times in (1, 2, 3)]
    np.testing.assert_allclose(np.transpose(mixed), expected, rtol=1e-6)
    assert np.mean(mixed, axis=0) == pytest.approx([ranks.mean()] * 3)


def test_every_update_has_its_staleness_and_the_mean_is_that_of_all_other_workers(
    of_ranks: list[dict[str, Any]],
) -> None:
    """Each worker's updates, and those of others in between, fill the time until its last one."""
    (rows, *none) = staleness(of_ranks, "asynchronous")
    assert not any(one["update"] for one in none), "there is one server"
    update, worker, stale = (np.array(rows[name]) for name in ("update", "worker", "staleness"))
    assert update.tolist() == list(range(1, WORKERS * ITERATIONS + 1))
    assert np.bincount(worker).tolist() == [ITERATIONS] * WORKERS
    for one in range(WORKERS):
        assert (stale[worker == one] + 1).sum() == update[worker == one].max()
    assert stale[worker == worker[-1]].mean() == WORKERS - 1


def test_a_bound_holds_and_soft_synchronisation_counts_whole_sums(of_ranks: list[dict[str, Any]]) -> None:
    (rows, *_) = staleness(of_ranks, "bound 0")
    assert sorted(rows["staleness"]) == sorted(list(range(WORKERS)) * ITERATIONS)
    (rows, *_) = staleness(of_ranks, "bound 2")
    steps = np.zeros(WORKERS, int)
    for worker in rows["worker"]:
        steps[worker] += 1
        assert steps.max() - steps.min() <= 2 + 1
    (rows, *_) = staleness(of_ranks, "soft-synchronous")
    assert np.bincount(rows["update"])[1:].tolist() == [WORKERS] * ITERATIONS
    assert [len(one["update"]) for one in staleness(of_ranks, "dist-async")] == [WORKERS * ITERATIONS] * WORKERS


def test_the_servers_of_downpour_go_on_without_a_lost_replica(of_ranks: list[dict[str, Any]]) -> None:
    """Its half push is not applied; the record has its two gradients before, and those of the others until the end."""
    for rows in staleness(of_ranks, "a replica is lost")[:2]:
        assert np.bincount(rows["worker"]).tolist() == [ITERATIONS // 2] * (WORKERS - 1) + [2]
    *others, lost = (one["trained"]["a replica is lost"] for one in of_ranks)
    assert all(sum(one.sent) == ITERATIONS // 2 for one in others)
    assert sum(lost.sent) == 2
    for name, values in lost.weights.items():
        assert torch.equal(values, others[0].weights[name]), "it is no longer asked for its own"
        assert not torch.equal(values, lost.own[name])


# --- servers, without ranks -----------------------------------------------------------------------------------------


def server(rules: Rules, *, values: int = 3, step_size: Callable[[int], float] | None = None) -> Server:
    pieces = [nn.Parameter(torch.zeros(values))]
    return Server(pieces, RecipeOptimiser(Recipe("sgd", step_size=1.0), pieces, step_size), rules)


def test_the_size_of_an_update_is_that_of_the_step_whose_gradient_it_is() -> None:
    """Whoever is ahead: a server stands beside one of the workers, whose own step says nothing about the others'."""
    one = server(Rules(workers=2), step_size=lambda step: 10.0**-step)
    address = ("127.0.0.1", one.listen("127.0.0.1", TOKEN))
    first, second = (Servers([address], TOKEN, worker, 3) for worker in range(2))
    for worker, step, weights in ((second, 0, -1.0), (second, 1, -1.1), (first, 0, -2.1), (second, 2, -2.11)):
        got = worker.ask(Ask.STEP, torch.ones(3), step)
        assert got.tolist() == pytest.approx([weights] * 3)
    for worker in (first, second):
        worker.close()
    one.close(wait=True)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_staleness_counts_the_updates_since_the_worker_took_its_weights(order: list[int]) -> None:
    one = server(Rules(workers=4))
    taken = dict.fromkeys(range(4), 0)
    for number, worker in enumerate(order):
        one.answer(worker, Ask.STEP, torch.ones(3))
        assert one.staleness()[-1] == (number + 1, worker, number - taken[worker])
        taken[worker] = number + 1
    looked = one.answer(0, Ask.LOOK, torch.zeros(0))
    assert looked is not None
    assert looked.tolist() == [-len(order)] * 3, "each gradient is applied once"


def test_a_slow_worker_is_the_stale_one() -> None:
    one = server(Rules(workers=3))
    for _ in range(5):
        for worker in (0, 1, 0, 1, 0, 1, 2):  # the last one takes three times as long
            one.answer(worker, Ask.STEP, torch.ones(3))
    rows = np.array(one.staleness())
    means = [rows[rows[:, 1] == worker, 2][1:].mean() for worker in range(3)]
    assert means[2] == 6
    assert means[0] < 2
    assert means[1] < 2


def test_a_server_of_the_worker_s_process_answers_as_one_elsewhere() -> None:
    """Of two servers with two values and one, none, one or both are called without a connection."""
    found = []
    for own in range(3):
        servers = [server(Rules(workers=1, rate=0.5), values=values) for values in (1, 2)]
        addresses = [("127.0.0.1", one.listen("127.0.0.1", TOKEN)) for one in servers]
        worker = Servers([*servers[:own], *addresses[own:]], TOKEN, 0, 3)
        values = torch.tensor([1.0, 2.0, 3.0])
        asked = [worker.ask(ask, values, step).tolist() for step, ask in enumerate((*Ask, *Ask))]
        worker.close()
        for one in servers:
            one.close(wait=True)
        found.append((asked, [one.staleness() for one in servers]))
    assert found[0] == found[1] == found[2]
    assert found[0][0][Ask.STEP] == [-2.0, -4.0, -6.0]


@pytest.mark.parametrize("algorithm", SERVED)
def test_one_worker_with_its_server_is_serial(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elastic averaging apart: its one worker is pulled back to the centre. It has no connection to its server."""
    monkeypatch.delattr("socket.create_connection")
    world = World.start(1)
    preset = Preset(reduction="parameter-server", start="after-backward", algorithm=algorithm)
    small = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    alone = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    alone.load_state_dict(small.state_dict())

    def made(parameters: Any) -> RecipeOptimiser:
        return RecipeOptimiser(Recipe("momentum", step_size=0.1), parameters)

    training = SERVED[algorithm](Replica(small, layers(small), world, HostClock()), preset, made)
    own, other = made(list(small.parameters())), made(list(alone.parameters()))
    inputs = torch.randn(10, 4, 3, generator=torch.Generator().manual_seed(1))
    for batch in inputs:
        for which in (small, alone):
            which.zero_grad()
            which(batch).square().mean().backward()
        training.finish()
        if not training.updates:
            own.step(list(small.parameters()))
        training.updated()
        other.step(list(alone.parameters()))
    with training.consensus():
        pairs = list(zip(small.parameters(), alone.parameters(), strict=True))
        same = all(torch.allclose(values, expected, rtol=1e-6, atol=1e-7) for values, expected in pairs)
    assert same == (algorithm != "elastic")
    assert all(stale == 0 for _, _, stale in training.staleness())
    training.close(wait=True)


@pytest.mark.parametrize("preset", ["downpour", "asynchronous"])
def test_a_server_updates_before_the_trainer_beside_it_is_made(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is first pushes while others still prepare."""
    begin, weights = synchronisation.begin, nn.Parameter(torch.zeros(3))

    def early(preset: Preset, worker: Worker) -> WorkerPart:
        optimiser, weights.grad = worker.for_server([weights]), torch.ones(3)
        optimiser.begin(0)
        optimiser.step([weights])
        return begin(preset, worker)

    monkeypatch.setattr(synchronisation, "begin", early)
    with Trainer(small_training.network(), World.start(1), PRESETS[preset].preset, torch.device("cpu")):
        assert (weights < 0).all()


def test_the_centre_and_a_worker_meet_half_way() -> None:
    one = server(Rules(workers=1, rate=0.5), values=1)
    for weights, centre in ((4.0, 0.0), (4.0, 2.0), (3.0, 3.0)):
        answer = one.answer(0, Ask.MEET, torch.tensor([weights]))
        assert answer is not None
        assert answer.item() == centre


def test_who_is_gone_is_waited_for_no_more_and_a_stranger_is_sent_away() -> None:
    one, before = server(Rules(workers=2, bound=0)), threading.enumerate()
    address = ("127.0.0.1", one.listen("127.0.0.1", TOKEN))
    first, second = (Servers([address], TOKEN, worker, 3) for worker in range(2))
    with pytest.raises(CannotRun, match=rf"the server at 127\.0\.0\.1:{address[1]} is gone"):
        Servers([address], b"?" * TOKEN_BYTES, 1, 3).ask(Ask.PULL)
    second.ask(Ask.PULL)
    got: list[torch.Tensor] = []
    waiting = threading.Thread(target=lambda: got.append(first.ask(Ask.STEP, torch.ones(3))))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "it is ahead of the second one"
    second.close()
    waiting.join(30)
    assert [values.tolist() for values in got] == [[-1.0] * 3]
    first.close()
    one.close(wait=True)
    assert not {*threading.enumerate()} - {*before}, "processes make many visits"


# --- parts ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(1, 60))
def test_servers_share_all_values_evenly(servers: int, values: int) -> None:
    parts = ends(values, servers)
    assert [begin for begin, _ in parts[1:]] == [end for _, end in parts[:-1]]
    assert (parts[0][0], parts[-1][1]) == (0, values)
    assert {end - begin for begin, end in parts} <= {values // servers, -(-values // servers)}


def test_a_share_keeps_what_optimisers_ask_of_weights_and_is_a_copy() -> None:
    layer = nn.Linear(3, 2)
    pieces = share(layer.parameters(), 4, 8)
    assert [tuple(piece.shape) for piece in pieces] == [(1, 2), (2,)]
    flat = torch.cat([layer.weight.detach().reshape(-1), layer.bias.detach()])
    assert torch.cat([piece.detach().reshape(-1) for piece in pieces]).tolist() == flat[4:8].tolist()
    nn.init.zeros_(layer.bias)
    assert pieces[1].tolist() == flat[6:8].tolist()


@given(st.floats(0.1, 1.0), st.floats(0.1, 0.95))
@settings(max_examples=10)
def test_outer_steps_are_those_of_nesterov(step: float, momentum: float) -> None:
    weights = nn.Parameter(torch.tensor([1.0, 2.0]))
    reference = torch.optim.SGD([weights], lr=step, momentum=momentum, nesterov=True)
    outer = OuterOptimiser(weights.detach().clone(), step, momentum)
    for way in (0.5, -0.25, 1.0):
        weights.grad = torch.full((2,), way)
        start = weights.detach().clone()
        reference.step()
        torch.testing.assert_close(outer.step(start - way), weights.detach(), rtol=1e-5, atol=1e-5)


def test_adagrad_steps_are_those_of_pytorch() -> None:
    weights, other = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    own, reference = Adagrad([weights], lambda _: 0.3, loss_scale=8), torch.optim.Adagrad([other], lr=0.3, eps=1e-6)
    for gradient in ([0.5, -2.0], [1.0, 0.25]):
        other.grad = torch.tensor(gradient)
        weights.grad = 8 * other.grad
        own.step([weights])
        reference.step()
        torch.testing.assert_close(weights, other)


def test_gradients_of_a_block_come_late_by_the_blocks_behind_it() -> None:
    network = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(3)))
    delays = Delays(layers(network), 3)
    weights = list(network.parameters())
    seen = []
    for step in range(4):
        for one in weights:
            one.grad = torch.full_like(one, step + 1.0)
        delays.swap()
        seen.append([one.grad.item() if one.grad is not None else None for one in weights])
    assert seen == [[None, None, 1], [None, 1, 2], [1, 2, 3], [2, 3, 4]]
    with pytest.raises(CannotRun, match="blocks: 4, but the network has 3 layers that learn"):
        Delays(layers(network), 4)


def test_every_algorithm_has_a_preset_with_its_source() -> None:
    assert {known.preset.algorithm for known in PRESETS.values()} >= {"averaging", "gossip", *SERVED}
    assert all(known.source for known in PRESETS.values())
