"""Scaling laws: the growth of an iteration's time from one worker to n workers.

A law is g(n) = 1 + h(n): the time among n workers over that of a single worker. The overhead h is in units of the
single worker's iteration time. If the nodes are known, h has a part for the link inside a node, which depends on the
node's workers, and a part for the link between nodes, which depends on the number of nodes.

The prior of a coefficient is median · exp(spread · z), with z standard normal. Medians and spreads are general
knowledge, not fitted to a series (docs/models/scaling-laws.md gives the source of each).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stallpoint.base.statistics import Reals
from stallpoint.models.scaling.series_placement import Placements

OverheadFunction: TypeAlias = Callable[[Sequence[Reals], Reals], Reals]
"""(coefficients, each [draws, 1]; workers [placements]) -> h [draws, placements]."""


@dataclass(frozen=True)
class Prior:
    """Log-normal prior of a positive coefficient."""

    name: str
    median: float
    spread: float
    """Standard deviation of its natural logarithm."""


@dataclass(frozen=True)
class Term:
    """An overhead with its coefficients."""

    priors: tuple[Prior, ...]
    overhead: OverheadFunction


@dataclass(frozen=True)
class Law:
    """A scaling law."""

    name: str
    worker: Term
    """Overhead by workers: of a node if nodes are known, else of all."""
    node: Term
    """Further overhead by nodes, from the second on; its first coefficient is the first step."""
    one_ring: bool = False
    """Traffic of a node's link grows with all workers, not with nodes: one ring passes through every worker."""
    overlaps_backward: bool = False
    """Overheads are communication that overlaps the backward pass: only the excess is exposed."""
    shared: bool = False
    """The limiting resource may be shared by all nodes (a server, a file system, a switch), so that nodes add nothing
    to it."""
    repeats_work: bool = False
    """The seconds of a sample are A / n + B + C n: a part of the work is done by every worker."""
    any_batch: bool = False
    """The law gives the growth of the rate at any mini-batch: its overhead is not paid per mini-batch."""
    prior_weight: float = 1.0
    """Prior probability relative to the other laws."""


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


def _power(c: Sequence[Reals], n: Reals) -> Reals:
    return np.where(n > 1, c[0] * np.exp(np.minimum(c[1] * np.log(np.maximum(n, 2) / 2), 20.0)), 0.0)


def _split_work(c: Sequence[Reals], n: Reals) -> Reals:
    return np.asarray(_constant(c, n) - c[1] / (1 + c[1]) * (1 - 1 / n))


def _saturation(c: Sequence[Reals], n: Reals) -> Reals:
    return np.maximum(_constant(c, n), n / np.maximum(c[1], 1.0) - 1)


FIRST = Prior("first", 0.05, 1.3)
"""Overhead of the first step, from one worker to two."""
COMMUNICATION = Prior("communication", 0.3, 1.0)
"""Overhead of the first step, of all communication, hidden or not."""
GROWTH_PER_DOUBLING = Prior("per_doubling", 0.25, 1.0)
"""Growth of the overhead with each further doubling, in units of the first step: 0 in a ring, 1 in a tree."""
GROWTH_POWER = Prior("growth", 0.3, 1.0)
"""Power of the workers with which communication grows: 0 in a ring, 1 at a server; a tree is between them."""
DIVIDED_PART = Prior("divided_part", 0.05, 1.0)
"""Part of a single worker's iteration that workers divide, over the part that each worker repeats."""
GROWTH_PER_WORKER = Prior("per_worker", 0.03, 1.2)
"""Growth of the overhead with each further worker, in units of the first step."""
LATENCY = Prior("latency", 0.02, 1.2)
FAST_LINK_WORKERS = Prior("reach", 3.0, 0.6)
"""Number of workers connected by fast links: pairs, workers of a switch or of a socket."""
SLOWER = Prior("slower_link", 1.5, 1.0)
"""Overhead of the slowest link beyond the fast links, in units of the overhead of the fast ones."""
SERIAL_PART = Prior("serial", 0.005, 1.3)
CONTENTION = Prior("contention", 0.01, 1.3)
COHERENCY = Prior("coherency", 0.003, 1.3)
CAPACITY = Prior("limit", 16.0, 1.5)
"""Workers that a shared resource (the storage, the host's decoding) can feed."""
HIDDEN_COMMUNICATION = Prior("overlap", 0.3, 0.7)
"""Communication that the backward pass hides."""
FLOOR_PART = Prior("floor", 0.05, 1.5)
"""Part of the iteration that does not get shorter with the mini-batch, over the part that does."""

