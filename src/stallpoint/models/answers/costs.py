"""Costs of training on each number of nodes: the cheapest number for a deadline, and the fastest for a budget.

Time, node-hours, energy and price of an epoch follow from throughput, those of a target from its steps. The energy of a
measured point follows from its measured power, that of a predicted point from the mean power of all measured points. If
power was not measured, the rated ``node_watts`` replace it. The number of nodes is chosen in each replicate. The choice
is *decided* if the same number wins in `INTERVAL` of the replicates.

*Productive share*: the part of a job's time that is neither lost to failures nor spent on checkpoints and restarts.

Failures come at random, at the same rate on each node. M is the mean time between failures of any node, δ the duration
of a checkpoint, R that of a restart, and τ the interval between checkpoints. The productive share of the time is

    τ / (M · exp(R/M) · (exp((τ + δ)/M) - 1))

(Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22). The best τ is
√(2δM) in Young's first order (1974). Daly's best τ is √(2δM) · (1 + √(δ/2M)/3 + δ/18M) - δ, or M where δ ≥ 2M.

If training need not wait for the failed node, `reload_seconds` take the place of R. With r failures of a node in a
second, and D = `repair_seconds`, n·r·D of n nodes are broken on average; their number is Poisson. *Elastic* training
continues without broken nodes, which takes r·D of its share. *Spare* nodes replace broken ones. There are as many
spares as are enough in 99 % of the time, and the productive share is then over all nodes, spares included.

Throughput times the productive share is the effective rate. It stalls where doubling the nodes gains less than the
threshold. On many nodes it stalls sooner than throughput, as M halves with each doubling.
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

from stallpoint.base.curve import Curve
from stallpoint.base.distributions import poisson_quantile
from stallpoint.base.measured import SERIES, Measured, Point
from stallpoint.base.statistics import (
    REPLICATES,
    Ensemble,
    Reals,
    Scatter,
    bootstrap,
    columns,
    columns_of,
    generator,
    groups,
    is_duration,
    likely,
    scatter,
    visits_of,
)
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.answers.time_to_accuracy import curves_with_steps
from stallpoint.models.iteration.curve_points import Basis, CurvePoints, Predicted
from stallpoint.records.tables import AVAILABILITY, CHOICES, COSTS, ENERGY, STORAGE_OPERATIONS
from stallpoint.study.kinds.storage_kind import CHECKPOINT_READ, CHECKPOINT_WRITE

POWER, PRICE = "power", "price"
"""Ratings of hardware: power of a node, W, and price of a node-hour."""
EPOCH = "epoch"
DEADLINE, BUDGET = "cheapest for the deadline", "fastest for the budget"
KNOWN_BASIS = "known"
"""Basis of a choice among measured and predicted points."""
RATED_POWER = "node_watts"
"""Source of a power that was not measured."""


class ChoiceVerdict(StrEnum):
    """Whether one number of nodes is the best within a limit."""

    DECIDED = "decided"
    UNDECIDED = "undecided"
    NONE = "none"
    """No number of nodes keeps the limit."""


@dataclass(frozen=True)
class Cost:
    """Time of a training on a number of nodes, and its costs: node-hours, energy and price."""

    point: Point
    basis: Basis
    goal: str
    time: Ensemble
    """Time until the goal is reached, s."""
    ratings: Mapping[str, float | Ensemble]
    energy_from: str = RATED_POWER
    """Source of the power."""

    @property
    def node_hours(self) -> Ensemble:
        """Return the node-hours: hours of the training times its nodes."""
        return self.time * (self.point.nodes / 3600)

    @property
    def energy(self) -> Ensemble:
        """Return the energy, kWh; NaN if the power of a node is unknown."""
        return self.node_hours * self.ratings.get(POWER, np.nan) / 1000

    @property
    def price(self) -> Ensemble:
        """Return the price; NaN if the price of a node-hour is unknown."""
        return self.node_hours * self.ratings.get(PRICE, np.nan)

    @property
    def columns(self) -> dict[str, object]:
        """Return the columns of the costs table."""
        quantities = {"time": self.time, "node_hours": self.node_hours, "energy": self.energy, "price": self.price}
        return {**columns_of(quantities), "energy_from": "" if np.isnan(self.energy[0]) else self.energy_from}


def costs(fitted: FittedStudy) -> list[Cost]:
    """Return the costs of an epoch at every point, and of each target with known steps."""
    return [*_epoch_costs(fitted), *_target_costs(fitted)]


def _epoch_costs(fitted: FittedStudy) -> Iterator[Cost]:
    predicted_points = chain.from_iterable(curve.predicted.values() for curve in fitted.training_curves)
    points: list[Measured | Predicted] = [*fitted.points_by_curve, *predicted_points]
    for at in points:
        yield from _costs_at(fitted, at, EPOCH, fitted.asked.epoch_samples / at.point.global_batch)


def _target_costs(fitted: FittedStudy) -> Iterator[Cost]:
    for curve, training, steps in curves_with_steps(fitted.training_curves, fitted.to_target, fitted.presets):
        goal = f"{training['target']:.3g} by {training['recipe']}, {training['sync']} on {training['storage']}"
        for ranks, needed in steps.items():
            for points in (curve.measured, curve.predicted):
                if at := points.get(ranks):
                    yield from _costs_at(fitted, at, goal, needed.at(at.point.global_batch))


def _costs_at(fitted: FittedStudy, at: Measured | Predicted, goal: str, iterations: Ensemble | float) -> Iterator[Cost]:
    time = np.asarray(iterations * at.parts.iteration_time)
    if is_duration(time):
        basis: Basis = "measured" if isinstance(at, Measured) else "predicted"
        ratings = fitted.asked.rated.get(at.point.hardware, {})
        measured, usual = fitted.once(_study_power)
        power = measured.of(at.cells) if isinstance(at, Measured) else usual.get(at.point.hardware)
        if power:
            yield Cost(at.point, basis, goal, time, {**ratings, POWER: power.watts}, f"counters of {power.counted}")
        else:
            yield Cost(at.point, basis, goal, time, ratings)


def _study_power(fitted: FittedStudy) -> tuple[MeasuredPower, dict[str, Power | None]]:
    """Return the measured power of points, and by hardware entry the mean power of training on several workers."""
    cells = [cell for at in fitted.communicating for cell in at.cells]
    measured = MeasuredPower(fitted.tidy[ENERGY.name], fitted.asked.seed)
    return measured, {name: measured.mean_of_hardware(name, cells) for name in fitted.tidy["runs"]["hardware"].unique()}


def within_limit(limited_values: Reals, minimised_values: Reals, limit: float) -> Reals:
    """Return the probability that each option is the best, and as last entry that no option keeps the limit.

    An option keeps the limit if its `limited_values` are at most `limit`; the best one has the smallest
    `minimised_values`. Both are [options, 1 + REPLICATES], and the result is [options + 1].
    """
    is_allowed = limited_values <= limit
    best = np.where(is_allowed, minimised_values, np.inf).argmin(axis=0)
    best = np.where(is_allowed.any(axis=0), best, len(limited_values))[1:]
    return np.bincount(best, minlength=len(limited_values) + 1) / len(best)


def choices(
    found: Sequence[Cost], deadline: float | None, budget: float | None, epochs: float
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the choices table; `deadline`, s, and `budget` limit `epochs` epochs or reaching a target."""
    curves: dict[tuple[Any, ...], list[Cost]] = {}
    for cost in found:
        curves.setdefault((cost.point.series, cost.goal), []).append(cost)
    for (_, goal), curve in curves.items():
        times = epochs if goal == EPOCH else 1.0
        measured = {cost.point.ranks: cost for cost in curve if cost.basis == "measured"}
        known = {cost.point.ranks: cost for cost in curve} | measured
        for basis, options in (("measured", measured), (KNOWN_BASIS, known)):
            if len(options) > 1 and (basis == "measured" or len(known) > len(measured)):
                yield from _choice_rows([options[n] for n in sorted(options)], basis, times, deadline, budget)


