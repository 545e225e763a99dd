"""Process groups, and the parallelism that each of them serves: only the data-parallel part is extrapolated.

A program may say what a group is for (Megatron's and DeviceMesh's names). Else what is sent tells: pipelines send from
rank to rank, experts exchange all with all, tensor parallelism sums activations, and so already in the forward pass.
Gradients are summed in the backward pass and after it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint.traces.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SEND_RECEIVE,
    Collectives,
)
from stallpoint.traces.iterations import Iterations
from stallpoint.traces.phases import Phases

DATA, TENSOR, PIPELINE, EXPERT, CONTEXT, UNTOLD = "data", "tensor", "pipeline", "expert", "context", ""
_WORDS = (
    (DATA, {"data", "dp", "ddp", "fsdp", "hsdp"}),
    (PIPELINE, {"pipeline", "pp"}),
    (TENSOR, {"tensor", "tp", "sequence", "sp"}),
    (EXPERT, {"expert", "ep", "moe"}),
    (CONTEXT, {"context", "cp"}),
)
"""Words in a group's purpose, the first that is found decides: groups of data and something else average gradients."""
_ACTIVATIONS = 0.1
"""Part of what a group sums from which on, in the forward pass, it is activations, and not a loss or statistics."""


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
    """Ranks that compute the same model on other data."""
    data: npt.NDArray[np.bool_]
    """Which collectives all of these take part in, [collectives]."""

    @property
    def others(self) -> tuple[Group, ...]:
        """Those that serve, or may serve, something else than data parallelism."""
        return tuple(group for group in self.groups if group.parallelism != DATA)


def groups(sent: Collectives, found: Iterations, phases: Phases, workers: int) -> Groups:
    """The groups of one of so many workers."""
    of: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, key in enumerate(zip(sent.group, sent.group_size.tolist(), strict=True)):
        of[key].append(place)
    told = tuple(
        _group(name, size, np.array(places), sent, found, phases, workers) for (name, size), places in of.items()
    )
    data = [group for group in told if group.parallelism == DATA]
    # Norms and losses may be summed among other ranks as well: gradients are most of the bytes.
    most = max(data, key=lambda group: group.bytes, default=None)
    replicas = workers if most is None or most.size < 1 else most.size
    chosen = np.zeros(len(sent), np.bool_)
    for group in data:
        chosen[group.places] = group.size in (replicas, -1)
    return Groups(told, replicas, chosen)


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
        return PIPELINE
    if sizes[kinds == ALL_TO_ALL].sum() > sizes.sum() / 2:
        return EXPERT
    sums = np.isin(kinds, (ALL_REDUCE, REDUCE_SCATTER))
    if not sums.any():
        return DATA if of_all and (kinds == ALL_GATHER).any() else UNTOLD
    iteration = sent.iteration[places]
    backward = found.begin[iteration] + phases.backward_start[iteration]
    if np.isnan(backward).all():
        return DATA if of_all else UNTOLD
    forward = sums & (sent.start[places] < backward)
    return TENSOR if sizes[forward].sum() >= _ACTIVATIONS * sizes[sums].sum() else DATA
