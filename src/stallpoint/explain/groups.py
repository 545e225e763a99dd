"""Process groups, and the parallelism that each of them serves: only the data-parallel part is extrapolated.

A program may say what a group is for (Megatron's and DeviceMesh's names). Else what is sent tells: pipelines send from
rank to rank, experts and embeddings exchange all with all, tensor parallelism sums activations, and so already in the
forward pass. Gradients are summed in the backward pass and after it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint.explain.iterations import Iterations
from stallpoint.explain.trace_collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SEND_RECEIVE,
    Collectives,
)
from stallpoint.explain.trace_phases import Phases

DATA, TENSOR, PIPELINE, EXPERT, CONTEXT, UNTOLD = "data", "tensor", "pipeline", "expert", "context", ""
EXCHANGE = "expert or embedding"
"""All-to-all of a group that does not say what it is for: experts exchange tokens so, recommenders embeddings."""
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

_GRADIENTS = 0.5
"""Part of the scattered gradients that a group all-reduces, from which on it does so with them, and not with a norm."""


@dataclass(frozen=True)
class Group:
    """A process group, as far as one rank tells."""

    name: str
    size: int
    """-1 where the trace does not tell."""
    parallelism: str
    """`DATA`, `TENSOR`, ...; `UNTOLD` where nothing tells."""
    places: npt.NDArray[np.int64]
    """Its collectives."""
    bytes: float
    """What the rank hands in, in all of them; as many as there are where no size is told."""


@dataclass(frozen=True)
class Groups:
    """All groups of a rank."""

    groups: tuple[Group, ...]
    replicas: int
    """Replicas of the model whose gradients are averaged, and of which there may be more."""
    shards: int
    """Ranks of a replica that have mini-batches of their own: more than one with hybrid sharding alone."""
    sharded: bool
    """Whether ranks that serve data parallelism keep shards: they gather weights, or scatter gradients."""
    data: npt.NDArray[np.bool_]
    """Which collectives all of these take part in, [collectives]."""


def groups(sent: Collectives, found: Iterations, phases: Phases, workers: int) -> Groups:
    """The groups of one of so many workers."""
    of: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
    for place, (name, size) in enumerate(zip(sent.group, sent.group_size.tolist(), strict=True)):
        # Where no group has a name, those that exchange are not taken for those that reduce.
        of[name, size, not name and sent.kind[place] in (SEND_RECEIVE, ALL_TO_ALL)].append(place)
    told = tuple(
        _group(name, size, np.array(places), sent, found, phases, workers) for (name, size, _), places in of.items()
    )
    data = [group for group in told if group.parallelism == DATA]
    # Norms and losses may be summed among other ranks as well: gradients are most of the bytes.
    most = max(data, key=lambda group: group.bytes, default=None)
    sharded = any(sent.kind[place] in (ALL_GATHER, REDUCE_SCATTER) for group in data for place in group.places)
    chosen = np.zeros(len(sent), np.bool_)
    if most is not None and (replicating := _replicating(most, data, sent, workers)):
        chosen[replicating.places] = True
        return Groups(told, replicating.size, most.size, sharded, chosen)
    replicas = workers if most is None or most.size < 1 else most.size
    for group in data:
        chosen[group.places] = group.size in (replicas, -1)
    return Groups(told, replicas, 1, sharded, chosen)


def _replicating(sharding: Group, data: list[Group], sent: Collectives, workers: int) -> Group | None:
    """The group that all-reduces what `sharding` has reduced and scattered; None where there is no hybrid sharding.

    More workers are then more replicas: shards stay within a node (Zhao et al. 2023, *PyTorch FSDP*, section 3.2.2).
    """
    scattered = sum(max(0, int(sent.bytes[at])) for at in sharding.places if sent.kind[at] == REDUCE_SCATTER)
    for group in data:
        whole = group.size * sharding.size
        if group is sharding or min(group.size, sharding.size) < 2 or workers % whole:
            continue
        reduced = sum(int(sent.bytes[at]) for at in group.places if sent.kind[at] == ALL_REDUCE)
        if scattered and reduced >= _GRADIENTS * scattered / sharding.size:
            return group
    return None


def _group(
    name: str, size: int, places: npt.NDArray[np.int64], sent: Collectives, found: Iterations, phases: Phases,
    workers: int,
) -> Group:  # fmt: skip
    bytes_ = np.maximum(sent.bytes[places], 0) if (sent.bytes[places] >= 0).any() else np.ones(len(places))
    parallelism = _told(sent.purpose[places[0]]) or _shown(places, bytes_, sent, found, phases, size in (workers, -1))
    return Group(name, size, parallelism, places, float(bytes_.sum()))


def _told(purpose: str) -> str:
    words = set(re.split(r"[^a-z]+", purpose.lower()))
    return next((parallelism for parallelism, known in _WORDS if words & known), UNTOLD)


def _shown(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.float64], sent: Collectives, found: Iterations,
    phases: Phases, of_all: bool,
) -> str:  # fmt: skip
    kinds = np.array([sent.kind[place] for place in places])
    if (kinds == SEND_RECEIVE).all():
        # NCCL's kernel for it serves an all-to-all as well.
        return PIPELINE if sent.told[places].all() else UNTOLD
    if sizes[kinds == ALL_TO_ALL].sum() > sizes.sum() / 2:
        return EXCHANGE
    sums = np.isin(kinds, (ALL_REDUCE, REDUCE_SCATTER))
    if not sums.any():
        return DATA if of_all and (kinds == ALL_GATHER).any() else UNTOLD
    iteration = sent.iteration[places]
    backward = found.begin[iteration] + phases.backward_start[iteration]
    if np.isnan(backward).all():
        return DATA if of_all else UNTOLD
    forward = sums & (sent.start[places] < backward)
    return TENSOR if sizes[forward].sum() >= _ACTIVATIONS * sizes[sums].sum() else DATA
