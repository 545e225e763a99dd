"""PyTorch's own DistributedDataParallel, with its defaults or options of its own: the reference.

It starts its messages by itself during the backward pass and returns from it when they have ended; back-propagation
has ended when the last layer's gradients are complete, and what is left until the return is exposed communication.
Its communication hook notes when a message begins and ends; the sum is the same call as its own, and the mean is
taken beforehand, by the scaled loss, where DistributedDataParallel would do it while it fills its buckets. PyTorch's
hooks that compress take the mean themselves: what they give is multiplied by the ranks.
"""

# No annotations as texts here: DistributedDataParallel compares those of the hook with its own types.
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from stallpoint.measure.clock import Mark
from stallpoint.measure.synchronisation.interface import Replica, Sent, Synchronisation
from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
from stallpoint.presets import Preset

_DEFAULT_BUCKET = 25 * 1024 * 1024


_POWERSGD_BEGINS = 2
"""Iterations before PowerSGD begins, the fewest that it allows."""


class DataParallel(Synchronisation):
    """A `Synchronisation` by DistributedDataParallel as `preset` says; `waiting` is told of waits in an update."""

    updates = False

    def __init__(self, replica: Replica, device: torch.device, preset: Preset, waiting: Callable[[bool], None]) -> None:
        self._communicator = TorchCommunicator(replica.world, device)
        # Its default size of buckets makes the first one small; a size that is given does not.
        size = None if preset.fusion_bytes == _DEFAULT_BUCKET else preset.fusion_bytes / 2**20
        self._wrapped = DistributedDataParallel(
            replica.network,
            bucket_cap_mb=size,
            gradient_as_bucket_view=preset.bucket_view,
            static_graph=preset.static_graph,
        )
        self._hook, self._sums = _hook(preset)
        self._wrapped.register_comm_hook(None, self._all_reduce)
        self.network: nn.Module = self._wrapped
        self._waiting = waiting
        self._clock = replica.clock
        self._layer_of = {
            id(weights): index
            for index, layer in reversed(list(enumerate(replica.layers)))
            for weights in layer.parameters
        }
        self._last_ready: Mark = None
        self._messages: list[tuple[list[torch.Tensor], Mark, Mark]] = []
        self._ended: list[Mark] = []

    def accumulating(self) -> AbstractContextManager[None]:
        """Gradients stay where they are."""
        found: AbstractContextManager[None] = self._wrapped.no_sync()
        return found

    def ready(self, layer: int) -> None:
        """Note the time: this may have been the last one."""
        self._last_ready = self._clock.mark()

    def backward_ended(self, now: Mark) -> Mark:
        """When the last layer's gradients were complete."""
        return self._last_ready

    def sent(self) -> Mapping[int, Sent]:
        """What was sent since the start of the iteration, by layer; a layer's parameters may go apart."""
        found: dict[int, Sent] = {}
        for number, (parameters, start, end) in enumerate(self._messages):
            begin, finish = self._clock.seconds(start), self._clock.seconds(end)
            for weights in parameters:
                layer = self._layer_of[id(weights)]
                before = found.get(layer, Sent(number, 0, begin, finish))
                found[layer] = Sent(number, before.bytes + weights.nbytes, before.start, finish)
        return found

    def clear(self) -> None:
        """Forget the gradients and the messages."""
        self.network.zero_grad(set_to_none=True)
        self._messages.clear()

    def close(self, *, wait: bool) -> None:
        """Leave the process group."""
        if wait:
            self._communicator.close()

    def _all_reduce(self, _state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        parameters, start, number = bucket.parameters(), self._clock.mark(), len(self._messages)
        self._messages.append((parameters, start, start))

        def ended(done: torch.futures.Future[Any]) -> torch.Tensor:
            self._messages[number] = parameters, start, self._clock.mark()
            value = done.value()
            summed: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
            return summed if self._sums else summed.mul_(self._communicator.ranks)

        future: torch.futures.Future[torch.Tensor] = self._hook(bucket).then(ended)
        return future


def _hook(preset: Preset) -> tuple[Callable[[GradBucket], torch.futures.Future[Any]], bool]:
    """What sends a bucket, and whether that sums; PyTorch's own hooks take the mean."""
    if preset.hook == "none":
        return _summed, True
    if preset.hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

        state = powersgd.PowerSGDState(
            None, matrix_approximation_rank=preset.hook_rank, start_powerSGD_iter=_POWERSGD_BEGINS
        )
        return lambda bucket: powersgd.powerSGD_hook(state, bucket), False
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    compress = default_hooks.fp16_compress_hook if preset.hook == "fp16" else default_hooks.bf16_compress_hook
    world = dist.group.WORLD
    assert world is not None, "the process group is there"
    return lambda bucket: compress(world, bucket), False


def _summed(bucket: GradBucket) -> torch.futures.Future[Any]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    future: torch.futures.Future[Any] = work.get_future()
    return future
