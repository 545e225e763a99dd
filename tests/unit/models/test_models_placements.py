"""Scatter between placements and jobs: a prior where each cell ran in one, what equal cells show where they did not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up_curves import point
from synthetic import study

from stallpoint.base.curve import MAX_PROBABILITY, Curve
from stallpoint.base.measured import Measured, Parts
from stallpoint.base.priors import PLACEMENT
from stallpoint.base.stall import Stall
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.placements import PlacementScatter

ONE = np.ones(1 + REPLICATES)


def seen(nodes: int, *seconds: float, sync: str = "wfbp") -> Measured:
    """A point whose repeats took so long each."""
    cells = tuple(f"{sync}/{nodes}/{repeat}" for repeat in range(len(seconds)))
    parts = Parts.measured(iteration_time=float(np.mean(seconds)) * ONE)
    return Measured(point(nodes, sync=sync), cells, parts, seconds)


def ran(points: list[Measured], job: Any) -> pd.DataFrame:
    """The environments of their cells, in the job that `job` says of each cell."""
    rows = [
        {"cell": cell, "node": f"{job(cell)}-{rank}", "slurm_job_id": job(cell)}
        for one in points
        for cell in one.cells
        for rank in range(one.point.nodes)
    ]
    return pd.DataFrame(rows)


def scatter(placements: PlacementScatter, one: Measured) -> float:
    return float(np.log(placements.widened_point(one).parts.iteration_time[1:]).std())


def test_without_a_scheduler_or_other_nodes_there_is_one_placement() -> None:
    points = [seen(1, 1.0), seen(2, 0.5)]
    for own, job in ((points, lambda _: ""), (points[:1], lambda cell: cell)):
        placements = PlacementScatter.of(ran(own, job), own)
        assert [placements.widened_point(one) for one in own] == own


def test_a_cell_in_one_placement_has_the_scatter_of_the_prior() -> None:
    points = [seen(1, 1.0), seen(2, 0.5)]
    placements = PlacementScatter.of(ran(points, lambda cell: cell), points)
    assert not placements.is_estimated
    found = placements.widened_point(points[1])
    assert (found.placements, found.parts.iteration_time[0]) == (1, 0.5)
    assert scatter(placements, points[1]) == pytest.approx(PLACEMENT.deviation * 2**0.5, rel=0.25), "t with 4 degrees"


@pytest.mark.parametrize(("second", "narrower"), [(1.0, True), (1.25, False)])
def test_equal_cells_in_several_placements_show_how_these_differ(second: float, narrower: bool) -> None:
    points = [seen(1, 1.0), seen(1, second, sync="naive"), seen(2, 0.5)]
    placements = PlacementScatter.of(ran(points, lambda cell: cell), points)
    assert placements.is_estimated
    assert (placements.deviation < PLACEMENT.deviation) == narrower
    together = PlacementScatter.of(ran(points, lambda _: "7"), points)
    assert not together.is_estimated, "in one job, on one node, they say nothing of others"


def test_a_cell_in_several_placements_is_known_better() -> None:
    once, twice = seen(2, 0.5), seen(2, 0.5, 0.5)
    few, many = (PlacementScatter.of(ran([one], lambda cell: cell), [one]) for one in (once, twice))
    assert many.widened_point(twice).placements == 2
    assert scatter(many, twice) < 0.8 * scatter(few, once)


def test_replicates_with_heavy_tails_take_no_scatter_of_placements_away() -> None:
    twice = seen(2, 0.5, 0.5)
    tails = twice.parts.iteration_time * np.append(1.0, np.where(np.arange(REPLICATES) % 25, 1.0, 3.0))
    heavy = replace(twice, parts=Parts.measured(iteration_time=tails))
    placements = PlacementScatter.of(ran([twice], lambda cell: cell), [twice])
    plain, shown = (np.quantile(placements.widened_point(one).parts.iteration_time, 0.75) for one in (twice, heavy))
    assert shown == pytest.approx(plain, rel=0.01)


def test_no_verdict_of_one_placement_is_sure() -> None:
    rates = {n: n * ONE for n in (1, 2, 4)}
    assert Curve(rates).stall.probabilities == {1: 0.0, 2: 0.0, 4: 1.0}
    once = Curve(rates, is_placed_once=True)
    assert once.stall.probabilities == pytest.approx({1: 0.05, 2: 0.05, 4: MAX_PROBABILITY})
    assert (once.verdict, once.is_sure) == (Curve(rates).verdict, False)
    assert Stall({1: 0.5, 2: 0.5}).cap_probability(0.9).probabilities == {1: 0.5, 2: 0.5}
    assert Stall({1: 0.0, 2: 1.0}).cap_probability(0.9).probabilities == pytest.approx({1: 0.1, 2: 0.9})


def test_a_study_in_jobs_says_that_each_count_ran_in_one_placement() -> None:
    records = study(storages=("local",), syncs=("wfbp",), prefetches=(0,), weak=False, repeats=1)
    here = fit(records, nodes=[1, 2, 4])
    records["environments"]["slurm_job_id"] = records["environments"]["cell"]
    jobs = fit(records, nodes=[1, 2, 4])
    assert list(here["stalling"]["placed"]) == [""]
    assert jobs["stalling"]["placed"].iloc[0].startswith("in one placement each; ")
    assert here["stall_probabilities"]["probability"].max() > MAX_PROBABILITY
    assert jobs["stall_probabilities"]["probability"].max() == pytest.approx(MAX_PROBABILITY)
    widths = [np.log(rows["measured_iteration_high"] / rows["measured_iteration_low"]) for rows in (
        here["predictions"], jobs["predictions"],
    )]  # fmt: skip
    assert (widths[1] > 1.5 * widths[0]).all()
