"""Productive share: the part of a job's time that is neither lost to failures nor spent on checkpoints and restarts.

Failures come at random, as many for each node and day: with the time M between those of all nodes, a checkpoint that
takes δ and a restart that takes R, training in intervals of τ between checkpoints is productive for

    τ / (M · exp(R/M) · (exp((τ + δ)/M) - 1))

of the time (Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22). The
best τ is √(2δM) in Young's first order (1974), and in Daly's √(2δM) · (1 + √(δ/2M)/3 + δ/18M) - δ, or M where δ ≥ 2M.

Where no node has to be waited for, training goes on after `reload_seconds` in place of R. With r failures of a node in
a second, and repair in `repair_seconds` D, n·r·D of n nodes are broken on average, a number that is Poisson. *Elastic*
training goes on without them, and its share loses r·D. *Spare* nodes take their place, as many as are enough in 99 % of
the time; the share is then one of all nodes, with the spares.

Throughput times this share is the rate that remains. It stalls where doubling the nodes gains less than the threshold:
on few nodes as throughput does, on many sooner, as M halves with each doubling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stallpoint.base.curve import Curve
from stallpoint.base.distributions import poisson_quantile
from stallpoint.base.measured import SERIES
from stallpoint.base.statistics import (
    REPLICATES,
    Ensemble,
    Reals,
    bootstrap,
    columns,
    columns_of,
    generator,
    groups,
    scatter,
    visits_of,
)
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.records.tables import AVAILABILITY, STORAGE_OPERATIONS
from stallpoint.study.kinds.storage_kind import CHECKPOINT_READ, CHECKPOINT_WRITE

DAY = 86400
SPARES_SUFFICE = 0.99
"""Part of the time in which spare nodes are enough."""
_NODES: Reals = 2.0 ** np.arange(0, 30, 1 / 16)
"""Numbers of nodes among which `limit` looks."""
_LEAST = 1e-300


def young_interval(checkpoint: Reals | float, between: Reals) -> Reals:
    """Return Young's interval between checkpoints that take `checkpoint`, with failures `between` apart, all in s."""
    return np.sqrt(2 * checkpoint * between)


def daly_interval(checkpoint: Reals | float, between: Reals) -> Reals:
    """Return Daly's interval, which holds also where checkpoints take long."""
    part = np.asarray(checkpoint / (2 * between))
    higher = young_interval(checkpoint, between) * (1 + np.sqrt(part) / 3 + part / 9) - checkpoint
    return np.where(part < 1, higher, between)


def productive_share(between: Reals, interval: Reals, checkpoint: Reals | float, restart: Reals | float) -> Reals:
    """Return the expected productive share of the time."""
    with np.errstate(over="ignore"):
        taken = between * np.exp(restart / between) * np.expm1((interval + checkpoint) / between)
    return np.asarray(interval / taken)


