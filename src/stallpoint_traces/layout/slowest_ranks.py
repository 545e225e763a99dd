"""Cost and cause of the slowest of many ranks: one worker, the last stage, sequences of uneven length, or data.

After Lin et al. 2025 (*Understanding Stragglers in Large Model Training Using What-if Analysis*, OSDI): the ranks of
one suspected cause are repaired, that is take the mean time of all. The share of a cause is the time that its repair
saves over the time that even ranks would save. Sequences are uneven if forward and backward times correlate over
iterations. An iteration ends with the last replica. A pipeline stage waits until the first micro-batch reaches it and,
beyond its own forward passes (1F1B), until that returns; the last micro-batch goes back to the first stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from stallpoint.base.statistics import Reals
from stallpoint_traces.layout.groups import PIPELINE
from stallpoint_traces.layout.pipeline_bubble import bubble
from stallpoint_traces.rank.rank import Rank

DATA, LAST_STAGE, SEQUENCES, WORKER = "data", "last stage", "sequences", "worker"
STRAGGLING = 1.1
"""Minimum slowdown over even ranks for ranks to straggle, as in the paper."""
_WORST_FRACTION = 0.03
"""Fraction of ranks, at least one, that are repaired as the worst workers."""
_MIN_CORRELATION = 0.9
"""Minimum correlation of forward and backward times for sequences to be uneven."""
_MAX_DEFICIT = 0.1
"""Maximum difference to the largest share for a more specific cause to be named instead."""
_MIN_SHARE = 0.5
"""Minimum share of a cause that is named."""
_FORWARD_FRACTION = 1 / 3
"""Fraction of a micro-batch's time in the forward pass."""


@dataclass(frozen=True)
class Stragglers:
    """Cost of uneven ranks; times exclude exposed communication."""

    seconds: float
    """Mean iteration time, s."""
    even: float
    """Mean iteration time if all ranks took the mean time, s."""
    shares: dict[str, float]
    """Fraction of the difference that repairing only one cause saves, for each possible cause."""
    cause: str
    """The most specific cause with nearly the largest share; empty if no share reaches half."""
    slowest: list[int]
    """Ranks of the worst workers."""
    cells: list[dict[str, Any]]
    """Cells of a chart: ``rank``, ``row`` (its stage, or a phase), ``column``, and ``longer``, its time above the mean,
    % of an iteration."""

    @property
    def slowdown(self) -> float:
        """Mean iteration time over that of even ranks."""
        return self.seconds / self.even


def stragglers(numbers: Sequence[int], ranks: Sequence[Rank]) -> Stragglers | None:
    """Return the cost of uneven `ranks` with these `numbers`; None for a single rank, or without computing."""
    if len(ranks) < 2 or not all(rank.trace.computing for rank in ranks):
        return None
    count = min(len(rank.iterations.seconds) for rank in ranks)
    own, data = (
        np.array([of[:count] for of in every])
        for every in (
            [rank.iterations.seconds - rank.causes["exposed_communication"] for rank in ranks],
            [rank.causes["data_wait"] for rank in ranks],
        )
    )
    places = [_position(number, rank) for number, rank in zip(numbers, ranks, strict=True)]
    stage = np.array([at for at, _, _ in places])
    of_replica = np.unique([str(replica) for _, _, replica in places], return_inverse=True)[1]
    depth = max(size for _, size, _ in places)
    found = next((one for rank in ranks if depth > 1 and (one := bubble(rank))), None)
    micro_batches = found.passes if found else 1

    def iteration_time(times: Reals) -> float:
        """Return the mean iteration time if ranks compute for `times` [ranks, iterations], s."""
        order = np.argsort(stage, kind="stable")
        replicas = (times[order[of_replica[order] == one]] for one in range(of_replica.max() + 1))
        return float(np.max([_pipelined(of, micro_batches) for of in replicas], axis=0).mean())

    mean, each = float(own.mean()), own.mean(1)
    worst = np.argsort(-each, kind="stable")[: max(1, ceil(_WORST_FRACTION * len(ranks)))]
    repairs = {DATA: own - data + data.mean()}
    if depth > 1:
        slowest = max(np.unique(stage).tolist(), key=lambda one: float(each[stage == one].mean()))
        for one, name in {slowest: f"stage {slowest}", depth - 1: LAST_STAGE}.items():
            repairs[name] = np.where((stage == one)[:, None], mean, own)
    if _correlated(ranks, count):
        repairs[SEQUENCES] = np.repeat(each[:, None], count, 1)
    repairs[WORKER] = np.where(np.isin(np.arange(len(ranks)), worst)[:, None], mean, own)
    seconds, even = iteration_time(own), iteration_time(np.full_like(own, mean))
    lost = seconds - even if seconds > (1 + _MIN_DEVIATION) * even else np.inf
    shares = {cause: float(np.clip((seconds - iteration_time(times)) / lost, 0, 1)) for cause, times in repairs.items()}
    largest = max(shares.values())
    cause = next((name for name, share in shares.items() if share >= max(largest - _MAX_DEFICIT, _MIN_SHARE)), "")
    cells = list(_by_stage(numbers, places, each / mean) if depth > 1 else _by_phase(numbers, ranks, mean))
    return Stragglers(seconds, even, shares, cause, [numbers[at] for at in worst], cells)