def _choice_rows(
    options: Sequence[Cost], basis: str, times: float, deadline: float | None, budget: float | None
) -> Iterator[dict[str, Any]]:
    seconds = times * np.stack([cost.time for cost in options])
    prices = times * np.stack([cost.price for cost in options])
    # Without prices, costs are counted in node-hours.
    expenses_or_hours = times * np.stack([cost.node_hours for cost in options]) if np.isnan(prices).any() else prices
    limits = ((DEADLINE, seconds, expenses_or_hours, deadline), (BUDGET, prices, seconds, budget))
    for question, limited, minimised, limit in limits:
        if limit is None or np.isnan(limited).any():
            continue
        probabilities = within_limit(limited, minimised, limit)
        best = int(probabilities.argmax())
        likely_options = likely(probabilities)
        no_option = best == len(options)
        at = options[min(best, len(options) - 1)]
        clear_verdict = ChoiceVerdict.NONE if no_option else ChoiceVerdict.DECIDED
        unknown_values = np.full(seconds.shape[1], np.nan)
        yield {
            **{name: getattr(at.point, name) for name in SERIES},
            "goal": at.goal,
            "question": question,
            "limit": limit,
            "basis": basis,
            "verdict": clear_verdict if len(likely_options) == 1 else ChoiceVerdict.UNDECIDED,
            "nodes": 0 if no_option else at.point.nodes,
            "ranks": 0 if no_option else at.point.ranks,
            "likely": ", ".join(str(options[n].point.ranks) if n < len(options) else "none" for n in likely_options),
            "probability": float(probabilities[best]),
            "energy_from": "" if no_option else at.columns["energy_from"],
            **columns_of({
                "time": unknown_values if no_option else seconds[best],
                "node_hours": unknown_values if no_option else times * at.node_hours,
                "price": unknown_values if no_option else prices[best],
                "energy": unknown_values if no_option else times * at.energy,
            }),
        }  # fmt: skip


