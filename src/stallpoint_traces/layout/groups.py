"""Process groups, and the parallelism that each of them serves: only the data-parallel part is extrapolated.

A program may name the purpose of a group (Megatron's and DeviceMesh's names). Otherwise its collectives decide:
pipelines send from rank to rank, experts and embeddings use all-to-alls, tensor parallelism sums activations, in the
forward pass too. Gradients are summed in the backward pass and after it. Context parallelism passes on
blocks between which attention alone computes.
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

DATA, TENSOR, PIPELINE, EXPERT, CONTEXT, UNTOLD = "data", "tensor", "pipeline", "expert", "context", ""
EXCHANGE = "expert or embedding"
"""All-to-all of a group without a stated purpose: experts exchange tokens in this way, recommenders embeddings."""
_WORDS = (
    (DATA, {"data", "dp", "ddp", "fsdp", "hsdp", "replicate", "shard"}),
    (PIPELINE, {"pipeline", "pp"}),
    (TENSOR, {"tensor", "tp", "sequence", "sp"}),
    (EXPERT, {"expert", "ep", "moe"}),
    (CONTEXT, {"context", "cp"}),
)
"""Words in a group's purpose, the first that is found decides: groups of data and something else average gradients."""
_ACTIVATIONS = 0.1
"""Part of what a group sums from which on, in the forward pass, it is activations, and not a loss or statistics."""

ATTENTION = re.compile(r"attention|attn|flash|fmha|sdpa", re.IGNORECASE)
"""Names of kernels that compute attention."""
_ONLY = 0.8
"""Part of the computing between two exchanges from which on attention computes alone."""
_GRADIENTS = 0.5
"""Part of the scattered gradients that a group all-reduces, from which on it does so with them, and not with a norm."""


@dataclass(frozen=True)
class Group:
    """A process group, by the trace of one rank."""

    name: str
    size: int
    """Number of ranks; -1 if unknown."""
    parallelism: str
    """`DATA`, `TENSOR`, ...; `UNTOLD` if unknown."""
    places: npt.NDArray[np.int64]
    """Indices of its collectives."""
    bytes: float
    """Bytes that the rank contributes to all of them; their number if no size is known."""


@dataclass(frozen=True)
class Groups:
    """All process groups of a rank."""

    groups: tuple[Group, ...]
    replicas: int
    """Number of replicas of the model whose gradients are averaged, which extrapolation changes."""
    shards: int
    """Ranks of a replica that have mini-batches of their own: more than one only with hybrid sharding."""
    sharded: bool
    """Whether ranks that serve data parallelism keep shards: they gather weights, or scatter gradients."""
    data: npt.NDArray[np.bool_]
    """Whether all replicas take part in a collective, [collectives]."""


def groups(collectives: Collectives, found: Iterations, phases: TracedPhases, workers: int, started: Started) -> Groups:
    """Return the groups of one rank of `workers`."""
    of: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
    for index, (name, size) in enumerate(zip(collectives.group, collectives.group_size.tolist(), strict=True)):
        # If groups have no names, exchanging groups are kept apart from reducing ones.
        of[name, size, not name and collectives.kind[index] in (SEND_RECEIVE, ALL_TO_ALL)].append(index)
    every = tuple(
        _group(name, size, np.array(places), collectives, found, phases, workers, started)
        for (name, size, _), places in of.items()
    )
    data = [group for group in every if group.parallelism == DATA]
    # The largest, as norms and losses may be summed too, but gradients are most of the bytes.
    largest = max(data, key=lambda group: group.bytes, default=None)
    sharded = any(collectives.kind[index] in (ALL_GATHER, REDUCE_SCATTER) for group in data for index in group.places)
    chosen = np.zeros(len(collectives), np.bool_)
    if largest is not None and (replicating := _replicating(largest, data, collectives, workers)):
        chosen[replicating.places] = True
        return Groups(every, replicating.size, largest.size, sharded, chosen)
    replicas = workers if largest is None or largest.size < 1 else largest.size
    for group in data:
        chosen[group.places] = group.size in (replicas, -1)
    return Groups(every, replicas, 1, sharded, chosen)


def _replicating(sharding: Group, data: list[Group], collectives: Collectives, workers: int) -> Group | None:
    """Return the group that all-reduces what `sharding` reduce-scatters; None without hybrid sharding.

    More workers are then more replicas: shards stay within a node (Zhao et al. 2023, *PyTorch FSDP*, section 3.2.2).
    """
    scattered = sum(
        max(0, int(collectives.bytes[at])) for at in sharding.places if collectives.kind[at] == REDUCE_SCATTER
    )
    for group in data:
        ranks = group.size * sharding.size
        if group is sharding or min(group.size, sharding.size) < 2 or workers % ranks:
            continue
        reduced = sum(int(collectives.bytes[at]) for at in group.places if collectives.kind[at] == ALL_REDUCE)
        if scattered and reduced >= _GRADIENTS * scattered / sharding.size:
            return group
    return None


def _group(
    name: str, size: int, places: npt.NDArray[np.int64], collectives: Collectives, found: Iterations,
    phases: TracedPhases, workers: int, started: Started,
) -> Group:  # fmt: skip
    bytes_ = (
        np.maximum(collectives.bytes[places], 0) if (collectives.bytes[places] >= 0).any() else np.ones(len(places))
    )
    parallelism = _stated(collectives.purpose[places[0]]) or _shown(
        places, bytes_, collectives, found, phases, size in (workers, -1), started
    )
    return Group(name, size, parallelism, places, float(bytes_.sum()))


def _stated(purpose: str) -> str:
    words = set(re.split(r"[^a-z]+", purpose.lower()))
    return next((parallelism for parallelism, known in _WORDS if words & known), UNTOLD)


def _shown(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64], collectives: Collectives, found: Iterations,
    phases: TracedPhases, of_all: bool, started: Started,
) -> str:  # fmt: skip
    kinds = np.array([collectives.kind[index] for index in places])
    exchanges = np.isin(kinds, (SEND_RECEIVE, ALL_TO_ALL)).all()
    if exchanges and _around_attention(np.sort(collectives.index[places]), started):
        return CONTEXT
    if (kinds == SEND_RECEIVE).all():
        # NCCL's kernel for it serves an all-to-all as well.
        return PIPELINE if collectives.requested[places].all() else UNTOLD
    if sizes[kinds == ALL_TO_ALL].sum() > sizes.sum() / 2:
        return EXCHANGE
    sums = np.isin(kinds, (ALL_REDUCE, REDUCE_SCATTER))
    if not sums.any():
        return DATA if of_all and (kinds == ALL_GATHER).any() else UNTOLD
    iteration = collectives.iteration[places]
    backward = found.begin[iteration] + phases.backward_start[iteration]
    if np.isnan(backward).all():
        return DATA if of_all else UNTOLD
    forward = sums & (collectives.start[places] < backward)
    return TENSOR if sizes[forward].sum() >= _ACTIVATIONS * sizes[sums].sum() else DATA


def _around_attention(exchanges: npt.NDArray[np.int64], started: Started) -> bool:
    """Return whether mostly attention alone computes between two exchanges, which then pass on parts of sequences."""
    seconds = np.where(started.computes, started.events.seconds, 0.0)
    attention = np.where(started.events.called(ATTENTION), seconds, 0.0)
    every, own = (np.diff(np.append(0.0, np.cumsum(of))[exchanges]) for of in (seconds, attention))
    return bool(len(every) and np.median(own[every > 0] / every[every > 0]) >= _ONLY) if (every > 0).any() else False
