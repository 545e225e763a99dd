"""Predictions that disagree with what was measured are withheld, and those that agree are not."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up_curves import point
from synthetic import study

from stallpoint.base.measured import Measured, Parts
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers import trust
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.scaling_curve import Predicted, ScalingCurve
from stallpoint.models.terms.compute import Compute
from stallpoint.models.terms.training_cells import reduced_cells

ONE: dict[str, Any] = {
    "storages": ("local",),
    "syncs": ("naive",),
    "prefetches": (0,),
    "nodes": (1, 2, 4),
    "weak": False,
}
NODES = [1, 2, 4, 8, 16]


def slower(factor: float) -> dict[str, pd.DataFrame]:
    """A study whose training on four nodes takes `factor` times as long as that on one and two lets expect."""
    records = study(**ONE)
    iterations = records["iterations"]
    times = ["forward", "backward", "iteration_time"]
    iterations.loc[iterations["nodes"] == 4, times] *= factor
    return fit(records, nodes=NODES)


@pytest.mark.parametrize(("factor", "told"), [(1.0, True), (1.1, True), (2.5, False)])
def test_a_model_that_is_far_off_predicts_nothing_beyond(factor: float, told: bool) -> None:
    fitted = slower(factor)
    predictions = fitted["predictions"]
    assert sorted(predictions["nodes"]) == (NODES if told else [1, 2, 4])
    (row,) = fitted["stalling"].to_dict("records")
    assert (row["withheld"] == "") == told
    assert row["largest_considered"] == (16 if told else 4)
    if not told:
        assert row["withheld"].startswith("the model is ")
        assert row["withheld"].endswith(" % off where alexnet on cpu was measured (median of 2 points)")
        assert set(fitted["causes"]["basis"]) == {"measured"}


@pytest.mark.parametrize(("factor", "told"), [(1.5, True), (0.5, False)])
def test_workers_compute_no_faster_than_one_in_isolation(factor: float, told: bool) -> None:
    records = study(**ONE)
    compute = Compute(reduced_cells(records["iterations"], [records["layers"]]), 0)
    (isolated,) = compute.passes("alexnet", "cpu", 8)[:1]  # type: ignore[index]

    def predicted(nodes: int, seconds: float) -> Predicted:
        half = np.full(1 + REPLICATES, seconds / 2)
        return Predicted(
            point(nodes, sync="naive"),
            "eq. 2",
            "measured at b",
            Parts(iteration_time=2 * half, forward=half, backward=half),
        )

    one = predicted(1, 100.0)
    curve = ScalingCurve({1: Measured(one.point, (), one.parts)}, {1: one, 8: predicted(8, factor * isolated)})
    (found,) = trust.shown([curve], compute)
    assert set(found.predicted) == ({1, 8} if told else {1})
    assert found.withheld.startswith("on n = 8 it would compute in ") != told