def _rows(found: Iterable[Cost]) -> list[dict[str, object]]:
    return [
        {**cost.point.labels("global_batch"), "basis": cost.basis, "goal": cost.goal, **cost.columns} for cost in found
    ]


def _study_choices(fitted: FittedStudy) -> list[dict[str, object]]:
    asked = fitted.asked
    deadline = None if asked.deadline_hours is None else 3600 * asked.deadline_hours
    return list(choices(fitted.once(costs), deadline, asked.budget, asked.training_epochs))


_VISIT_KEY = ["cell", "hardware", "nodes", "repeat", "visit"]
_PART_WORDS = {"package": "processors", "dram": "memory", "GPU": "GPUs"}


@dataclass(frozen=True)
class Power:
    """Power of a node."""

    watts: Ensemble
    counted: str
    """The measured parts, in words."""


class MeasuredPower:
    """Power of nodes while they train, from the energy that visits counted (table ``energy``).

    The power of a node in a visit is the energy over seconds and nodes. The energy is that of processors and memory,
    counted once for each node, and of the GPUs of all ranks. A visit with an unreadable counter is excluded.
    """

    def __init__(self, energy: pd.DataFrame, seed: int) -> None:
        nodes = energy.drop_duplicates([*_VISIT_KEY, "kernel"]).groupby(_VISIT_KEY)["node_energy"].agg(_strict_sum)
        visits = energy.groupby(_VISIT_KEY).agg(
            gpus=("gpu_energy", _strict_sum), seconds=("seconds", "mean"), counted=("counted", "first")
        )
        visits = visits.assign(joules=nodes + visits["gpus"]).reset_index()
        self._visits = visits.assign(watts=visits["joules"] / visits["seconds"] / visits["nodes"]).dropna(
            subset="watts"
        )
        self._seed = seed
        self._of_cell = self._visits.groupby("cell").indices
        self._scatter = cache(self._usual_scatter)

    def of(self, cells: Collection[str]) -> Power | None:
        """Return the mean power over the `cells` of one point; None unless power was measured in all of them."""
        if not cells or any(cell not in self._of_cell for cell in cells):
            return None
        rows = self._visits.iloc[np.sort(np.concatenate([self._of_cell[cell] for cell in {*cells}]))]
        return self._mean_power(rows, visits_of(rows))

    def mean_of_hardware(self, hardware: str, cells: Collection[str]) -> Power | None:
        """Return the mean power of a hardware entry over `cells`; None if power was measured in none of them."""
        rows = self._visits[(self._visits["hardware"] == hardware) & self._visits["cell"].isin(list(cells))]
        return self._mean_power(rows, rows["cell"]) if len(rows) else None

    def _usual_scatter(self, hardware: str) -> Scatter:
        return scatter(self._visits[self._visits["hardware"] == hardware], ["cell"], "watts")

    def _mean_power(self, rows: pd.DataFrame, independent_units: pd.Series) -> Power:
        """Return the mean power of a node over `rows`; rows with different `independent_units` are independent."""
        usual_scatter = self._scatter(rows["hardware"].iloc[0])
        random_generator = generator(self._seed, "power", *sorted(rows["cell"].unique()))
        counted = rows["counted"].iloc[0]
        words = ", ".join(word for name, word in _PART_WORDS.items() if name in counted)
        return Power(bootstrap(rows["watts"], independent_units, random_generator, np.mean, usual_scatter), words)


