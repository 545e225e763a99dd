"""The bubble of a pipeline: a stage's schedule, its micro-batches, and the idle time of that schedule.

The operator that launched its kernels distinguishes a forward from a backward pass; sends and receives separate a pass
from the next. Before its first backward pass, one of p stages runs all m forward passes (GPipe), at most p (1F1B), or
more (interleaved: Narayanan et al. 2021, section 2.2). The schedule leaves p - 1 of m + p - 1 passes idle; interleaved
with v chunks, p - 1 of v·m + p - 1. Exposed time beyond the bubble is due to transfers and uneven stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats.events import OPERATOR
from stallpoint_traces.layout.group_times import group_times
from stallpoint_traces.layout.groups import PIPELINE, Group
from stallpoint_traces.rank.graph import BACKWARD
from stallpoint_traces.rank.intervals import union
from stallpoint_traces.rank.rank import Rank

GPIPE, ONE_F_ONE_B, INTERLEAVED = "GPipe", "1F1B", "interleaved"


@dataclass(frozen=True)
class Bubble:
    """The bubble of one stage; medians over iterations, s."""

    schedule: str
    pipeline_stages: int
    passes: int
    """Forward passes of an iteration: micro-batches, times the chunks of a stage if interleaved."""
    seconds: float
    """Idle time due to the schedule, if all stages take equally long."""
    exposed: float
    """Time of sends and receives during which nothing computes, the bubble included."""
    twice_as_many: float
    """Duration of an iteration with twice as many micro-batches of half the size."""
    twice_the_pipeline: float
    """Duration of an iteration with twice as many stages of half the layers."""


def bubble(rank: Rank) -> Bubble | None:
    """Return the bubble of a pipeline's stage; None without pipeline, or if its passes are not identifiable."""
    group = next((one for one in rank.groups.groups if one.parallelism == PIPELINE and one.size > 1), None)
    if group is None:
        return None
    passes, lasted = _passes(rank, group)
    usual = max(set(passes), key=passes.count)
    forward = usual.count("F")
    if not forward or forward != usual.count("B"):
        return None
    first = usual.index("B")
    schedule = GPIPE if first == forward > 1 else ONE_F_ONE_B if first <= group.size else INTERLEAVED
    each = float(np.median(lasted)) / forward
    exposed = sum(one.exposed or 0.0 for one in group_times(rank, group))
    seconds, total = each * (group.size - 1), float(np.median(rank.iterations.seconds))
    halved = total - seconds / 2
    # Each pass has half of the work, and 2p - 1 of them are idle.
    doubled = halved - each * forward / 2 + each * group.size / 2
    return Bubble(schedule, group.size, forward, seconds, exposed, halved, doubled)


_MIN_PASS = 0.2
"""Minimum duration of a pass over the median: shorter computing is a loss, or sets gradients to zero."""


def _passes(rank: Rank, group: Group) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return each iteration's passes as a text (``F`` or ``B`` each, by launch), and their total duration, s."""
    started, events, found = rank.started, rank.trace.events, rank.iterations
    backward = events.where((events.kind == OPERATOR) & events.called(BACKWARD))
    spans = union(backward.start, backward.end)
    transfers = np.zeros(len(started), np.bool_)
    transfers[rank.collectives.index[group.places]] = True
    reduced = np.zeros(len(started), np.bool_)
    reduced[rank.collectives.index[rank.groups.data]] = True
    works = transfers | started.computes | (started.communicates & ~reduced)
    own = np.flatnonzero(works & (found.of(started.launch) >= 0))
    inside = np.searchsorted(spans[:, 0], started.launch[own], side="right") - 1
    behind = (inside >= 0) & (started.launch[own] < spans[inside, 1]) if len(spans) else np.zeros(len(own), np.bool_)
    kinds = np.where(transfers[own], "|", np.where(behind, "B", "F"))
    iteration = found.of(started.launch[own])
    run = np.cumsum(np.append(True, (kinds[1:] != kinds[:-1]) | (iteration[1:] != iteration[:-1]))) - 1
    first = np.unique(run, return_index=True)[1]
    seconds = np.maximum.reduceat(started.events.end[own], first) - np.minimum.reduceat(
        started.events.start[own], first
    )
    names = kinds[first]
    kept = np.zeros(len(first), np.bool_)
    for name in ("F", "B"):
        some = names == name
        kept |= some & (seconds >= _MIN_PASS * np.median(seconds[some])) if some.any() else some
    texts, lasted = [], []
    for index in range(len(found.seconds)):
        here = kept & (iteration[first] == index)
        # computing after the last backward pass is the optimiser's
        passes = np.flatnonzero(here)[: "".join(names[here]).rfind("B") + 1]
        texts.append("".join(names[passes]))
        lasted.append(seconds[passes].sum())
    return texts, np.array(lasted)
