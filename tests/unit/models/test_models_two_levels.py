"""A made-up cluster whose links have two levels: the models find both, and what they mean for training."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from synthetic import Truth, study

from stallpoint.models.fitting import fit
from stallpoint.models.terms import communication
from stallpoint.models.terms.communication import all_reduce_seconds
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.train_kind import TrainCell

INSIDE = [(1, 1), (1, 2), (1, 4), (1, 8)]
OPTIONS = {
    "storages": ("local",), "syncs": ("wfbp",), "prefetches": (2,), "batch": 256, "iterations": 3, "weak": False,
    "compute_batches": (256, 128, 64, 32, 16, 8),
}  # fmt: skip
SLOW, FAST = (2e-3, 8e-9), (20e-6, 0.1e-9)
"""α [s] and β [s/B] of a link."""


@dataclass(frozen=True)
class Planted:
    """A cluster, and what it does to strong scaling."""

    truth: Truth
    stalls_from: int
    """Workers from which doubling gains less than 10 %, by the closed form of its iteration."""


def planted(inside: tuple[float, float] | None, between: tuple[float, float]) -> Planted:
    truth = Truth(alpha=between[0], beta=between[1], inside=inside)
    tables = study(truth, places=[*INSIDE, (2, 8), (4, 8)], **{**OPTIONS, "repeats": 1})
    cells = [cell_from_json(text) for text in tables["runs"].query("kind == 'train' and status == 'ok'")["settings"]]
    strong = {cell.ranks: cell for cell in cells if isinstance(cell, TrainCell) and cell.scaling == "strong"}
    seconds = {ranks: truth.iteration(cell) for ranks, cell in sorted(strong.items())}
    stalls = [n for n in seconds if 2 * n in seconds and seconds[n] / seconds[2 * n] < 1.1]
    return Planted(truth, min(stalls, default=max(seconds)))


CLUSTERS = {
    "slow inside": planted(SLOW, FAST),
    "slow between": planted(FAST, SLOW),
    "flat": planted(None, (200e-6, 0.2e-9)),
}


@pytest.fixture(scope="module", params=CLUSTERS, ids=str)
def cluster(request: pytest.FixtureRequest) -> Planted:
    return CLUSTERS[request.param]


@pytest.fixture(scope="module")
def known(cluster: Planted) -> dict[str, pd.DataFrame]:
    """What was measured on up to two nodes of eight workers."""
    return study(cluster.truth, places=[*INSIDE, (2, 8)], **OPTIONS)


@pytest.fixture(scope="module")
def fitted(known: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return fit(known, nodes=[1, 2, 4])


@pytest.mark.parametrize("name", ["slow inside", "slow between"])
def test_both_levels_of_the_links_are_found(name: str) -> None:
    truth = CLUSTERS[name].truth
    assert truth.inside
    tables = study(truth, places=[*INSIDE, (2, 1), (4, 1), (2, 8)], **OPTIONS)
    (links,) = communication.fit(tables["collectives"], seed=0).values()
    assert links.inside is not None
    assert links.over_nodes is not None
    assert links.over_nodes.level == "between"
    for found, (alpha, beta) in (
        (links.inside.fit_over_workers, truth.inside),
        (links.over_nodes, (truth.alpha, truth.beta)),
    ):
        assert found.alpha[0] == pytest.approx(alpha, rel=0.1)
        assert found.beta[0] == pytest.approx(beta, rel=0.1)
    sizes = np.array([2**12, 2**26])
    wanted = [truth.all_reduce(32, size, 8) for size in sizes]
    at = links.at(4, 8)
    assert at is not None
    assert all_reduce_seconds(at, 32, sizes)[0] == pytest.approx(wanted, rel=0.1)


def test_links_that_are_all_alike_are_predicted_whichever_way_they_are_taken() -> None:
    """A ring of all workers takes as long as rings inside the nodes and a ring of nodes, in which each step counts for
    eight."""
    truth = CLUSTERS["flat"].truth
    tables = study(truth, places=[*INSIDE, (2, 8), (4, 8)], **OPTIONS)
    (links,) = communication.fit(tables["collectives"], seed=0).values()
    at = links.at(8, 8)
    assert at is not None
    assert all_reduce_seconds(at, 64, [2**26])[0] == pytest.approx(truth.all_reduce(64, 2**26), rel=0.1)


def test_one_node_tells_nothing_of_links_between_nodes() -> None:
    tables = study(CLUSTERS["slow between"].truth, places=INSIDE, **OPTIONS)
    found = fit(tables, nodes=[1, 2])["predictions"]
    assert found.query("nodes == 1")["predicted_iteration"].notna().all()
    assert found.query("nodes == 2")["predicted_iteration"].isna().all()


def test_one_curve_goes_through_the_node_to_the_nodes(fitted: dict[str, pd.DataFrame]) -> None:
    rows = fitted["predictions"]
    assert set(rows["workers_per_node"]) == {8}
    assert [*zip(rows["nodes"], rows["ranks"], strict=True)] == [
        (1, 1), (1, 2), (1, 4), (1, 8), (2, 16), (4, 32),
    ]  # fmt: skip


def test_four_nodes_are_predicted_within_the_interval(cluster: Planted, fitted: dict[str, pd.DataFrame]) -> None:
    larger = study(cluster.truth, places=[(4, 8)], **{**OPTIONS, "repeats": 1})["runs"]
    cells = map(cell_from_json, larger.query("kind == 'train' and status == 'ok'")["settings"])
    (cell,) = (one for one in cells if isinstance(one, TrainCell) and one.scaling == "strong")
    at = fitted["predictions"].query("ranks == 32").iloc[0]
    seconds = cluster.truth.iteration(cell)
    # What single cells scatter by is not in the interval of the model's inputs.
    assert 0.98 * at["predicted_iteration_low"] <= seconds <= 1.02 * at["predicted_iteration_high"]


def test_it_stalls_where_planted_and_says_why(cluster: Planted, fitted: dict[str, pd.DataFrame]) -> None:
    (curve,) = fitted["stalling"].to_dict("records")
    assert curve["stall_ranks"] == cluster.stalls_from
    if cluster.truth.inside in (SLOW, FAST):
        assert curve["dominant_cause"] == "communication"