def _pipelined(times: Reals, micro_batches: int) -> Reals:
    """Return the durations of one replica's iterations, s, if stages compute for `times` [stages, iterations]."""
    each = times / micro_batches
    until = np.cumsum(each, axis=0)
    behind = np.arange(len(times))[::-1, None]
    back = np.maximum(until[-1] - until - behind * _FORWARD_FRACTION * each, 0.0)
    return np.asarray((times + until - each + back).max(0))


def _position(number: int, rank: Rank) -> tuple[int, int, tuple[int, ...] | int]:
    """Return the stage of a rank, the number of stages, and a key common to its replica's ranks.

    Stages are in the order of the group's ranks; if the trace does not list these, neighbouring ranks share a stage, as
    in Megatron-LM.
    """
    for group in rank.groups.groups:
        if group.parallelism == PIPELINE and group.size > 1:
            members = rank.collectives.members[group.places[0]]
            if number in members:
                return members.index(number), group.size, members
            neighbours = max(1, rank.workers // group.size)
            return number // neighbours, group.size, number % neighbours
    return 0, 1, number


def _correlated(ranks: Sequence[Rank], count: int) -> bool:
    """Return whether forward and backward times correlate over iterations."""
    off = [
        np.concatenate([of[:count] / np.mean(of[:count]) - 1 for of in every])
        for every in ([rank.phases.forward for rank in ranks], [rank.phases.backward for rank in ranks])
    ]
    if count < 2 or not np.isfinite(off).all() or min(of.std() for of in off) < _MIN_DEVIATION:
        return False
    return bool(np.corrcoef(off[0], off[1])[0, 1] >= _MIN_CORRELATION)


_MIN_DEVIATION = 1e-3
"""Relative deviation below which passes, or ranks, are even."""


def _by_stage(
    numbers: Sequence[int], places: Sequence[tuple[int, int, object]], relative: Reals
) -> Iterator[dict[str, Any]]:
    column: dict[int, int] = {}
    for number, (stage, _, _), of_mean in zip(numbers, places, relative.tolist(), strict=True):
        column[stage] = column.get(stage, -1) + 1
        yield {"rank": number, "row": f"stage {stage}", "column": column[stage], "longer": 100 * (of_mean - 1)}


def _by_phase(numbers: Sequence[int], ranks: Sequence[Rank], mean: float) -> Iterator[dict[str, Any]]:
    for phase in ("data_wait", "forward", "backward", "update"):
        took = np.array([np.mean(getattr(rank.phases, phase)) for rank in ranks])
        for number, seconds in zip(numbers, took.tolist(), strict=True) if np.isfinite(took).all() else ():
            longer = 100 * (seconds - float(took.mean())) / mean
            yield {"rank": number, "row": phase.replace("_", " "), "column": number, "longer": longer}
