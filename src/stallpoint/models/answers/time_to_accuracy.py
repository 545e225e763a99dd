"""Time to a target accuracy, steps(B) x iteration time(n, B), and where more workers stop saving time.

With throughput X, and the E(B) samples that training with mini-batch B needs, the time is E(B) / X. If a doubling of
the workers also doubles B, throughput rises, but so does E(B).

*As trained*: a configuration (preset, recipe and mini-batch) takes k times as long as another by more steps, longer
steps, or both; k is the product of the two factors. At each placement the fastest configuration is chosen anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stallpoint.base.curve import Curve
from stallpoint.base.measured import SERIES, Measured, Point
from stallpoint.base.stall import Stall
from stallpoint.base.statistics import (
    Ensemble,
    Reals,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    scatter,
    unknown_ensemble,
)
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.convergence.steps import ANY_COUNT, TO_TARGET, Steps, best_trial
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.records.tables import ACCURACY_STALLING, TARGET_STALLING, TARGET_TIMES, TIME_TO_ACCURACY
from stallpoint.strategies.presets import Preset

_STEPS_COLUMNS = {"steps_storage": "storage", "steps_sync": "sync", "recipe": "recipe", "target": "target"}
"""Columns that identify the training of the steps, and their names in `TO_TARGET`."""


class CurveSteps(NamedTuple):
    """A scaling curve, and the steps that its training takes to a target."""

    curve: CurvePoints
    training: Mapping[str, Any]
    """Values of `TO_TARGET` of the runs that gave the steps."""
    steps: Mapping[int, Steps]
    """Steps by worker count, where known; equal for all counts if workers do not change steps."""

    def at(self, ranks: int) -> tuple[Measured | Predicted, Steps] | None:
        """Return the iteration and the steps at `ranks`; None if either is unknown."""
        return (self.curve.at(ranks), self.steps[ranks]) if ranks in self.steps else None


def tables(pairs: Sequence[CurveSteps], threshold: float) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of time_to_accuracy, one for each pair and count, and of accuracy_stalling, one for each pair."""
    times = [row for pair in pairs for row in _times(pair)]
    return times, [_accuracy_stalling(pair, threshold) for pair in pairs]


def curves_with_steps(
    curves: Iterable[CurvePoints], found: Sequence[Steps], presets: Mapping[str, Preset]
) -> list[CurveSteps]:
    """Pair each curve with the steps of its training, for every target.

    Steps are those of the curve's network and preset. If no run used this preset, steps of another preset are taken if
    both make the updates of a single worker. Asynchronous presets do so only on one worker.
    """
    steps_by_target: dict[tuple[Any, ...], dict[str, list[Steps]]] = {}
    for steps in found:
        network, storage, sync, *rest = (steps.training[name] for name in TO_TARGET)
        steps_by_target.setdefault((network, storage, *rest), {}).setdefault(sync, []).append(steps)
    pairs = (
        _curve_with_steps(curve, by_preset, presets)
        for curve in curves
        for (network, *_), by_preset in steps_by_target.items()
        if network == curve.origin.network
    )
    return [pair for pair in pairs if pair is not None]


def _curve_with_steps(
    curve: CurvePoints, steps_by_preset: Mapping[str, Sequence[Steps]], presets: Mapping[str, Preset]
) -> CurveSteps | None:
    """Pair a curve with the steps to one target (`steps_by_preset`); None if no steps apply to the curve's preset."""
    sync = curve.origin.sync
    exact_steps = next((steps for name, steps in steps_by_preset.items() if presets[name].exact), ())
    steps_of_preset = steps_by_preset.get(sync) or (exact_steps if presets[sync].exact else ())
    if not steps_of_preset:
        return None
    known = {n: steps for steps in steps_of_preset for n in curve.known.rates if steps.ranks in (ANY_COUNT, n)}
    if presets[sync].exact_on_one and 1 in curve.known.rates and 1 not in known and exact_steps:
        known[1] = exact_steps[0]
    return CurveSteps(curve, steps_of_preset[0].training, known)


def _times(curve_steps: CurveSteps) -> Iterator[dict[str, object]]:
    curve, base = curve_steps.curve, curve_steps.at(curve_steps.curve.base)
    for ranks, steps in sorted(curve_steps.steps.items()):
        one = curve.at(ranks)
        batch = one.point.global_batch
        needed, seconds = steps.at(batch), one.parts.iteration_time
        throughput_speedup = curve.speedup(ranks, curve.basis(ranks))
        growth = steps.samples(batch) / base[1].samples(base[0].point.global_batch) if base else unknown_ensemble()
        yield {
            **one.point.labels("global_batch"),
            **{column: steps.training[name] for column, name in _STEPS_COLUMNS.items()},
            "steps_ranks": steps.ranks,
            "basis": curve.basis(ranks),
            **columns("steps", needed),
            **columns("time", needed * seconds),
            **columns("speedup", throughput_speedup / growth),
            **columns("throughput_speedup", throughput_speedup),
        }


