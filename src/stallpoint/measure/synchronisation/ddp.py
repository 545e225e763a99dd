"""PyTorch's own DistributedDataParallel, with default or other options: the reference.

DistributedDataParallel sends buckets during the backward pass, which returns after the last bucket. Back-propagation
ends when the last layer's gradients are complete; the time from then to the return is exposed communication. A
communication hook notes begin and end of each bucket (`bucket_timing`) and sums gradients as DistributedDataParallel
does without a hook; as the loss is scaled, the sum is a mean. PyTorch's compressing hooks take the mean themselves, so
that their result is multiplied by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from stallpoint.measure.clock import Mark
from stallpoint.measure.synchronisation.interface import (
    Replica,
    Synchronisation,
    Transfer,
    Worker,
    WorkerPart,
    unsharded,
)
from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
from stallpoint.measure.training.bucket_timing import BucketTiming, Send, summed
from stallpoint.strategies.presets import Preset

_DEFAULT_BUCKET = 25 * 1024 * 1024
_POWERSGD_BEGINS = 2
"""Iterations before PowerSGD begins, the minimum that PyTorch's hook allows."""


class DataParallel(Synchronisation):
    """Synchronisation by DistributedDataParallel with the options of `preset`; `waiting` is called with True when a
    wait within a pass or an update begins, and with False when it ends."""

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> WorkerPart:
        return unsharded(cls(worker.replica, worker.device, preset, worker.waiting), worker)

    def __init__(self, replica: Replica, device: torch.device, preset: Preset, waiting: Callable[[bool], None]) -> None:
        self._communicator = TorchCommunicator(replica.world, device)
        # With size None, the first bucket is smaller than the others, as in PyTorch's default.
        size = None if preset.fusion_bytes == _DEFAULT_BUCKET else preset.fusion_bytes / 2**20
        self._wrapped = DistributedDataParallel(
            replica.network,
            bucket_cap_mb=size,
            gradient_as_bucket_view=preset.bucket_view,
            static_graph=preset.static_graph,
        )
        sent_by = _hook(preset, replica.world.size, device, self._waiting_for_bucket)
        self._buckets = BucketTiming(replica.layers, replica.clock.mark, *sent_by)
        self._wrapped.register_comm_hook(None, self._buckets.hook)
        self.network: nn.Module = self._wrapped
        self._layers, self._waiting = replica.layers, waiting
        self._clock = replica.clock
        self._last_ready: Mark = None

    @override
    def accumulating(self) -> AbstractContextManager[None]:
        """Keep gradients on their ranks within the block."""
        found: AbstractContextManager[None] = self._wrapped.no_sync()
        return found

    @override
    def ready(self, layer: int) -> None:
        """Note the time, as the gradients of `layer` may be the last."""
        self._last_ready = self._clock.mark()

    def _waiting_for_bucket(self, begins: bool) -> None:
        """Note that a wait for a bucket in the backward pass `begins` or ends. Back-propagation may end just then."""
        self._waiting(begins)
        self._last_ready = self._clock.mark()

    @override
    def backward_ended(self, now: Mark) -> Mark:
        """Return the mark at which the last gradients were complete, or at which the last wait for a bucket ended."""
        return self._last_ready

    @override
    def transfers(self) -> Mapping[int, Transfer]:
        """Return the buckets since the start of the iteration, by layer."""
        return self._buckets.transfers(self._clock.seconds)

    @override
    def clear(self) -> None:
        super().clear()
        self._buckets.clear()

    @override
    def close(self, *, wait: bool) -> None:
        if wait:
            self._communicator.close()


def _hook(
    preset: Preset, ranks: int, device: torch.device, waiting: Callable[[bool], None]
) -> tuple[Send, Callable[[torch.Tensor], int]]:
    """Return two functions: one sums a bucket over all ranks; the other returns the bytes sent for a gradient.

    `waiting` is called before and after a wait of the first function.
    """
    if preset.hook == "none":
        return summed, lambda weights: weights.nbytes
    if preset.factored:
        return _powersgd(preset.hook_rank, ranks, device, waiting)
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    compress = default_hooks.fp16_compress_hook if preset.hook == "fp16" else default_hooks.bf16_compress_hook
    world = dist.group.WORLD
    assert world is not None, "the process group is there"
    return lambda bucket: _times(compress(world, bucket), ranks), lambda weights: weights.nbytes // 2


def _powersgd(
    rank: int, ranks: int, device: torch.device, waiting: Callable[[bool], None]
) -> tuple[Send, Callable[[torch.Tensor], int]]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

    state = powersgd.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=_POWERSGD_BEGINS)

    def bytes_of(weights: torch.Tensor) -> int:
        """Return the bytes sent for a parameter: two factors' bytes if PowerSGD compresses it, else the parameter's."""
        values = weights.numel()
        if weights.ndim > 1 and state.iter > _POWERSGD_BEGINS:
            factors = rank * (len(weights) + values // len(weights))
            values = factors if factors * state.min_compression_rate < values else values
        return values * weights.element_size()

    def send(bucket: GradBucket) -> torch.futures.Future[Any]:
        """Sum a bucket by PowerSGD. PyTorch's hook sends it in three parts, from several threads. On a CPU, ranks could
        then send parts of several buckets in different orders: so one bucket is sent after the other."""
        if device.type != "cpu":
            return _times(powersgd.powerSGD_hook(state, bucket), ranks)
        waiting(True)
        future = powersgd.powerSGD_hook(state, bucket)
        future.wait()
        waiting(False)
        return _times(future, ranks)

    return send, bytes_of


def _times(mean: torch.futures.Future[torch.Tensor], ranks: int) -> torch.futures.Future[Any]:
    future: torch.futures.Future[Any] = mean.then(lambda done: done.value().mul_(ranks))
    return future
