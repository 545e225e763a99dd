"""The task graph of an iteration whose weights are sharded, as FSDP2 does it on CPUs (Zhao et al. 2023, PyTorch FSDP).

A block's weights are gathered before its forward pass and, where they were freed after it, before its backward pass
again; `ahead` blocks are gathered while others compute. Behind the backward pass of a block its gradients are summed
and scattered, for which computing waits: a CPU has no streams. What no block holds is gathered first, kept until the
pass is over, and sent last. See `stallpoint.measure.synchronisation.fsdp`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from stallpoint.models.base.statistics import Reals
from stallpoint.models.taskgraph.builders import Message, inputs
from stallpoint.models.taskgraph.tasks import Kind, Task
from stallpoint.strategies.presets import Preset


@dataclass(frozen=True)
class ShardedCosts:
    """Times of the tasks of one iteration on a worker; numbers or ensembles, s."""

    read: npt.ArrayLike
    copy: npt.ArrayLike
    forward: Sequence[npt.ArrayLike] | Reals
    """Of each layer [layers, ...] in one pass, in forward order; so is `backward`."""
    backward: Sequence[npt.ArrayLike] | Reals
    gathers: Sequence[Message]
    """Of the weights of each block, in forward order."""
    reduces: Sequence[Message]
    """Of the gradients of the same blocks."""
    update: npt.ArrayLike


@dataclass(frozen=True)
class _Run:
    """Layers one after the other of which one block holds all that learn."""

    block: int
    layers: tuple[int, ...]


def sharded_tasks(costs: ShardedCosts, preset: Preset, *, prefetch: bool, iterations: int = 2) -> list[Task]:
    """Tasks of iterations in which mini-batches are computed in ``preset.accumulate`` passes.

    Names: ``gather 2 (1) of 0`` and ``gather again 2 (1) of 0`` of the second block in the first pass, ``forward 1 (1)
    of 0`` and ``backward 1 (1) of 0`` of the first run of layers of one block, ``reduce-scatter 2 of 0`` and ``update
    of 0``.
    """
    runs = runs_of([message.layers for message in costs.gathers], len(costs.forward))
    tasks: list[Task] = []
    for number in range(iterations):
        tasks += inputs(costs.read, costs.copy, preset, number, prefetch=prefetch)
        begun = (f"copy of {number}", *((f"update of {number - 1}",) if number else ()))
        for count in range(1, preset.accumulate + 1):
            last = count == preset.accumulate
            one = _Pass(costs, preset, runs, f"({count}) of {number}", begun)
            tasks += [*one.forward(), *one.backward(f"of {number}" if last else "")]
            begun = one.ended
        tasks.append(Task(f"update of {number}", Kind.COMPUTE, "update", costs.update, begun))
    return tasks


def runs_of(blocks: Sequence[Sequence[int]], layers: int) -> list[_Run]:
    """The `layers` in runs; those that learn nothing go with the ones before, the first ones with what follows."""
    block_of = {layer: number for number, members in enumerate(blocks) for layer in members}
    here = block_of[min(block_of)]
    places = []
    for layer in range(layers):
        here = block_of.get(layer, here)
        places.append((here, layer))
    return [_Run(block, tuple(layer for _, layer in of)) for block, of in groupby(places, lambda at: at[0])]


class _Pass:
    """A forward and a backward pass, and what is gathered and sent for them."""

    def __init__(
        self, costs: ShardedCosts, preset: Preset, runs: Sequence[_Run], of: str, begun: tuple[str, ...]
    ) -> None:
        self._costs, self._preset, self._runs, self._of = costs, preset, runs, of
        first = {run.block: place for place, run in reversed(list(enumerate(runs)))}
        several = {run.block for place, run in enumerate(runs) if place != first[run.block]}
        self._kept = sorted(several)
        """What no block holds: its layers are not together."""
        self._blocks = sorted(set(first) - several, key=first.__getitem__)
        self._first = first
        self.ended = begun
        """The tasks after which computing goes on."""

    def forward(self) -> Iterator[Task]:
        """Its tasks, in the order in which they are begun."""
        for block in self._kept:
            yield self._gather("gather", block, self.ended)
        need: dict[int, tuple[str, ...]] = {block: (self._named("gather", block),) for block in self._kept}
        for place, run in enumerate(self._runs):
            if run.block in self._blocks:
                yield from self._ahead("gather", self._blocks, run.block)
                need[run.block] = (self._named("gather", run.block),)
            seconds = _total(self._costs.forward, run)
            task = f"forward {place + 1} {self._of}"
            yield Task(task, Kind.COMPUTE, "compute stream", seconds, (*self.ended, *need.pop(run.block, ())))
            self.ended = (task,)

    def backward(self, sent: str) -> Iterator[Task]:
        """`sent` ends the names of messages; empty: gradients stay where they are."""
        again = self._blocks[::-1] if self._preset.reshard else []
        for place, run in reversed(list(enumerate(self._runs))):
            need: tuple[str, ...] = ()
            if run.block in again:
                yield from self._ahead("gather again", again, run.block)
                need = (self._named("gather again", run.block),)
            seconds = _total(self._costs.backward, run)
            task = f"backward {place + 1} {self._of}"
            yield Task(task, Kind.COMPUTE, "compute stream", seconds, (*self.ended, *need))
            self.ended = (task,)
            if sent and run.block in self._blocks:
                yield self._reduce(run.block, sent)
        for block in self._kept if sent else ():
            yield self._reduce(block, sent)

    def _ahead(self, what: str, order: Sequence[int], block: int) -> Iterator[Task]:
        """What is gathered when the pass comes to `block`, of blocks in this `order`."""
        ahead, place = self._preset.gather_ahead, order.index(block)
        if place == 0 or not ahead:
            yield self._gather(what, block, self.ended)
        begin = place + max(ahead, 1) if place else 1
        for other in order[begin : place + ahead + 1]:
            yield self._gather(what, other, (*self.ended, self._named(what, block)))

    def _gather(self, what: str, block: int, after: tuple[str, ...]) -> Task:
        return _sent(self._named(what, block), self._costs.gathers[block], after)

    def _reduce(self, block: int, sent: str) -> Task:
        task = _sent(f"reduce-scatter {block + 1} {sent}", self._costs.reduces[block], self.ended)
        self.ended = (task.name,)
        return task

    def _named(self, what: str, block: int) -> str:
        return f"{what} {block + 1} {self._of}"


def _total(seconds: Sequence[npt.ArrayLike] | Reals, run: _Run) -> Reals:
    total: Reals = np.asarray([np.asarray(seconds[layer]) for layer in run.layers]).sum(axis=0)
    return total


def _sent(name: str, message: Message, after: tuple[str, ...]) -> Task:
    return Task(name, Kind.MESSAGE, "network", message.seconds, after, message.beside, message.slows)
