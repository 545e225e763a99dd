"""Scaling laws: how much longer an iteration takes on n workers than on one.

Each worker's samples per second on n workers are those of a lone worker over g(n) = 1 + h(n), where the overhead h is
in units of the lone worker's iteration time. Where the nodes are known, h has one part for the link inside a node, by
the workers there, and one for the link between nodes, by the nodes.

A coefficient is median · exp(spread · z) with z standard normal: its prior. Medians and spreads are general
knowledge, not fitted to a series (docs/models/scaling-laws.md says where each comes from).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stallpoint.models.base.statistics import Reals
from stallpoint.models.scaling.series_placement import Places

Overhead: TypeAlias = Callable[[Sequence[Reals], Reals], Reals]
"""(coefficients, each [draws, 1]; workers [places]) -> h [draws, places]."""


@dataclass(frozen=True)
class Prior:
    """A log-normal prior of a positive coefficient."""

    name: str
    median: float
    spread: float
    """Standard deviation of its natural logarithm."""


@dataclass(frozen=True)
class Term:
    """An overhead with its coefficients."""

    priors: tuple[Prior, ...]
    overhead: Overhead


@dataclass(frozen=True)
class Law:
    """One law."""

    name: str
    worker: Term
    """Overhead by the workers: those of a node where nodes are known, else all of them."""
    node: Term
    """What is added by the nodes once there is more than one; its first coefficient is the first step."""
    through_workers: bool = False
    """What crosses a node's link grows with all workers, not with the nodes: one ring passes through every worker."""
    overlaps: bool = False
    """Overheads are communication beside the backward pass: only what exceeds the overlap is exposed."""
    shared: bool = False
    """What limits may be one for all nodes (a server, a file system, a switch), so that no node adds to it."""
    of_rates: bool = False
    """The law says how the rate grows, whatever the mini-batch: its overhead is not paid for each mini-batch."""
    prior_weight: float = 1.0
    """How likely the law is before anything was measured, relative to the others."""


def _constant(c: Sequence[Reals], n: Reals) -> Reals:
    return np.where(n > 1, c[0], 0.0)


def _log(c: Sequence[Reals], n: Reals) -> Reals:
    return np.where(n > 1, c[0] * (1 + c[1] * np.log2(np.maximum(n, 2) / 2)), 0.0)


def _linear(c: Sequence[Reals], n: Reals) -> Reals:
    return np.where(n > 1, c[0] * (1 + c[1] * (np.maximum(n, 2) - 2)), 0.0)


def _ring(c: Sequence[Reals], n: Reals) -> Reals:
    return np.asarray(c[0] * (2 * (n - 1) / n + c[1] * 2 * (n - 1)))


def _amdahl(c: Sequence[Reals], n: Reals) -> Reals:
    return np.asarray(c[0] * (n - 1))


def _usl(c: Sequence[Reals], n: Reals) -> Reals:
    return np.asarray(c[0] * ((n - 1) + c[1] * n * (n - 1)))


def _slowest_link(c: Sequence[Reals], n: Reals) -> Reals:
    return np.asarray(c[0] * 2 * (n - 1) / n * np.where(n > c[1], 1 + c[2], 1.0))


def _growing(c: Sequence[Reals], n: Reals) -> Reals:
    return np.where(n > 1, c[0] * np.exp(np.minimum(c[1] * np.log(np.maximum(n, 2) / 2), 20.0)), 0.0)


def _divided(c: Sequence[Reals], n: Reals) -> Reals:
    return np.asarray(_constant(c, n) - c[1] / (1 + c[1]) * (1 - 1 / n))


def _saturation(c: Sequence[Reals], n: Reals) -> Reals:
    return np.maximum(_constant(c, n), n / np.maximum(c[1], 1.0) - 1)