@dataclass(frozen=True)
class Failures:
    """Failures of a hardware entry, and what each costs."""

    per_node_day: Ensemble
    checkpoint: Ensemble
    """Time to write a checkpoint, s."""
    restart: Ensemble
    """Time from a failure until training goes on from the last checkpoint, s."""
    reload: Ensemble
    """The same where no node has to be waited for; NaN where unknown."""
    repair: float = np.nan
    """Time until a failed node is back, s; NaN where unknown."""
    measured: bool = False
    """Whether writing and reading a checkpoint was timed."""

    @classmethod
    def of(
        cls, hardware: str, given: Mapping[str, float], seed: int, timed: Mapping[str, Ensemble] | None = None
    ) -> Failures:
        """Build from the entry ``failures``; a rate that was ``counted`` is as uncertain as a Poisson count.

        `timed` are the times of `CHECKPOINT_WRITE` and `CHECKPOINT_READ` on a storage; writing takes that time unless
        it is given, and reading adds to a restart then.
        """
        measured = "checkpoint_seconds" not in given
        timed = (timed if measured else None) or {}
        write = timed.get(CHECKPOINT_WRITE, np.full(1 + REPLICATES, given.get("checkpoint_seconds", np.nan)))
        read = timed.get(CHECKPOINT_READ, np.zeros(1 + REPLICATES))
        rate = np.full(1 + REPLICATES, given["per_node_day"])
        if counted := given.get("counted"):
            rate[1:] *= generator(seed, "failures", hardware).gamma(counted + 0.5, size=REPLICATES) / counted
        reload, repair = (given.get(f"{name}_seconds", np.nan) for name in ("reload", "repair"))
        return cls(rate, write, given["restart_seconds"] + read, reload + read, repair, measured)

    def between(self, nodes: Reals | int) -> Reals:
        """Return the time between failures of so many nodes, s."""
        return np.asarray(DAY / (self.per_node_day * nodes))

    def share(self, nodes: int) -> Ensemble:
        """Return the productive share on so many nodes, with checkpoints at Daly's interval."""
        return self._share(self.between(nodes), self.restart)

    def elastic_share(self, nodes: int) -> Ensemble:
        """Return the share where training goes on without nodes that failed."""
        return self._share(self.between(nodes), self.reload) * np.maximum(1 - self._broken, 0.0)

    def spares(self, nodes: int) -> int:
        """Return the spare nodes that are enough in `SPARES_SUFFICE` of the time; 0 where repair is unknown."""
        mean = float(nodes * self._broken[0])
        if not np.isfinite(mean):
            return 0
        return poisson_quantile(SPARES_SUFFICE, mean)

    def spare_share(self, nodes: int) -> Ensemble:
        """Return the share, of all nodes with the spares, where these take the place of nodes that failed."""
        return self._share(self.between(nodes), self.reload) * (nodes / (nodes + self.spares(nodes)))

    @property
    def _broken(self) -> Ensemble:
        """Mean part of the nodes that are being repaired."""
        return self.per_node_day * self.repair / DAY

    def _share(self, between: Reals, restart: Ensemble) -> Reals:
        write, again = (one.reshape(-1, *[1] * (between.ndim - 1)) for one in (self.checkpoint, restart))
        return np.maximum(productive_share(between, daly_interval(write, between), write, again), _LEAST)

    def limit(self, threshold: float) -> Ensemble:
        """Return the number of nodes from which doubling gains less than `threshold` though throughput doubles."""
        between = DAY / (self.per_node_day[:, None] * _NODES)
        pays = 2 * self._share(between / 2, self.restart) / self._share(between, self.restart) >= 1 + threshold
        return np.where(pays.all(axis=1), np.inf, _NODES[pays.argmin(axis=1)])


def row(curve: CurvePoints, failures: Failures, threshold: float) -> dict[str, object]:
    """Return the row of the availability table for a curve of known worker counts."""
    rates = curve.known.rates
    remaining = {n: rate * failures.share(curve.at(n).point.nodes) for n, rate in rates.items()}
    verdict, ranks = Curve(rates, threshold=threshold).stall.verdict
    largest = max(rates)
    nodes = curve.at(largest).point.nodes
    return {
        **{name: getattr(curve.origin, name) for name in SERIES},
        **Curve(remaining, threshold=threshold).stall.answer,
        "without_failures": verdict,
        "without_failures_ranks": ranks,
        **columns("failure_limit", failures.limit(threshold)),
        "ranks": largest,
        **columns_of({
            "checkpoint_interval": daly_interval(failures.checkpoint, failures.between(nodes)),
            "productive_share": failures.share(nodes),
            "checkpoint_time": failures.checkpoint,
            "elastic_share": failures.elastic_share(nodes),
            "spare_share": failures.spare_share(nodes),
        }),
        "spares": failures.spares(nodes),
        "checkpoint_from": "measured" if failures.measured else "given",
    }  # fmt: skip


def _failing(fitted: FittedStudy) -> Iterator[tuple[CurvePoints, Failures]]:
    asked, timed = fitted.asked, fitted.once(_timed)
    for curve in fitted.training:
        at = curve.origin.hardware, curve.origin.storage
        if (given := asked.failures.get(at[0])) and (
            "checkpoint_seconds" in given or CHECKPOINT_WRITE in timed.get(at, {})
        ):
            yield curve, Failures.of(at[0], given, asked.seed, timed.get(at))


def _timed(fitted: FittedStudy) -> dict[tuple[str, str], dict[str, Ensemble]]:
    """Return the times of `CHECKPOINT_WRITE` and `CHECKPOINT_READ` of a checkpoint by hardware and storage, s."""
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
    """Rows of the availability table, for each curve on hardware that says its failures."""
    for curve, failures in _failing(fitted):
        if curve.known.rates:
            yield row(curve, failures, fitted.asked.threshold)


QUESTIONS = (Question(AVAILABILITY, table),)
