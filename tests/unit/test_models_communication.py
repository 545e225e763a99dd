from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from synthetic import Truth, study

from stallpoint.models import communication
from stallpoint.models.communication import Communication, all_reduce_seconds
from stallpoint.models.statistics import estimate

TRUTH = Truth()
SCHEME = ("cpu", "mpi", "library")


def calls(nodes: Sequence[int] = (2, 4), workers_per_node: int = 1) -> pd.DataFrame:
    tables = study(
        TRUTH, nodes=nodes, workers_per_node=workers_per_node, syncs=("naive",), prefetches=(0,), storages=("local",)
    )
    return tables["collectives"]


@pytest.fixture(scope="module")
def fits() -> Communication:
    return communication.fit(calls(), seed=0)[SCHEME]


def test_each_node_count_has_the_true_latency_and_bandwidth(fits: Communication) -> None:
    for ranks, fit in fits.by_nodes.items():
        assert estimate(fit.alpha)[0] == pytest.approx(2 * (ranks - 1) * TRUTH.alpha, rel=0.05)
        assert estimate(fit.beta)[0] == pytest.approx(2 * (ranks - 1) / ranks * TRUTH.beta, rel=0.05)
        assert fit.points == 5
        assert fit.residual < 0.02


def test_the_ring_reaches_node_counts_nobody_ran(fits: Communication) -> None:
    assert fits.over_nodes.alpha[0] == pytest.approx(TRUTH.alpha, rel=0.05)
    assert fits.over_nodes.beta[0] == pytest.approx(TRUTH.beta, rel=0.05)
    for ranks in (8, 64):
        seconds = all_reduce_seconds(fits.at(ranks), ranks, [2**10, 2**27])
        expected = [TRUTH.all_reduce(ranks, 2**10), TRUTH.all_reduce(ranks, 2**27)]
        assert seconds[0] == pytest.approx(expected, rel=0.05)


def test_intervals_hold_the_fit_and_little_more(fits: Communication) -> None:
    for fit in (*fits.by_nodes.values(), fits.over_nodes):
        value, low, high = estimate(fit.beta)
        assert low <= value <= high
        assert (high - low) / value < 0.1


def test_nothing_is_communicated_by_one_rank_or_of_nothing(fits: Communication) -> None:
    assert (all_reduce_seconds(fits.over_nodes, 1, [2**20]) == 0).all()
    assert (all_reduce_seconds(fits.at(2), 2, [0]) == 0).all()


def test_small_messages_count_as_much_as_large_ones() -> None:
    # Ordinary least squares would let the latency absorb an error of the largest message.
    sizes = np.array([1e3, 1e4, 1e5, 1e8])
    seconds = 1e-4 + 1e-9 * sizes
    seconds[-1] *= 1.2
    rows = pd.DataFrame({"message_bytes": sizes, "seconds": seconds}).assign(
        **dict(zip(("hardware", "backend", "reduction"), SCHEME, strict=True)),
        nodes=2,
        ranks=2,
        cell="c",
        repeat=1,
        rank=0,
        sample=0,
        warmup=False,
    )
    fit = communication.fit(rows, seed=0)[SCHEME].by_nodes[2]
    assert fit.alpha[0] == pytest.approx(1e-4, rel=0.1)


def test_large_messages_are_not_given_up_for_small_ones() -> None:
    # As measured in shared memory: four sizes fit in a cache and go ten times as fast as the largest.
    sizes = np.array([2**12, 2**16, 2**20, 2**22, 2**27])
    seconds = 1e-5 + np.where(sizes < 2**23, 1e-10, 1e-9) * sizes
    rows = pd.DataFrame({"message_bytes": sizes, "seconds": seconds}).assign(
        **dict(zip(("hardware", "backend", "reduction"), SCHEME, strict=True)),
        nodes=2,
        ranks=2,
        cell="c",
        repeat=1,
        rank=0,
        sample=0,
        warmup=False,
    )
    fit = communication.fit(rows, seed=0)[SCHEME].by_nodes[2]
    assert all_reduce_seconds(fit, 2, [2**27])[0] == pytest.approx(seconds[-1], rel=0.3)


def test_messages_inside_a_node_do_not_speak_for_the_ring() -> None:
    inside = calls(nodes=(1,), workers_per_node=2).assign(seconds=lambda rows: rows["seconds"] / 50)
    between = calls(nodes=(2, 4), workers_per_node=2)
    fits = communication.fit(pd.concat([inside, between]), seed=0)[SCHEME]
    assert fits.over_nodes.beta[0] == pytest.approx(TRUTH.beta, rel=0.05)
    assert fits.at(1).ranks == 2
    assert communication.fit(inside, seed=0)[SCHEME].over_nodes.ranks == 2  # unless nothing else was measured


def test_rows_of_the_table(fits: Communication) -> None:
    rows = communication.table({SCHEME: fits})
    assert [(row["fit"], row["nodes"], row["ranks"], row["points"]) for row in rows] == [
        ("nodes", 2, 2, 5), ("nodes", 4, 4, 5), ("ring", 4, 4, 10),
    ]  # fmt: skip