FIRST = Prior("first", 0.05, 1.3)
"""Overhead of the first step, from one worker to two."""
COMMUNICATION = Prior("communication", 0.3, 1.0)
"""The same for all of the communication, hidden or not."""
DOUBLING = Prior("per_doubling", 0.25, 1.0)
"""Growth of the overhead with each further doubling, in units of the first step: 0 in a ring, 1 in a tree."""
GROWTH = Prior("growth", 0.3, 1.0)
"""Power of the workers with which communication grows: 0 in a ring, 1 at a server; a tree is between them."""
DIVIDED = Prior("divided_part", 0.05, 1.0)
"""Part of a lone worker's iteration that workers divide among themselves, over the part that each has to do."""
WORKER = Prior("per_worker", 0.03, 1.2)
"""Growth of the overhead with each further worker, in units of the first step."""
LATENCY = Prior("latency", 0.02, 1.2)
REACH = Prior("reach", 3.0, 0.6)
"""Workers that the fast links connect: pairs, those of a switch, of a socket."""
SLOWER = Prior("slower_link", 1.5, 1.0)
"""What the slowest link beyond them adds, in units of what the fast one takes."""
SERIAL = Prior("serial", 0.005, 1.3)
CONTENTION = Prior("contention", 0.01, 1.3)
COHERENCY = Prior("coherency", 0.003, 1.3)
LIMIT = Prior("limit", 16.0, 1.5)
"""Workers that a shared resource (the storage, the host's decoding) can feed."""
OVERLAP = Prior("overlap", 0.3, 0.7)
"""Communication that the backward pass hides."""
FLOOR = Prior("floor", 0.05, 1.5)
"""Part of the iteration that does not get shorter with the mini-batch, over the part that does."""

NODE_FIRST = Prior("node_first", 0.12, 1.3)
NODE_COMMUNICATION = Prior("node_communication", 0.5, 1.0)
NODE_GROWTH = Prior("node_growth", 0.3, 1.0)
NODE_DOUBLING = Prior("node_per_doubling", 0.5, 1.0)
NODE_WORKER = Prior("node_per_node", 0.03, 1.2)
SHARING = Prior("link_sharing", 0.2, 1.0)
"""What two workers that share a node's link add to what it costs, in units of the first step; many add twice as much.
0 where a byte crosses it once for all of them (a hierarchical reduction)."""

_LOG_NODES = Term((NODE_FIRST, NODE_DOUBLING), _log)
_LINEAR_NODES = Term((NODE_FIRST, NODE_WORKER), _linear)
_RING_NODES = Term((NODE_FIRST, LATENCY), _ring)
_CONSTANT_NODES = Term((NODE_FIRST,), _constant)
_EXPOSED = Term((COMMUNICATION, GROWTH), _growing), Term((NODE_COMMUNICATION, NODE_GROWTH), _growing)

LAWS = (
    Law("constant", Term((FIRST,), _constant), _LOG_NODES),
    Law("ring", Term((FIRST, LATENCY), _ring), _RING_NODES, through_workers=True),
    Law("slowest-link", Term((FIRST, REACH, SLOWER), _slowest_link), _RING_NODES, through_workers=True),
    Law("log", Term((FIRST, DOUBLING), _log), _LOG_NODES),
    Law("dag", *_EXPOSED, overlaps=True),
    Law("linear", Term((FIRST, WORKER), _linear), _LINEAR_NODES, shared=True),
    Law("amdahl", Term((SERIAL,), _amdahl), _LINEAR_NODES, shared=True, of_rates=True),
    Law("usl", Term((CONTENTION, COHERENCY), _usl), _LINEAR_NODES, shared=True, of_rates=True),
    Law("divided", Term((FIRST, DIVIDED), _divided), _LOG_NODES, shared=True, of_rates=True, prior_weight=0.5),
    Law("saturation", Term((FIRST, LIMIT), _saturation), _CONSTANT_NODES, shared=True, of_rates=True, prior_weight=0.5),
)
"""Every law; docs/models/scaling-laws.md has the formulas.

Before anything was measured all are equally likely, but for `saturation` and `divided`: until its wall is met, or as
long as nothing is divided, each is `constant`."""


