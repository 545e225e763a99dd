"""Task graph of an iteration with sharded weights, as by FSDP2 on CPUs (Zhao et al. 2023, PyTorch FSDP).

A block's weights are gathered before its forward pass. If they are freed afterwards, they are gathered again before its
backward pass. While a block computes, `ahead` further blocks are gathered. After a block's backward pass its gradients
are summed and scattered; computing waits for this, as a CPU has no streams. Weights outside of all blocks are gathered
first and kept to the end of the pass; their gradients are sent last. See `stallpoint.measure.synchronisation.fsdp`.

*Pipeline stages*: the task graph of an iteration through stages, with passes in the order of the strategy.

A stage does not compute while it receives its inputs; the sending stage continues. See
`stallpoint.measure.synchronisation.pipeline_stages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals
from stallpoint.models.taskgraph.builders import MessageTimes, inputs
from stallpoint.models.taskgraph.tasks import Kind, Task
from stallpoint.strategies.families.pipeline_family import FORWARD, Pass, Pipeline
from stallpoint.strategies.families.sharded_family import ShardedOptions
from stallpoint.strategies.presets import Preset


@dataclass(frozen=True)
class ShardedCosts:
    """Times of the tasks of one iteration on a worker; numbers or ensembles, s."""

    read: npt.ArrayLike
    copy: npt.ArrayLike
    forward: Sequence[npt.ArrayLike] | Reals
    """Forward time of each layer [layers, ...] in one pass, in forward order; `backward` likewise."""
    backward: Sequence[npt.ArrayLike] | Reals
    gathers: Sequence[MessageTimes]
    """All-gathers of each block's weights, in forward order."""
    reduces: Sequence[MessageTimes]
    """Reduce-scatters of the gradients of the same blocks."""
    update: npt.ArrayLike


@dataclass(frozen=True)
class _LayerRun:
    """Consecutive layers; all that have weights belong to the same block."""

    block: int
    layers: tuple[int, ...]


def sharded_tasks(costs: ShardedCosts, preset: Preset, *, prefetch: bool, iterations: int = 2) -> list[Task]:
    """Return the tasks of iterations in which mini-batches are computed in ``preset.accumulate`` passes.

    The first pass has the tasks ``gather 2 (1) of 0`` and ``gather again 2 (1) of 0`` for the second block, and
    ``forward 1 (1) of 0`` and ``backward 1 (1) of 0`` for the first run of layers. Other names are ``reduce-scatter 2
    of 0`` and ``update of 0``.
    """
    runs = runs_of([message.layers for message in costs.gathers], len(costs.forward))
    tasks: list[Task] = []
    for number in range(iterations):
        tasks += inputs(costs.read, costs.copy, preset, number, prefetch=prefetch)
        predecessors = (f"copy of {number}", *((f"update of {number - 1}",) if number else ()))
        for count in range(1, preset.accumulate + 1):
            last = count == preset.accumulate
            one = _ShardedPass(costs, preset, runs, f"({count}) of {number}", predecessors)
            tasks += [*one.forward(), *one.backward(f"of {number}" if last else "")]
            predecessors = one.ended
        tasks.append(Task(f"update of {number}", Kind.COMPUTE, "update", costs.update, predecessors))
    return tasks


def runs_of(blocks: Sequence[Sequence[int]], layers: int) -> list[_LayerRun]:
    """Return the `layers` in runs. A layer without weights joins the run before it, or at the start the run after."""
    block_of_layer = {layer: number for number, members in enumerate(blocks) for layer in members}
    here = block_of_layer[min(block_of_layer)]
    positions = []
    for layer in range(layers):
        here = block_of_layer.get(layer, here)
        positions.append((here, layer))
    return [_LayerRun(block, tuple(layer for _, layer in of)) for block, of in groupby(positions, lambda at: at[0])]


