"""The DAG model of synchronous SGD (Shi et al. 2018, section IV): graph, schedule and closed forms.

A job is a list of tasks with precedence edges. Each task needs one resource, which does one task at a
time in the order in which they became ready (first in, first out); a task starts as early as it can.
Equations (1)-(6) are the same model solved by hand for the steady state; tests hold the two together.

The paper drops the model update t_u from eqs. (3)-(6). Here it is kept, as in eq. (2): no computing task
of the next iteration can begin before the update, so it adds to the computing side of the maximum.

Closed forms take numbers or arrays; layers are along the last axis, in forward order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint.models.statistics import Reals

# --- graph and schedule ---------------------------------------------------------------------------


class Kind(Enum):
    """Computing tasks need a processor; communication tasks a disk, a bus or a network."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"


@dataclass(frozen=True)
class Task:
    """One task of the job."""

    name: str
    kind: Kind
    duration: float
    """s."""
    resource: str
    after: tuple[str, ...] = ()
    """Tasks that must have ended before."""


@dataclass(frozen=True)
class Span:
    """When a task runs, s."""

    start: float
    end: float


def schedule(tasks: Sequence[Task]) -> dict[str, Span]:
    """Earliest-start schedule, first in, first out on each resource; ties in the order of `tasks`.

    Raises `InputError` for an unknown predecessor, a name used twice or a cycle.
    """
    place = {task.name: index for index, task in enumerate(tasks)}
    if len(place) < len(tasks):
        raise InputError("DAG: two tasks have the same name")
    followers: list[list[int]] = [[] for _ in tasks]
    for index, task in enumerate(tasks):
        for name in task.after:
            if name not in place:
                raise InputError(f"DAG: task {task.name} comes after {name}, which does not exist")
            followers[place[name]].append(index)
    missing = [len(task.after) for task in tasks]
    ready = [0.0] * len(tasks)
    queue = [(0.0, index) for index, count in enumerate(missing) if count == 0]
    free: dict[str, float] = {}
    spans: dict[str, Span] = {}
    # Whatever becomes ready later does so at the end of a task taken from the queue, so never before it.
    while queue:
        arrival, index = heapq.heappop(queue)
        task = tasks[index]
        start = max(arrival, free.get(task.resource, 0.0))
        free[task.resource] = end = start + task.duration
        spans[task.name] = Span(start, end)
        for follower in followers[index]:
            ready[follower] = max(ready[follower], end)
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(queue, (ready[follower], follower))
    if len(spans) < len(tasks):
        raise InputError(f"DAG: a cycle among {sorted(place.keys() - spans.keys())}")
    return spans


@dataclass(frozen=True)
class Costs:
    """Times of the tasks of one iteration, equal on every worker, s."""

    read: float
    """t_io."""
    copy: float
    """t_h2d."""
    forward: Sequence[float]
    """t_f of each layer, in forward order."""
    backward: Sequence[float]
    """t_b of each layer, in forward order."""
    all_reduce: Sequence[float]
    """t_c of each layer, in forward order; 0 where nothing is learned."""
    update: float
    """t_u."""


def s_sgd(costs: Costs, *, sync: str, prefetch: bool, workers: int = 1, iterations: int = 2) -> list[Task]:
    """The DAG of synchronous SGD (Shi et al., Fig. 1).

    `sync`: ``naive`` starts all-reduces after the whole backward pass, ``wfbp`` each when its gradients are
    complete. `prefetch`: the next mini-batch is read and copied while computing (eq. (3)); the input of one
    worker handles one mini-batch at a time, as the sum t_io + t_h2d there says.
    """
    jobs = range(iterations)
    return [task for i in jobs for task in _iteration(costs, i, sync=sync, prefetch=prefetch, workers=workers)]


def _iteration(costs: Costs, i: int, *, sync: str, prefetch: bool, workers: int) -> Iterator[Task]:
    layers = range(1, len(costs.forward) + 1)
    everyone = range(workers)
    for w in everyone:
        yield from _worker(costs, i, w, prefetch=prefetch)
    reduced = []
    for layer in reversed(layers):
        if costs.all_reduce[layer - 1] > 0:
            needed = layer if sync == "wfbp" else 1
            name = f"all-reduce {layer} of {i}"
            after = tuple(f"backward {needed} of {i} on {w}" for w in everyone)
            yield Task(name, Kind.COMMUNICATION, costs.all_reduce[layer - 1], "network", after)
            reduced.append(name)
    after = (*(f"backward 1 of {i} on {w}" for w in everyone), *reduced)
    yield Task(f"update {i}", Kind.COMPUTE, costs.update, "worker 0", after)


def _worker(costs: Costs, i: int, w: int, *, prefetch: bool) -> Iterator[Task]:
    """Input, forward and backward tasks of iteration `i` on worker `w`."""
    updated = (f"update {i - 1}",) if i else ()
    fetched = (f"copy {i - 1} on {w}",) if i else ()
    yield Task(f"read {i} on {w}", Kind.COMMUNICATION, costs.read, f"input {w}", fetched if prefetch else updated)
    yield Task(f"copy {i} on {w}", Kind.COMMUNICATION, costs.copy, f"input {w}", (f"read {i} on {w}",))
    before: tuple[str, ...] = (f"copy {i} on {w}", *updated)
    depth = len(costs.forward)
    for direction, order, times in (
        ("forward", range(1, depth + 1), costs.forward),
        ("backward", range(depth, 0, -1), costs.backward),
    ):
        for layer in order:
            name = f"{direction} {layer} of {i} on {w}"
            yield Task(name, Kind.COMPUTE, times[layer - 1], f"worker {w}", before)
            before = (name,)


