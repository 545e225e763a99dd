"""Process groups, and the parallelism that each group serves: only the data-parallel part is extrapolated.

A program may name the purpose of a group (Megatron's and DeviceMesh's names). Otherwise its collectives decide:
pipelines send from rank to rank, experts and embeddings use all-to-alls, tensor parallelism sums activations, also in
the forward pass. Gradients are summed only in the backward pass and after it. Context parallelism sends blocks between
which only attention computes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint_traces.rank.iterations import Iterations
from stallpoint_traces.rank.started import Started
from stallpoint_traces.rank.trace_collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SEND_RECEIVE,
    Collectives,
)
from stallpoint_traces.rank.trace_phases import TracedPhases

DATA, TENSOR, PIPELINE, EXPERT, CONTEXT, UNSTATED = "data", "tensor", "pipeline", "expert", "context", ""
EXCHANGE = "expert or embedding"
"""Parallelism of an all-to-all group without a stated purpose: experts exchange tokens, recommenders embeddings."""
_PURPOSE_WORDS = (
    (DATA, {"data", "dp", "ddp", "fsdp", "hsdp", "replicate", "shard"}),
    (PIPELINE, {"pipeline", "pp"}),
    (TENSOR, {"tensor", "tp", "sequence", "sp"}),
    (EXPERT, {"expert", "ep", "moe"}),
    (CONTEXT, {"context", "cp"}),
)
"""Words in a group's purpose, by priority: a group of data and another parallelism averages gradients."""
_MIN_ACTIVATIONS = 0.1
"""Minimum fraction of a group's reduced bytes in the forward pass for activations; less is a loss or statistics."""

ATTENTION = re.compile(r"attention|attn|flash|fmha|sdpa", re.IGNORECASE)
"""Names of kernels that compute attention."""
_ATTENDS = 0.8
"""Minimum fraction of attention in the computing between two exchanges of context parallelism."""
_MIN_GRADIENTS = 0.5
"""Minimum all-reduced fraction of the scattered gradients for a group of replicas; less is a norm."""


@dataclass(frozen=True)
class Group:
    """A process group as seen in the trace of one rank."""

    name: str
    size: int
    """Number of ranks; -1 if unknown."""
    parallelism: str
    """`DATA`, `TENSOR`, ...; `UNSTATED` if unknown."""
    places: npt.NDArray[np.int64]
    """Indices of its collectives."""
    bytes: float
    """Bytes that the rank contributes to all its collectives; their number if no size is known."""


@dataclass(frozen=True)
class Groups:
    """All process groups of a rank."""

    groups: tuple[Group, ...]
    replicas: int
    """Number of model replicas whose gradients are averaged; extrapolation varies it."""
    shards: int
    """Ranks of a replica that have mini-batches of their own: more than one only with hybrid sharding."""
    sharded: bool
    """Whether data-parallel ranks keep shards: they all-gather weights or reduce-scatter gradients."""
    data: npt.NDArray[np.bool_]
    """Whether all replicas take part in a collective, [collectives]."""


def groups(collectives: Collectives, found: Iterations, phases: TracedPhases, workers: int, started: Started) -> Groups:
    """Return the process groups of one of `workers` ranks."""
    of: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
    for index, (name, size) in enumerate(zip(collectives.group, collectives.group_size.tolist(), strict=True)):
        # Groups without names are separated into exchanging and reducing ones.
        of[name, size, not name and collectives.kind[index] in (SEND_RECEIVE, ALL_TO_ALL)].append(index)
    every = tuple(
        _group(name, size, np.array(places), collectives, found, phases, workers, started)
        for (name, size, _), places in of.items()
    )
    data = [group for group in every if group.parallelism == DATA]
    # The largest group: norms and losses may be summed too, but gradients are most of the bytes.
    largest = max(data, key=lambda group: group.bytes, default=None)
    sharded = any(collectives.kind[index] in (ALL_GATHER, REDUCE_SCATTER) for group in data for index in group.places)
    chosen = np.zeros(len(collectives), np.bool_)
    if largest is not None and (replicating := _replica_group(largest, data, collectives, workers)):
        chosen[replicating.places] = True
        return Groups(every, replicating.size, largest.size, sharded, chosen)
    replicas = workers if largest is None or largest.size < 1 else largest.size
    for group in data:
        chosen[group.places] = group.size in (replicas, -1)
    return Groups(every, replicas, 1, sharded, chosen)


