"""Delays in parts of a script's run: by a rank for a while, rare long iterations, a slow begin, a decay.

The run is compared with itself: iterations with the median of those around them, and blocks of iterations with each
other. Medians over an entire run would not show such delays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stallpoint.measure.probe.probe_runs import Reals
from stallpoint.records.tables import PHASES

Flags: TypeAlias = npt.NDArray[np.bool_]
MIN_SHARE = 0.1
"""Smallest share of an iteration by which a slow rank delays the others, and of the run that a part costs."""
MIN_PERIODIC = 0.05
"""Smallest share of the run for long iterations at equal distances, which are no chance."""
STEADILY = 0.4
"""Quantile of a rank's excess that counts: other work on the machine slows varying ranks."""
MAX_BLOCKS, MIN_BLOCK, MIN_BLOCKS = 20, 5, 10
"""Largest number of blocks of a run, iterations in a block, and blocks from which a change of speed is no chance."""
AROUND = 50
"""Number of iterations around an iteration, with whose median it is compared."""
LONG = 0.5
"""Smallest excess of a rare long iteration over a usual one, as a part of the usual one."""
MAX_LENGTH = 3
"""Largest number of consecutive iterations that are one event."""
MIN_EVENTS, REGULAR, CANDIDATES = 4, 0.8, 5
"""Number of long iterations, and share of them at equal distances, for which a period is named; distances tried."""
DEAR, MOST = 0.5, 0.7
"""Part of the most costly event's cost from which an event counts for a period, and the counted events' share of all
costs. Of 3 to 12 random events in 101 iterations, at most 2 % seem to have a period."""
ALIKE = 0.5
"""Part of the largest rank's excess from which another rank shares in it."""
STEP, DECAY = 1.2, 1.1
"""Ratio to usual iterations of a slow part's iterations, and of those at the end of a decay."""
EXPOSED = PHASES.index("exposed_communication")


class RunPart(Enum):
    """Kind of part of a run, by its longer iterations."""

    HELD = "iterations in which one rank held the others up"
    RARE = "rare long iterations"
    FIRST = "a slow begin"
    LATER = "slow from some iteration on"
    DECAY = "slower and slower"


@dataclass(frozen=True)
class PartialCost:
    """Time that some iterations take beyond the rest."""

    part: RunPart
    share: float
    """Share of the time of the run."""
    phase: str
    """The one of `PHASES` with most of the excess."""
    ranks: tuple[int, ...]
    """The ranks with the excess; empty if all have it."""
    more: float
    """Excess over the other iterations, s for an iteration."""
    usual: float
    """Time of one of the other iterations, s."""
    first: int
    last: int
    """Positions of the first of the iterations, and after the last."""
    events: int = 0
    """Number of rare events."""
    period: int = 0
    """Iterations from one event to the next; 0 if distances differ."""


def partial_costs(ranks: Sequence[int], own: Reals, times: Reals) -> list[PartialCost]:
    """Return the costs of parts of a run, the most costly first.

    `own` are seconds of the `ranks`' own work, `times` those with waiting [ranks, iterations, phases].
    """
    held = list(_held(ranks, own, times))
    rare = list(_rare(ranks, own, times))
    paces = [] if held else list(_pace(ranks, own, times))
    return sorted([*held, *rare, *paces], key=lambda one: -one.share)


def beyond_others(own: Reals) -> Reals:
    """Return each rank's excess over the median of the others [ranks, iterations, phases]; 0 for one rank."""
    if len(own) == 1:
        return np.zeros_like(own)
    return np.array([own[k] - np.median(np.delete(own, k, axis=0), axis=0) for k in range(len(own))])


def _with_network(own: Reals, times: Reals) -> Reals:
    """Return the ranks' own work plus the wait for messages common to all: a slow network delays every rank."""
    work = own.copy()
    work[..., EXPOSED] = np.maximum(own[..., EXPOSED], times[..., EXPOSED].min(axis=0))
    return work


