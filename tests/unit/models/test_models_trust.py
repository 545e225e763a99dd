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
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
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


@pytest.mark.parametrize(
    ("slow", "withheld", "gains"),
    [
        ((), "", False),
        ((2,), "", True),
        ((1, 2, 3), "the machine was slow in every visit to the messages on n = 4", False),
    ],
)
def test_messages_on_a_slow_machine_turn_no_forecast(slow: tuple[int, ...], withheld: str, gains: bool) -> None:
    """One visit of three to the messages on four nodes, or each, took ten times as long; nothing trained there."""
    records = study(**ONE | {"syncs": ("wfbp",), "repeats": 1, "visits": 2})
    gone = records["runs"].query("kind == 'train' and nodes == 4")["cell"]
    records = {name: rows[~rows["cell"].isin(gone)] if "cell" in rows else rows for name, rows in records.items()}
    for name, at in (("visits", records["visits"]["kind"] == "collectives"), ("collectives", slice(None))):
        rows = records[name]
        more = [rows.loc[at].assign(visit=visit) for visit in (2, 3)]
        records[name] = pd.concat([rows, *more], ignore_index=True)
    # The usual time of four ranks is that of visits to their storage.
    of_storage = records["visits"].query("kind == 'storage' and ranks == 4")
    records["visits"] = pd.concat([records["visits"], *(of_storage.assign(visit=n) for n in range(2, 6))])
    messages = records["collectives"]
    hit = (messages["ranks"] == 4) & messages["visit"].isin(slow or (1, 2, 3))
    messages.loc[hit, "seconds"] *= 10
    visits = records["visits"]
    at = (visits["kind"] == "collectives") & (visits["ranks"] == 4) & visits["visit"].isin(slow)
    visits.loc[at, ["product_before", "product_after"]] *= 1.5
    fitted = fit(records, nodes=[1, 2, 4])
    (row,) = fitted["stalling"].to_dict("records")
    assert row["withheld"] == withheld
    assert (not row["reached"] and row["largest_considered"] == 4) == gains
    found = fitted["disturbances"]
    assert sorted(found["visit"]) == list(slow)
    assert found["excluded"].all() == (len(slow) < 3)
    assert found["iteration"].isna().all()


def off(*factors: float) -> CurvePoints:
    """A curve measured on 1, 2, 4, ... workers to take so many times what the model predicts; it predicts two more."""
    scatter = 0.001 * np.append(0.0, np.random.default_rng(0).standard_normal(REPLICATES))
    counts = [2**power for power in range(len(factors) + 2)]
    seconds = {n: np.exp(scatter) / n for n in counts}
    modelled = {n: Predicted(point(n), "", "measured at b", Parts(iteration_time=seconds[n])) for n in counts}
    there = dict(zip(counts, factors, strict=False))
    measured = {n: Measured(point(n), (), Parts.measured(iteration_time=f * seconds[n])) for n, f in there.items()}
    return CurvePoints(measured, modelled, {n: modelled[n] for n in measured})


def test_a_prediction_begins_from_what_was_measured_at_the_largest_count() -> None:
    curve = off(1.0, 1.0, 1.2)
    assert curve.correction(4) == pytest.approx(1), "measured"
    for ranks in (8, 16):
        assert curve.corrected_curve.predicted[ranks].parts.iteration_time[0] == pytest.approx(1.2 / ranks)
    narrow, wide = (np.log(curve.correction(ranks)).std() for ranks in (8, 16))
    assert wide == pytest.approx(2 * narrow, rel=0.01), "for each doubling"
    assert narrow > np.log(off(1.0, 1.0, 1.0).correction(8)).std() > 0.05, "an error that grows may grow on"
    assert curve.corrected_curve.uncorrected_curve.predicted[8] is curve.predicted[8]


def test_the_error_at_the_largest_count_is_not_hidden_by_those_before() -> None:
    records = study(**ONE)
    compute = Compute(reduced_cells(records["iterations"], [records["layers"]]), 0)
    (good,) = trust.shown([off(1.0, 1.0, 1.0, 1.2)], compute)
    (bad,) = trust.shown([off(1.0, 1.0, 1.0, 1.6)], compute)
    assert (good.withheld, max(good.predicted)) == ("", 32)
    assert (bad.withheld, max(bad.predicted)) == (
        "the model is 38 % off where alexnet on cpu was measured (n = 8, the most workers)", 8,
    )  # fmt: skip


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
    curve = CurvePoints({1: Measured(one.point, (), one.parts)}, {1: one, 8: predicted(8, factor * isolated)})
    (found,) = trust.shown([curve], compute)
    assert set(found.predicted) == ({1, 8} if told else {1})
    assert found.withheld.startswith("on n = 8 it would compute in ") != told