def _accuracy_stalling(curve_steps: CurveSteps, threshold: float) -> dict[str, object]:
    """Return the row of a pair; its stall is that of trainings per second, the throughput over samples per training."""
    trainings_per_second = {}
    for ranks, rate in curve_steps.curve.known.rates.items():
        if at := curve_steps.at(ranks):
            needed = at[1].samples(at[0].point.global_batch)
            if np.isfinite(np.log(needed[1:])).all():
                trainings_per_second[ranks] = rate / needed
    stall = Curve(trainings_per_second, threshold=threshold).stall
    labels = {name: value for name, value in curve_steps.curve.origin.labels().items() if name in SERIES}
    return {
        **labels,
        **{column: curve_steps.training[name] for column, name in _STEPS_COLUMNS.items()},
        **stall.answer,
    }


TARGET = ("network", "hardware", "storage", "target")
_PLACEMENT_COLUMNS = ("nodes", "workers_per_node", "ranks")
CONFIGURATION = ("sync", "recipe", "batch")
_LABEL_COLUMNS = (*TARGET, *_PLACEMENT_COLUMNS, *CONFIGURATION)
_POINT_COLUMNS = ("hardware", "storage", "sync", *_PLACEMENT_COLUMNS, "batch")


class TargetVerdict(StrEnum):
    """Verdict on the time of a configuration to a target, among the configurations at its placement."""

    FASTEST = "fastest"
    SLOWER = "slower"
    NOT_DISTINGUISHABLE = "not distinguishable"
    """Not distinguishable from the fastest."""
    NOT_REACHED = "not reached"


_RUN_FIELDS = ("time", "steps", "step_time")


@dataclass(frozen=True)
class TargetRuns:
    """Runs to a target that differ only in trial and seed."""

    labels: Mapping[str, Any]
    """Values of `TARGET`, `_PLACEMENT_COLUMNS` and `CONFIGURATION`."""
    runs: int
    reached: int
    trial: int
    """Number of the trial; -1 if no trial reached the target with every seed."""
    time: Ensemble
    """Seconds of training until the target; NaN if not reached, as are `steps`."""
    steps: Ensemble
    predicted: Ensemble
    """Predicted `time`, held out: this B and this placement are excluded."""

    @property
    def placement(self) -> tuple[Any, ...]:
        """Values of `TARGET` and `_PLACEMENT_COLUMNS`; runs with equal values are compared."""
        return tuple(self.labels[name] for name in (*TARGET, *_PLACEMENT_COLUMNS))

    @property
    def step_time(self) -> Ensemble:
        """Seconds of a step."""
        return self.time / self.steps


def runs_to_target(runs: pd.DataFrame, pairs: Iterable[CurveSteps], seed: int) -> list[TargetRuns]:
    """Return the ``convergence_runs`` in groups that differ only in trial and seed; `pairs` give predicted times."""
    reached = runs[runs["reached"].astype(bool)]
    usual = scatter(reached.assign(repeat=reached["seed"], visit=1), [*_LABEL_COLUMNS, "trial"], "seconds_to_target")
    predictions: dict[tuple[Any, ...], tuple[Steps, Ensemble]] = {}
    for pair in pairs:
        for ranks, steps in pair.steps.items():
            point = pair.curve.at(ranks).point
            key = (*pair.training.values(), *_point_values(point))
            # A curve that measured this placement has a held-out prediction, which is preferred.
            if ranks in pair.curve.held_out:
                predictions[key] = steps, pair.curve.held_out[ranks].parts.iteration_time
            elif ranks not in pair.curve.measured:
                predictions.setdefault(key, (steps, pair.curve.predicted[ranks].parts.iteration_time))
    return [
        _target_runs(dict(zip(_LABEL_COLUMNS, key, strict=True)), rows, predictions, usual, seed)
        for key, rows in groups(runs, _LABEL_COLUMNS)
    ]


def _point_values(point: Point) -> tuple[Any, ...]:
    """Return the values of `_POINT_COLUMNS` at a point of a curve."""
    placement = (point.nodes, point.workers_per_node, point.ranks)
    return (point.hardware, point.storage, point.sync, *placement, point.global_batch)