def _phase_and_ranks(ranks: Sequence[int], excess: Reals) -> tuple[str, tuple[int, ...]]:
    """Return the phase with most of an excess [ranks, phases], and the ranks that share in it; none if all do."""
    sums = excess.sum(axis=1)
    slow = np.flatnonzero(sums >= ALIKE * sums.max()).tolist()
    phase = PHASES[int(np.argmax(excess[slow].sum(axis=0)))]
    return phase, tuple(ranks[place] for place in slow) if len(slow) < len(ranks) else ()


def _blocks(count: int) -> list[slice]:
    number = max(1, min(MAX_BLOCKS, count // MIN_BLOCK))
    edges = np.linspace(0, count, number + 1).round().astype(int)
    return [slice(int(first), int(last)) for first, last in pairwise(edges)]


# --- a rank for a while ---------------------------------------------------------------------------


def _held(ranks: Sequence[int], own: Reals, times: Reals) -> Iterator[PartialCost]:
    """Yield each stretch of iterations, short of the entire run, in which one rank delays the others."""
    beyond = beyond_others(own)
    total, excess = times.sum(axis=2), beyond.sum(axis=2)
    blocks = _blocks(excess.shape[1])
    holds = np.array(
        [np.quantile(excess[:, block], STEADILY, axis=1) > MIN_SHARE * np.median(total[:, block]) for block in blocks]
    )  # [blocks, ranks]
    for place in range(len(ranks)):
        for first, last in _stretches(holds[:, place]):
            if last - first < 2 or last - first >= len(blocks) - 1:
                continue
            begin = _edge(excess[place], blocks, first) if first else 0
            end = _edge(excess[place], blocks, last) if last < len(blocks) else excess.shape[1]
            rest = np.concatenate([excess[place, :begin], excess[place, end:]])
            inside = beyond[place, begin:end]
            # A rank that is slower in the entire run explains no part of it.
            more = float(np.median(inside.sum(axis=1)) - np.median(rest))
            share = float(more * (end - begin) / total.mean(axis=0).sum())
            if share >= MIN_SHARE and np.median(rest) < more / 4:
                phase = PHASES[int(np.argmax(np.median(inside, axis=0)))]
                usual = float(np.median(np.delete(total, np.s_[begin:end], axis=1)))
                yield PartialCost(RunPart.HELD, share, phase, (ranks[place],), more, usual, begin, end)


def _stretches(flags: Flags) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of true flags, with at most single false ones between."""
    joined = flags.copy()
    joined[1:-1] |= flags[:-2] & flags[2:]
    yield from _rows(joined)


def _edge(values: Reals, blocks: Sequence[slice], at: int) -> int:
    """Return the iteration, in the blocks beside edge `at`, at which the level of the values changes."""
    first, last = blocks[at - 1].start, blocks[at].stop
    return int(first) + _split(values[first:last])


def _split(values: Reals) -> int:
    """Return the position that best divides `values` into two levels: the first of the second level."""
    clipped = np.clip(values, *np.quantile(values, [0.1, 0.9]))
    count = np.arange(1, len(values))
    sums = np.cumsum(clipped)
    between = (sums[-1] * count / len(values) - sums[:-1]) ** 2 / (count * (len(values) - count))
    return int(np.argmax(between)) + 1


# --- rare long iterations -------------------------------------------------------------------------


def _rare(ranks: Sequence[int], own: Reals, times: Reals) -> Iterator[PartialCost]:
    """Yield the rare long iterations, found by the ranks' own work, as waiting follows later."""
    work = _with_network(own, times)
    count = work.shape[1]
    excess = work - _around(work)
    longest = excess.sum(axis=2).max(axis=0)
    usual = float(np.median(times.sum(axis=2)))
    scatter = 1.4826 * float(np.median(np.abs(longest - np.median(longest))))
    events = [
        (first, last)
        for first, last in _rows(longest > np.median(longest) + max(LONG * usual, 6 * scatter))
        if last - first <= MAX_LENGTH
    ]
    if not events or len(events) > count / 4:
        return
    period, events = _regular(events, np.array([longest[first:last].sum() for first, last in events]))
    of_events = np.array([excess[:, first:last].sum(axis=1) for first, last in events]).mean(axis=0)  # [ranks, phases]
    phase, whose = _phase_and_ranks(ranks, of_events)
    more = float(of_events.sum(axis=1).max())
    share = float(more * len(events) / times.sum(axis=2).mean(axis=0).sum())
    if share >= (MIN_PERIODIC if period else MIN_SHARE):
        yield PartialCost(
            RunPart.RARE, share, phase, whose, more, usual, events[0][0], events[-1][1], len(events), period
        )


def _around(values: Reals) -> Reals:
    """Return the median of the `AROUND` iterations around each value, along the second axis."""
    count = values.shape[1]
    edges = np.linspace(0, count, max(1, count // AROUND) + 1).round().astype(int)
    medians = [
        np.repeat(np.median(values[:, first:last], axis=1, keepdims=True), last - first, axis=1)
        for first, last in pairwise(edges)
    ]
    return np.concatenate(medians, axis=1)


def _rows(flags: Flags) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _regular(events: Sequence[tuple[int, int]], costs: Reals) -> tuple[int, list[tuple[int, int]]]:
    """Return the usual distance of events, and the events at it; 0 and all unless most are a multiple of it apart.

    Events that cost less than half of the most costly are excluded if they cost little in sum: other work causes them.
    """
    dear = costs >= DEAR * costs.max()
    places = np.array([first for first, _ in events])[dear]
    distances = Counter((after - before).item() for before, after in combinations(places, 2))
    for period, _ in sorted(distances.most_common(CANDIDATES), reverse=True):
        off = min(1, period // 8)
        for anchor in places[:CANDIDATES]:
            of = (places - anchor + off) % period <= 2 * off
            expected = (places[of][-1] - places[of][0]) / period + 1
            enough = of.sum() >= max(MIN_EVENTS, REGULAR * len(places), REGULAR * expected)
            if period > 1 and enough and costs[dear].sum() >= MOST * costs.sum():
                return int(period), [events[at] for at in np.flatnonzero(dear)[of]]
    return 0, list(events)


# --- pace -----------------------------------------------------------------------------------------


def _pace(ranks: Sequence[int], own: Reals, times: Reals) -> Iterator[PartialCost]:
    """Yield a slow begin, a slow end, or a decay, by the medians of blocks."""
    each = np.median(times.sum(axis=2), axis=0)
    blocks = _blocks(len(each))
    if len(blocks) < MIN_BLOCKS:
        return
    medians = np.array([np.median(each[block]) for block in blocks])
    at = _split(np.log(medians))
    before, after = medians[:at], medians[at:]
    first = bool(np.median(before) > np.median(after))
    slow, fast = (before, after) if first else (after, before)
    if np.quantile(slow, 0.1) > STEP * np.quantile(fast, 0.9) and min(len(slow), len(fast)) > 1:
        edge = _edge(each, blocks, at)
        inside, outside = slice(0, edge), slice(edge, len(each))
        if not first:
            inside, outside = outside, inside
        yield from _part_costs(RunPart.FIRST if first else RunPart.LATER, ranks, own, times, inside, outside)
        return
    order = np.argsort(np.argsort(medians))
    if np.corrcoef(order, np.arange(len(medians)))[0, 1] < 0.9:
        return
    third = max(1, len(blocks) // 3)
    if np.median(medians[-third:]) > DECAY * np.median(medians[:third]):
        begin, end = slice(0, blocks[third].start), slice(blocks[-third].start, len(each))
        yield from _part_costs(RunPart.DECAY, ranks, own, times, end, begin)


def _part_costs(
    part: RunPart, ranks: Sequence[int], own: Reals, times: Reals, inside: slice, outside: slice
) -> Iterator[PartialCost]:
    """Yield the excess of iterations `inside` a part over those `outside`, in the phase with most of it.

    All iterations slower than those outside count: in a decay, most lie between the two levels.
    """
    work = _with_network(own, times)
    each = times.sum(axis=2)
    usual = float(np.median(each[:, outside]))
    more = float(np.median(each[:, inside])) - usual
    beyond = np.median(each, axis=0) - usual
    share = float(np.clip(beyond, None, 2 * more).mean() / each.mean())
    if share < MIN_SHARE:
        return
    excess = np.median(work[:, inside], axis=1) - np.median(work[:, outside], axis=1)
    phase, whose = _phase_and_ranks(ranks, excess)
    yield PartialCost(part, share, phase, whose, more, usual, inside.start, inside.stop)
