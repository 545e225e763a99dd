"""What if: every scenario of a study for every curve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stallpoint.base.curve import Curve
from stallpoint.base.measured import Point
from stallpoint.base.statistics import columns, columns_of, unknown_ensemble
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.iteration.scenarios import CHANGED_BY_FACTOR, Scenario, changed_point, predict
from stallpoint.records.tables import WHAT_IF

_OF_POINT = ("batch", "prefetch", "storage", "workers_per_node", "sync")
"""Changes of the training, not of the cluster."""
QUANTITIES = ("iteration", "speedup", "gain", "stall_ranks")


def what_if(fitted: FittedStudy) -> list[dict[str, object]]:
    """Rows of the what_if table: every scenario (at least two) for every curve at every worker count.

    Curves whose predictions are withheld have none.
    """
    scenarios = fitted.asked.scenarios
    if len(scenarios) < 2:
        return []
    trusted = [curve for curve in fitted.training if not curve.withheld]
    return [row for curve in trusted for scenario in scenarios for row in _scenario_rows(fitted, curve, scenario)]


def _scenario_rows(fitted: FittedStudy, curve: CurvePoints, scenario: Scenario) -> Iterator[dict[str, object]]:
    measured, before = curve.origin, curve.model.rates
    as_it_was = {name: getattr(Scenario(), name) for name in _OF_POINT}
    of_point = replace(scenario, **as_it_was) == Scenario()
    if scenario != Scenario() and of_point and changed_point(measured, scenario) == measured:
        return  # the curve's own values
    predicted = predict(fitted.cluster, curve, scenario, fitted.asked.nodes)
    if predicted is None:
        yield _scenario_row(measured, measured, scenario) | {
            "note": "its mini-batch is no whole number for every worker"
        }
        return
    after = predicted.model.rates
    # Presets with unmeasured collectives are known on one worker only.
    if curve.base not in before or curve.base not in after or len(after) < 2:
        point = predicted.points[curve.base].point
        yield _scenario_row(measured, point, scenario) | {"note": "a part of the model was not measured for it"}
        return
    stall = Curve(after, threshold=fitted.asked.threshold).stall
    for n, rate in sorted(after.items()):
        quantities = {
            **columns("iteration", predicted.predicted[n].parts.iteration_time),
            **columns("speedup", rate / before[curve.base]),
            **(columns("gain", rate / before[n]) if n in before else {}),
            **stall.columns,
        }
        yield _scenario_row(measured, predicted.predicted[n].point, scenario) | quantities | {"reached": stall.reached}


def _scenario_row(measured: Point, point: Point, scenario: Scenario) -> dict[str, object]:
    """Return a row without results for `point`, which `scenario` makes of the curve of `measured`."""
    return {
        **measured.labels(),
        "nodes": point.nodes,
        "ranks": point.ranks,
        "scenario": scenario.label,
        **{name: getattr(scenario, name) for name in CHANGED_BY_FACTOR if name != "batch"},
        "batch_factor": scenario.batch,
        **columns_of(dict.fromkeys(QUANTITIES, unknown_ensemble())),
        "reached": False,
        "note": "",
    }


QUESTIONS = (Question(WHAT_IF, what_if),)
