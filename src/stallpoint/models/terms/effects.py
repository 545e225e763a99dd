"""Time that training adds to its isolated parts, in the form that predictions use; `contention` calibrates it.

*Slowdown*: time of computing, and its spread over workers, while all workers of a job compute, relative to a job on
fewer workers. Virtual nodes, and nodes that share power or cooling, slow each other down. A slow node among many delays
the others. The slowdown is estimated from compute bursts without messages in the records of contention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from stallpoint.base.lagging import lagging
from stallpoint.base.measured import kept
from stallpoint.base.shrinkage import shrink_to_one
from stallpoint.base.statistics import REPLICATES, Ensemble, Reals, bootstrap, generator, groups, scatter, visits_of
from stallpoint.study.workers import Placement, nearest

FAIR_SHARE = 0.5
"""Largest share of a core that a communication thread takes from a thread that always computes."""


@dataclass(frozen=True)
class CoRunCost:
    """Mutual slowdown of messages and computing while every rank computes; [1 + REPLICATES, messages], s."""

    longer: Ensemble
    """Additional time of each message."""
    work: Ensemble
    """Additional time of computing per message."""

    def __add__(self, other: CoRunCost) -> CoRunCost:
        """Return the costs of pairs of messages: one of these messages, followed by one of `other`."""
        return CoRunCost(self.longer + other.longer, self.work + other.work)


@dataclass(frozen=True)
class CollectiveTimes:
    """Times of messages measured without training; [1 + REPLICATES, messages], in the order of sending, s."""

    latency: Ensemble
    """Latency part of each message."""
    isolated: Ensemble
    """Time of each message on idle nodes."""
    rounds: float
    """Rounds of each message, as `rounds` counts them."""
    co_run: CoRunCost | None = None
    """Slowdown by computing; None if not measured: the isolated time is then used for both."""

    def __add__(self, other: CollectiveTimes) -> CollectiveTimes:
        """Return the times of pairs of messages: one of these messages, followed by one of `other`."""
        co_run = self.co_run + other.co_run if self.co_run and other.co_run else None
        return CollectiveTimes(
            self.latency + other.latency, self.isolated + other.isolated, self.rounds + other.rounds, co_run
        )

    def followed_by(self, others: CollectiveTimes) -> CollectiveTimes:
        """Return these collectives and after them the `others`, among the same ranks on idle nodes."""
        latency = np.concatenate([self.latency, others.latency], axis=-1)
        return CollectiveTimes(latency, np.concatenate([self.isolated, others.isolated], axis=-1), self.rounds)

    @property
    def co_running(self) -> Ensemble:
        """Return the time of each message while every rank computes; where unknown, its isolated time."""
        return self.isolated + self.co_run.longer if self.co_run else self.isolated

    @property
    def work(self) -> Ensemble:
        """Return the time that each message takes from computing."""
        return self.co_run.work if self.co_run else self.isolated

    def scaled(self, factor: Reals) -> CollectiveTimes:
        """Return the times over links slower by `factor` [..., 1]."""
        return replace(self, latency=self.latency * factor, isolated=self.isolated * factor)


FACTORED_ALL_REDUCES = 3
"""Number of all-reduces that PowerSGD makes of a message: unfactored gradients, and each of two factors."""


@dataclass(frozen=True)
class Factors:
    """Factors sent in place of gradients (PowerSGD), observed in training on the fewest nodes."""

    share: Reals
    """Bytes of each message over those of its gradients, [messages]."""
    making: Ensemble
    """Time to make factors, and gradients from their sums, per byte of gradients, s/B, [1 + REPLICATES, messages]."""

    def with_making_times(self, factor: Ensemble | float) -> Factors:
        """Return the factors with the time to make them multiplied by `factor`."""
        return replace(self, making=self.making * np.reshape(factor, (-1, 1)))

    def times(self, sizes: Sequence[int], collectives: Callable[[Sequence[float]], CollectiveTimes]) -> CollectiveTimes:
        """Return the time of each message for gradients of `sizes` bytes: to make factors, and for three all-reduces.

        `collectives` returns the times of all-reduces by their bytes. Each all-reduce is taken to send a third of a
        message's bytes, as their true division is not recorded.
        """
        one = collectives(list(np.multiply(sizes, self.share) / FACTORED_ALL_REDUCES))
        sent = one + one + one
        return replace(sent, isolated=sent.isolated + self.making * np.asarray(sizes))


@dataclass(frozen=True)
class IsolatedComputing:
    """Computing times without slowdown; ensembles, s."""

    forward: Ensemble
    backward: Ensemble
    update: Ensemble
    matrix: Ensemble
    """Forward and backward of the layers in `measured.MATRIX_LAYERS`."""
    fully_connected: Ensemble
    """Forward and backward of the fully-connected layers."""


@dataclass(frozen=True)
class IsolatedTimes(IsolatedComputing):
    """Times of the parts of training at a point, each measured in isolation."""

    collectives: CollectiveTimes
    gathered: CollectiveTimes | None = None
    """All-gathers of sharded weights, one for each message."""

    @property
    def computing(self) -> IsolatedComputing:
        """Return the times without those of the messages."""
        return IsolatedComputing(self.forward, self.backward, self.update, self.matrix, self.fully_connected)


@dataclass(frozen=True)
class PerMessage:
    """Law of a message's seconds: rounds · `each` + `share` · isolated seconds + `constant`."""

    each: Ensemble
    """Seconds per round."""
    share: Ensemble
    constant: float = 0.0

    def __call__(self, isolated: Ensemble, in_rounds: float) -> Ensemble:
        """Return the seconds of messages in `in_rounds` rounds, from `isolated` seconds [1 + REPLICATES, messages]."""
        seconds: Ensemble = in_rounds * self.each[:, None] + self.share[:, None] * isolated + self.constant
        return seconds

    def with_delay(self, seconds: float) -> PerMessage:
        """Return this law with `seconds` added to every message, whatever its size."""
        return replace(self, constant=self.constant + seconds)

    def known(self, seconds: Ensemble, in_rounds: float) -> Ensemble:
        """Return the isolated times of messages that take `seconds` in training."""
        times: Ensemble = (seconds - in_rounds * self.each[:, None]) / self.share[:, None]
        return times


