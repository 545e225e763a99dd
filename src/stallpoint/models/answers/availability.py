"""Productive share: the part of a job's time that is neither lost to failures nor spent on checkpoints and restarts.

Failures come at random, as many for each node and day: with the time M between those of all nodes, a checkpoint that
takes δ and a restart that takes R, training in intervals of τ between checkpoints is productive for

    τ / (M · exp(R/M) · (exp((τ + δ)/M) - 1))

of the time (Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22). The
best τ is √(2δM) in Young's first order (1974), and in Daly's √(2δM) · (1 + √(δ/2M)/3 + δ/18M) - δ, or M where δ ≥ 2M.

Throughput times this share is the rate that remains. It stalls where doubling the nodes gains less than the threshold:
on few nodes as throughput does, on many sooner, as M halves with each doubling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.answers.stalling import Gains, doublings
from stallpoint.models.base.measured import SERIES
from stallpoint.models.base.stall import Stall
from stallpoint.models.base.statistics import REPLICATES, Ensemble, Reals, columns, columns_of, generator
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.records.tables import AVAILABILITY, AVAILABILITY_STALLING

DAY = 86400
_NODES: Reals = 2.0 ** np.arange(0, 30, 1 / 16)
"""Numbers of nodes among which `limit` looks."""
_LEAST = 1e-300


def young_interval(checkpoint: float, between: Reals) -> Reals:
    """Return Young's interval between checkpoints that take `checkpoint`, with failures `between` apart, all in s."""
    return np.sqrt(2 * checkpoint * between)


def daly_interval(checkpoint: float, between: Reals) -> Reals:
    """Return Daly's interval, which holds also where checkpoints take long."""
    part = np.asarray(checkpoint / (2 * between))
    higher = young_interval(checkpoint, between) * (1 + np.sqrt(part) / 3 + part / 9) - checkpoint
    return np.where(part < 1, higher, between)


def productive_share(between: Reals, interval: Reals, checkpoint: float, restart: float) -> Reals:
    """Return the expected productive share of the time."""
    with np.errstate(over="ignore"):
        taken = between * np.exp(restart / between) * np.expm1((interval + checkpoint) / between)
    return np.asarray(interval / taken)


@dataclass(frozen=True)
class Failures:
    """Failures of a hardware entry, and what each costs."""

    per_node_day: Ensemble
    checkpoint: float
    """Time to write a checkpoint, s."""
    restart: float
    """Time from a failure until training goes on from the last checkpoint, s."""

    @classmethod
    def of(cls, hardware: str, given: Mapping[str, float], seed: int) -> Failures:
        """Build from the entry ``failures``; a rate that was ``counted`` is as uncertain as a Poisson count."""
        rate = np.full(1 + REPLICATES, given["per_node_day"])
        if counted := given.get("counted"):
            rate[1:] *= generator(seed, "failures", hardware).gamma(counted + 0.5, size=REPLICATES) / counted
        return cls(rate, given["checkpoint_seconds"], given["restart_seconds"])

    def between(self, nodes: Reals | int) -> Reals:
        """Return the time between failures of so many nodes, s."""
        return np.asarray(DAY / (self.per_node_day * nodes))

    def share(self, nodes: int) -> Ensemble:
        """Return the productive share on so many nodes, with checkpoints at Daly's interval."""
        return self._share(self.between(nodes))

    def _share(self, between: Reals) -> Reals:
        best = daly_interval(self.checkpoint, between)
        return np.maximum(productive_share(between, best, self.checkpoint, self.restart), _LEAST)

    def limit(self, threshold: float) -> Ensemble:
        """Return the number of nodes from which doubling gains less than `threshold` though throughput doubles."""
        between = DAY / (self.per_node_day[:, None] * _NODES)
        pays = 2 * self._share(between / 2) / self._share(between) >= 1 + threshold
        return np.where(pays.all(axis=1), np.inf, _NODES[pays.argmin(axis=1)])


def rows(curve: ScalingCurve, failures: Failures) -> Iterator[dict[str, object]]:
    """Yield the rows of the availability table: every known placement of a curve."""
    for ranks in curve.known:
        at = curve.at(ranks)
        between, share = failures.between(at.point.nodes), failures.share(at.point.nodes)
        yield {
            **at.point.labels(),
            "basis": curve.basis(ranks),
            **columns_of({
                "time_between_failures": between,
                "young_interval": young_interval(failures.checkpoint, between),
                "checkpoint_interval": daly_interval(failures.checkpoint, between),
                "productive_share": share,
                "productive_rate": share * at.point.global_batch / at.parts.iteration_time,
            }),
        }  # fmt: skip


def stalling(curve: ScalingCurve, of_throughput: Gains, failures: Failures, threshold: float) -> dict[str, object]:
    """Return the row of the availability_stalling table."""
    logs = {n: np.log(failures.share(curve.at(n).point.nodes))[1:] for n in curve.known}
    gained = {n: gain + logs[2 * n] - logs[n] for n, (_, gain) in of_throughput.items()}
    largest = 2 * max(gained, default=0)
    without = Stall.of({n: gain for n, (_, gain) in of_throughput.items()}, largest, threshold)
    verdict, ranks = without.verdict
    return {
        **{name: getattr(curve.origin, name) for name in SERIES},
        **Stall.of(gained, largest, threshold).answer,
        "without_failures": verdict,
        "without_failures_ranks": ranks,
        **columns("failure_limit", failures.limit(threshold)),
    }


def _failing(fitted: FittedStudy) -> Iterator[tuple[ScalingCurve, Failures]]:
    asked = fitted.asked
    known = {name: Failures.of(name, given, asked.seed) for name, given in asked.failures.items()}
    yield from ((curve, known[at]) for curve in fitted.training if (at := curve.origin.hardware) in known)


def _stalls(fitted: FittedStudy) -> Iterator[dict[str, object]]:
    gains_of: Callable[[ScalingCurve], Gains] = fitted.once(doublings)
    for curve, failures in _failing(fitted):
        yield stalling(curve, gains_of(curve), failures, fitted.asked.threshold)


QUESTIONS = (
    Question(AVAILABILITY, lambda fitted: [row for pair in _failing(fitted) for row in rows(*pair)]),
    Question(AVAILABILITY_STALLING, lambda fitted: list(_stalls(fitted))),
)