class _ShardedPass:
    """A forward and a backward pass, with their gathers and messages."""

    def __init__(
        self, costs: ShardedCosts, preset: Preset, runs: Sequence[_LayerRun], of: str, predecessors: tuple[str, ...]
    ) -> None:
        self._costs, self._preset, self._runs, self._of = costs, preset, runs, of
        first = {run.block: position for position, run in reversed(list(enumerate(runs)))}
        scattered_blocks = {run.block for position, run in enumerate(runs) if position != first[run.block]}
        self._kept = sorted(scattered_blocks)
        """Numbers of blocks whose layers are not consecutive, as those of layers outside of all blocks."""
        self._blocks = sorted(set(first) - scattered_blocks, key=first.__getitem__)
        self._first = first
        self.ended = predecessors
        """Tasks that have to end before computing continues."""

    def forward(self) -> Iterator[Task]:
        """Yield the tasks of the forward pass, in the order in which they begin."""
        for block in self._kept:
            yield self._gather_task("gather", block, self.ended)
        needed_gathers: dict[int, tuple[str, ...]] = {block: (self._named("gather", block),) for block in self._kept}
        for position, run in enumerate(self._runs):
            if run.block in self._blocks:
                yield from self._gathers_ahead("gather", self._blocks, run.block)
                needed_gathers[run.block] = (self._named("gather", run.block),)
            seconds = _total(self._costs.forward, run)
            task = f"forward {position + 1} {self._of}"
            yield Task(task, Kind.COMPUTE, "compute stream", seconds, (*self.ended, *needed_gathers.pop(run.block, ())))
            self.ended = (task,)

    def backward(self, suffix: str) -> Iterator[Task]:
        """Yield the tasks of the backward pass. Names of messages end in `suffix`; if it is empty, nothing is sent."""
        regathered_blocks = self._blocks[::-1] if self._preset.family(ShardedOptions).reshard else []
        for position, run in reversed(list(enumerate(self._runs))):
            needed_gathers: tuple[str, ...] = ()
            if run.block in regathered_blocks:
                yield from self._gathers_ahead("gather again", regathered_blocks, run.block)
                needed_gathers = (self._named("gather again", run.block),)
            seconds = _total(self._costs.backward, run)
            task = f"backward {position + 1} {self._of}"
            yield Task(task, Kind.COMPUTE, "compute stream", seconds, (*self.ended, *needed_gathers))
            self.ended = (task,)
            if suffix and run.block in self._blocks:
                yield self._reduce_task(run.block, suffix)
        for block in self._kept if suffix else ():
            yield self._reduce_task(block, suffix)

    def _gathers_ahead(self, what: str, order: Sequence[int], block: int) -> Iterator[Task]:
        """Yield the gathers that start when a pass over blocks in `order` reaches `block`."""
        ahead, position = self._preset.family(ShardedOptions).gather_ahead, order.index(block)
        if position == 0 or not ahead:
            yield self._gather_task(what, block, self.ended)
        begin = position + max(ahead, 1) if position else 1
        for other in order[begin : position + ahead + 1]:
            yield self._gather_task(what, other, (*self.ended, self._named(what, block)))

    def _gather_task(self, what: str, block: int, after: tuple[str, ...]) -> Task:
        return _collective(self._named(what, block), self._costs.gathers[block], after)

    def _reduce_task(self, block: int, suffix: str) -> Task:
        task = _collective(f"reduce-scatter {block + 1} {suffix}", self._costs.reduces[block], self.ended)
        self.ended = (task.name,)
        return task

    def _named(self, what: str, block: int) -> str:
        return f"{what} {block + 1} {self._of}"


def _total(seconds: Sequence[npt.ArrayLike] | Reals, run: _LayerRun) -> Reals:
    total: Reals = np.asarray([np.asarray(seconds[layer]) for layer in run.layers]).sum(axis=0)
    return total


def _collective(name: str, message: MessageTimes, after: tuple[str, ...]) -> Task:
    return Task(name, Kind.MESSAGE, "network", message.seconds, after, message.co_running, message.slows)


# --- pipeline stages ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageCosts:
    """Times of a stage's tasks; numbers or ensembles, s."""

    forward: npt.ArrayLike
    """Forward pass of one micro-batch; `backward` likewise."""
    backward: npt.ArrayLike
    update: npt.ArrayLike
    activations: npt.ArrayLike = 0.0
    """Time to receive the activations of one micro-batch from the previous stage; 0 for the first stage."""
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
    """Return the tasks of iterations in micro-batches; the first of the `pipeline_stages` reads the mini-batch.

    The third micro-batch has the tasks ``activations 3 of 0 on 2`` and ``forward 3 of 0 on 2`` on the second stage, and
    ``gradients 3 of 0 on 1`` and ``backward 3 of 0 on 1`` on the first one. The first stage also has ``read of 0`` and
    ``update of 0``, the second ``update of 0 on 2``.
    """
    pipeline, tasks = preset.strategy, list[Task]()
    assert isinstance(pipeline, Pipeline)
    for number in range(iterations):
        tasks += inputs(read, copy, preset, number, prefetch=prefetch)
        for stage, costs in enumerate(pipeline_stages, 1):
            schedule = pipeline.schedule(stage, len(pipeline_stages))
            tasks += _stage_tasks(costs, schedule, number, stage, last=stage == len(pipeline_stages))
    return tasks


def _stage_tasks(costs: StageCosts, schedule: Sequence[Pass], number: int, stage: int, *, last: bool) -> Iterator[Task]:
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
