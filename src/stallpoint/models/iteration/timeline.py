"""Timeline of an iteration's passes and messages, from its task graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stallpoint.base.statistics import REPLICATES, Ensemble, Reals
from stallpoint.models import taskgraph
from stallpoint.strategies.presets import Preset


@dataclass(frozen=True)
class Timeline:
    """Times of passes and messages in an iteration, of the mean worker unless stated otherwise; ensembles, s."""

    seconds: Ensemble
    """Iteration time of the mean and of the slowest worker, [2, 1 + REPLICATES]."""
    forward: Ensemble
    """Forward passes of all parts, without waiting for weights; `backward` likewise."""
    backward: Ensemble
    exposed: Ensemble
    """Exposed communication."""
    communication: Ensemble
    """Sum over all messages."""
    start: Ensemble
    """Start of each gradient message, since the end of the forward passes, [1 + REPLICATES, messages]; `end`
    likewise."""
    end: Ensemble
    lateness: Ensemble
    """Time from the end of the backward pass to the end of each message; the full time if the pass awaits it."""


def unsharded(
    costs: taskgraph.Costs, preset: Preset, *, prefetch: bool, earlier: Ensemble, forward: Ensemble
) -> Timeline:
    """Return the timeline of workers that each hold all weights.

    `forward` is the time of all forward passes, `earlier` the time of all backward passes except the last. In `costs`
    both times are part of the forward pass.
    """
    schedule = taskgraph.schedule(taskgraph.iteration_tasks(costs, preset, prefetch=prefetch))
    begin = schedule.start[f"backward {len(costs.backward)} of 1"][0] - earlier
    backward = schedule.end["backward 1 of 1"][0] - begin
    names = [f"{message.name} of 1" for message in costs.collectives]
    start, end = (_seconds_since(begin, at, names) for at in (schedule.start, schedule.end))
    lateness = end - backward[:, None]
    return Timeline(
        seconds=schedule.end["update of 1"] - schedule.end["update of 0"],
        forward=forward,
        backward=backward,
        exposed=np.maximum(lateness[:, -1], 0.0) if names else np.zeros(1 + REPLICATES),
        communication=(end - start).sum(-1),
        start=start,
        end=end,
        lateness=lateness,
    )


def sharded(costs: taskgraph.ShardedCosts, preset: Preset, *, prefetch: bool, blocks: Sequence[int]) -> Timeline:
    """Return the timeline of sharded weights; `blocks` are in the order of sending."""
    tasks = taskgraph.sharded_tasks(costs, preset, prefetch=prefetch)
    schedule = taskgraph.schedule(tasks)
    seconds_of = partial(_total_seconds, tasks, schedule)
    begin = np.maximum(schedule.end["copy of 1"][0], schedule.end["update of 0"][0])
    forward, backward = seconds_of("forward"), seconds_of("backward")
    names = [f"reduce-scatter {block + 1} of 1" for block in blocks]
    start, end = (_seconds_since(begin + forward, at, names) for at in (schedule.start, schedule.end))
    passes = schedule.start["update of 1"][0] - begin
    return Timeline(
        seconds=schedule.end["update of 1"] - schedule.end["update of 0"],
        forward=forward,
        backward=backward,
        exposed=np.maximum(passes - forward - backward, 0.0),
        communication=seconds_of("gather", "reduce-scatter"),
        start=start,
        end=end,
        lateness=end - start,
    )


def tensor_parallel(costs: taskgraph.Costs, preset: Preset, *, prefetch: bool) -> Timeline:
    """Return the timeline of layers split by outputs, whose passes wait for gathered inputs."""
    tasks = taskgraph.iteration_tasks(costs, preset, prefetch=prefetch)
    schedule = taskgraph.schedule(tasks)
    seconds_of = partial(_total_seconds, tasks, schedule)
    begin = np.maximum(schedule.end["copy of 1"][0], schedule.end["update of 0"][0])
    forward, backward = seconds_of("forward"), seconds_of("backward")
    backward_start = schedule.start[f"backward {len(costs.backward)} of 1"][0]
    names = [f"{message.name} of 1" for message in costs.collectives]
    start, end = (_seconds_since(backward_start, at, names) for at in (schedule.start, schedule.end))
    return Timeline(
        seconds=schedule.end["update of 1"] - schedule.end["update of 0"],
        forward=forward,
        backward=backward,
        exposed=np.maximum(schedule.start["update of 1"][0] - begin - forward - backward, 0.0),
        communication=seconds_of("all-gather", "reduce-scatter", "all-reduce"),
        start=start,
        end=end,
        lateness=end - (schedule.end["backward 1 of 1"][0] - backward_start)[:, None],
    )


def pipelined(
    read: Ensemble, copy: Ensemble, pipeline_stages: Sequence[taskgraph.StageCosts], preset: Preset, *, prefetch: bool
) -> tuple[Ensemble, Ensemble]:
    """Return the iteration time through `pipeline_stages`, and the first stage's wait for its mini-batch."""
    schedule = taskgraph.schedule(taskgraph.pipeline_tasks(read, copy, pipeline_stages, preset, prefetch=prefetch))
    updated = schedule.end["update of 0"]
    waits = np.maximum(schedule.start["forward 1 of 1 on 1"] - updated - copy, 0.0)
    return np.asarray(schedule.end["update of 1"] - updated), np.asarray(waits)


def _total_seconds(tasks: Sequence[taskgraph.Task], schedule: taskgraph.TaskSchedule, *kinds: str) -> Ensemble:
    """Return the summed durations of tasks of `kinds` in the second iteration."""
    names = [task.name for task in tasks if task.name.startswith(kinds) and task.name.endswith(" of 1")]
    return np.asarray(sum(schedule.end[name][0] - schedule.start[name][0] for name in names))


def _seconds_since(begin: Reals, at: Mapping[str, Reals], names: Sequence[str]) -> Ensemble:
    if not names:
        return np.empty((1 + REPLICATES, 0))
    return np.asarray(np.stack([at[name][0] for name in names], axis=-1) - begin[:, None])
