"""Ranks on one clock: a collective ends on all of its ranks at nearly the same moment, whatever their clocks say.

So the median difference of two ranks' ends is what their clocks are apart, and how far single ends are from it what
that is worth. What a collective took longer than on the rank that came last was waiting for that one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint.explain.trace_collectives import ALL_TO_ALL, SEND_RECEIVE, Collectives
from stallpoint.inputs.events import UNKNOWN

Reals = npt.NDArray[np.float64]
FEWEST = 3
"""Collectives that two ranks must share for their clocks to be compared."""


@dataclass(frozen=True)
class Clock:
    """A rank's clock beside that of the first rank."""

    ahead: float
    """Seconds that it shows more; not a number where no collectives connect the two."""
    spread: float
    """Median distance of single collectives from that, s."""


def shared(ranks: Sequence[Collectives]) -> list[npt.NDArray[np.int64]]:
    """A number for each collective of each rank, the same on every rank that took part; -1 where no other one has it.

    A group's collectives of an iteration are started on all of its ranks in the same order. Where a rank lacks some,
    as its profiler lost them, the others' are still known by one another.
    """
    numbers = [np.full(len(collectives), -1) for collectives in ranks]
    rows: dict[tuple[int, str], dict[int, list[int]]] = defaultdict(dict)
    for rank, collectives in enumerate(ranks):
        for index in np.argsort(collectives.index, kind="stable").tolist():
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
    """Kind and bytes; of an exchange the kind alone, as each rank may hand in another part."""
    kind = collectives.kind[at]
    return kind, UNKNOWN if kind in (ALL_TO_ALL, SEND_RECEIVE) else int(collectives.bytes[at])


def min_seconds(ranks: Sequence[Collectives]) -> list[Reals]:
    """What each collective took on the rank that came last, which waited for none, s; infinite where that is not
    known; [ranks][collectives]."""
    return _of_all(ranks, np.minimum, np.inf)


def max_seconds(ranks: Sequence[Collectives]) -> list[Reals]:
    """What each took on the rank that came first; below 0, and infinite, where that is not known."""
    return _of_all(ranks, np.maximum, -np.inf)


def _of_all(ranks: Sequence[Collectives], chosen: np.ufunc, nothing: float) -> list[Reals]:
    numbers = shared(ranks)
    found = np.full(1 + max((int(own.max(initial=-1)) for own in numbers), default=-1), nothing)
    for own, collectives in zip(numbers, ranks, strict=True):
        chosen.at(found, own[own >= 0], collectives.seconds[own >= 0])
    return [np.where(own >= 0, found[own] if len(found) else nothing, nothing) for own in numbers]


def clocks(ranks: Sequence[Collectives]) -> list[Clock]:
    """Each rank's clock beside the first one's, by way of other ranks where the two share too little."""
    numbers = shared(ranks)
    ends = [collectives.start + collectives.seconds for collectives in ranks]
    found: list[Clock | None] = [Clock(0.0, 0.0), *[None] * (len(ranks) - 1)]
    reached = [0] if ranks else []
    for known in reached:
        for other in range(len(ranks)):
            if found[other] is None and (apart := _apart(numbers, ends, known, other)):
                nearer = found[known]
                assert nearer is not None
                found[other] = Clock(nearer.ahead + apart.ahead, max(nearer.spread, apart.spread))
                reached.append(other)
    return [clock or Clock(np.nan, np.nan) for clock in found]


def _apart(numbers: Sequence[npt.NDArray[np.int64]], ends: Sequence[Reals], one: int, other: int) -> Clock | None:
    _, mine, theirs = np.intersect1d(numbers[one], numbers[other], return_indices=True)
    mine, theirs = mine[numbers[one][mine] >= 0], theirs[numbers[other][theirs] >= 0]
    if len(mine) < FEWEST:
        return None
    apart = ends[other][theirs] - ends[one][mine]
    middle = float(np.median(apart))
    return Clock(middle, float(np.median(np.abs(apart - middle))))