def steady_iteration(spans: Mapping[str, Span], iterations: int) -> float:
    """Iteration time in the steady state: between the ends of the last two of `iterations` updates, s."""
    return spans[f"update {iterations - 1}"].end - spans[f"update {iterations - 2}"].end


# --- closed forms ---------------------------------------------------------------------------------


def sgd_seconds(t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_u: Reals) -> Reals:
    """Eq. (1): one worker, nothing overlaps; t_iter = t_io + t_h2d + t_f + t_b + t_u."""
    return t_io + t_h2d + t_f + t_b + t_u


def naive_seconds(t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_c: Reals, t_u: Reals) -> Reals:
    """Eq. (2): S-SGD, nothing overlaps; t_iter = t_io + t_h2d + t_f + t_b + t_c + t_u."""
    return t_io + t_h2d + t_f + t_b + t_c + t_u


def input_overlapped_seconds(t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_c: Reals, t_u: Reals) -> Reals:
    """Eq. (3), with the update: t_iter = max{t_io + t_h2d, t_f + t_b + t_c + t_u}."""
    return np.maximum(t_io + t_h2d, t_f + t_b + t_c + t_u)


def wfbp_seconds_by_start(
    t_io: Reals, t_h2d: Reals, t_f: Reals, t_b_last: Reals, start: Reals, t_c_first: Reals, t_u: Reals
) -> Reals:
    """Eq. (4), with the update: max{t_io + t_h2d, t_f + t_b^(L) + τ_c^(1) - τ_c^(L) + t_c^(1) + t_u}.

    `t_b_last` is t_b^(L), `start` holds τ_c of the layers in forward order, `t_c_first` is t_c^(1).
    """
    computing = t_f + t_b_last + start[..., 0] - start[..., -1] + t_c_first + t_u
    return np.maximum(t_io + t_h2d, computing)


def wfbp_seconds(t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_c_no: Reals, t_u: Reals) -> Reals:
    """Eq. (5), with the update: t_iter = max{t_io + t_h2d, t_f + t_b + t_c^no + t_u}."""
    return np.maximum(t_io + t_h2d, t_f + t_b + t_c_no + t_u)


def speedup(workers: int, single: Reals, all_workers: Reals) -> Reals:
    """Eq. (6), weak scaling: S = N_g · t_iter(1) / t_iter(N_g), both from eq. (5)."""
    return workers * single / all_workers


def gradients_ready(backward: npt.ArrayLike) -> Reals:
    """When each layer's gradients are complete, since the start of the backward pass: τ_b^(l) + t_b^(l)."""
    return np.cumsum(np.asarray(backward)[..., ::-1], axis=-1)[..., ::-1]


def in_turn(ready: npt.ArrayLike, seconds: npt.ArrayLike) -> tuple[Reals, Reals]:
    """Start and end of messages [...] sent one after another, in their order, none before it is ready."""
    ready, seconds = np.broadcast_arrays(*map(np.asarray, (ready, seconds)))
    start = np.empty(ready.shape)
    free = np.zeros(ready.shape[:-1])
    for message in range(ready.shape[-1]):
        start[..., message] = np.maximum(free, ready[..., message])
        free = start[..., message] + seconds[..., message]
    return start, start + seconds


def wfbp_all_reduces(backward: npt.ArrayLike, all_reduce: npt.ArrayLike) -> tuple[Reals, Reals]:
    """Start and end of each layer's all-reduce since the start of the backward pass (eq. (4): τ_c, τ_c + t_c).

    One after another, from the last layer to the first, none before its gradients are complete:
    τ_c^(l) = max(τ_c^(l+1) + t_c^(l+1), τ_b^(l) + t_b^(l)).
    """
    start, end = in_turn(gradients_ready(backward)[..., ::-1], np.asarray(all_reduce)[..., ::-1])
    return start[..., ::-1], end[..., ::-1]


def exposed_communication(backward: npt.ArrayLike, all_reduce: npt.ArrayLike) -> Reals:
    """t_c^no of eq. (5): time from the end of the backward pass to the end of the last all-reduce."""
    _, end = wfbp_all_reduces(backward, all_reduce)
    return np.asarray(end[..., 0] - np.asarray(backward).sum(-1))


def iteration_seconds(
    t_io: Reals, t_h2d: Reals, t_f: Reals, t_b: Reals, t_c_no: Reals, t_u: Reals, *, overlap: bool, prefetch: str
) -> tuple[Reals, str]:
    """Iteration time of stallpoint's own training step, and the equation used.

    `t_c_no` is what of t_c the backward pass does not hide: all of it without `overlap`. `prefetch` says how far
    mini-batches are read ahead: not at all (``none``), into the ``host``'s memory or to the ``device``. In the host's
    memory the copy to the device waits for the update, as with CNTK, MXNet and TensorFlow (section IV-C), so
    t_h2d stands on the computing side of eqs. (3) and (5).
    """
    if prefetch == "none":
        seconds = naive_seconds(t_io, t_h2d, t_f, t_b, t_c_no, t_u)
        return seconds, "eq. 2 with t_c^no" if overlap else "eq. 2"
    if prefetch == "host":
        t_f, t_h2d = t_h2d + t_f, np.zeros_like(t_h2d)
    if overlap:
        return wfbp_seconds(t_io, t_h2d, t_f, t_b, t_c_no, t_u), "eq. 5"
    return input_overlapped_seconds(t_io, t_h2d, t_f, t_b, t_c_no, t_u), "eq. 3"
