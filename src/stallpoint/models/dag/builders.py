"""The jobs of the study's presets as templates (Shi et al. 2018, Fig. 1 and section IV-C)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallpoint.errors import InputError
from stallpoint.models.dag.graph import Kind, Task
from stallpoint.models.dag.template import Template
from stallpoint.presets import Preset


@dataclass(frozen=True)
class Stage:
    """A part of a message's way that needs one resource: the network, or a node's own link."""

    resource: str
    seconds: float


@dataclass(frozen=True)
class Message:
    """Gradients that travel together."""

    layers: tuple[int, ...]
    """Positions in forward order, from 0, as `stallpoint.messages.messages` gives them."""
    stages: tuple[Stage, ...]
    """One after another. Stages of different messages overlap where their resources differ."""

    @property
    def label(self) -> str:
        """Layers as the paper counts them, from 1, in the order of sending."""
        last, first = max(self.layers) + 1, min(self.layers) + 1
        return str(last) if last == first else f"{last}..{first}"


@dataclass(frozen=True)
class Costs:
    """Times of the tasks of one iteration on a worker, s."""

    read: float
    """t_io."""
    copy: float
    """t_h2d."""
    forward: Sequence[float]
    """t_f of each layer, in forward order."""
    backward: Sequence[float]
    """t_b of each layer, in forward order."""
    messages: Sequence[Message]
    """t_c, in the order of sending; none on one worker."""
    update: float
    """t_u."""


def by_layer(all_reduce: Sequence[float]) -> list[Message]:
    """One message for each layer that has a time t_c, the last layer first, over one network; `all_reduce` in
    forward order."""
    return [
        Message((layer,), (Stage("network", seconds),))
        for layer, seconds in reversed(list(enumerate(all_reduce)))
        if seconds > 0
    ]  # fmt: skip


def s_sgd(costs: Costs, preset: Preset, *, prefetch: bool) -> Template:
    """One iteration of synchronous SGD as `preset` does it.

    `prefetch`: the next mini-batch is read while computing, and with ``device_prefetch`` also copied to the
    device: the input of one worker then handles one mini-batch at a time, as the sum t_io + t_h2d in eq. (3) says.
    Otherwise the copy waits for the update. With ``start: layer-ready`` a message goes when the gradients of all its
    layers are complete, else after the whole backward pass. Tasks: ``read``, ``copy``, ``forward 1``, ...,
    ``backward 1``, ``all-reduce 3`` (or ``5..3`` for several layers; after its first stage ``all-reduce 3, stage 2``
    and so on), ``update``.
    """
    if len(costs.forward) != len(costs.backward) or not costs.forward:
        raise InputError(
            f"DAG: {len(costs.forward)} layers forward, {len(costs.backward)} backward; as many, at least one"
        )
    worker = list(_worker(costs))
    messages = list(_messages(costs, preset))
    after = tuple(stages[-1].name for stages in messages)
    if not any("backward 1" in stages[0].after for stages in messages):
        after = ("backward 1", *after)
    update = Task("update", Kind.COMPUTE, costs.update, "update", after)
    carried = [("update", "forward 1")]
    if not prefetch:
        carried = [("update", "read")]
    elif preset.device_prefetch:
        carried += [("copy", "read")]
    else:
        carried += [("read", "read"), ("update", "copy")]
    return Template(worker, [*(stage for stages in messages for stage in stages), update], carried)


def _worker(costs: Costs) -> Iterator[Task]:
    yield Task("read", Kind.COMMUNICATION, costs.read, "disk")
    yield Task("copy", Kind.COMMUNICATION, costs.copy, "copy stream", ("read",))
    before = "copy"
    depth = len(costs.forward)
    for direction, order, times in (
        ("forward", range(1, depth + 1), costs.forward),
        ("backward", range(depth, 0, -1), costs.backward),
    ):
        for layer in order:
            name = f"{direction} {layer}"
            yield Task(name, Kind.COMPUTE, times[layer - 1], "compute stream", (before,))
            before = name


def _messages(costs: Costs, preset: Preset) -> Iterator[list[Task]]:
    """Tasks of each message, its stages in their order."""
    for message in costs.messages:
        if (
            not message.layers
            or not message.stages
            or not 0 <= min(message.layers) <= max(message.layers) < len(costs.forward)
        ):
            raise InputError(f"DAG: a message of layers {message.layers} with {len(message.stages)} stages cannot be")
        needed = min(message.layers) + 1 if preset.overlaps else 1
        name, after = f"all-reduce {message.label}", f"backward {needed}"
        tasks = []
        for number, stage in enumerate(message.stages, 1):
            own = name if number == 1 else f"{name}, stage {number}"
            tasks.append(Task(own, Kind.COMMUNICATION, stage.seconds, stage.resource, (after,)))
            after = own
        yield tasks
