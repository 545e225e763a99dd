"""PyTorch's own DistributedDataParallel, with its defaults: the reference.

It starts its messages by itself during the backward pass and returns from it when they have ended; back-propagation
has ended when the last layer's gradients are complete, and what is left until the return is exposed communication.
Its communication hook notes when a message begins and ends; the sum is the same call as its own, and the mean is
taken beforehand, by the scaled loss, where DistributedDataParallel would do it while it fills its buckets.
"""

# No annotations as texts here: DistributedDataParallel compares those of the hook with its own types.
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from stallpoint.measure.clock import Mark
from stallpoint.measure.synchronisation.interface import Replica, Sent, Synchronisation
from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator

_DEFAULT_BUCKET = 25 * 1024 * 1024


class DataParallel(Synchronisation):
    """A `Synchronisation` by DistributedDataParallel with buckets of `bucket_bytes`, which it fills by itself.

    The backward pass returns when all messages have ended, so there is nothing left to finish.
    """

    updates = False

    def __init__(self, replica: Replica, device: torch.device, bucket_bytes: int) -> None:
        self._communicator = TorchCommunicator(replica.world, device)
        # Its default size of buckets makes the first one small; a size that is given does not.
        size = None if bucket_bytes == _DEFAULT_BUCKET else bucket_bytes / 2**20
        wrapped = DistributedDataParallel(replica.network, bucket_cap_mb=size)
        wrapped.register_comm_hook(None, self._all_reduce)
        self.network: nn.Module = wrapped
        self._clock = replica.clock
        self._layer_of = {
            id(weights): index
            for index, layer in reversed(list(enumerate(replica.layers)))
            for weights in layer.parameters
        }
        self._last_ready: Mark = None
        self._messages: list[tuple[list[torch.Tensor], Mark, Mark]] = []
        self._ended: list[Mark] = []

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

        def ended(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            self._messages[number] = parameters, start, self._clock.mark()
            return done.value()[0]

        work = dist.all_reduce(bucket.buffer(), async_op=True)
        assert work is not None
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(ended)
        return future