def rounds(ranks: int) -> float:
    """Return the number of rounds until each rank's data has reached all ranks; a thread needs a core in each round."""
    return float(np.ceil(np.log2(ranks))) if ranks > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Slowdowns of the parts of training, relative to the same parts timed in isolation."""

    forward: Ensemble
    """Factor on the forward pass; at least 1, as co-running ranks are no faster than one."""
    backward: Ensemble
    """Factor on the backward pass while no message is under way; at least 1."""
    update: Ensemble
    """Factor on the update."""
    waiting: Ensemble
    """Time to take over a mini-batch that was read ahead, s."""
    work: PerMessage
    """Time that a message takes from the backward pass, to be handed over and for its bytes to be moved."""
    co_running: PerMessage
    """Time of a message during the backward pass: delays, and a factor."""
    after: PerMessage
    gathering: PerMessage
    """Time of an all-gather of sharded weights."""
    straggling: Ensemble
    """Wait for the slowest worker, over a worker's own time."""
    buckets: list[list[int]] | None
    """Layers of each message, if observed for the same preset and network."""
    factors: Factors | None = None
    """Factors that the preset sends in place of these messages' gradients, if observed."""

    def collective_seconds(self, collectives: CollectiveTimes) -> tuple[Ensemble, Ensemble, Ensemble]:
        """Return the seconds of messages after and during the backward pass, and the factor by which each slows the
        pass; all three are [messages, 1 + REPLICATES].

        The work that a message takes from the backward pass does not depend on the message's time: a waiting message
        takes nothing.
        """
        co_running = self.co_running(collectives.co_running, collectives.rounds)
        work = self.work(collectives.work, collectives.rounds)
        part = np.divide(work, co_running, out=np.zeros(co_running.shape), where=co_running > 0)
        slower = 1 / (1 - np.minimum(part, FAIR_SHARE))
        return self.awaited_seconds(collectives).T, co_running.T, slower.T

    def awaited_seconds(self, collectives: CollectiveTimes) -> Ensemble:
        """Return the seconds of messages for which computing waits, [1 + REPLICATES, messages]."""
        return self.after(collectives.isolated, collectives.rounds)


