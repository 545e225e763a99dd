"""How a script brings the gradients of its workers together, and when its messages begin and end.

- *ddp* (DistributedDataParallel): its communication hook tells of each bucket, unless the script has a hook of its own.
- *fsdp2* (``fully_shard``): all-gathers and reduce-scatters are called through objects that a script may replace
  (``set_custom_all_gather``, ``set_custom_reduce_scatter``), and so may a probe. A layer's message is the
  reduce-scatter of its group; its gradients are complete when that begins. All-gathers count as communication too.
- *none*: one worker.
- *unknown*: whatever else synchronises several workers (Horovod, FSDP1, calls of the script's own); its messages are
  not seen, and lie within the phases in which the script waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stallpoint.measure.bucket_timing import BucketTiming, mean
from stallpoint.measure.clock import Mark
from stallpoint.measure.sent import Sent
from stallpoint.networks.layers import Layer

DDP, FSDP2, NONE, UNKNOWN = "ddp", "fsdp2", "none", "unknown"
Seconds = Callable[[Mark], float]


class Parallelism:
    """A script whose messages are not seen, or one that has none."""

    def __init__(self, name: str, unseen: str = "") -> None:
        self.name = name
        self.unseen = unseen
        """What cannot be seen of its messages, in words."""

    def sent(self, seconds: Seconds) -> Mapping[int, Sent]:
        """What carried the gradients of each layer since the last `clear`."""
        return {}

    def under_way(self, seconds: Seconds) -> list[tuple[float, float]]:
        """When messages were under way."""
        return [(one.start, one.end) for one in self.sent(seconds).values()]

    def last_ready(self, noted: Mark) -> Mark:
        """When the last gradients were complete, as the layers' own hooks `noted` it, or better known here."""
        return noted

    def clear(self) -> None:
        """Forget the messages of the iteration."""

    def close(self) -> None:
        """Note no more."""


def parallelism_of(model: nn.Module, layers: Sequence[Layer], mark: Callable[[], Mark], ranks: int) -> Parallelism:
    """What brings together the gradients of `model`, which it asks to tell of its messages from now on."""
    if ranks == 1:
        return Parallelism(NONE)
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            return _of_buckets(module, layers, mark)
    if sharded := _sharded(model):
        if not hasattr(sharded[0], "set_custom_reduce_scatter"):
            return Parallelism(FSDP2, "messages: this PyTorch's fully_shard tells of none (2.9 or newer does)")
        return Sharded(sharded, layers, mark)
    return Parallelism(UNKNOWN, "messages: neither DistributedDataParallel nor fully_shard sends them")


def _of_buckets(model: DistributedDataParallel, layers: Sequence[Layer], mark: Callable[[], Mark]) -> Parallelism:
    group = model.process_group
    buckets = BucketTiming(layers, mark, partial(mean, group=group))
    if hooks := getattr(model, "_comm_hooks", None):
        earlier = getattr(hooks[0][0], "__self__", None)
        if isinstance(earlier, BucketTiming):  # of a probe before this one
            earlier.timed = True
            return Buckets(earlier)
        return Parallelism(DDP, "messages: the script has a communication hook of its own")
    try:
        model.register_comm_hook(None, buckets.hook)
    except (RuntimeError, ValueError) as error:
        return Parallelism(DDP, f"messages: {str(error).splitlines()[0]}")
    return Buckets(buckets)


class Buckets(Parallelism):
    """Messages of DistributedDataParallel."""

    def __init__(self, buckets: BucketTiming) -> None:
        super().__init__(DDP)
        self._buckets = buckets

    def sent(self, seconds: Seconds) -> Mapping[int, Sent]:
        """As `Parallelism.sent`."""
        return self._buckets.sent(seconds)

    def clear(self) -> None:
        """As `Parallelism.clear`."""
        self._buckets.clear()

    def close(self) -> None:
        """As `Parallelism.close`."""
        self._buckets.timed = False
        self._buckets.clear()


def _sharded(model: nn.Module) -> list[Any]:
    """The modules that ``fully_shard`` was called for."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        return []
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@dataclass
class _Group:
    """Layers that are gathered and reduced together."""

    layers: list[int]
    gathered: list[tuple[Mark, Mark]] = field(default_factory=list)
    reduced: list[tuple[Mark, Mark, int]] = field(default_factory=list)
    """Start and end, and bytes that this rank put in."""


class Sharded(Parallelism):
    """Messages of ``fully_shard``."""

    def __init__(self, modules: Sequence[nn.Module], layers: Sequence[Layer], mark: Callable[[], Mark]) -> None:
        super().__init__(FSDP2)
        owner: dict[int, int] = {}
        for place, module in enumerate(modules):  # those inside come later, and take theirs
            owner.update({id(inside): place for inside in module.modules()})
        self._groups = [_Group([]) for _ in modules]
        for index, layer in enumerate(layers):
            if layer.parameters and id(layer.module) in owner:
                self._groups[owner[id(layer.module)]].layers.append(index)
        self._bytes = [layer.gradient_bytes for layer in layers]
        self._timed = True
        self._last_start: Mark = None
        for module, group in zip(modules, self._groups, strict=True):
            self._follow(module, group, mark)

    def _follow(self, module: Any, group: _Group, mark: Callable[[], Mark]) -> None:
        from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives

        of = self

        class AllGather(collectives.DefaultAllGather):
            def __call__(self, output_tensor: torch.Tensor, *rest: Any, **named: Any) -> Any:
                start = mark()
                work = super().__call__(output_tensor, *rest, **named)
                if of._timed:
                    group.gathered.append((start, mark()))
                return work

        class ReduceScatter(collectives.DefaultReduceScatter):
            def __call__(
                self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, *rest: Any, **named: Any
            ) -> Any:
                of._last_start = start = mark()
                work = super().__call__(output_tensor, input_tensor, *rest, **named)
                if of._timed:
                    group.reduced.append((start, mark(), input_tensor.nbytes))
                return work

        module.set_custom_all_gather(AllGather())
        module.set_custom_reduce_scatter(ReduceScatter())

    def sent(self, seconds: Seconds) -> Mapping[int, Sent]:
        """As `Parallelism.sent`."""
        sent = [
            (seconds(start), seconds(end), size, group) for group in self._groups for start, end, size in group.reduced
        ]
        found: dict[int, Sent] = {}
        for number, (start, end, size, group) in enumerate(sorted(sent, key=lambda one: one[0])):
            whole = sum(self._bytes[layer] for layer in group.layers) or 1
            for layer in group.layers:
                found[layer] = Sent(number, round(size * self._bytes[layer] / whole), start, end)
        return found

    def under_way(self, seconds: Seconds) -> list[tuple[float, float]]:
        """As `Parallelism.under_way`."""
        gathered = (one for group in self._groups for one in group.gathered)
        reduced = (one[:2] for group in self._groups for one in group.reduced)
        return [(seconds(start), seconds(end)) for start, end in (*gathered, *reduced)]

    def last_ready(self, noted: Mark) -> Mark:
        """The start of the last reduce-scatter: the hooks of sharded parameters tell nothing."""
        return self._last_start

    def clear(self) -> None:
        """As `Parallelism.clear`."""
        for group in self._groups:
            group.gathered.clear()
            group.reduced.clear()

    def close(self) -> None:
        """As `Parallelism.close`."""
        self._timed = False
        self.clear()
