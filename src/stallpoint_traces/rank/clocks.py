"""Offsets between the clocks of ranks, estimated from collectives, which end on all ranks at nearly the same moment.

The offset is the median difference of two ranks' end times, its error the median absolute deviation. Time that a
collective takes beyond its duration on the last-arriving rank is waiting for this rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats.events import UNKNOWN
from stallpoint_traces.rank.trace_collectives import ALL_TO_ALL, SEND_RECEIVE, Collectives

Reals = npt.NDArray[np.float64]
MIN_SHARED = 3
"""Minimum number of shared collectives for two ranks' clocks to be compared."""


@dataclass(frozen=True)
class ClockOffset:
    """Offset of a rank's clock from the first rank's."""

    ahead: float
    """Offset, s; nan where no collectives connect the two ranks."""
    spread: float
    """Median distance of single collectives from the offset, s."""


def shared(ranks: Sequence[Collectives]) -> list[npt.NDArray[np.int64]]:
    """Return an identifier of each rank's collectives, equal on all ranks of a collective; -1 if no other rank has it.

    A group's collectives of an iteration start on all of its ranks in the same order. If a rank's profiler lost some,
    the other ranks are still matched with each other. Messages from one rank to another are not matched.
    """
    numbers = [np.full(len(collectives), -1) for collectives in ranks]
    rows: dict[tuple[int, str], dict[int, list[int]]] = defaultdict(dict)
    for rank, collectives in enumerate(ranks):
        sends = np.array([kind == SEND_RECEIVE for kind in collectives.kind], np.bool_) & collectives.requested
        for index in np.flatnonzero(~sends)[np.argsort(collectives.index[~sends], kind="stable")].tolist():
            rows[int(collectives.iteration[index]), collectives.group[index]].setdefault(rank, []).append(index)
    count = 0
    for of_rank in rows.values():
        signatures = {rank: tuple(_signature(ranks[rank], at) for at in places) for rank, places in of_rank.items()}
        usual, times = Counter(signatures.values()).most_common(1)[0]
        size = max(int(ranks[rank].group_size[places].max()) for rank, places in of_rank.items())
        if times < 2 or 0 < size < len(of_rank):
            continue
        for rank, places in of_rank.items():
            if signatures[rank] == usual:
                numbers[rank][places] = np.arange(count, count + len(places))
        count += len(usual)
    return numbers


def _signature(collectives: Collectives, at: int) -> tuple[str, int]:
    """Return a collective's kind and bytes; an exchange's kind only, as ranks may contribute different sizes."""
    kind = collectives.kind[at]
    return kind, UNKNOWN if kind in (ALL_TO_ALL, SEND_RECEIVE) else int(collectives.bytes[at])


def min_seconds(ranks: Sequence[Collectives]) -> list[Reals]:
    """Return each collective's duration on the last-arriving rank, which did not wait, s; inf if unknown;
    [ranks][collectives]."""
    return _over_ranks(ranks, np.minimum, np.inf)


def max_seconds(ranks: Sequence[Collectives]) -> list[Reals]:
    """Return each collective's duration on the first-arriving rank, s; -inf if unknown; [ranks][collectives]."""
    return _over_ranks(ranks, np.maximum, -np.inf)


def _over_ranks(ranks: Sequence[Collectives], chosen: np.ufunc, nothing: float) -> list[Reals]:
    numbers = shared(ranks)
    found = np.full(1 + max((int(own.max(initial=-1)) for own in numbers), default=-1), nothing)
    for own, collectives in zip(numbers, ranks, strict=True):
        chosen.at(found, own[own >= 0], collectives.seconds[own >= 0])
    return [np.where(own >= 0, found[own] if len(found) else nothing, nothing) for own in numbers]


def clocks(ranks: Sequence[Collectives]) -> list[ClockOffset]:
    """Return the offset of each rank's clock from the first one's, through other ranks if the two share too little."""
    numbers = shared(ranks)
    ends = [collectives.start + collectives.seconds for collectives in ranks]
    found: list[ClockOffset | None] = [ClockOffset(0.0, 0.0), *[None] * (len(ranks) - 1)]
    reached = [0] if ranks else []
    for known in reached:
        for other in range(len(ranks)):
            if found[other] is None and (apart := _shift(numbers, ends, known, other)):
                nearer = found[known]
                assert nearer is not None
                found[other] = ClockOffset(nearer.ahead + apart.ahead, max(nearer.spread, apart.spread))
                reached.append(other)
    return [clock or ClockOffset(np.nan, np.nan) for clock in found]


def _shift(numbers: Sequence[npt.NDArray[np.int64]], ends: Sequence[Reals], one: int, other: int) -> ClockOffset | None:
    _, mine, theirs = np.intersect1d(numbers[one], numbers[other], return_indices=True)
    mine, theirs = mine[numbers[one][mine] >= 0], theirs[numbers[other][theirs] >= 0]
    if len(mine) < MIN_SHARED:
        return None
    apart = ends[other][theirs] - ends[one][mine]
    middle = float(np.median(apart))
    return ClockOffset(middle, float(np.median(np.abs(apart - middle))))
