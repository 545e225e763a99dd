"""Delays in parts of a script's run: a rank that is slow for a while, rare long iterations, a slow begin, a decay.

The run is compared with itself: each iteration with the median of its neighbours, and blocks of iterations with each
other. A median over the entire run would not show a delay in a part of it.
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
"""Smallest reported delay: of the other ranks by a slow rank, as a share of an iteration; by a part, of the run."""
MIN_PERIODIC = 0.05
"""Smallest reported share of the run for long iterations at equal distances, which do not occur by chance."""
STEADILY = 0.4
"""Quantile of a rank's excess over iterations that counts: other work on the machine slows varying ranks."""
MAX_BLOCKS, MIN_BLOCK, MIN_BLOCKS = 20, 5, 10
"""Largest number of blocks of a run, smallest number of iterations in a block, and of blocks that show a change of
speed."""
AROUND = 50
"""Number of neighbouring iterations with whose median an iteration is compared."""
LONG = 0.5
"""Smallest excess of a rare long iteration over the usual time, as a part of that time."""
MAX_LENGTH = 3
"""Largest number of consecutive long iterations that count as one event."""
MIN_EVENTS, REGULAR, CANDIDATES = 4, 0.8, 5
"""Number of long iterations, and share of them at equal distances, for which a period is named; distances tried."""
COSTLY, MIN_COUNTED = 0.5, 0.7
"""Part of the most costly event's cost from which an event counts for a period, and the share of all costs that the
counted events must have. Of 3 to 12 random events in 101 iterations, at most 2 % seem to have a period."""
ALIKE = 0.5
"""Part of the slowest rank's excess from which another rank counts as slow, too."""
STEP, DECAY = 1.2, 1.1
"""Smallest ratio to the usual time of the iterations in a slow part, and of those at the end of a decay."""
EXPOSED = PHASES.index("exposed_communication")


class RunPart(Enum):
    """Kind of a part of a run; iterations in the part are longer than others."""

    HELD = "iterations in which one rank held the others up"
    RARE = "rare long iterations"
    FIRST = "a slow begin"
    LATER = "slow from some iteration on"
    DECAY = "slower and slower"


@dataclass(frozen=True)
class PartialCost:
    """Cost of a part of the run: the time by which its iterations are longer than the other iterations."""

    part: RunPart
    share: float
    """Share of the time of the run that the excess takes."""
    phase: str
    """The phase of `PHASES` with most of the excess."""
    ranks: tuple[int, ...]
    """The ranks with the excess; empty if all ranks have it."""
    more: float
    """Excess of an iteration in the part over the other iterations, s."""
    usual: float
    """Time of an iteration outside the part, s."""
    first: int
    last: int
    """Position after the part's last iteration; `first` is the position of its first."""
    events: int = 0
    """Number of rare events."""
    period: int = 0
    """Iterations from one rare event to the next; 0 if distances differ."""


def partial_costs(ranks: Sequence[int], own: Reals, times: Reals) -> list[PartialCost]:
    """Return the costs of parts of a run, the most costly first.

    Both `own` and `times` are seconds [ranks, iterations, phases]: the ranks' own work, and all times with waits.
    """
    holds = list(_held(ranks, own, times))
    events = list(_rare(ranks, own, times))
    changes = [] if holds else list(_speed_change(ranks, own, times))
    return sorted([*holds, *events, *changes], key=lambda one: -one.share)


def beyond_others(own: Reals) -> Reals:
    """Return each rank's excess over the median of the other ranks, s [ranks, iterations, phases]; 0 without others."""
    if len(own) == 1:
        return np.zeros_like(own)
    return np.array([own[rank] - np.median(np.delete(own, rank, axis=0), axis=0) for rank in range(len(own))])


def _with_network(own: Reals, times: Reals) -> Reals:
    """Return the ranks' own work, with the exposed communication that all ranks have: a slow network delays all."""
    work = own.copy()
    work[..., EXPOSED] = np.maximum(own[..., EXPOSED], times[..., EXPOSED].min(axis=0))
    return work


def _phase_and_ranks(ranks: Sequence[int], excess: Reals) -> tuple[str, tuple[int, ...]]:
    """Return the phase that has most of the `excess` [ranks, phases], and the slow ranks; no rank if all are slow."""
    sums = excess.sum(axis=1)
    slow_ranks = np.flatnonzero(sums >= ALIKE * sums.max()).tolist()
    phase = PHASES[int(np.argmax(excess[slow_ranks].sum(axis=0)))]
    return phase, tuple(ranks[index] for index in slow_ranks) if len(slow_ranks) < len(ranks) else ()


