"""Why n workers are not n times as fast: critical path, loss against ideal scaling, and interventions.

The critical path is split into parts, which add up to the iteration time. Each part has one *cause*, by which losses
and conclusions are stated.

*Loss*: the time of a cause at n workers minus its time under ideal scaling. The ideal time follows from the time at the
smallest count n0: divided by n/n0 for strong scaling, unchanged for weak scaling. Layers count with their isolated
times; the time that training adds to them belongs to shared hardware. If isolated times are unknown, all computing is
one cause.

*Hidden communication*: the iteration time of a preset minus that of the same cell without communication is the cost of
communicating. The cost consists of exposed messages, the slowdown of the backward pass during messages, and waiting for
other ranks. The isolated time of the messages minus the cost is hidden (Shi et al., 2018, section IV-C, ask for it as
t_c - t_c^no). The hidden time is negative if overlap costs more than it hides.

*Interventions*: cells without one component of the iteration. The time that its removal saves is compared with the time
of the component on the critical path. If both disagree, the intervention changed something else as well, or the
decomposition is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np

from stallpoint.base.measured import Measured, Parts, Point, measured
from stallpoint.base.statistics import SAME_WITHIN, Ensemble, columns, columns_of, estimate, groups, unknown_ensemble
from stallpoint.loops import MIN_SHORT_ITEMS, rows_of_each
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.curve_points import Basis, CurvePoints, Predicted
from stallpoint.records.tables import CAUSES as CAUSES_TABLE
from stallpoint.records.tables import CRITICAL_PATH, HIDDEN_COMMUNICATION
from stallpoint.records.tables import INTERVENTIONS as INTERVENTIONS_TABLE
from stallpoint.strategies.presets import Preset
from stallpoint.study.kinds.intervention_kind import INTERVENTIONS, NO_COMMUNICATION

CAUSES: dict[str, tuple[str, ...]] = {
    "communication": ("communication latency", "communication bandwidth", "communication, undivided"),
    "small matrices": ("fully-connected layers", "other matrix layers"),
    "non-scaling layers": ("non-scaling layers",),
    "shared hardware": ("co-running ranks", "communication thread"),
    "compute, undivided": ("compute, undivided",),
    "training data": ("data", "host-to-device"),
    "model update": ("update",),
    "straggling": ("straggling",),
    "pipeline bubble": ("bubble",),
}
"""Causes and their parts. ``undivided``: communication that no fit splits into latency and bandwidth, or computing
without isolated times to separate shared hardware."""

PART_CAUSES = {part: cause for cause, members in CAUSES.items() for part in members}

UNDIVIDED_COMPUTING = "compute, undivided"
COMPUTING = ("small matrices", "non-scaling layers", "shared hardware", UNDIVIDED_COMPUTING)
"""Causes that are parts of the forward and the backward pass."""


def seconds_on_critical_path(curve: CurvePoints, ranks: int, basis: Basis) -> dict[str, Ensemble]:
    """Return the seconds of each part of the critical path, [1 + REPLICATES]; they add up to the iteration time.

    Only exposed time is on the path: communication after the backward pass, and the wait for data that prefetching does
    not hide. Layers count with their isolated times, on one rank at the same b. ``non-scaling layers`` are all layers
    except convolution, attention and fully-connected ones, plus the time between layers. Computing beyond the isolated
    times is shared hardware: ``communication thread`` is the slowdown of the backward pass by messages, ``co-running
    ranks`` is the rest. Communication is split by the latency's share in the fit of the same scheme and worker count.
    In a pipeline, ranks wait for other stages; this wait is the ``bubble``.
    """
    point: Measured | Predicted = (curve.measured if basis == "measured" else curve.predicted)[ranks]
    parts, model = point.parts, curve.predicted[ranks]
    return {
        **_communication_seconds(parts.exposed_communication, model.latency_share),
        **_computing_seconds(point.point.ranks, parts, model),
        "update": parts.update,
        "data": parts.data_wait,
        "host-to-device": parts.host_to_device,
        model.waiting: parts.straggling,
    }


def _computing_seconds(ranks: int, parts: Parts, model: Predicted) -> dict[str, Ensemble]:
    computing_seconds = parts.forward + parts.backward
    if ranks == 1:
        return _layer_seconds(computing_seconds, parts.matrix, parts.fully_connected)
    isolated = model.isolated
    if isolated is None:
        return {UNDIVIDED_COMPUTING: computing_seconds}
    isolated_seconds = isolated.forward + isolated.backward
    thread_seconds = np.zeros_like(isolated_seconds)
    if model.backward_over_forward is not None:
        forward = parts.forward
        forward_slowdown = np.divide(forward, isolated.forward, out=np.ones_like(forward), where=isolated.forward > 0)
        thread_seconds = parts.backward - isolated.backward * forward_slowdown * model.backward_over_forward
    return {
        **_layer_seconds(isolated_seconds, isolated.matrix, isolated.fully_connected),
        "co-running ranks": computing_seconds - isolated_seconds - thread_seconds,
        "communication thread": thread_seconds,
    }


def _layer_seconds(computing: Ensemble, matrix: Ensemble, fully_connected: Ensemble) -> dict[str, Ensemble]:
    return {
        "fully-connected layers": fully_connected,
        "other matrix layers": matrix - fully_connected,
        "non-scaling layers": computing - matrix,
    }


def merge_compute(part_seconds: Mapping[str, Ensemble]) -> dict[str, Ensemble]:
    """Return the parts with all computing merged into one, for comparison with a point without isolated times."""
    computing = [seconds for part, seconds in part_seconds.items() if PART_CAUSES[part] in COMPUTING]
    others = {part: seconds for part, seconds in part_seconds.items() if PART_CAUSES[part] not in COMPUTING}
    return {UNDIVIDED_COMPUTING: np.sum(computing, axis=0), **others}


def _communication_seconds(exposed_seconds: Ensemble, latency_share: Ensemble) -> dict[str, Ensemble]:
    if np.isnan(latency_share).any():
        return {"communication, undivided": exposed_seconds}
    latency_seconds = exposed_seconds * latency_share
    return {"communication latency": latency_seconds, "communication bandwidth": exposed_seconds - latency_seconds}


def cause_seconds(part_seconds: Mapping[str, Ensemble]) -> dict[str, Ensemble]:
    """Sum the parts of each cause, in the order of `CAUSES`."""
    return {
        cause: np.sum([part_seconds[part] for part in members if part in part_seconds], axis=0)
        for cause, members in CAUSES.items()
        if any(part in part_seconds for part in members)
    }


def critical_path(curves: Iterable[CurvePoints]) -> list[dict[str, object]]:
    """Return the rows of the critical_path table: every part at every known worker count."""
    return rows_of_each(_path_rows, curves, MIN_SHORT_ITEMS)


def _path_rows(curve: CurvePoints) -> Iterator[dict[str, object]]:
    for ranks in curve.known.counts:
        point, basis = curve.at(ranks), curve.basis(ranks)
        total = point.parts.iteration_time
        seconds_by_part = seconds_on_critical_path(curve, ranks, basis)
        for part in (part for part in PART_CAUSES if part in seconds_by_part):
            yield {
                **point.point.labels(),
                "basis": basis,
                "part": part,
                "cause": PART_CAUSES[part],
                **columns("seconds", seconds_by_part[part]),
                **columns("share", seconds_by_part[part] / total),
            }


class LossVerdict(StrEnum):
    """Verdict on a cause: whether its loss is the largest of all."""

    DOMINANT = "dominant"
    MINOR = "minor"
    NOT_DISTINGUISHABLE = "not distinguishable"
    """Not distinguishable from the largest cause."""


_WRONG_VERDICT_PROBABILITY = 0.02
"""Probability that a cause is wrongly called the larger one; of two equal causes either may be."""


def losses(curve: CurvePoints, ranks: int) -> dict[str, Ensemble]:
    """Return the seconds that each cause loses against ideal scaling at `ranks`, measured if possible, else predicted.

    Beyond measured counts, an error of the model multiplies the losses of all causes by the same factor.
    """
    basis = curve.basis(ranks)
    paths = [seconds_on_critical_path(curve, at, basis) for at in (ranks, curve.base)]
    if any(UNDIVIDED_COMPUTING in path for path in paths):
        paths = [merge_compute(path) for path in paths]
    here, base = map(cause_seconds, paths)
    factor = curve.correction(ranks)
    ideal_speedup = (ranks / curve.base if curve.strong else 1.0) * factor[0] / factor
    return {cause: seconds - base.get(cause, 0.0) / ideal_speedup for cause, seconds in here.items()}


def verdicts(losses: Mapping[str, Ensemble], iteration_time: float) -> dict[str, LossVerdict]:
    """Return the verdict on each cause: ``dominant`` if its loss is surely above 0 and above every other loss.

    Losses are compared by their differences, in which changes that both share cancel. A difference of at most
    `SAME_WITHIN` of the iteration time does not count: equal studies differ by as much. A cause surely below the
    largest is ``minor``. If no cause is dominant, all causes except minor ones are ``not distinguishable``.
    """
    largest = max(losses, key=lambda cause: losses[cause][0])
    differences = {cause: losses[largest] - ensemble for cause, ensemble in losses.items() if cause != largest}
    gaps = np.array([*differences.values()]).reshape(-1, len(losses[largest]))
    is_surely_smaller = np.quantile(gaps[:, 1:], _WRONG_VERDICT_PROBABILITY, axis=1) > 0
    is_minor = dict(zip(differences, is_surely_smaller & (gaps[:, 0] > SAME_WITHIN * iteration_time), strict=True))
    is_dominant = all(is_minor.values()) and estimate(losses[largest])[1] > 0
    found = {cause: LossVerdict.MINOR if is_minor.get(cause) else LossVerdict.NOT_DISTINGUISHABLE for cause in losses}
    return found | {largest: LossVerdict.DOMINANT if is_dominant else LossVerdict.NOT_DISTINGUISHABLE}


def dominant_cause(curve: CurvePoints, ranks: int) -> str:
    """Return the dominant cause at `ranks`, or ``not distinguishable``."""
    found = verdicts(losses(curve, ranks), float(curve.at(ranks).parts.iteration_time[0]))
    return next(
        (cause for cause, verdict in found.items() if verdict == LossVerdict.DOMINANT), LossVerdict.NOT_DISTINGUISHABLE
    )


def causes(curves: Iterable[CurvePoints]) -> list[dict[str, object]]:
    """Return the rows of the causes table at all worker counts but the smallest, which loses nothing by definition."""
    curve_counts = ((curve, ranks) for curve in curves for ranks in curve.known.counts if ranks > curve.base)
    return rows_of_each(lambda pair: _cause_rows(*pair), curve_counts, MIN_SHORT_ITEMS)


def _cause_rows(curve: CurvePoints, ranks: int) -> Iterator[dict[str, object]]:
    point, lost = curve.at(ranks), losses(curve, ranks)
    if any(np.isnan(ensemble).any() for ensemble in lost.values()):
        return  # only rates were recorded: the parts of an iteration are unknown
    found = verdicts(lost, float(point.parts.iteration_time[0]))
    for cause, ensemble in lost.items():
        yield {
            **point.point.labels(),
            "basis": curve.basis(ranks),
            "cause": cause,
            **columns("lost", ensemble),
            "share": float(ensemble[0] / point.parts.iteration_time[0]),
            "verdict": found[cause],
        }


def hidden_communication(fitted: FittedStudy) -> Iterator[dict[str, object]]:
    """Yield the rows of the hidden_communication table: every measured point with several ranks that communicate."""
    points = fitted.once(points_without_communication)
    for curve in fitted.curves:
        for ranks, one in curve.measured.items():
            point = one.point
            if point.ranks > 1 and fitted.presets[point.sync].communicates:
                yield _hidden_row(one, points.counterpart(point), curve.predicted[ranks].isolated_communication)


class PointsWithoutCommunication:
    """Points on several ranks that do not communicate; `counterpart` finds one by an equal point that communicates."""

    def __init__(self, points: Iterable[Measured], presets: Mapping[str, Preset]) -> None:
        self._presets = presets
        parallel_points = [one for one in points if one.point.ranks > 1]
        self._found = {
            self._configuration(one.point): one for one in parallel_points if not presets[one.point.sync].communicates
        }

    def counterpart(self, point: Point) -> Measured | None:
        """Return the point that differs from `point` only by not communicating; None if no such point was measured."""
        return self._found.get(self._configuration(point)) if self._presets[point.sync].strategy.independent else None

    def _configuration(self, point: Point) -> tuple[Point, bool]:
        return replace(point.standalone, sync=""), self._presets[point.sync].device_prefetch


def _hidden_row(measured: Measured, counterpart: Measured | None, isolated_seconds: Ensemble) -> dict[str, object]:
    seconds_without = counterpart.parts.iteration_time if counterpart else unknown_ensemble()
    added_seconds = measured.parts.iteration_time - seconds_without
    with np.errstate(divide="ignore", invalid="ignore"):
        quantities = {
            "communication": measured.parts.communication,
            "exposed": measured.parts.exposed_communication,
            "isolated": isolated_seconds,
            "without": seconds_without,
            "cost": added_seconds,
            "hidden": isolated_seconds - added_seconds,
            "hidden_share": 1 - added_seconds / isolated_seconds,
            "communication_over_backward": measured.parts.communication / measured.parts.backward,
        }
    return {**measured.point.labels(), **columns_of(quantities)}


def interventions(fitted: FittedStudy) -> Iterator[dict[str, object]]:
    """Yield the rows of the interventions table: each measured point with each intervention on it."""
    points = fitted.once(points_without_communication)
    cells = {
        (name, one.point): one
        for name, rows in groups(fitted.reduced.intervened, "intervention")
        for one in measured(rows, fitted.asked.seed, name)
    }
    for curve in fitted.curves:
        for ranks, original in curve.measured.items():
            counterpart = (
                points.counterpart(original.point) if fitted.presets[original.point.sync].communicates else None
            )
            for name in INTERVENTIONS:
                other_point = counterpart if name == NO_COMMUNICATION else cells.get((name, original.point.standalone))
                if other_point is not None:
                    yield _saved_row(original, other_point, name, seconds_on_critical_path(curve, ranks, "measured"))


def points_without_communication(fitted: FittedStudy) -> PointsWithoutCommunication:
    """Return the points of a study that do not communicate."""
    return PointsWithoutCommunication(fitted.measured, fitted.presets)


def _saved_row(unchanged: Measured, changed: Measured, name: str, seconds: Mapping[str, Ensemble]) -> dict[str, object]:
    removed_parts = [part for part in INTERVENTIONS[name].parts if part in seconds]
    saved_seconds = unchanged.parts.iteration_time - changed.parts.iteration_time
    expected_seconds = np.sum([seconds[part] for part in removed_parts], axis=0)
    (_, low, high), (_, low_of_parts, high_of_parts) = estimate(saved_seconds), estimate(expected_seconds)
    return {
        **unchanged.point.labels(),
        "intervention": name,
        "parts": "; ".join(removed_parts),
        **columns("saved", saved_seconds),
        **columns("expected", expected_seconds),
        "agrees": low <= high_of_parts and low_of_parts <= high,
    }


QUESTIONS = (
    Question(CRITICAL_PATH, lambda fitted: critical_path(fitted.curves)),
    Question(CAUSES_TABLE, lambda fitted: causes(fitted.training_curves)),
    Question(HIDDEN_COMMUNICATION, hidden_communication),
    Question(INTERVENTIONS_TABLE, interventions),
)