@dataclass(frozen=True)
class Model:
    """A law as a series asks for it: with the link between nodes and the mini-batch only where they vary."""

    law: Law
    across_nodes: bool
    """Some places have several nodes, others several workers on a node, and the law tells them apart."""
    reference_batch: float
    """Mini-batch of the smallest place where it varies between places (strong scaling); else not a number."""
    shared: bool = False
    """All nodes share what limits: workers count, wherever they are, though nodes are known."""
    split: bool = False
    """The mini-batch, which is not known, is taken for a share of one global batch (strong scaling)."""

    @classmethod
    def of(cls, law: Law, places: Places, shared: bool = False, split: bool = False) -> Model:
        """The law as `places`, the smallest of them first, ask for it."""
        batch = np.full(len(places), np.nan) if law.of_rates else _batch(places, split)
        varies = bool(np.isfinite(batch).all()) and len(set(batch)) > 1
        placed = places.across_nodes and not shared
        return cls(law, placed, float(batch[0]) if varies else float("nan"), shared, split)

    @property
    def name(self) -> str:
        """The law's name, and how it is read."""
        return f"{'strong ' * self.split}{'shared ' * self.shared}{self.law.name}"

    @property
    def strong(self) -> bool:
        """Whether the mini-batch varies."""
        return not np.isnan(self.reference_batch)

    @property
    def priors(self) -> tuple[Prior, ...]:
        """The coefficients that `log_time` takes, in order."""
        nodes = self.law.node.priors if self.across_nodes else ()
        sharing = (SHARING,) if self.across_nodes and not self.law.through_workers else ()
        overlap = (OVERLAP,) if self.law.overlaps else ()
        return (*self.law.worker.priors, *nodes, *sharing, *overlap, *((FLOOR,) if self.strong else ()))

    def coefficients(self, z: Reals) -> Reals:
        """Coefficients of standard normal `z` [draws, coefficients]."""
        medians, spreads = np.array([[prior.median, prior.spread] for prior in self.priors]).T
        return np.asarray(medians * np.exp(spreads * z))

    def log_time(self, z: Reals, places: Places) -> Reals:
        """log g at each place, [draws, places]."""
        c = list(self.coefficients(z).T[:, :, None])
        own = len(self.law.worker.priors)
        if self.across_nodes:
            inside = self.law.worker.overhead(c[:own], places.workers / places.nodes)
            overhead = inside + np.where(places.nodes > 1, self._between(c[own:], places), 0.0)
        else:
            overhead = self.law.worker.overhead(c[:own], places.workers)
        # Communication and the floor are paid once for each mini-batch, of fewer samples the more workers.
        smaller = self.reference_batch / _batch(places, self.split) if self.strong else np.ones(len(places))
        cost = overhead * smaller
        if self.law.overlaps:
            cost = np.maximum(0.0, cost - c[-2 if self.strong else -1])
        floor = c[-1] / (1 + c[-1]) if self.strong else 0.0
        return np.asarray(np.log1p(cost + floor * (smaller - 1)))

    def _between(self, c: Sequence[Reals], places: Places) -> Reals:
        """Overhead of the link between nodes, [draws, places]."""
        node = self.law.node
        if self.law.through_workers:
            return node.overhead(c, places.workers)
        # 0 for one worker on each node, 1 for two, below 2 for any number: links saturate.
        sharing = 2 * (1 - places.nodes / places.workers)
        return np.asarray(node.overhead(c, places.nodes) + c[0] * c[len(node.priors)] * sharing)


def models(laws: Sequence[Law], places: Places) -> list[tuple[Model, float]]:
    """Every reading of each law at `places`, with how likely it is before anything was measured.

    Where the mini-batch is not known, scaling is weak or strong; where nodes are, what limits may be one for all.
    """
    known = bool(np.isfinite(places.batch).all())
    found = []
    for law in laws:
        shares = {False: 0.5, True: 0.5} if law.shared and places.across_nodes else {False: 1.0}
        splits = {False: 1.0} if known or law.of_rates else {False: 0.5, True: 0.5}
        found += [
            (Model.of(law, places, shared, split), law.prior_weight * one * other)
            for shared, one in shares.items()
            for split, other in splits.items()
        ]
    return found


def _batch(places: Places, split: bool) -> Reals:
    return 1 / places.workers if split else places.batch
