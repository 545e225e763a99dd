"""Task graph of an iteration by any preset (Shi et al. 2018, Fig. 1 and section IV-C)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals
from stallpoint.errors import InputError
from stallpoint.models.taskgraph.tasks import Kind, Task
from stallpoint.strategies.presets import Preset


@dataclass(frozen=True)
class MessageTimes:
    """Times of one message of gradients; numbers or ensembles, s."""

    layers: tuple[int, ...]
    """Positions in forward order, from 0, as `stallpoint.strategies.buckets.buckets` gives them."""
    seconds: npt.ArrayLike
    co_running: npt.ArrayLike | None = None
    """Seconds while a worker computes, as in `Task`."""
    slows: npt.ArrayLike = 1.0
    """Factor on computing during the message, as in `Task`."""

    @property
    def name(self) -> str:
        """Return ``all-reduce 3`` or ``all-reduce 5..3``, with layers counted from 1, in the order of sending."""
        last, first = max(self.layers) + 1, min(self.layers) + 1
        return f"all-reduce {last}" if last == first else f"all-reduce {last}..{first}"


@dataclass(frozen=True)
class Costs:
    """Times of the tasks of one iteration on a worker; numbers or ensembles, s."""

    read: npt.ArrayLike
    """Time to read a mini-batch, t_io."""
    copy: npt.ArrayLike
    """Time to copy a mini-batch to the device, t_h2d."""
    forward: Sequence[npt.ArrayLike] | Reals
    """Forward time t_f of each layer [layers, ...], in forward order; or of the complete pass."""
    backward: Sequence[npt.ArrayLike] | Reals
    """Backward time t_b of each layer [layers, ...], in forward order."""
    collectives: Sequence[MessageTimes]
    """Collectives, of times t_c, in the order of sending; none on one worker."""
    update: npt.ArrayLike
    """Time to update the weights, t_u."""
    gathered: Mapping[int, tuple[npt.ArrayLike, npt.ArrayLike]] = field(default_factory=dict)
    """For split outputs, by layer position: the all-gather before the layer's forward pass and the reduce-scatter after
    its backward pass. Computing waits for both."""


def gradients_ready(backward: npt.ArrayLike) -> Reals:
    """Return the time in the backward pass at which each layer's gradients are complete, [..., layers].

    For layer l this is τ_b^(l) + t_b^(l), start plus duration of its backward pass; `backward` has the durations.
    """
    return np.cumsum(np.asarray(backward)[..., ::-1], axis=-1)[..., ::-1]


def iteration_tasks(
    costs: Costs | Sequence[Costs], preset: Preset, *, prefetch: bool, iterations: int = 2
) -> list[Task]:
    """Return the tasks of iterations of synchronous SGD by `preset`; each worker has its own `costs`, or all share one.

    Workers that differ only by a factor on computing need no tasks of their own: the slowest decides when messages
    start. With `prefetch`, the next mini-batch is read during computing. With ``device_prefetch`` it is then also
    copied to the device, so that a mini-batch takes t_io + t_h2d, as in eq. (3); otherwise the copy waits for the
    update. With ``start: layer-ready`` a message starts when the gradients of its layers are complete on all workers,
    else after the backward pass. The messages are those of the first worker. Tasks have names like ``read of 0``,
    ``forward 1 of 0``, ``backward 3 of 1``, ``all-reduce 5..3 of 1``, ``update of 1``. With several workers ``backward
    3 of 1 on 2`` is the third worker's. Collectives of the fourth layer are ``all-gather 4 of 0`` and
    ``reduce-scatter 4 of 0``.
    """
    workers = [costs] if isinstance(costs, Costs) else list(costs)
    for one in workers:
        if not len(one.forward) or not len(one.backward):
            raise InputError("task graph: an iteration has no forward or no backward pass; give times of both")
    names = [""] if isinstance(costs, Costs) else [f" on {worker}" for worker in range(len(workers))]
    tasks: list[Task] = []
    for number in range(iterations):
        for one, on in zip(workers, names, strict=True):
            tasks += _worker_tasks(one, preset, number, on, prefetch=prefetch)
        collectives = list(_collectives(workers[0], preset, number, names))
        last = {f"backward 1 of {number}{on}" for on in names} - {name for task in collectives for name in task.after}
        after = (*sorted(last), *(task.name for task in collectives))
        tasks += [*collectives, Task(f"update of {number}", Kind.COMPUTE, "update", workers[0].update, after)]
    return tasks


def inputs(
    read: npt.ArrayLike, copy: npt.ArrayLike, preset: Preset, number: int, place: str = "", *, prefetch: bool
) -> Iterator[Task]:
    """Yield the tasks that read the mini-batch of iteration `number` and copy it to the device."""
    own = place.removeprefix(" on")
    updated = (f"update of {number - 1}",) if number else ()
    input_name = "copy" if preset.device_prefetch else "read"
    input_tasks = (f"{input_name} of {number - 1}{place}",) if number else ()
    yield Task(f"read of {number}{place}", Kind.INPUT, f"disk{own}", read, input_tasks if prefetch else updated)
    waits = updated if prefetch and not preset.device_prefetch else ()
    yield Task(f"copy of {number}{place}", Kind.INPUT, f"copy stream{own}", copy, (f"read of {number}{place}", *waits))


def _worker_tasks(costs: Costs, preset: Preset, number: int, place: str, *, prefetch: bool) -> Iterator[Task]:
    yield from inputs(costs.read, costs.copy, preset, number, place, prefetch=prefetch)
    own = place.removeprefix(" on")
    before = (f"copy of {number}{place}", *((f"update of {number - 1}",) if number else ()))
    layer_count = len(costs.backward)
    passes: list[tuple[str, Kind, npt.ArrayLike]] = []
    for layer, seconds in enumerate(costs.forward, 1):
        if layer - 1 in costs.gathered:
            passes.append((f"all-gather {layer}", Kind.MESSAGE, costs.gathered[layer - 1][0]))
        passes.append((f"forward {layer}", Kind.COMPUTE, seconds))
    for layer in range(layer_count, 0, -1):
        passes.append((f"backward {layer}", Kind.COMPUTE, costs.backward[layer - 1]))
        if layer - 1 in costs.gathered:
            passes.append((f"reduce-scatter {layer}", Kind.MESSAGE, costs.gathered[layer - 1][1]))
    for name, kind, seconds in passes:
        task = f"{name} of {number}{place}"
        yield Task(task, kind, f"compute stream{own}", seconds, before)
        before = (task,)


def _collectives(costs: Costs, preset: Preset, number: int, names: Sequence[str]) -> Iterator[Task]:
    for message in costs.collectives:
        if not message.layers or not 0 <= min(message.layers) <= max(message.layers) < len(costs.backward):
            raise InputError(
                f"task graph: a message has layers {message.layers}; give positions from 0 to {len(costs.backward) - 1}"
            )
        needed = min(message.layers) + 1 if preset.overlaps else 1
        after = tuple(f"backward {needed} of {number}{on}" for on in names)
        yield Task(
            f"{message.name} of {number}", Kind.MESSAGE, "network", message.seconds, after,
            message.co_running, message.slows,
        )  # fmt: skip
