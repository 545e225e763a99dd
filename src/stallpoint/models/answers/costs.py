"""What training costs on each number of nodes, and which number is cheapest for a deadline or fastest for a budget.

Time, node-hours, energy and price of an epoch follow from throughput, those of a target from the steps to it. Energy
is by the power that was measured at a point, of a predicted one by that of all measured ones, else by ``node_watts``. A
choice among numbers of nodes is made in each replicate: the cheapest of those within the deadline, or the fastest of
those within the budget. It is *decided* where one number wins in `INTERVAL` of the replicates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.measured import SERIES, Measured, Point
from stallpoint.base.statistics import (
    Ensemble,
    Reals,
    Scatter,
    bootstrap,
    columns_of,
    generator,
    is_duration,
    likely,
    scatter,
    visits_of,
)
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.answers.time_to_accuracy import matched
from stallpoint.models.iteration.curve_points import Basis, Predicted
from stallpoint.records.tables import CHOICES, COSTS, ENERGY

POWER, PRICE = "power", "price"
"""Ratings of hardware: W that a node draws, and what it costs for an hour."""
EPOCH = "epoch"
DEADLINE, BUDGET = "cheapest for the deadline", "fastest for the budget"
KNOWN = "known"
"""Basis of a choice among measured and predicted points."""
RATED = "node_watts"
"""Source of a power that was not measured."""


class Choosing(StrEnum):
    """Whether one number of nodes is the best within a limit."""

    DECIDED = "decided"
    UNDECIDED = "undecided"
    NONE = "none"
    """None keeps the limit."""


@dataclass(frozen=True)
class Cost:
    """Time of a training on some nodes, and what these nodes cost."""

    point: Point
    basis: Basis
    goal: str
    time: Ensemble
    """Until the goal is reached, s."""
    rated: Mapping[str, float | Ensemble]
    energy_from: str = RATED
    """What says the power."""

    @property
    def node_hours(self) -> Ensemble:
        """Return the time of all nodes."""
        return self.time * (self.point.nodes / 3600)

    @property
    def energy(self) -> Ensemble:
        """Return the energy, kWh; NaN where the power of a node is not known."""
        return self.node_hours * self.rated.get(POWER, np.nan) / 1000

    @property
    def price(self) -> Ensemble:
        """Return the price; NaN where that of a node-hour is not known."""
        return self.node_hours * self.rated.get(PRICE, np.nan)

    @property
    def columns(self) -> dict[str, object]:
        """Return the columns of the costs table."""
        quantities = {"time": self.time, "node_hours": self.node_hours, "energy": self.energy, "price": self.price}
        return {**columns_of(quantities), "energy_from": "" if np.isnan(self.energy[0]) else self.energy_from}


def costs(fitted: FittedStudy) -> list[Cost]:
    """Return the costs of an epoch at every point, and of each target where steps to it are known."""
    return [*_of_epochs(fitted), *_of_targets(fitted)]


def _of_epochs(fitted: FittedStudy) -> Iterator[Cost]:
    predicted = chain.from_iterable(curve.predicted.values() for curve in fitted.training)
    points: list[Measured | Predicted] = [*fitted.placed, *predicted]
    for at in points:
        yield from _cost(fitted, at, EPOCH, fitted.asked.epoch_samples / at.point.global_batch)


def _of_targets(fitted: FittedStudy) -> Iterator[Cost]:
    for curve, training, steps in matched(fitted.training, fitted.to_target, fitted.presets):
        goal = f"{training['target']:.3g} by {training['recipe']}, {training['sync']} on {training['storage']}"
        for ranks, needed in steps.items():
            for points in (curve.measured, curve.predicted):
                if at := points.get(ranks):
                    yield from _cost(fitted, at, goal, needed.at(at.point.global_batch))


def _cost(fitted: FittedStudy, at: Measured | Predicted, goal: str, iterations: Ensemble | float) -> Iterator[Cost]:
    time = np.asarray(iterations * at.parts.iteration_time)
    if is_duration(time):
        basis: Basis = "measured" if isinstance(at, Measured) else "predicted"
        rated = fitted.asked.rated.get(at.point.hardware, {})
        measured, usual = fitted.once(_power)
        power = measured.of(at.cells) if isinstance(at, Measured) else usual.get(at.point.hardware)
        if power:
            yield Cost(at.point, basis, goal, time, {**rated, POWER: power.watts}, f"counters of {power.counted}")
        else:
            yield Cost(at.point, basis, goal, time, rated)


def _power(fitted: FittedStudy) -> tuple[MeasuredPower, dict[str, Power | None]]:
    """Return what was measured of power, and that of all training on several workers by hardware entry."""
    cells = [cell for at in fitted.communicating for cell in at.cells]
    measured = MeasuredPower(fitted.tidy[ENERGY.name], fitted.asked.seed)
    return measured, {name: measured.usual(name, cells) for name in fitted.tidy["runs"]["hardware"].unique()}


def within_limit(limited: Reals, minimised: Reals, limit: float) -> Reals:
    """Return the probability of each option to be the best, [options + 1]; the last one is that of none.

    The best option has the least of `minimised` [options, 1 + REPLICATES] among those whose `limited` is at most
    `limit`.
    """
    allowed = limited <= limit
    best = np.where(allowed, minimised, np.inf).argmin(axis=0)
    best = np.where(allowed.any(axis=0), best, len(limited))[1:]
    return np.bincount(best, minlength=len(limited) + 1) / len(best)


def choices(
    found: Sequence[Cost], deadline: float | None, budget: float | None, epochs: float
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the choices table; `deadline` [s] and `budget` [price] are for `epochs` epochs or a target."""
    curves: dict[tuple[Any, ...], list[Cost]] = {}
    for cost in found:
        curves.setdefault((cost.point.series, cost.goal), []).append(cost)
    for (_, goal), curve in curves.items():
        times = epochs if goal == EPOCH else 1.0
        measured = {cost.point.ranks: cost for cost in curve if cost.basis == "measured"}
        known = {cost.point.ranks: cost for cost in curve} | measured
        for basis, options in (("measured", measured), (KNOWN, known)):
            if len(options) > 1 and (basis == "measured" or len(known) > len(measured)):
                yield from _chosen([options[n] for n in sorted(options)], basis, times, deadline, budget)


