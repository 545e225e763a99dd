"""What algorithms that are not synchronous make of the time of an all-reduce, and how stale gradients are."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.convergence import staleness
from stallpoint.models.iteration.replicas import iteration_times
from stallpoint.models.terms.communication import all_reduce_parts, nominal
from stallpoint.models.terms.effects import CollectiveTimes
from stallpoint.strategies.presets import PRESETS, Preset, with_options

ALPHA, BETA = 1e-3, 1e-8
SIZE = 1e6
MESSAGE = ALPHA + BETA * SIZE
"""Seconds of one message of all weights."""


def seconds(preset: Preset, ranks: int, computing: float, size: float = SIZE) -> float:
    """What communication takes of an iteration where a message of m bytes takes α + β·m."""
    links = nominal(preset.scheme, latency=ALPHA, bandwidth=1 / BETA).at(ranks)
    assert links is not None
    latency, bandwidth = all_reduce_parts(links, ranks, [size])
    beside = np.full(1 + REPLICATES, computing)
    found = iteration_times(CollectiveTimes(latency, latency + bandwidth, 1), preset, ranks, beside).isolated
    assert found.shape == (1 + REPLICATES, 1)
    return float(found[0, 0])


def preset(name: str) -> Preset:
    return PRESETS[name].preset


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_averaging_takes_its_share_of_an_all_reduce(ranks: int) -> None:
    ring = 2 * (ranks - 1) * (ALPHA + BETA * SIZE / ranks)
    assert seconds(preset("wfbp"), ranks, 1.0) == pytest.approx(ring)
    assert seconds(preset("local-sgd"), ranks, 1.0) == pytest.approx(ring / 4)
    assert seconds(preset("diloco"), ranks, 1.0) == pytest.approx(ring / 32)


@pytest.mark.parametrize(("ranks", "messages"), [(2, 1), (3, 2), (8, 2), (64, 2)])
def test_gossip_takes_the_messages_of_two_neighbours_on_any_number_of_workers(ranks: int, messages: int) -> None:
    assert seconds(preset("gossip"), ranks, 1.0) == pytest.approx(messages * MESSAGE)


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("computing", [0.0, 0.01, 10.0])
def test_an_asynchronous_worker_waits_for_its_own_push_and_pull_or_for_a_saturated_server(
    ranks: int, computing: float
) -> None:
    """But for the one in the server's process, which waits for nothing: the mean of all."""
    found = seconds(preset("asynchronous"), ranks, computing)
    own, server = 2 * MESSAGE, 2 * (ranks - 1) * MESSAGE
    assert computing + found * ranks / (ranks - 1) == pytest.approx(max(computing + own, server))
    assert seconds(preset("stale-synchronous"), ranks, computing) == pytest.approx(found)


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize(("name", "exchanges"), [("asynchronous", 1), ("dist-async", 1), ("downpour", 1 / 5)])
def test_a_worker_sends_all_but_the_share_of_its_own_server(name: str, exchanges: float, ranks: int) -> None:
    """Mean over workers, whatever the number of servers; both ways, and while nobody else asks."""
    more_bytes = seconds(preset(name), ranks, 100.0, 2 * SIZE) - seconds(preset(name), ranks, 100.0)
    assert more_bytes == pytest.approx(exchanges * 2 * BETA * SIZE * (ranks - 1) / ranks)


def test_servers_beside_all_workers_are_saturated_later_than_one() -> None:
    assert seconds(preset("dist-async"), 8, 0.0) < seconds(preset("asynchronous"), 8, 0.0) / 4


@given(st.integers(2, 64), st.integers(1, 10), st.floats(0.0, 1.0))
def test_exchanging_less_often_never_takes_longer_and_computing_more_never_less(
    ranks: int, period: int, computing: float
) -> None:
    def of(period: int, computing: float = computing) -> float:
        elastic = with_options(PRESETS["elastic-averaging"].preset, {"period": period})
        return seconds(elastic, ranks, computing)

    assert of(period + 1) <= of(period) * (1 + 1e-9)
    assert computing + of(period) <= computing + 0.1 + of(period, computing + 0.1) + 1e-9


def applied(order: list[int], visit: int = 1) -> pd.DataFrame:
    """Rows of staleness where workers come in this order, each to a server that updates with every gradient."""
    taken: dict[int, int] = {}
    found = []
    for number, worker in enumerate(order):
        found.append(number - taken.get(worker, 0))
        taken[worker] = number + 1
    axes = {"cell": "c", "network": "n", "hardware": "h", "storage": "s", "sync": "asynchronous", "batch": 8,
            "nodes": 3, "workers_per_node": 1, "ranks": 3, "visit": visit, "server": 0}  # fmt: skip
    return pd.DataFrame({
        **dict.fromkeys(axes, ""), "update": range(1, len(order) + 1), "worker": order, "staleness": found,
    }).assign(**axes)  # fmt: skip


def test_equal_workers_find_each_other_s_updates_and_a_slow_one_is_seen() -> None:
    equal = applied([0, 1, 2] * 100)
    shares = {row["staleness"]: row["share"] for row in staleness.shares(equal)}
    assert shares[2] == pytest.approx(298 / 300)
    assert sum(shares.values()) == pytest.approx(1.0)  # type: ignore[arg-type]
    slow = pd.concat([applied([0, 1, 0, 1, 0, 1, 2] * 50, visit) for visit in (1, 2)])
    rows = {row["worker"]: row for row in staleness.workers(slow, seed=0)}
    assert rows[2]["mean_staleness"] == pytest.approx(6.0)
    assert all(rows[2]["mean_staleness_low"] > rows[worker]["mean_staleness_high"] for worker in (0, 1))  # type: ignore[operator]
    assert all(row["gradients"] == count for row, count in zip(rows.values(), (300, 300, 100), strict=True))


def test_a_training_without_servers_has_no_staleness() -> None:
    assert staleness.shares(applied([])) == []
    assert list(staleness.workers(applied([]), seed=0)) == []