def _target_runs(
    labels: Mapping[str, Any],
    rows: pd.DataFrame,
    predictions: Mapping[tuple[Any, ...], tuple[Steps, Ensemble]],
    usual: Scatter,
    seed: int,
) -> TargetRuns:
    key = tuple(labels[name] for name in (*TO_TARGET, *_POINT_COLUMNS))
    best = best_trial(rows)
    unknown = unknown_ensemble()
    time, steps, trial = unknown, unknown, -1
    if best is not None:
        random = generator(seed, "time to target", *labels.values())
        # Steps and seconds are drawn jointly, as a seed changes both.
        draws = bootstrap(best[["steps_to_target", "seconds_to_target"]], best["seed"], random, np.mean, usual)
        steps, time, trial = draws[:, 0], draws[:, 1], int(best["trial"].iloc[0])
    if key in predictions:
        other_steps, iteration = predictions[key]
        predicted_seconds = other_steps.without(labels["batch"]).expected(labels["batch"]) * iteration
    else:
        predicted_seconds = unknown
    return TargetRuns(labels, len(rows), int(rows["reached"].sum()), trial, time, steps, predicted_seconds)


def target_times(found: Sequence[TargetRuns]) -> list[dict[str, object]]:
    """Return the rows of the target_times table."""
    fastest: dict[tuple[Any, ...], TargetRuns] = {}
    for one in sorted((one for one in found if not np.isnan(one.time[0])), key=lambda one: float(one.time[0])):
        fastest.setdefault(one.placement, one)
    return [_target_time(one, fastest.get(one.placement)) for one in found]


def _target_time(runs: TargetRuns, fastest: TargetRuns | None) -> dict[str, object]:
    unknown = unknown_ensemble()
    slowdowns = {name: getattr(runs, name) / getattr(fastest, name) if fastest else unknown for name in _RUN_FIELDS}
    slowdown_columns = columns("slower", slowdowns["time"])
    # The measured scatter between seeds widens the predicted time.
    expected_seconds = runs.predicted * runs.time / runs.time[0]
    return {
        **runs.labels,
        "runs": runs.runs,
        "runs_reached": runs.reached,
        "trial": runs.trial,
        **columns("time", runs.time),
        **columns("steps", runs.steps),
        **slowdown_columns,
        **columns("more_steps", slowdowns["steps"]),
        **columns("longer_steps", slowdowns["step_time"]),
        "verdict": _verdict(runs, fastest, slowdown_columns["slower_low"]),
        **columns("predicted", expected_seconds),
        "error": float(expected_seconds[0] / runs.time[0] - 1),
    }


def _verdict(runs: TargetRuns, fastest: TargetRuns | None, ratio_low: float) -> TargetVerdict:
    if np.isnan(runs.time[0]):
        return TargetVerdict.NOT_REACHED
    if runs is fastest:
        return TargetVerdict.FASTEST
    return TargetVerdict.SLOWER if ratio_low > 1 else TargetVerdict.NOT_DISTINGUISHABLE


def target_stalling(found: Sequence[TargetRuns], threshold: float) -> list[dict[str, object]]:
    """Return the rows of the target_stalling table, from the times of training to a target."""
    times: dict[tuple[Any, ...], dict[int, list[Ensemble]]] = {}
    for one in found:
        key = tuple(one.labels[name] for name in (*TARGET, "workers_per_node"))
        times.setdefault(key, {}).setdefault(one.labels["ranks"], []).append(one.time)
    return [_target_stalling(key, by_ranks, threshold) for key, by_ranks in times.items()]


def _target_stalling(key: tuple[Any, ...], times: Mapping[int, list[Ensemble]], threshold: float) -> dict[str, object]:
    best: dict[int, Reals] = {}
    for ranks, times_of_runs in times.items():
        if reached_times := [one for one in times_of_runs if np.isfinite(one).all()]:
            best[ranks] = min(reached_times, key=lambda one: float(one[0]))[1:]
    stall = Stall.of({ranks: -np.log(seconds) for ranks, seconds in best.items()}, threshold)
    return {
        **dict(zip((*TARGET, "workers_per_node"), key, strict=True)),
        **stall.answer,
    }


def _matched_curves(fitted: FittedStudy) -> list[CurveSteps]:
    return curves_with_steps(fitted.training_curves, fitted.to_target, fitted.presets)


def _times_and_stalls(fitted: FittedStudy) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    return tables(fitted.once(_matched_curves), fitted.asked.threshold)


def _study_target_runs(fitted: FittedStudy) -> list[TargetRuns]:
    return runs_to_target(fitted.tidy["convergence_runs"], fitted.once(_matched_curves), fitted.asked.seed)


QUESTIONS = (
    Question(TIME_TO_ACCURACY, lambda fitted: fitted.once(_times_and_stalls)[0]),
    Question(ACCURACY_STALLING, lambda fitted: fitted.once(_times_and_stalls)[1]),
    Question(TARGET_TIMES, lambda fitted: target_times(fitted.once(_study_target_runs))),
    Question(
        TARGET_STALLING,
        lambda fitted: target_stalling(fitted.once(_study_target_runs), fitted.asked.threshold),
    ),
)