FIRST_NODE_STEP = Prior("node_first", 0.12, 1.3)
NODE_COMMUNICATION = Prior("node_communication", 0.5, 1.0)
NODE_GROWTH_POWER = Prior("node_growth", 0.3, 1.0)
NODE_GROWTH_PER_DOUBLING = Prior("node_per_doubling", 0.5, 1.0)
GROWTH_PER_NODE = Prior("node_per_node", 0.03, 1.2)
LINK_SHARING = Prior("link_sharing", 0.2, 1.0)
"""Overhead added by two workers that share a node's link, in units of the first step; many add twice as much.

0 if a byte crosses the link once for all workers of a node (a hierarchical reduction).
"""

_LOG_NODES = Term((FIRST_NODE_STEP, NODE_GROWTH_PER_DOUBLING), _log)
_LINEAR_NODES = Term((FIRST_NODE_STEP, GROWTH_PER_NODE), _linear)
_RING_NODES = Term((FIRST_NODE_STEP, LATENCY), _ring)
_NODE_STEP = Term((FIRST_NODE_STEP,), _constant)
_DAG_TERMS = Term((COMMUNICATION, GROWTH_POWER), _power), Term((NODE_COMMUNICATION, NODE_GROWTH_POWER), _power)

LAWS = (
    Law("constant", Term((FIRST,), _constant), _LOG_NODES),
    Law("ring", Term((FIRST, LATENCY), _ring), _RING_NODES, one_ring=True),
    Law("slowest-link", Term((FIRST, FAST_LINK_WORKERS, SLOWER), _slowest_link), _RING_NODES, one_ring=True),
    Law("log", Term((FIRST, GROWTH_PER_DOUBLING), _log), _LOG_NODES),
    Law("dag", *_DAG_TERMS, overlaps_backward=True),
    Law("linear", Term((FIRST, GROWTH_PER_WORKER), _linear), _LINEAR_NODES, shared=True),
    Law("amdahl", Term((SERIAL_PART,), _amdahl), _LINEAR_NODES, shared=True, repeats_work=True, any_batch=True),
    Law("usl", Term((CONTENTION, COHERENCY), _usl), _LINEAR_NODES, shared=True, repeats_work=True, any_batch=True),
    Law("divided", Term((FIRST, DIVIDED_PART), _split_work), _LOG_NODES, shared=True, any_batch=True, prior_weight=0.5),
    Law("saturation", Term((FIRST, CAPACITY), _saturation), _NODE_STEP, shared=True, any_batch=True, prior_weight=0.5),
)
"""All laws; docs/models/scaling-laws.md has the formulas.

All are equally likely a priori, except `saturation` and `divided`: until its wall is met, or as long as nothing is
divided, each equals `constant`.
"""
DIVIDED_BATCH = 24.0
"""Factor on the weight of laws with `repeats_work` if workers divide a known mini-batch: it gives them three quarters
of all weight, as the overhead of a step is not divided."""


