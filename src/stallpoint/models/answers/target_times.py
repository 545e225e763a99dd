"""Time to a target as trained: what reaches it fastest at each place, why, and where more workers stop saving any.

Where one way takes k times as long as another, its steps are more by one factor and longer by the other: k is their
product. A way is a preset, a recipe and a mini-batch; the fastest of them is chosen at each place anew, as whoever
wants the target soon would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.models.answers.stall_probability import Stall
from stallpoint.models.answers.time_to_accuracy import Matched
from stallpoint.models.base.measured import Point
from stallpoint.models.base.statistics import (
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
from stallpoint.models.convergence.steps import TO_TARGET, best_trial

TARGET = ("network", "hardware", "storage", "target")
_PLACE = ("nodes", "workers_per_node", "ranks")
WAY = ("sync", "recipe", "batch")
_LABELS = (*TARGET, *_PLACE, *WAY)
_AT_POINT = ("hardware", "storage", "sync", *_PLACE, "batch")
FASTEST, SLOWER, ALIKE, NOT_REACHED = "fastest", "slower", "not distinguishable", "not reached"
_QUANTITIES = ("time", "steps", "step_time")


@dataclass(frozen=True)
class Trained:
    """Runs to a target, alike in all but trial and seed."""

    labels: Mapping[str, Any]
    """Values of `TARGET`, `_PLACE` and `WAY`."""
    runs: int
    reached: int
    trial: int
    """-1 where no trial reached the target with every seed."""
    time: Ensemble
    """Seconds of training until then; not a number where it was not reached, as below."""
    steps: Ensemble
    predicted: Ensemble
    """`time` as expected of a B that nobody trained, at a place that nobody measured."""

    @property
    def place(self) -> tuple[Any, ...]:
        """Values of `TARGET` and `_PLACE`: what reaches one target at one place is compared."""
        return tuple(self.labels[name] for name in (*TARGET, *_PLACE))

    @property
    def step_time(self) -> Ensemble:
        """Seconds of a step."""
        return self.time / self.steps


def runs_to_target(runs: pd.DataFrame, pairs: Iterable[Matched], seed: int) -> list[Trained]:
    """Of ``convergence_runs`` with a target; predictions are of the `pairs` of scaling curves and steps."""
    done = runs[runs["reached"].astype(bool)]
    usual = scatter(done.assign(repeat=done["seed"], visit=1), [*_LABELS, "trial"], "seconds_to_target")
    known = {
        (*steps.training.values(), *_of_point(one.point)): (curve, steps)
        for curve, steps in pairs
        for one in curve.predicted.values()
    }
    return [
        _trained(dict(zip(_LABELS, key, strict=True)), rows, known, usual, seed) for key, rows in groups(runs, _LABELS)
    ]


def _of_point(point: Point) -> tuple[Any, ...]:
    """What a point of a curve says of `_AT_POINT`."""
    place = (point.nodes, point.workers_per_node, point.ranks)
    return (point.hardware, point.storage, point.sync, *place, point.global_batch)


def _trained(
    labels: Mapping[str, Any],
    rows: pd.DataFrame,
    known: Mapping[tuple[Any, ...], Matched],
    usual: Scatter,
    seed: int,
) -> Trained:
    key = tuple(labels[name] for name in (*TO_TARGET, *_AT_POINT))
    best = best_trial(rows)
    unknown = unknown_ensemble()
    time, steps, trial = unknown, unknown, -1
    if best is not None:
        random = generator(seed, "time to target", *labels.values())
        # What differs between seeds differs in steps and seconds together.
        both = bootstrap(best[["steps_to_target", "seconds_to_target"]], best["seed"], random, np.mean, usual)
        steps, time, trial = both[:, 0], both[:, 1], int(best["trial"].iloc[0])
    predicted = _predicted(labels, known[key]) if key in known else unknown
    return Trained(labels, len(rows), int(rows["reached"].sum()), trial, time, steps, predicted)


def _predicted(labels: Mapping[str, Any], known: Matched) -> Ensemble:
    """From the other B, and from iterations elsewhere."""
    curve, steps = known
    ranks, batch = labels["ranks"], labels["batch"]
    iteration = curve.held_out.get(ranks, curve.predicted[ranks]).parts.iteration_time
    return steps.without(batch).expected(batch) * iteration


def table(found: Sequence[Trained]) -> list[dict[str, object]]:
    """Rows of the target_times table."""
    fastest: dict[tuple[Any, ...], Trained] = {}
    for one in sorted((one for one in found if not np.isnan(one.time[0])), key=lambda one: float(one.time[0])):
        fastest.setdefault(one.place, one)
    return [_row(one, fastest.get(one.place)) for one in found]


def _row(one: Trained, fastest: Trained | None) -> dict[str, object]:
    unknown = unknown_ensemble()
    over = {name: getattr(one, name) / getattr(fastest, name) if fastest else unknown for name in _QUANTITIES}
    slower = columns("slower", over["time"])
    # As many seeds deviate from what is expected as they do here.
    expected = one.predicted * one.time / one.time[0]
    return {
        **one.labels,
        "runs": one.runs,
        "runs_reached": one.reached,
        "trial": one.trial,
        **{name: value for of in _QUANTITIES for name, value in columns(of, getattr(one, of)).items()},
        **slower,
        **columns("more_steps", over["steps"]),
        **columns("longer_steps", over["step_time"]),
        "verdict": _verdict(one, fastest, slower["slower_low"]),
        **columns("predicted", expected),
        "error": float(expected[0] / one.time[0] - 1),
    }


def _verdict(one: Trained, fastest: Trained | None, low: float) -> str:
    if np.isnan(one.time[0]):
        return NOT_REACHED
    if one is fastest:
        return FASTEST
    return SLOWER if low > 1 else ALIKE


def stalling(found: Sequence[Trained], pairs: Iterable[Matched], threshold: float) -> list[dict[str, object]]:
    """Rows of the target_stalling table: of what was trained, and of steps times iteration time on any curve."""
    times: dict[tuple[Any, ...], dict[int, list[Ensemble]]] = {}
    for one in found:
        key = (*(one.labels[name] for name in TARGET), one.labels["workers_per_node"], "trained")
        times.setdefault(key, {}).setdefault(one.labels["ranks"], []).append(one.time)
    for curve, of in pairs:
        for ranks in curve.known:
            here = curve.at(ranks)
            key = (
                here.point.network, here.point.hardware, of.training["storage"], of.training["target"],
                curve.per_node, "known",
            )  # fmt: skip
            seconds = of.at(here.point.global_batch) * here.parts.iteration_time
            times.setdefault(key, {}).setdefault(ranks, []).append(seconds)
    return [_stalling(key, by_ranks, threshold) for key, by_ranks in times.items()]


def _stalling(key: tuple[Any, ...], times: Mapping[int, list[Ensemble]], threshold: float) -> dict[str, object]:
    best: dict[int, Reals] = {}
    for ranks, several in times.items():
        if reached := [one for one in several if np.isfinite(one).all()]:
            best[ranks] = min(reached, key=lambda one: float(one[0]))[1:]
    gains = {ranks: np.log(best[ranks] / best[2 * ranks]) for ranks in sorted(best) if 2 * ranks in best}
    stall = Stall.of(gains, 2 * max(gains, default=0), threshold)
    verdict, place = stall.verdict
    return {
        **dict(zip((*TARGET, "workers_per_node", "of"), key, strict=True)),
        **stall.columns,
        "reached": stall.reached,
        "verdict": verdict,
        "verdict_ranks": place,
        "largest_considered": stall.largest,
    }