def _chosen(
    options: Sequence[Cost], basis: str, times: float, deadline: float | None, budget: float | None
) -> Iterator[dict[str, Any]]:
    seconds = times * np.stack([cost.time for cost in options])
    prices = times * np.stack([cost.price for cost in options])
    # Without a price the cheapest has the fewest node-hours.
    spent = times * np.stack([cost.node_hours for cost in options]) if np.isnan(prices).any() else prices
    asked = ((DEADLINE, seconds, spent, deadline), (BUDGET, prices, seconds, budget))
    for question, limited, minimised, limit in asked:
        if limit is None or np.isnan(limited).any():
            continue
        probabilities = within_limit(limited, minimised, limit)
        best = int(probabilities.argmax())
        wins = likely(probabilities)
        none = best == len(options)
        at = options[min(best, len(options) - 1)]
        decided = Choosing.NONE if none else Choosing.DECIDED
        unknown = np.full(seconds.shape[1], np.nan)
        yield {
            **{name: getattr(at.point, name) for name in SERIES},
            "goal": at.goal,
            "question": question,
            "limit": limit,
            "basis": basis,
            "verdict": decided if len(wins) == 1 else Choosing.UNDECIDED,
            "nodes": 0 if none else at.point.nodes,
            "ranks": 0 if none else at.point.ranks,
            "likely": ", ".join(str(options[n].point.ranks) if n < len(options) else "none" for n in wins),
            "probability": float(probabilities[best]),
            "energy_from": "" if none else at.columns["energy_from"],
            **columns_of({
                "time": unknown if none else seconds[best],
                "node_hours": unknown if none else times * at.node_hours,
                "price": unknown if none else prices[best],
                "energy": unknown if none else times * at.energy,
            }),
        }  # fmt: skip


def _rows(found: Iterable[Cost]) -> list[dict[str, object]]:
    return [
        {**cost.point.labels("global_batch"), "basis": cost.basis, "goal": cost.goal, **cost.columns} for cost in found
    ]


def _choices(fitted: FittedStudy) -> list[dict[str, object]]:
    asked = fitted.asked
    deadline = None if asked.deadline_hours is None else 3600 * asked.deadline_hours
    return list(choices(fitted.once(costs), deadline, asked.budget, asked.training_epochs))


_VISIT = ["cell", "hardware", "nodes", "repeat", "visit"]
_WORDS = {"package": "processors", "dram": "memory", "GPU": "GPUs"}


@dataclass(frozen=True)
class Power:
    """Power of a node."""

    watts: Ensemble
    counted: str
    """What it is the power of, in words."""


class MeasuredPower:
    """Power of nodes while they train: by the table ``energy``, what visits counted over their time.

    One visit gives the joules of the processors and memory of its nodes, once for each kernel, and those of the GPUs of
    all ranks, over seconds and nodes. A cell in which a counter was unreadable has no power.
    """

    def __init__(self, energy: pd.DataFrame, seed: int) -> None:
        nodes = energy.drop_duplicates([*_VISIT, "kernel"]).groupby(_VISIT)["node_energy"].agg(_sum)
        visits = energy.groupby(_VISIT).agg(
            gpus=("gpu_energy", _sum), seconds=("seconds", "mean"), counted=("counted", "first")
        )
        visits = visits.assign(joules=nodes + visits["gpus"]).reset_index()
        self._visits = visits.assign(watts=visits["joules"] / visits["seconds"] / visits["nodes"]).dropna(
            subset="watts"
        )
        self._seed = seed
        self._of_cell = self._visits.groupby("cell").indices
        self._scatter = cache(self._usual_scatter)

    def of(self, cells: Collection[str]) -> Power | None:
        """Return the power in these cells of one point; None unless it was measured in all of them."""
        if not cells or any(cell not in self._of_cell for cell in cells):
            return None
        rows = self._visits.iloc[np.sort(np.concatenate([self._of_cell[cell] for cell in {*cells}]))]
        return self._power(rows, visits_of(rows))

    def usual(self, hardware: str, cells: Collection[str]) -> Power | None:
        """Return the power in any cell like these on a hardware entry; None if it was measured in none of them."""
        rows = self._visits[(self._visits["hardware"] == hardware) & self._visits["cell"].isin(list(cells))]
        return self._power(rows, rows["cell"]) if len(rows) else None

    def _usual_scatter(self, hardware: str) -> Scatter:
        return scatter(self._visits[self._visits["hardware"] == hardware], ["cell"], "watts")

    def _power(self, rows: pd.DataFrame, apart: pd.Series) -> Power:
        """Return the mean; values that differ in `apart` are independent."""
        usual = self._scatter(rows["hardware"].iloc[0])
        random = generator(self._seed, "power", *sorted(rows["cell"].unique()))
        counted = rows["counted"].iloc[0]
        words = ", ".join(word for name, word in _WORDS.items() if name in counted)
        return Power(bootstrap(rows["watts"], apart, random, np.mean, usual), words)


def _sum(values: pd.Series) -> float:
    """Return the sum; not a number where one value is unknown."""
    return float(values.sum(skipna=False))


QUESTIONS = (
    Question(COSTS, lambda fitted: _rows(fitted.once(costs))),
    Question(CHOICES, _choices),
)
