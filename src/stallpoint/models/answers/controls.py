"""Checks that hold on any machine. If a check fails at a worker count, verdicts cover only smaller counts.

*A/A controls*: on one worker all presets do the same, and so do a compute cell and a strong-scaling cell with the same
b. Their iteration times must agree within intervals. By chance one in ten 90 % intervals misses the truth, so Holm's
correction is applied over all pairs of a hardware entry.

*Speedups*: n times the workers are at most n times as fast. This is checked from the smallest count to each larger one,
and from each measured count to the next. A larger gain is possible only if an isolated worker computes a sample of the
smaller mini-batch that much faster, for example because this mini-batch fits into a cache.

*Validation*: predictions for more workers, calibrated on fewer, are compared with measurements. Training cells on more
workers than the calibration are held out. All-reduces and storage reads need no training, and are always used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from stallpoint.base.distributions import normal_cdf
from stallpoint.base.measured import Measured, Point, point_key
from stallpoint.base.statistics import Ensemble, columns, estimate, is_duration
from stallpoint.loops import for_each
from stallpoint.models.answers import trust
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.cluster import SCALINGS
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.records.tables import CONTROLS, VALIDATION
from stallpoint.schedule.next_visit import CONTROL_AXES, SUPERLINEAR_RATIO

LEVEL = 0.05
"""Probability that some pair of a hardware entry is reported to differ although no pair does."""


def table(points: Sequence[Measured]) -> list[dict[str, object]]:
    """Return the rows of the controls table: each one-worker point compared with the first equivalent point."""
    rows = list(_pair_rows(points))
    for hardware in {row["hardware"] for row in rows}:
        hardware_rows = [row for row in rows if row["hardware"] == hardware]
        for row, differs in zip(hardware_rows, holm([float(str(row["p"])) for row in hardware_rows]), strict=True):
            row["agrees"] = not differs
    return rows


def _pair_rows(points: Sequence[Measured]) -> Iterator[dict[str, object]]:
    equal_points: dict[tuple[object, ...], list[Measured]] = {}
    for one in points:
        if one.point.ranks == 1 and is_duration(one.parts.iteration_time):
            equal_points.setdefault(tuple(getattr(one.point, name) for name in CONTROL_AXES), []).append(one)
    for key, (first, *others) in equal_points.items():
        for other in others:
            ratio = other.parts.iteration_time / first.parts.iteration_time
            yield {
                **dict(zip(CONTROL_AXES, key, strict=True)),
                "first": _work_name(first), "second": _work_name(other), **columns("ratio", ratio), "p": p_value(ratio),
                "agrees": True,
            }  # fmt: skip


def _work_name(measured: Measured) -> str:
    point = measured.point
    return "compute" if point.scaling == "compute" else f"{point.scaling}, {point.sync}"


def p_value(ratio: Ensemble) -> float:
    """Return the two-sided p-value of the hypothesis that `ratio` is 1, by the scatter of its replicates."""
    logs = np.log(ratio)
    standard_deviation = float(np.std(logs[1:]))
    return float(2 * normal_cdf(-abs(logs[0]) / standard_deviation)) if standard_deviation > 0 else float(logs[0] == 0)


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Return whether each hypothesis is rejected, by its p-value, at the family-wise `level` (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    rejections = [False] * len(p_values)
    for position, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - position):
            break
        rejections[index] = True
    return rejections


class TrustedCurve(NamedTuple):
    """The part of a scaling curve below its first count that fails a check."""

    curve: CurvePoints
    """The trusted counts; all counts if verdicts are withheld."""
    doubt: str
    """Why larger counts, or all, are not trusted; empty if no check fails."""
    withheld: bool
    """Whether verdicts are withheld, as fewer than two counts are trusted."""


def trusted(
    curve: CurvePoints, rows: Iterable[Mapping[str, object]] = (), disturbed_keys: Collection[tuple[object, ...]] = ()
) -> TrustedCurve:
    """Return the part of a curve on which a verdict may rest.

    `rows` are rows of the controls table. `disturbed_keys` are keys (`point_key`) of points with disturbed iterations.
    """
    limit, doubt = _first_doubt(curve, rows, disturbed_keys)
    points_below_limit = {ranks: one for ranks, one in curve.points.items() if ranks < limit} if doubt else curve.points
    is_withheld = bool(doubt) and len(points_below_limit.keys() & curve.measured.keys()) < 2
    return TrustedCurve(curve if is_withheld else replace(curve, points=points_below_limit), doubt, is_withheld)


def _first_doubt(
    curve: CurvePoints, rows: Iterable[Mapping[str, object]], disturbed_keys: Collection[tuple[object, ...]]
) -> tuple[int, str]:
    """Return the smallest count in doubt, and the doubt in words. The words are empty if no count fails a check."""
    hardware = curve.origin.hardware
    for row in rows:
        if row["hardware"] == hardware and not row["agrees"]:
            return curve.base, (
                f"on one worker {row['first']} and {row['second']} do the same, but of {row['network']}, "
                f"b = {row['worker_batch']}, the second takes {float(str(row['ratio'])):.2f} times as long"
            )
    for ranks in curve.seen.counts:
        if superlinear(curve, curve.base, ranks):
            value = float(curve.speedup(ranks, "measured")[0])
            return curve.base, f"a speedup of {value:.2f} on n = {ranks} is more than any machine has"
    odd_count, doubt = _impossible_gain(curve)
    for ranks, measured in sorted(curve.measured.items()):
        if point_key(measured.point) in disturbed_keys and (not doubt or ranks <= odd_count):
            return ranks, f"most iterations on n = {ranks} were disturbed and count for want of others"
    return odd_count, doubt


def _impossible_gain(curve: CurvePoints) -> tuple[int, str]:
    """Return the measured count to blame for an impossible gain, and that gain in words; no words if there is none.

    The count to blame is the one of two neighbours without which the other gains are more plausible.
    """
    measured_counts = curve.seen.counts
    neighbours = next((neighbours for neighbours in pairwise(measured_counts) if superlinear(curve, *neighbours)), None)
    if neighbours is None:
        return curve.base, ""

    def largest_other_gain(excluded_count: int) -> float:
        """Return the largest ratio of a gain to the possible gain between neighbours, leaving out `excluded_count`."""
        others = pairwise(ranks for ranks in measured_counts if ranks != excluded_count)
        return max((float(_gain_over_possible(curve, *pair)[0]) for pair in others), default=0.0)

    few_workers, many_workers = neighbours
    suspect_count = min(neighbours, key=largest_other_gain)
    cells = ", ".join((f"n = {suspect_count}", *curve.measured[suspect_count].cells))
    gain = float((curve.speedup(many_workers, "measured") / curve.speedup(few_workers, "measured"))[0])
    finding = f"throughput grows {gain:.2f} times from n = {few_workers} to n = {many_workers}, more than any machine's"
    return suspect_count, f"{finding}: measure {cells} again"


def superlinear(curve: CurvePoints, few_workers: int, many_workers: int) -> bool:
    """Return whether the gain from `few_workers` to `many_workers`, both measured, is more than any machine allows."""
    return estimate(_gain_over_possible(curve, few_workers, many_workers)).low > SUPERLINEAR_RATIO


def _gain_over_possible(curve: CurvePoints, few_workers: int, many_workers: int) -> Ensemble:
    """Return the gain over the largest possible gain, which is the ratio of workers times an isolated worker's gain."""
    gain = curve.speedup(many_workers, "measured") / curve.speedup(few_workers, "measured")
    fewer, more = (_sample_seconds(curve, ranks) for ranks in (few_workers, many_workers))
    isolated_gain = np.maximum(fewer / more, 1.0) if fewer is not None and more is not None else 1.0
    return np.asarray(gain * few_workers / many_workers / isolated_gain)


