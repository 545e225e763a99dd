"""Time of each process group's collectives in an iteration: total, exposed (nothing computes), and waiting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint_traces.layout.groups import Group
from stallpoint_traces.rank.intervals import length_within, union, without
from stallpoint_traces.rank.rank import Rank

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupTime:
    """Collectives of one kind in a group; medians over iterations, s."""

    kind: str
    per_iteration: float
    bytes: float | None
    """Bytes that the rank contributes to an iteration's collectives; None if unknown."""
    seconds: float
    exposed: float | None
    """Time during which nothing computes; None if computing was not traced."""
    waiting: float | None
    """Time of waiting for the last-arriving rank; None if no other rank was traced."""


def group_times(rank: Rank, group: Group, least: Reals | None = None) -> list[GroupTime]:
    """Return the time of each kind of collective in a group; `least` [collectives] comes from `min_seconds`."""
    collectives, found = rank.collectives, rank.iterations
    kinds = np.array([collectives.kind[at] for at in group.places])
    computes = rank.computing if rank.trace.computing and rank.on_device else None
    times = []
    for kind in np.unique(kinds):
        places = group.places[kinds == kind]
        start, seconds, sizes = (
            of[places] for of in (collectives.start, collectives.seconds, collectives.bytes)
        )  # fmt: skip
        spans = union(start, start + seconds)
        known = np.isfinite(least[places]) if least is not None else np.zeros(len(places), np.bool_)
        waited = np.bincount(
            collectives.iteration[places[known]],
            (seconds - least[places])[known] if least is not None else None,
            minlength=len(found.seconds),
        )  # fmt: skip
        times.append(GroupTime(
            str(kind), len(places) / len(found.seconds),
            float(sizes.sum()) / len(found.seconds) if (sizes >= 0).all() else None,
            float(np.median(length_within(spans, found.begin, found.end))),
            None if computes is None else
            float(np.median(length_within(without(spans, computes), found.begin, found.end))),
            float(np.median(waited)) if known.any() else None,
        ))  # fmt: skip
    return times
