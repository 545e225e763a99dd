"""Imbalance of experts, from the sizes of all-to-alls: all ranks wait for the rank with the most tokens.

Experts compute between two exchanges, the second of which returns the tokens of the first. All ranks own equally many
tokens, so that the number a rank sends is the mean of the numbers received. Evenly spread tokens would shorten
computing and exchanges by the ratio of that mean to the busiest rank's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stallpoint_traces.rank.intervals import length_within
from stallpoint_traces.rank.rank import Rank


@dataclass(frozen=True)
class Imbalance:
    """Imbalance of experts in a rank's iterations."""

    ranks: int
    busiest: float
    """Tokens of the busiest rank over the mean of ranks; median over pairs of exchanges."""
    computing: float
    """Computing time of an iteration that evenly spread tokens would save, s."""
    exchanging: float
    """Time of an iteration's exchanges that evenly spread tokens would save, s."""
    all_traced: bool
    """Whether the tokens of all ranks are traced; otherwise every rank is assumed to route like this one."""


def imbalance(rank: Rank, others: Sequence[Rank] = ()) -> Imbalance | None:
    """Return the imbalance from pairs of exchanges, None if sizes are unknown; `others` are all traced ranks."""
    pairs = list(_pairs(rank))
    if not pairs:
        return None
    of = rank.collectives
    first, second = np.array(pairs).T
    size = len(of.in_splits[first[0]])
    tokens, mean = (
        np.array([max(1, sum(sizes[at])) for at in first], float) for sizes in (of.out_splits, of.in_splits)
    )
    largest = np.array([size * max(of.in_splits[at]) for at in first], float)
    received = [
        np.array([sum(other.collectives.out_splits[at]) for at, _ in _pairs(other)], float)
        for other in others
        if (of.group[first[0]], of.members[first[0]])
        in zip(other.collectives.group, other.collectives.members, strict=True)
    ]
    all_traced = len(received) == size and all(len(one) == len(first) for one in received)
    if all_traced:
        largest, mean = np.max(received, axis=0), np.mean(received, axis=0)
    ends = of.start + of.seconds
    computed = length_within(rank.computing, ends[first], of.start[second])
    waited = computed * np.maximum(largest / tokens - 1, 0.0)
    exchanged = of.seconds[first] + np.maximum(of.seconds[second] - waited, 0.0)
    count = len(rank.iterations.seconds)
    return Imbalance(
        size, float(np.median(largest / mean)), float((computed * (largest - mean) / tokens).sum()) / count,
        float((exchanged * (1 - mean / largest)).sum()) / count, all_traced,
    )  # fmt: skip


def _pairs(rank: Rank) -> Iterator[tuple[int, int]]:
    """Yield indices of two exchanges, the second of which returns the tokens of the first."""
    of = rank.collectives
    there = None
    for at in np.argsort(of.index, kind="stable").tolist():
        if len(of.in_splits[at]) < 2 or not sum(of.in_splits[at]):
            continue
        where = of.group[at], of.iteration[at]
        if there is not None and (*where, of.out_splits[at], of.in_splits[at]) == there[1:]:
            yield there[0], at
            there = None
        else:
            there = at, *where, of.in_splits[at], of.out_splits[at]