_ONE, _ZERO = np.ones(1), np.zeros(1)
ISOLATED_LAW = PerMessage(_ZERO, _ONE)
NONE = Effects(
    forward=_ONE,
    backward=_ONE,
    update=_ONE,
    waiting=_ZERO,
    work=PerMessage(_ZERO, _ZERO),
    co_running=ISOLATED_LAW,
    after=ISOLATED_LAW,
    gathering=ISOLATED_LAW,
    straggling=_ZERO,
    buckets=None,
)
"""No slowdown, assumed without measurements."""
MEASURED_CO_RUN = replace(NONE, work=ISOLATED_LAW)
"""Slowdown of messages and computing by each other as measured without training."""


# --- time of computing on several workers ---------------------------------------------------------


def expected_lead(values: Reals, workers: int) -> float:
    """Return the expected maximum of n = `workers` draws from m `values`. The maximum is the j-th smallest value with
    probability (j^n - (j-1)^n) / m^n."""
    if not len(values):
        return 0.0
    places = np.arange(len(values) + 1) / len(values)
    return float(np.sort(values) @ np.diff(places**workers))


RATIO_SPREAD = 0.1
"""Prior scale (log) of the ratio of two placements."""


@dataclass(frozen=True)
class Slowdown:
    """Times of compute bursts, by hardware and placement."""

    known: dict[str, dict[Placement, Ensemble]]
    """Seconds of a burst, in units of that hardware's bursts."""
    leads: dict[str, dict[Placement, Ensemble]]
    """Excess of the slowest rank's burst over the mean of ranks that do not lag, relative to the mean."""

    def ratio(self, hardware: str, placement: Placement, reference: Placement) -> Ensemble:
        """Return a burst's time at `placement` divided by that at `reference`, from the nearest measured placements.
        It is shrunk towards 1, the more the less certain it is."""
        known = self.known.get(hardware)
        if not known:
            return np.ones(1 + REPLICATES)
        here, there = (known[nearest(known, at)] for at in (placement, reference))
        return shrink_to_one(here / there, RATIO_SPREAD)

    def further_lead(self, hardware: str, placement: Placement, reference: Placement) -> Ensemble | None:
        """Return how much more the slowest rank lags at `placement` than at `reference`; None unless both are known."""
        leads = self.leads.get(hardware, {})
        return leads[placement] - leads[reference] if {placement, reference} <= set(leads) else None


def fit(contention: pd.DataFrame, seed: int) -> Slowdown:
    """Return the slowdown of computing, a median over jobs. Replicates resample jobs: equal jobs differ too."""
    known: dict[str, dict[Placement, Ensemble]] = {}
    leads: dict[str, dict[Placement, Ensemble]] = {}
    rows = kept(contention)
    rows = rows.assign(piece=rows["isolated_computing"] / rows["isolated_operations"])
    usual = {hardware: scatter(here, ["nodes", "ranks"], "piece") for hardware, here in groups(rows, "hardware")}
    for (hardware, nodes, ranks), here in groups(rows, ["hardware", "nodes", "ranks"]):
        random, placement = generator(seed, "pace", hardware, nodes, ranks), (nodes, ranks // nodes)
        known.setdefault(hardware, {})[placement] = bootstrap(
            here["piece"], visits_of(here), random, prior=usual[hardware]
        )
        burst_columns = ["cell", "repeat", "visit", "operation", "message_bytes", "sample"]
        lags = lagging(here["piece"], here["repeat"], here.groupby(burst_columns).ngroup(), here["rank"])
        lead = here.groupby(burst_columns)["piece"].max() / here[~lags].groupby(burst_columns)["piece"].mean() - 1
        leads.setdefault(hardware, {})[placement] = bootstrap(lead, visits_of(lead.index.to_frame(index=False)), random)
    return Slowdown(known, leads)