def _strict_sum(values: pd.Series) -> float:
    """Return the sum of `values`; NaN if any value is unknown."""
    return float(values.sum(skipna=False))


# --- failures and checkpoints ---------------------------------------------------------------------

DAY_SECONDS = 86400
SPARES_SUFFICE = 0.99
"""Fraction of the time in which spare nodes have to be enough."""
_NODES: Reals = 2.0 ** np.arange(0, 30, 1 / 16)
"""Numbers of nodes that `limit` tries."""
_LEAST_SHARE = 1e-300


def young_interval(checkpoint: Reals | float, mtbf: Reals) -> Reals:
    """Return Young's interval between checkpoints, s. Writing takes `checkpoint` s; failures are `mtbf` s apart."""
    return np.sqrt(2 * checkpoint * mtbf)


def daly_interval(checkpoint: Reals | float, mtbf: Reals) -> Reals:
    """Return Daly's interval between checkpoints, s, which also holds for long checkpoints."""
    duration_share = np.asarray(checkpoint / (2 * mtbf))
    interval = young_interval(checkpoint, mtbf) * (1 + np.sqrt(duration_share) / 3 + duration_share / 9) - checkpoint
    return np.where(duration_share < 1, interval, mtbf)


def productive_share(mtbf: Reals, interval: Reals, checkpoint: Reals | float, restart_seconds: Reals | float) -> Reals:
    """Return the expected productive share of a job's time, with a checkpoint every `interval` seconds (Daly 2006)."""
    with np.errstate(over="ignore"):
        total_seconds = mtbf * np.exp(restart_seconds / mtbf) * np.expm1((interval + checkpoint) / mtbf)
    return np.asarray(interval / total_seconds)


@dataclass(frozen=True)
class Failures:
    """Failure rate of a hardware entry, and the time that a failure costs."""

    per_node_day: Ensemble
    checkpoint: Ensemble
    """Time to write a checkpoint, s."""
    restart_seconds: Ensemble
    """Time from a failure until training continues from the last checkpoint, s."""
    reload_seconds: Ensemble
    """Time from a failure until training continues without the failed node, s; NaN if unknown."""
    repair_seconds: float = np.nan
    """Time until a failed node is back, s; NaN where unknown."""
    measured: bool = False
    """Whether writing and reading a checkpoint was timed."""

    @classmethod
    def of(
        cls, hardware: str, entry: Mapping[str, float], seed: int, timed: Mapping[str, Ensemble] | None = None
    ) -> Failures:
        """Return the failures in a study's `entry`. If they were ``counted``, the rate varies as a Poisson count does.

        `timed` holds measured times of `CHECKPOINT_WRITE` and `CHECKPOINT_READ` on a storage. They are used unless the
        entry gives ``checkpoint_seconds``; the time to read is added to a restart.
        """
        measured = "checkpoint_seconds" not in entry
        timed = (timed if measured else None) or {}
        write_time = timed.get(CHECKPOINT_WRITE, np.full(1 + REPLICATES, entry.get("checkpoint_seconds", np.nan)))
        read_time = timed.get(CHECKPOINT_READ, np.zeros(1 + REPLICATES))
        rate = np.full(1 + REPLICATES, entry["per_node_day"])
        if counted := entry.get("counted"):
            rate[1:] *= generator(seed, "failures", hardware).gamma(counted + 0.5, size=REPLICATES) / counted
        reload, repair = (entry.get(f"{name}_seconds", np.nan) for name in ("reload", "repair"))
        return cls(rate, write_time, entry["restart_seconds"] + read_time, reload + read_time, repair, measured)

    def mtbf(self, nodes: Reals | int) -> Reals:
        """Return the mean time between failures of any of `nodes` nodes, s."""
        return np.asarray(DAY_SECONDS / (self.per_node_day * nodes))

    def share(self, nodes: int) -> Ensemble:
        """Return the productive share on `nodes`, with checkpoints at Daly's interval."""
        return self._share(self.mtbf(nodes), self.restart_seconds)

    def elastic_share(self, nodes: int) -> Ensemble:
        """Return the productive share if training continues without failed nodes."""
        return self._share(self.mtbf(nodes), self.reload_seconds) * np.maximum(1 - self._broken_share, 0.0)

    def spare_nodes(self, nodes: int) -> int:
        """Return the number of spare nodes that suffices in `SPARES_SUFFICE` of the time; 0 if repairs are unknown."""
        mean = float(nodes * self._broken_share[0])
        if not np.isfinite(mean):
            return 0
        return poisson_quantile(SPARES_SUFFICE, mean)

    def spare_share(self, nodes: int) -> Ensemble:
        """Return the productive share over all nodes, spares included, if spares replace failed nodes."""
        return self._share(self.mtbf(nodes), self.reload_seconds) * (nodes / (nodes + self.spare_nodes(nodes)))

    @property
    def _broken_share(self) -> Ensemble:
        """Mean share of nodes in repair."""
        return self.per_node_day * self.repair_seconds / DAY_SECONDS

    def _share(self, mtbf: Reals, restart_seconds: Ensemble) -> Reals:
        write, again = (one.reshape(-1, *[1] * (mtbf.ndim - 1)) for one in (self.checkpoint, restart_seconds))
        return np.maximum(productive_share(mtbf, daly_interval(write, mtbf), write, again), _LEAST_SHARE)

    def limit(self, threshold: float) -> Ensemble:
        """Return the number of nodes from which failures alone make a doubling gain less than `threshold`."""
        mtbf = DAY_SECONDS / (self.per_node_day[:, None] * _NODES)
        full, half = (self._share(mtbf / parts, self.restart_seconds) for parts in (1, 2))
        is_gain = 2 * half / full >= 1 + threshold
        return np.where(is_gain.all(axis=1), np.inf, _NODES[is_gain.argmin(axis=1)])


