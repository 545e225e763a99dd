"""The task graph of an iteration through the stages of a pipeline (GPipe, Huang et al. 2019, section 2 and Fig. 2c).

All micro-batches go forward, then all go backward, the last one first. A stage receives what it computes with, and
while it receives it does not compute; the stage that sends goes on. See `stallpoint.measure.synchronisation.stages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy.typing as npt

from stallpoint.models.taskgraph.builders import inputs
from stallpoint.models.taskgraph.tasks import Kind, Task
from stallpoint.strategies.presets import Preset


@dataclass(frozen=True)
class StageCosts:
    """Times of a stage's tasks; numbers or ensembles, s."""

    forward: npt.ArrayLike
    """Of one micro-batch; so is `backward`."""
    backward: npt.ArrayLike
    update: npt.ArrayLike
    activations: npt.ArrayLike = 0.0
    """Receiving those of one micro-batch from the stage before; nothing for the first one."""
    gradients: npt.ArrayLike = 0.0
    """Receiving those of what it hands on; nothing for the last one."""


def pipeline_tasks(
    read: npt.ArrayLike,
    copy: npt.ArrayLike,
    stages: Sequence[StageCosts],
    preset: Preset,
    *,
    prefetch: bool,
    iterations: int = 2,
) -> list[Task]:
    """Tasks of iterations whose mini-batch the first of the `stages` reads, in ``preset.micro_batches`` parts.

    Names: ``read of 0``, ``activations 3 of 0 on 2`` and ``forward 3 of 0 on 2`` of the third micro-batch on the second
    stage, ``gradients 3 of 0 on 1`` and ``backward 3 of 0 on 1``, ``update of 0`` on the first stage and ``update of 0
    on 2`` on another.
    """
    tasks: list[Task] = []
    for number in range(iterations):
        tasks += inputs(read, copy, preset, number, prefetch=prefetch)
        for place, costs in enumerate(stages, 1):
            tasks += _stage(costs, preset.micro_batches, number, place, last=place == len(stages))
    return tasks


def _stage(costs: StageCosts, micro_batches: int, number: int, place: int, *, last: bool) -> Iterator[Task]:
    stream, here, order = f"stage {place}", f"of {number} on {place}", range(1, micro_batches + 1)
    for part in order:
        after: tuple[str, ...] = (f"copy of {number}",)
        if place > 1:
            after = (f"activations {part} {here}",)
            before = (f"forward {part} of {number} on {place - 1}",)
            yield Task(*after, Kind.MESSAGE, stream, costs.activations, before)
        yield Task(f"forward {part} {here}", Kind.COMPUTE, stream, costs.forward, after)
    for part in reversed(order):
        after = ()
        if not last:
            after = (f"gradients {part} {here}",)
            behind = (f"backward {part} of {number} on {place + 1}",)
            yield Task(*after, Kind.MESSAGE, stream, costs.gradients, behind)
        yield Task(f"backward {part} {here}", Kind.COMPUTE, stream, costs.backward, after)
    yield Task(f"update of {number}" if place == 1 else f"update {here}", Kind.COMPUTE, stream, costs.update)