@dataclass(frozen=True)
class Model:
    """A law for the placements of a series; it has terms for nodes and for the mini-batch if these vary."""

    law: Law
    across_nodes: bool
    """Some placements have several nodes, others several workers on a node, and the law distinguishes them."""
    reference_batch: float
    """Mini-batch of the smallest placement if it varies (strong scaling); else NaN."""
    shared: bool = False
    """Whether all nodes share the limiting resource, so that only the number of workers counts."""
    split: bool = False
    """Whether the mini-batch is unknown and taken as a share of a global batch (strong scaling)."""

    @classmethod
    def of(cls, law: Law, placements: Placements, shared: bool = False, split: bool = False) -> Model:
        """Return the model of the law for `placements`, the smallest first."""
        batch = np.full(len(placements), np.nan) if law.any_batch else _batch(placements, split)
        batch_varies = bool(np.isfinite(batch).all()) and len(set(batch)) > 1
        placed = placements.across_nodes and not shared
        return cls(law, placed, float(batch[0]) if batch_varies else float("nan"), shared, split)

    @property
    def name(self) -> str:
        """Return the law's name, preceded by ``strong`` for strong scaling and ``shared`` for a shared resource."""
        return f"{'strong ' * self.split}{'shared ' * self.shared}{self.law.name}"

    @property
    def strong(self) -> bool:
        """Return whether the mini-batch varies."""
        return not np.isnan(self.reference_batch)

    @property
    def priors(self) -> tuple[Prior, ...]:
        """Return the priors of the coefficients that `log_time` takes, in order."""
        nodes = self.law.node.priors if self.across_nodes else ()
        sharing = (LINK_SHARING,) if self.across_nodes and not self.law.one_ring else ()
        overlap = (HIDDEN_COMMUNICATION,) if self.law.overlaps_backward else ()
        return (*self.law.worker.priors, *nodes, *sharing, *overlap, *((FLOOR_PART,) if self.strong else ()))

    def coefficients(self, z: Reals) -> Reals:
        """Return the coefficients for standard normal `z` [draws, coefficients]."""
        medians, spreads = np.array([[prior.median, prior.spread] for prior in self.priors]).T
        return np.asarray(medians * np.exp(spreads * z))

    def log_time(self, z: Reals, placements: Placements) -> Reals:
        """Return log g at each placement, [draws, placements]."""
        c = list(self.coefficients(z).T[:, :, None])
        own = len(self.law.worker.priors)
        if self.across_nodes:
            inside = self.law.worker.overhead(c[:own], placements.workers / placements.nodes)
            overhead = inside + np.where(placements.nodes > 1, self._between(c[own:], placements), 0.0)
        else:
            overhead = self.law.worker.overhead(c[:own], placements.workers)
        # Communication and floor take as long for a small mini-batch as for a large one, so each sample bears more.
        size_ratio = self.reference_batch / _batch(placements, self.split) if self.strong else np.ones(len(placements))
        cost = overhead * size_ratio
        if self.law.overlaps_backward:
            cost = np.maximum(0.0, cost - c[-2 if self.strong else -1])
        floor_share = c[-1] / (1 + c[-1]) if self.strong else 0.0
        return np.asarray(np.log1p(cost + floor_share * (size_ratio - 1)))

    def _between(self, c: Sequence[Reals], placements: Placements) -> Reals:
        """Return the overhead of the link between nodes, [draws, placements]."""
        node = self.law.node
        if self.law.one_ring:
            return node.overhead(c, placements.workers)
        # The factor `sharing` is 0 for one worker on each node, 1 for two, and below 2 for more, as links saturate.
        sharing = 2 * (1 - placements.nodes / placements.workers)
        return np.asarray(node.overhead(c, placements.nodes) + c[0] * c[len(node.priors)] * sharing)


def models(laws: Sequence[Law], placements: Placements) -> list[tuple[Model, float]]:
    """Return every form that each law may have at `placements`, with the form's prior probability.

    If the mini-batch is unknown, scaling may be weak or strong. If nodes are known, they may share what limits them.
    """
    known = bool(np.isfinite(placements.batch).all())
    divided = known and len(set(placements.batch)) > 1
    found = []
    for law in laws:
        share_priors = {False: 0.5, True: 0.5} if law.shared and placements.across_nodes else {False: 1.0}
        split_priors = {False: 1.0} if known or law.any_batch else {False: 0.5, True: 0.5}
        if divided and law.repeats_work:
            share_priors[placements.across_nodes] *= DIVIDED_BATCH  # if the overhead is by workers, not nodes
        found += [
            (Model.of(law, placements, shared, split), law.prior_weight * one * other)
            for shared, one in share_priors.items()
            for split, other in split_priors.items()
        ]
    return found


def _batch(placements: Placements, split: bool) -> Reals:
    return 1 / placements.workers if split else placements.batch