def _blocks(count: int) -> list[slice]:
    number = max(1, min(MAX_BLOCKS, count // MIN_BLOCK))
    edges = np.linspace(0, count, number + 1).round().astype(int)
    return [slice(int(first), int(last)) for first, last in pairwise(edges)]


def _held(ranks: Sequence[int], own: Reals, times: Reals) -> Iterator[PartialCost]:
    """Yield the cost of each part of the run in which one rank delays the others, unless the part is the entire run."""
    phase_excess = beyond_others(own)
    total, excess = times.sum(axis=2), phase_excess.sum(axis=2)
    blocks = _blocks(excess.shape[1])
    is_slow = np.array(
        [np.quantile(excess[:, block], STEADILY, axis=1) > MIN_SHARE * np.median(total[:, block]) for block in blocks]
    )  # [blocks, ranks]: whether the rank delays the others in the block
    for index in range(len(ranks)):
        for first, last in _stretches(is_slow[:, index]):
            if last - first < 2 or last - first >= len(blocks) - 1:
                continue
            begin = _edge(excess[index], blocks, first) if first else 0
            end = _edge(excess[index], blocks, last) if last < len(blocks) else excess.shape[1]
            other_excess = np.concatenate([excess[index, :begin], excess[index, end:]])
            part_excess = phase_excess[index, begin:end]
            # The rank may have an excess in the rest of the run, too: only the difference is the part's cost.
            increase = float(np.median(part_excess.sum(axis=1)) - np.median(other_excess))
            share = float(increase * (end - begin) / total.mean(axis=0).sum())
            if share >= MIN_SHARE and np.median(other_excess) < increase / 4:
                phase = PHASES[int(np.argmax(np.median(part_excess, axis=0)))]
                usual = float(np.median(np.delete(total, np.s_[begin:end], axis=1)))
                yield PartialCost(RunPart.HELD, share, phase, (ranks[index],), increase, usual, begin, end)


def _stretches(flags: Flags) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each series of true flags; a single false flag does not end a series."""
    filled = flags.copy()
    filled[1:-1] |= flags[:-2] & flags[2:]
    yield from _runs_of_true(filled)


def _edge(values: Reals, blocks: Sequence[slice], at: int) -> int:
    """Return the iteration at which the values change their level, near the begin of block `at` of `blocks`."""
    first, last = blocks[at - 1].start, blocks[at].stop
    return int(first) + _split(values[first:last])


def _split(values: Reals) -> int:
    """Return the position that divides `values` best into two levels: the first value of the second level."""
    bounded = np.clip(values, *np.quantile(values, [0.1, 0.9]))
    count = np.arange(1, len(values))
    sums = np.cumsum(bounded)
    variance = (sums[-1] * count / len(values) - sums[:-1]) ** 2 / (count * (len(values) - count))
    return int(np.argmax(variance)) + 1


def _rare(ranks: Sequence[int], own: Reals, times: Reals) -> Iterator[PartialCost]:
    """Yield the cost of rare long iterations, if there are any. The ranks' own work shows these iterations: other
    ranks may wait for a slow rank only in a later iteration."""
    work = _with_network(own, times)
    count = work.shape[1]
    excess = work - _medians_around(work)
    largest_excess = excess.sum(axis=2).max(axis=0)
    typical = float(np.median(times.sum(axis=2)))
    scatter = 1.4826 * float(np.median(np.abs(largest_excess - np.median(largest_excess))))
    events = [
        (first, last)
        for first, last in _runs_of_true(largest_excess > np.median(largest_excess) + max(LONG * typical, 6 * scatter))
        if last - first <= MAX_LENGTH
    ]
    if not events or len(events) > count / 4:
        return
    period, events = _regular(events, np.array([largest_excess[first:last].sum() for first, last in events]))
    mean_excess = np.array([excess[:, begin:end].sum(axis=1) for begin, end in events]).mean(axis=0)  # [ranks, phases]
    phase, slow_ranks = _phase_and_ranks(ranks, mean_excess)
    increase = float(mean_excess.sum(axis=1).max())
    share = float(increase * len(events) / times.sum(axis=2).mean(axis=0).sum())
    if share >= (MIN_PERIODIC if period else MIN_SHARE):
        yield PartialCost(
            RunPart.RARE, share, phase, slow_ranks, increase, typical, events[0][0], events[-1][1], len(events), period
        )


def _medians_around(values: Reals) -> Reals:
    """Return for each value [ranks, iterations, phases] the median of its block of about `AROUND` iterations."""
    count = values.shape[1]
    edges = np.linspace(0, count, max(1, count // AROUND) + 1).round().astype(int)
    medians = [
        np.repeat(np.median(values[:, first:last], axis=1, keepdims=True), last - first, axis=1)
        for first, last in pairwise(edges)
    ]
    return np.concatenate(medians, axis=1)


def _runs_of_true(flags: Flags) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _regular(events: Sequence[tuple[int, int]], costs: Reals) -> tuple[int, list[tuple[int, int]]]:
    """Return the period of the events, and the events that have it; 0 and all events if there is no period.

    Events that cost less than half of the most costly one are ignored if together they cost little: other work on the
    machine causes them.
    """
    is_costly = costs >= COSTLY * costs.max()
    begins = np.array([first for first, _ in events])[is_costly]
    distances = Counter((after - before).item() for before, after in combinations(begins, 2))
    for period, _ in sorted(distances.most_common(CANDIDATES), reverse=True):
        tolerance = min(1, period // 8)
        for anchor in begins[:CANDIDATES]:
            in_period = (begins - anchor + tolerance) % period <= 2 * tolerance
            expected = (begins[in_period][-1] - begins[in_period][0]) / period + 1
            is_enough = in_period.sum() >= max(MIN_EVENTS, REGULAR * len(begins), REGULAR * expected)
            if period > 1 and is_enough and costs[is_costly].sum() >= MIN_COUNTED * costs.sum():
                return int(period), [events[index] for index in np.flatnonzero(is_costly)[in_period]]
    return 0, list(events)


def _speed_change(ranks: Sequence[int], own: Reals, times: Reals) -> Iterator[PartialCost]:
    """Yield the cost of a slow begin, a slow end or a decay, if there is one. Medians of blocks show it."""
    durations = np.median(times.sum(axis=2), axis=0)
    blocks = _blocks(len(durations))
    if len(blocks) < MIN_BLOCKS:
        return
    medians = np.array([np.median(durations[block]) for block in blocks])
    edge_block = _split(np.log(medians))
    early, late = medians[:edge_block], medians[edge_block:]
    is_first = bool(np.median(early) > np.median(late))
    slow, fast = (early, late) if is_first else (late, early)
    if np.quantile(slow, 0.1) > STEP * np.quantile(fast, 0.9) and min(len(slow), len(fast)) > 1:
        edge = _edge(durations, blocks, edge_block)
        inside, outside = slice(0, edge), slice(edge, len(durations))
        if not is_first:
            inside, outside = outside, inside
        yield from _part_costs(RunPart.FIRST if is_first else RunPart.LATER, ranks, own, times, inside, outside)
        return
    order = np.argsort(np.argsort(medians))
    if np.corrcoef(order, np.arange(len(medians)))[0, 1] < 0.9:
        return
    count = max(1, len(blocks) // 3)
    if np.median(medians[-count:]) > DECAY * np.median(medians[:count]):
        begin, end = slice(0, blocks[count].start), slice(blocks[-count].start, len(durations))
        yield from _part_costs(RunPart.DECAY, ranks, own, times, end, begin)


def _part_costs(
    part: RunPart, ranks: Sequence[int], own: Reals, times: Reals, inside: slice, outside: slice
) -> Iterator[PartialCost]:
    """Yield the cost of a part of the run, if it is large enough: `inside` are its iterations, `outside` usual ones.

    Iterations longer than usual count, not only those `inside`: in a decay, most lie between `outside` and `inside`.
    """
    work = _with_network(own, times)
    totals = times.sum(axis=2)
    typical = float(np.median(totals[:, outside]))
    increase = float(np.median(totals[:, inside])) - typical
    excess_times = np.median(totals, axis=0) - typical
    share = float(np.clip(excess_times, None, 2 * increase).mean() / totals.mean())
    if share < MIN_SHARE:
        return
    excess = np.median(work[:, inside], axis=1) - np.median(work[:, outside], axis=1)
    phase, slow_ranks = _phase_and_ranks(ranks, excess)
    yield PartialCost(part, share, phase, slow_ranks, increase, typical, inside.start, inside.stop)