def _sample_seconds(curve: CurvePoints, ranks: int) -> Ensemble | None:
    """Return the seconds of a sample on one isolated worker, with the mini-batch that a worker has among `ranks`."""
    predicted_point = curve.predicted.get(ranks)
    isolated = predicted_point.isolated if predicted_point else None
    if predicted_point is None or isolated is None:
        return None
    return (isolated.forward + isolated.backward) / predicted_point.point.worker_batch


def control_rows(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the rows of a study's controls table."""
    return table(fitted.measured)


def trusted_curves(fitted: FittedStudy) -> list[TrustedCurve]:
    """Return the trusted part of each curve whose ranks communicate."""
    differing_rows = [row for row in fitted.once(control_rows) if not row["agrees"]]
    return [trusted(curve, differing_rows, fitted.disturbed_keys) for curve in fitted.training_curves]


# --- predictions from fewer workers ---------------------------------------------------------------

CALIBRATION_COUNTS = 2
"""Number of worker counts to calibrate on, unless nodes are given."""


def validation(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the validation table: a row for each point on more nodes than ``calibration_nodes``. Without this setting,
    there is a row for each point on more workers than the `CALIBRATION_COUNTS` smallest worker counts."""
    points, wanted = fitted.points, fitted.asked.calibration_nodes
    scaling = [one for one in points if one.point.scaling in SCALINGS]
    if not scaling:
        return []
    fewest = sorted({one.point.ranks for one in scaling})[:CALIBRATION_COUNTS]

    def is_calibration_point(point: Point) -> bool:
        return point.nodes in wanted if wanted else point.ranks <= max(fewest)

    def is_tested(point: Point) -> bool:
        return bool(point.nodes > max(wanted) if wanted else point.ranks > max(fewest))

    calibration = [one for one in points if is_calibration_point(one.point)]
    if not calibration or not any(is_tested(one.point) for one in scaling):
        return []
    cells = fitted.reduced.training_cells.of([cell for one in calibration for cell in one.cells])
    model = DagModel(fitted.cluster_of_cells(cells, calibration))
    split_curves = [
        (seen, truth)
        for measured in model.points_of_curves(points)
        if (seen := [one for one in measured if is_calibration_point(one.point)])
        and (truth := {one.point.ranks: one for one in measured if is_tested(one.point) and not one.composed})
    ]
    curves = for_each(lambda parts: model.curve(parts[0], list(parts[1])), split_curves)
    errors = trust.errors(curves)
    label = ", ".join(map(str, sorted({one.point.ranks for one in calibration if one.point.scaling in SCALINGS})))
    pairs = zip(curves, split_curves, strict=True)
    return [row for curve, (_, truth) in pairs for row in _rows(curve, truth, label, errors)]


def _rows(
    curve: CurvePoints, measured_points: Mapping[int, Measured], calibration: str, errors: Mapping[str, float]
) -> Iterator[dict[str, object]]:
    for ranks, measured in measured_points.items():
        model = curve.predicted.get(ranks)
        if model is None:
            continue
        seconds = trust.widened_seconds(model, errors)
        value, low, high = estimate(seconds)
        measured_seconds = float(measured.parts.iteration_time[0])
        if value > 0 and measured_seconds > 0:
            yield {
                **model.point.labels("worker_batch"),
                "calibration": calibration,
                **columns("predicted", seconds),
                **columns("measured", measured.parts.iteration_time),
                "error": value / measured_seconds - 1,
                "error_computing": _excess_seconds(model, measured, "forward", "backward") / measured_seconds,
                "error_communication": _excess_seconds(model, measured, "exposed_communication") / measured_seconds,
                "covered": low <= measured_seconds <= high,
                "repeats": len(measured.cells),
                "repeats_differ": _repeat_difference(measured.of_cells),
            }


def _excess_seconds(predicted_point: Predicted, measured: Measured, *parts: str) -> float:
    return float(sum(getattr(predicted_point.parts, part)[0] - getattr(measured.parts, part)[0] for part in parts))


def _repeat_difference(seconds: Sequence[float]) -> float:
    """Return the mean of longer / shorter - 1 over all pairs of the positive `seconds`; NaN if there is no pair."""
    pairs = [max(pair) / min(pair) - 1 for pair in combinations([some for some in seconds if some > 0], 2)]
    return float(np.mean(pairs)) if pairs else float("nan")


QUESTIONS = (
    Question(CONTROLS, lambda fitted: fitted.once(control_rows)),
    Question(VALIDATION, validation),
)
