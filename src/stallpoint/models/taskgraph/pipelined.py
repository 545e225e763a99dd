"""The task graph of an iteration through pipeline stages, whose passes follow in the order of its strategy.

A stage receives what it computes with, and while it receives it does not compute; the stage that sends goes on. See
`stallpoint.measure.synchronisation.pipeline_stages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy.typing as npt

from stallpoint.models.taskgraph.builders import inputs
from stallpoint.models.taskgraph.tasks import Kind, Task
from stallpoint.strategies.families.pipeline_family import FORWARD, Pipeline, Turn
from stallpoint.strategies.presets import Preset


@dataclass(frozen=True)
class StageCosts:
    """Times of a stage's tasks; numbers or ensembles, s."""

    forward: npt.ArrayLike
    """Forward pass of one micro-batch; `backward` likewise."""
    backward: npt.ArrayLike
    update: npt.ArrayLike
    activations: npt.ArrayLike = 0.0
    """Time to receive the activations of one micro-batch from the stage before; 0 for the first stage."""
    gradients: npt.ArrayLike = 0.0
    """Time to receive the gradients of its outputs; 0 for the last stage."""


def pipeline_tasks(
    read: npt.ArrayLike,
    copy: npt.ArrayLike,
    pipeline_stages: Sequence[StageCosts],
    preset: Preset,
    *,
    prefetch: bool,
    iterations: int = 2,
) -> list[Task]:
    """Tasks of iterations whose mini-batch the first of the `pipeline_stages` reads, in micro-batches.

    Names: ``read of 0``, ``activations 3 of 0 on 2`` and ``forward 3 of 0 on 2`` of the third micro-batch on the second
    stage, ``gradients 3 of 0 on 1`` and ``backward 3 of 0 on 1``, ``update of 0`` on the first stage and ``update of 0
    on 2`` on another.
    """
    pipeline, tasks = preset.strategy, list[Task]()
    assert isinstance(pipeline, Pipeline)
    for number in range(iterations):
        tasks += inputs(read, copy, preset, number, prefetch=prefetch)
        for stage, costs in enumerate(pipeline_stages, 1):
            schedule = pipeline.schedule(stage, len(pipeline_stages))
            tasks += _stage(costs, schedule, number, stage, last=stage == len(pipeline_stages))
    return tasks


def _stage(costs: StageCosts, schedule: Sequence[Turn], number: int, stage: int, *, last: bool) -> Iterator[Task]:
    stream, here = f"stage {stage}", f"of {number} on {stage}"
    for kind, part in schedule:
        forward = kind == FORWARD
        before: tuple[str, ...] = (f"copy of {number}",) if forward else ()
        if not (stage == 1 if forward else last):
            what, received = ("activations", costs.activations) if forward else ("gradients", costs.gradients)
            sender = stage - 1 if forward else stage + 1
            before = (f"{what} {part} {here}",)
            yield Task(*before, Kind.MESSAGE, stream, received, (f"{kind} {part} of {number} on {sender}",))
        yield Task(f"{kind} {part} {here}", Kind.COMPUTE, stream, costs.forward if forward else costs.backward, before)
    yield Task(f"update of {number}" if stage == 1 else f"update {here}", Kind.COMPUTE, stream, costs.update)
