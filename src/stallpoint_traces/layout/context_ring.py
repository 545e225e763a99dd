"""Context parallelism: ranks pass keys and values of their parts of a sequence around a ring while attention computes.

Each of n ranks computes attention with n blocks and passes on n - 1 of them (Liu et al. 2023, *Ring Attention with
Blockwise Transformers for Near-Infinite Context*). On 2n ranks with the same sequences, a rank's computing halves; a
block's attention takes a quarter and its sending half (latency excepted), so that sending may no longer be hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallpoint_traces.layout.group_times import group_times
from stallpoint_traces.layout.groups import ATTENTION, CONTEXT, Group
from stallpoint_traces.rank.rank import Rank
from stallpoint_traces.rank.trace_collectives import ALL_TO_ALL


@dataclass(frozen=True)
class Ring:
    """The ring that a rank belongs to; medians over iterations, s."""

    ranks: int
    exchanges: float
    """Number of exchanges in an iteration."""
    seconds: float
    exposed: float
    """Time of sending during which nothing computes."""
    twice_as_many: float
    """Iteration time on a ring of twice as many ranks, if half a block is sent in half the time; only a latency that is
    identifiable from blocks of two sizes does not shrink."""
    twice_as_many_high: float
    """The same if half a block takes as long as a block; equal to `twice_as_many` if the latency is identifiable."""


def ring(rank: Rank) -> Ring | None:
    """Return the rank's ring of context parallelism; None without a ring, or if no attention was traced."""
    group = next((one for one in rank.groups.groups if one.parallelism == CONTEXT and _is_ring(rank, one)), None)
    started, collectives, found = rank.started, rank.collectives, rank.iterations
    attends = started.computes & started.events.called(ATTENTION)
    if group is None or not attends.any():
        return None
    count, total = len(found.seconds), float(np.median(found.seconds))
    backward = np.nan_to_num(found.begin + rank.phases.backward_start, nan=np.inf)
    sends = collectives.start[group.places] >= backward[collectives.iteration[group.places]]
    index = found.of(started.launch)
    behind = started.events.start >= backward[index]
    latency = _latency(rank, group)
    exposed = sum(one.exposed or 0.0 for one in group_times(rank, group))
    low = high = 0.0
    for direction in (False, True):
        own = group.places[sends == direction]
        if not len(own):
            continue
        exchanges, took = len(own) / count, float(np.median(collectives.seconds[own]))
        attention = float(started.events.seconds[attends & (index >= 0) & (behind == direction)].sum()) / count
        block = attention / (exchanges * group.size / (group.size - 1))
        longer = exchanges * (2 * group.size - 1) / (group.size - 1)
        halved = took / 2 + min(latency or 0.0, took) / 2
        low += longer * max(0.0, halved - block / 4)
        high += longer * max(0.0, (took if latency is None else halved) - block / 4)
    update = float(np.nan_to_num(np.median(rank.phases.update)))
    rest = total - exposed - max(0.0, float(np.median(rank.causes["compute"])) - update) / 2
    seconds = sum(one.seconds for one in group_times(rank, group))
    return Ring(group.size, len(group.places) / count, seconds, exposed, rest + low, rest + high)


def _is_ring(rank: Rank, group: Group) -> bool:
    """Return whether each exchange is with neighbours; an all-to-all is if it sends to only one rank."""
    splits = [rank.collectives.in_splits[at] for at in group.places if rank.collectives.kind[at] == ALL_TO_ALL]
    return group.size > 1 and all(sum(map(bool, of)) == 1 for of in splits)


def _latency(rank: Rank, group: Group) -> float | None:
    """Return an exchange's latency from blocks of two sizes, s; None if sizes are nearly equal or unknown."""
    sizes, seconds = rank.collectives.bytes[group.places], rank.collectives.seconds[group.places]
    least, most = int(sizes.min()), int(sizes.max())
    if least <= 0 or most < _MIN_RATIO * least:
        return None
    short, long = (float(np.median(seconds[sizes == size])) for size in (least, most))
    return max(0.0, short - (long - short) * least / (most - least))


_MIN_RATIO = 1.5
"""Minimum ratio of two block sizes for the latency to be identifiable."""
