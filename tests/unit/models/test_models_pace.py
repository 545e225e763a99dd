import numpy as np
import pandas as pd
import pytest

from stallpoint.models.terms import effects


def contention(
    pieces: dict[tuple[int, str], float], *, samples: int = 20, noise: float = 0.0, slowest: float = 1.0
) -> pd.DataFrame:
    """Rows of jobs (nodes, cell) in which a piece of computing takes so long, s; on one rank `slowest` times that."""
    random = np.random.default_rng(0)
    rows = [
        {
            "hardware": "cpu", "nodes": nodes, "ranks": nodes, "cell": cell, "repeat": repeat, "visit": 1,
            "operation": "all-reduce", "message_bytes": 1024, "sample": sample, "rank": rank, "warmup": sample == 0,
            "isolated_operations": 20,
            "isolated_computing": 20 * piece * (slowest if rank == 0 else 1.0)
            * (9 if sample == 0 else np.exp(noise * random.standard_normal())),
        }
        for repeat, ((nodes, cell), piece) in enumerate(pieces.items())
        for sample in range(samples)
        for rank in range(nodes)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def jobs(pieces: dict[int, float]) -> dict[tuple[int, str], float]:
    """Enough jobs that agree on each number of nodes to be believed."""
    return {(nodes, f"{nodes}-{job}"): piece for nodes, piece in pieces.items() for job in range(20)}


def test_nodes_that_slow_each_other_down_are_found() -> None:
    found = effects.fit(contention(jobs({2: 1e-3, 8: 1.2e-3})), seed=0)
    assert found.ratio("cpu", (8, 1), (2, 1)) == pytest.approx(1.2, rel=0.03)
    assert found.ratio("cpu", (2, 1), (2, 1)) == pytest.approx(1)


def test_between_measured_node_counts_the_nearest_counts() -> None:
    found = effects.fit(contention(jobs({2: 1e-3, 8: 1.2e-3})), seed=0)
    assert found.ratio("cpu", (6, 1), (2, 1)) == pytest.approx(1.2, rel=0.03)
    assert found.ratio("cpu", (64, 1), (3, 1)) == pytest.approx(1.2, rel=0.03)


def test_jobs_that_differ_among_themselves_tell_little() -> None:
    unequal = {(2, "a"): 1e-3, (2, "b"): 1.3e-3, (8, "c"): 1.1e-3, (8, "d"): 1.5e-3}
    found = effects.fit(contention(unequal, noise=0.05), seed=0).ratio("cpu", (8, 1), (2, 1))
    assert 1 < found[0] < 1.1


def test_what_nobody_measured_is_the_same_everywhere() -> None:
    nothing = effects.fit(contention({(2, "a"): 1e-3}).iloc[:0], seed=0)
    assert (nothing.ratio("cpu", (8, 1), (2, 1)) == 1).all()
    assert nothing.further_lead("cpu", (8, 1), (2, 1)) is None


def test_a_slow_rank_lags_as_far_behind_many_as_behind_few() -> None:
    found = effects.fit(contention(jobs({2: 1e-3, 8: 1e-3}), slowest=1.2), seed=0)
    # 1.2 over 1, which the others take, among two as among eight.
    assert found.further_lead("cpu", (8, 1), (2, 1)) == pytest.approx(0, abs=0.01)
    assert found.leads["cpu"][8, 1] == pytest.approx(0.2, rel=0.05)
    assert found.further_lead("cpu", (2, 1), (2, 1)) == pytest.approx(0)
    assert found.further_lead("cpu", (4, 1), (2, 1)) is None
    assert found.further_lead("gpu", (8, 1), (2, 1)) is None


def test_cells_of_one_job_are_not_taken_for_one_another() -> None:
    """Several reduction schemes have the same sizes and samples; in one of them all ranks compute longer."""
    schemes = [contention({(2, scheme): piece}, slowest=1.2) for scheme, piece in (("a", 1.5e-3), ("b", 1e-3))]
    found = effects.fit(pd.concat(schemes, ignore_index=True), seed=0)
    assert found.leads["cpu"][2, 1][0] == pytest.approx(0.2)
