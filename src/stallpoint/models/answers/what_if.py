"""What if: every scenario of a study for every curve; and the same model on a grid of factors, for the report's
sliders.

The grid covers factors on computing (1 / speed), latency and transfer (1 / bandwidth), evaluated at once: each grid
point takes the place of a replicate. Factors on gradient bytes and the mini-batch change what is sent and computed, and
are evaluated one by one. Between grid points the sliders interpolate the logarithm of the time linearly in the
logarithms of the factors, except for the mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from stallpoint.base.measured import Point
from stallpoint.base.statistics import REPLICATES, columns, columns_of, unknown_ensemble
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.answers.stalling import predicted_stall, throughput
from stallpoint.models.iteration.cluster import Cluster
from stallpoint.models.iteration.scaling_curve import ScalingCurve
from stallpoint.models.iteration.scenarios import CHANGED_BY_FACTOR, Scenario, changed_point, predict
from stallpoint.records.tables import WHAT_IF, WHAT_IF_GRID

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


def _scenario_rows(fitted: FittedStudy, curve: ScalingCurve, scenario: Scenario) -> Iterator[dict[str, object]]:
    measured, before = curve.origin, throughput(curve)
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
    after = throughput(predicted)
    # Presets with unmeasured collectives are known on one worker only.
    if curve.base not in before or curve.base not in after or len(after) < 2:
        point = predicted.points[curve.base].point
        yield _scenario_row(measured, point, scenario) | {"note": "a part of the model was not measured for it"}
        return
    stall = predicted_stall(after, fitted.asked.threshold)
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


# --- on a grid of factors ---------------------------------------------------------------------------

BATCHES, GRADIENT_BYTES = (1.0, 2.0, 4.0), (0.25, 0.5, 1.0)
"""Factors on the mini-batch and on the size of the gradients."""
STEPS = {
    "compute": (0.1, 0.2, 0.35, 0.6, 1.0, 2.0),
    "latency": (0.1, 1.0, 3.0, 10.0),
    "transfer": (0.01, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.5, 2.2, 3.5, 6.0, 10.0),
}
"""Factors on the times of computing, of message latency and of transfer."""
INTERPOLATED = ("gradient_bytes", *STEPS)
"""Columns to interpolate over, in the order of the rows."""
POINTS = np.array(list(product(*STEPS.values())))


def what_if_grid(fitted: FittedStudy) -> list[dict[str, object]]:
    """Rows of the what_if_grid table, for the fastest curve of each network and hardware; none without scenarios."""
    fastest: dict[tuple[str, str], ScalingCurve] = {}
    trusted = [curve for curve in fitted.training if not curve.withheld] if fitted.asked.scenarios else []
    for curve in sorted(trusted, key=_rate, reverse=True):
        point = curve.origin
        fastest.setdefault((point.network, point.hardware), curve)
    return [row for curve in fastest.values() for row in _grid_rows(fitted.cluster, curve, fitted.asked.nodes)]


def _rate(curve: ScalingCurve) -> float:
    """Return the highest measured samples per second; 0 if none."""
    rates = (one.point.global_batch / float(one.parts.iteration_time[0]) for one in curve.measured.values())
    return max(rates, default=0.0)


def _grid_rows(cluster: Cluster, curve: ScalingCurve, nodes: Sequence[int]) -> Iterator[dict[str, object]]:
    measured = curve.origin
    parts: dict[str, Any] = {name: _Central(getattr(cluster, name)) for name in ("compute", "data", "effects")}
    central = replace(cluster, communication=_central(cluster.communication), **parts)
    of_replicates = np.ones((1 + REPLICATES, len(STEPS)))
    of_replicates[: len(POINTS)] = POINTS
    computing, latency, transfer = of_replicates.T
    for batch, size in product(BATCHES, GRADIENT_BYTES):
        scenario = Scenario(1 / transfer, latency, 1 / computing, gradient_bytes=size, batch=batch)
        asked = predict(central, curve, scenario, nodes)
        for n, predicted in sorted(asked.predicted.items()) if asked else ():
            seconds = predicted.parts.iteration_time[: len(POINTS)]
            labels = {
                **measured.labels(),
                "nodes": predicted.point.nodes,
                "ranks": n,
                "global_batch": predicted.point.global_batch,
                "batch_factor": batch,
                "gradient_bytes": size,
            }
            if np.isfinite(seconds).all():
                for factors, value in zip(POINTS, seconds, strict=True):
                    yield {**labels, **dict(zip(STEPS, map(float, factors), strict=True)), "iteration": float(value)}


def _central(thing: Any) -> Any:
    """Return a copy whose ensembles repeat the estimate."""
    if isinstance(thing, np.ndarray):
        return np.repeat(thing[:1], len(thing), axis=0) if thing.shape[:1] == (1 + REPLICATES,) else thing
    if isinstance(thing, Mapping):
        return {key: _central(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return type(thing)(map(_central, thing))
    if is_dataclass(thing) and not isinstance(thing, type):
        found = copy(thing)
        for field in fields(thing):
            object.__setattr__(found, field.name, _central(getattr(thing, field.name)))
        return found
    return thing


class _Central:
    """A part of a cluster without uncertainty: what it returns repeats the estimate."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _central(self._original(*args, **options))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._original, name)
        return _Central(value) if callable(value) else value


QUESTIONS = (Question(WHAT_IF, what_if), Question(WHAT_IF_GRID, what_if_grid))
