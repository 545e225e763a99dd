"""What training takes beyond its isolated parts, as predictions are given it; `contention` learns it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stallpoint.models.base.statistics import Ensemble, Reals

FAIR_SHARE = 0.5
"""Most of a core that a communication thread takes from a thread that computes all the time."""


@dataclass(frozen=True)
class CoRunCost:
    """What messages and computing take from each other when every rank computes; [1 + REPLICATES, messages], s."""

    longer: Ensemble
    """How much longer each message takes."""
    work: Ensemble
    """How much longer computing takes for each."""

    def __add__(self, other: CoRunCost) -> CoRunCost:
        """Of messages of both, one after the other."""
        return CoRunCost(self.longer + other.longer, self.work + other.work)


@dataclass(frozen=True)
class Messages:
    """What was measured of messages without training; [1 + REPLICATES, messages], in the order of sending, s."""

    latency: Ensemble
    """What of each is latency."""
    isolated: Ensemble
    """On idle nodes."""
    rounds: float
    """Of each, as `rounds` counts them."""
    co_run: CoRunCost | None = None
    """None where it was not measured; the isolated time then stands for both."""

    def __add__(self, other: Messages) -> Messages:
        """Each followed by one of the other ones."""
        co_run = self.co_run + other.co_run if self.co_run and other.co_run else None
        return Messages(
            self.latency + other.latency, self.isolated + other.isolated, self.rounds + other.rounds, co_run
        )

    def and_then(self, others: Messages) -> Messages:
        """These and then the `others`, among the same ranks, on idle nodes."""
        latency = np.concatenate([self.latency, others.latency], axis=-1)
        return Messages(latency, np.concatenate([self.isolated, others.isolated], axis=-1), self.rounds)

    @property
    def beside(self) -> Ensemble:
        """How long each takes while every rank computes, as far as that is known."""
        return self.isolated + self.co_run.longer if self.co_run else self.isolated

    @property
    def work(self) -> Ensemble:
        """What each takes from computing goes with this."""
        return self.co_run.work if self.co_run else self.isolated

    def slowed(self, factor: Reals) -> Messages:
        """The same over links on which everything takes `factor` [..., 1] times as long."""
        return replace(self, latency=self.latency * factor, isolated=self.isolated * factor)


@dataclass(frozen=True)
class IsolatedComputing:
    """What computing would take if nothing slowed it down; ensembles, s."""

    forward: Ensemble
    backward: Ensemble
    update: Ensemble
    matrix: Ensemble
    """Forward and backward of the layers in `measured.MATRIX_LAYERS`."""
    fully_connected: Ensemble
    """Of the fully-connected ones among them."""


@dataclass(frozen=True)
class IsolatedTimes(IsolatedComputing):
    """What a point would take if nothing slowed anything down."""

    messages: Messages
    gathered: Messages | None = None
    """All-gathers of sharded weights, one for each of the messages."""

    @property
    def computing(self) -> IsolatedComputing:
        """Without the messages, which are many."""
        return IsolatedComputing(self.forward, self.backward, self.update, self.matrix, self.fully_connected)


@dataclass(frozen=True)
class PerMessage:
    """Seconds of a message: rounds · each + share · what was measured of it without training."""

    each: Ensemble
    """s in each round."""
    share: Ensemble

    def __call__(self, known: Ensemble, in_rounds: float) -> Ensemble:
        """Seconds of messages of so many rounds for which `known` [1 + REPLICATES, messages] was measured."""
        seconds: Ensemble = in_rounds * self.each[:, None] + self.share[:, None] * known
        return seconds


def rounds(ranks: int) -> float:
    """Rounds in which every rank can hear of every other one: in each somebody's thread has to get a core first."""
    return float(np.ceil(np.log2(ranks))) if ranks > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class Effects:
    """How much longer things take in training than isolated."""

    forward: Ensemble
    """Factor on the forward pass; 1 at least, as ranks that compute together are no faster than one."""
    backward: Ensemble
    """Factor on the backward pass while no message is under way; 1 at least."""
    update: Ensemble
    """Factor on the update."""
    waiting: Ensemble
    """Taking over a mini-batch that was read ahead, s."""
    work: PerMessage
    """What a message beside the backward pass takes from it: to hand over and take in, and to move its bytes."""
    beside: PerMessage
    """What a message takes beside the backward pass: delays, and a factor."""
    after: PerMessage
    gathering: PerMessage
    """What an all-gather of sharded weights takes."""
    straggling: Ensemble
    """Waiting for the slowest worker, over a worker's own time."""
    sent: list[list[int]] | None
    """Layers of each message, where the same network was sent by the same preset."""

    def of_messages(self, messages: Messages) -> tuple[Ensemble, Ensemble, Ensemble]:
        """Seconds of messages after the backward pass and beside it, and the factor on the pass beside them.

        A message costs the backward pass the same work however long it is under way: while it waits for a core or for
        the other ranks, it takes nothing. [messages, 1 + REPLICATES] each.
        """
        beside = self.beside(messages.beside, messages.rounds)
        work = self.work(messages.work, messages.rounds)
        part = np.divide(work, beside, out=np.zeros(beside.shape), where=beside > 0)
        slower = 1 / (1 - np.minimum(part, FAIR_SHARE))
        return self.waited_for(messages).T, beside.T, slower.T

    def waited_for(self, messages: Messages) -> Ensemble:
        """Seconds of messages beside which nothing computes, [1 + REPLICATES, messages]."""
        return self.after(messages.isolated, messages.rounds)


_ONE, _ZERO = np.ones(1), np.zeros(1)
AS_ISOLATED = PerMessage(_ZERO, _ONE)
NONE = Effects(
    forward=_ONE,
    backward=_ONE,
    update=_ONE,
    waiting=_ZERO,
    work=PerMessage(_ZERO, _ZERO),
    beside=AS_ISOLATED,
    after=AS_ISOLATED,
    gathering=AS_ISOLATED,
    straggling=_ZERO,
    sent=None,
)
"""Nothing takes longer: what is assumed where nothing was measured."""
AS_CO_RUN = replace(NONE, work=AS_ISOLATED)
"""What messages and computing take from each other is what was measured without training."""