def row(curve: CurvePoints, failures: Failures, threshold: float) -> dict[str, object]:
    """Return the availability table's row for a curve on which at least one worker count is known."""
    rates = curve.known.rates
    effective_rates = {n: rate * failures.share(curve.at(n).point.nodes) for n, rate in rates.items()}
    verdict, ranks = Curve(rates, threshold=threshold).stall.verdict
    largest = max(rates)
    nodes = curve.at(largest).point.nodes
    return {
        **{name: getattr(curve.origin, name) for name in SERIES},
        **Curve(effective_rates, threshold=threshold).stall.answer,
        "without_failures": verdict,
        "without_failures_ranks": ranks,
        **columns("failure_limit", failures.limit(threshold)),
        "ranks": largest,
        **columns_of({
            "checkpoint_interval": daly_interval(failures.checkpoint, failures.mtbf(nodes)),
            "productive_share": failures.share(nodes),
            "checkpoint_time": failures.checkpoint,
            "elastic_share": failures.elastic_share(nodes),
            "spare_share": failures.spare_share(nodes),
        }),
        "spares": failures.spare_nodes(nodes),
        "checkpoint_from": "measured" if failures.measured else "given",
    }  # fmt: skip


def _curves_with_failures(fitted: FittedStudy) -> Iterator[tuple[CurvePoints, Failures]]:
    asked, timed = fitted.asked, fitted.once(_checkpoint_seconds)
    for curve in fitted.training_curves:
        at = curve.origin.hardware, curve.origin.storage
        if (given := asked.failures.get(at[0])) and (
            "checkpoint_seconds" in given or CHECKPOINT_WRITE in timed.get(at, {})
        ):
            yield curve, Failures.of(at[0], given, asked.seed, timed.get(at))


def _checkpoint_seconds(fitted: FittedStudy) -> dict[tuple[str, str], dict[str, Ensemble]]:
    """Return the seconds to write and to read a checkpoint, by hardware and storage, then by operation."""
    found: dict[tuple[str, str], dict[str, Ensemble]] = {}
    operations = fitted.tidy[STORAGE_OPERATIONS.name]
    for key, rows in groups(
        operations[operations["operation"].isin([CHECKPOINT_WRITE, CHECKPOINT_READ])],
        ["hardware", "storage", "operation"],
    ):
        random = generator(fitted.asked.seed, "checkpoint", *key)
        usual = scatter(rows, ["cell"], "seconds")
        found.setdefault(key[:2], {})[key[2]] = bootstrap(rows["seconds"], visits_of(rows), random, np.mean, usual)
    return found


def table(fitted: FittedStudy) -> Iterator[dict[str, object]]:
    """Yield the rows of the availability table: each curve on hardware with known failures."""
    for curve, failures in _curves_with_failures(fitted):
        if curve.known.rates:
            yield row(curve, failures, fitted.asked.threshold)


QUESTIONS = (
    Question(COSTS, lambda fitted: _rows(fitted.once(costs))),
    Question(CHOICES, _study_choices),
    Question(AVAILABILITY, table),
)
