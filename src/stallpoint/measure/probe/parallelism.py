"""Parallelism of a script: how it synchronises gradients, and when its collectives start and end.

- *ddp* (DistributedDataParallel): a communication hook reports each bucket, unless the script has a hook of its own.
- *fsdp2* (``fully_shard``): FSDP2 calls all-gathers and reduce-scatters through objects that the probe replaces
(``set_custom_all_gather``, ``set_custom_reduce_scatter``; `measure.shard_timing`).
- *none*: one worker.
- *unknown*: any other synchronisation (Horovod, FSDP1, the script's own calls): only waits for messages are observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from stallpoint.measure.clock import Mark
from stallpoint.measure.training.bucket_timing import BucketTiming, summed
from stallpoint.measure.training.transfers import Gathered, Transfer
from stallpoint.networks.layers import Layer

if TYPE_CHECKING:
    from stallpoint.measure.training.shard_timing import ShardTiming

DDP, FSDP2, NONE, UNKNOWN = "ddp", "fsdp2", "none", "unknown"
Seconds = Callable[[Mark], float]


class Parallelism:
    """Parallelism of a script. The base class is for scripts without collectives, or with unobserved collectives."""

    def __init__(self, name: str, unseen: str = "") -> None:
        self.name = name
        self.unseen = unseen
        """Words that say what of the collectives is not observed; empty if all are."""

    def transfers(self, seconds: Seconds) -> Mapping[int, Transfer]:
        """Return the transfer of each layer's gradients since the last `clear`."""
        return {}

    def gathered(self, seconds: Seconds) -> Mapping[int, Sequence[Gathered]]:
        """Return the all-gathers of each layer's weights since the last `clear`."""
        return {}

    def under_way(self, seconds: Seconds) -> list[tuple[float, float]]:
        """Wait until all collectives since the last `clear` have ended; return start and end of each."""
        return []

    def last_ready(self, noted: Mark) -> Mark:
        """Return the mark at which the last gradients were complete: here the one that hooks have `noted`."""
        return noted

    def clear(self) -> None:
        """Forget the collectives recorded in the iteration."""

    def close(self) -> None:
        """Stop recording collectives."""


def parallelism_of(
    model: nn.Module, layers: Sequence[Layer], mark: Callable[[], Mark], ranks: int, waiting: Callable[[bool], None]
) -> Parallelism:
    """Return the parallelism of `model`, and record its collectives from now on.

    `waiting` is called with True when the rank begins to wait for a collective within computing, and with False after.
    """
    if ranks == 1:
        return Parallelism(NONE)
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            return _ddp_parallelism(module, layers, mark, waiting)
    if shards := _fsdp_parallelism(model, layers, mark, waiting):
        return shards
    return Parallelism(UNKNOWN, "messages: neither DistributedDataParallel nor fully_shard sends them")


def _ddp_parallelism(
    model: DistributedDataParallel, layers: Sequence[Layer], mark: Callable[[], Mark], waiting: Callable[[bool], None]
) -> Parallelism:
    group = model.process_group
    # A GPU's calls only queue work, so that the computing thread does not wait in them.
    on_wait = waiting if next(model.parameters()).device.type == "cpu" else None

    def mean(bucket: GradBucket) -> torch.futures.Future[Any]:
        bucket.buffer().div_(group.size())
        with buckets.call():
            return summed(bucket, group)

    buckets = BucketTiming(layers, mark, mean)
    buckets.calling = on_wait
    if hooks := getattr(model, "_comm_hooks", None):
        earlier = getattr(hooks[0][0], "__self__", None)
        if isinstance(earlier, BucketTiming):  # the hook of an earlier probe is used again, as it cannot be removed
            earlier.timed, earlier.calling = True, on_wait
            return Buckets(earlier)
        return Parallelism(DDP, "messages: the script has a communication hook of its own")
    try:
        model.register_comm_hook(None, buckets.hook)
    except (RuntimeError, ValueError) as error:
        return Parallelism(DDP, f"messages: {str(error).splitlines()[0]}")
    return Buckets(buckets)


class Buckets(Parallelism):
    """Parallelism of DistributedDataParallel, with its timed buckets."""

    def __init__(self, buckets: BucketTiming) -> None:
        super().__init__(DDP)
        self._buckets = buckets

    @override
    def transfers(self, seconds: Seconds) -> Mapping[int, Transfer]:
        return self._buckets.transfers(seconds)

    @override
    def under_way(self, seconds: Seconds) -> list[tuple[float, float]]:
        return self._buckets.under_way(seconds)

    @override
    def last_ready(self, noted: Mark) -> Mark:
        """Return the end of the last call that handed a bucket over, if the script waited in it; else `noted`."""
        return noted if self._buckets.called is None else max(noted or 0, self._buckets.called)

    @override
    def clear(self) -> None:
        self._buckets.clear()

    @override
    def close(self) -> None:
        self._buckets.timed = False
        self._buckets.clear()


def _fsdp_parallelism(
    model: nn.Module, layers: Sequence[Layer], mark: Callable[[], Mark], waiting: Callable[[bool], None]
) -> Parallelism | None:
    """Return the parallelism of FSDP2; None if ``fully_shard`` was not called for `model` or any part of it."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        return None
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        return None
    if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        return Parallelism(FSDP2, "messages: this PyTorch's fully_shard tells of none (2.9 or newer does)")
    from stallpoint.measure.training.shard_timing import ShardTiming

    device = next(model.parameters()).device
    try:
        return Shards(ShardTiming(model, layers, mark, waiting, device), waits=device.type == "cpu")
    except ValueError as error:
        return Parallelism(FSDP2, f"messages: {str(error).splitlines()[0]}")


class Shards(Parallelism):
    """Parallelism of ``fully_shard``, with its timed collectives. With `waits`, a call returns after its collective."""

    def __init__(self, timing: ShardTiming, *, waits: bool) -> None:
        super().__init__(FSDP2)
        self._timing, self._waits = timing, waits

    @override
    def transfers(self, seconds: Seconds) -> Mapping[int, Transfer]:
        self._timing.settle()
        return self._timing.transfers(seconds)

    @override
    def gathered(self, seconds: Seconds) -> Mapping[int, Sequence[Gathered]]:
        return self._timing.gathered(seconds)

    @override
    def under_way(self, seconds: Seconds) -> list[tuple[float, float]]:
        self._timing.settle()
        return self._timing.under_way(seconds)

    @override
    def last_ready(self, noted: Mark) -> Mark:
        """Return the start of the last reduce-scatter, as hooks cannot note it for sharded parameters. Return None if
        the backward pass waits for its reduce-scatters."""
        return None if self._waits else self._timing.last_message

    @override
    def clear(self) -> None:
        self._timing.clear()

    @override
    def close(self) -> None:
        self._timing.timed = False
        self._timing.clear()
