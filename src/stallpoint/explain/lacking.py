"""What a trace lacks for predictions: iterations, computing, collectives among replicas, and their sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stallpoint.explain.groups import EXCHANGE, EXPERT
from stallpoint.explain.rank import Rank
from stallpoint.explain.trace_collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, ROUNDS
from stallpoint.inputs.events import UNKNOWN
from stallpoint.text import number

MIN_ITERATIONS = 2
"""Minimum number of iterations, which shows their scatter; the graph of one (Chakra's) is complete as it is."""
MIN_COMPUTING = 0.01
"""Minimum fraction of an iteration that computes: less means that computing was not traced."""
_DATA_PARALLEL = (ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER)


MAX_REPLAY_ERROR = 0.05
"""Maximum error of a replay, as a fraction of an iteration: a larger one allows no predictions."""


def lacking(rank: Rank) -> list[str]:
    """Return in words what predictions need and the trace of `rank` lacks."""
    return list(_lacking(rank))


def _lacking(rank: Rank) -> Iterator[str]:
    count = len(rank.iterations.seconds)
    if count < MIN_ITERATIONS and not rank.trace.graph:
        yield f"it has {count} iteration, and at least {MIN_ITERATIONS} are needed"
    computing = float(np.median(rank.causes["compute"] / rank.iterations.seconds))
    if not computing >= MIN_COMPUTING:
        yield (
            f"computing is {number(100 * computing, 2)} % of an iteration: neither a device's kernels nor the host's "
            "operators were traced"
        )
    off = replay_error(rank)
    if abs(off) > MAX_REPLAY_ERROR:
        yield (
            f"its replay is {number(100 * abs(off), 2)} % {'longer' if off > 0 else 'shorter'} than what was traced, "
            f"and at most {number(100 * MAX_REPLAY_ERROR)} % is believed"
        )
    collectives, among_all = rank.collectives, rank.groups.data
    if rank.workers < 2:
        yield "it says of no second worker (--workers, where the file does not say how many there were)"
    if rank.groups.replicas < 2 or not any(collectives.kind[at] in _DATA_PARALLEL for at in np.flatnonzero(among_all)):
        yield "no all-reduce among replicas of the model was traced"
    reduced = np.array([kind in ROUNDS for kind in collectives.kind], np.bool_) & among_all
    if (collectives.bytes[reduced] < 0).any():
        yield (
            "it does not say how large its all-reduces are (for NCCL PyTorch 2.2 or newer does, and torch.profiler "
            "with record_shapes=True; for Gloo that alone)"
        )
    if any(group.parallelism in (EXCHANGE, EXPERT) and group.size in (UNKNOWN, rank.workers)
           for group in rank.groups.groups):  # fmt: skip
        yield "all workers exchange with all, and how long that takes among others no trace says"
    counts = np.bincount(collectives.iteration[reduced], minlength=count)[list(rank.replays)]
    if reduced.any() and not np.bincount(counts).argmax():
        yield "most iterations send nothing"


def replay_error(rank: Rank) -> float:
    """Return the median relative error of the iterations' replays, positive if too long; 0 without replays."""
    return float(np.median(rank.replayed / rank.traced)) - 1 if rank.replays else 0.0