def _replica_group(sharding: Group, data: list[Group], collectives: Collectives, workers: int) -> Group | None:
    """Return the group that all-reduces what `sharding` reduce-scatters; None without hybrid sharding.

    With it, more workers are more replicas: shards stay in a node (Zhao et al. 2023, *PyTorch FSDP*, section 3.2.2).
    """
    scattered = sum(
        max(0, int(collectives.bytes[at])) for at in sharding.places if collectives.kind[at] == REDUCE_SCATTER
    )
    for group in data:
        ranks = group.size * sharding.size
        if group is sharding or min(group.size, sharding.size) < 2 or workers % ranks:
            continue
        reduced = sum(int(collectives.bytes[at]) for at in group.places if collectives.kind[at] == ALL_REDUCE)
        if scattered and reduced >= _MIN_GRADIENTS * scattered / sharding.size:
            return group
    return None


def _group(
    name: str, size: int, places: npt.NDArray[np.int64], collectives: Collectives, found: Iterations,
    phases: TracedPhases, workers: int, started: Started,
) -> Group:  # fmt: skip
    bytes_ = (
        np.maximum(collectives.bytes[places], 0) if (collectives.bytes[places] >= 0).any() else np.ones(len(places))
    )
    parallelism = _parallelism_by_purpose(collectives.purpose[places[0]]) or _parallelism_by_collectives(
        places, bytes_, collectives, found, phases, size in (workers, -1), started
    )
    return Group(name, size, parallelism, places, float(bytes_.sum()))


def _parallelism_by_purpose(purpose: str) -> str:
    words = set(re.split(r"[^a-z]+", purpose.lower()))
    return next((parallelism for parallelism, known in _PURPOSE_WORDS if words & known), UNSTATED)


def _parallelism_by_collectives(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64], collectives: Collectives, found: Iterations,
    phases: TracedPhases, of_all: bool, started: Started,
) -> str:  # fmt: skip
    kinds = np.array([collectives.kind[index] for index in places])
    exchanges = np.isin(kinds, (SEND_RECEIVE, ALL_TO_ALL)).all()
    if exchanges and _around_attention(np.sort(collectives.index[places]), started):
        return CONTEXT
    if (kinds == SEND_RECEIVE).all():
        # NCCL's kernel for sends and receives also serves all-to-alls.
        return PIPELINE if collectives.requested[places].all() else UNSTATED
    if sizes[kinds == ALL_TO_ALL].sum() > sizes.sum() / 2:
        return EXCHANGE
    sums = np.isin(kinds, (ALL_REDUCE, REDUCE_SCATTER))
    if not sums.any():
        return DATA if of_all and (kinds == ALL_GATHER).any() else UNSTATED
    iteration = collectives.iteration[places]
    backward = found.begin[iteration] + phases.backward_start[iteration]
    if np.isnan(backward).all():
        return DATA if of_all else UNSTATED
    forward = sums & (collectives.start[places] < backward)
    return TENSOR if sizes[forward].sum() >= _MIN_ACTIVATIONS * sizes[sums].sum() else DATA


def _around_attention(exchanges: npt.NDArray[np.int64], started: Started) -> bool:
    """Return whether mostly attention computes between two exchanges, as in context parallelism."""
    seconds = np.where(started.computes, started.events.seconds, 0.0)
    attention = np.where(started.events.called(ATTENTION), seconds, 0.0)
    every, own = (np.diff(np.append(0.0, np.cumsum(of))[exchanges]) for of in (seconds, attention))
    return bool(len(every) and np.median(own[every > 0] / every[every > 0]) >= _ATTENDS) if (every > 0).any() else False
