"""PyTorch's own DistributedDataParallel, with its defaults: the reference.

It starts its messages by itself during the backward pass and returns from it when they have ended; back-propagation
has ended when the last layer's gradients are complete, and what is left until the return is exposed communication.
Its communication hook notes when a message begins and ends (`bucket_timing`); the mean is taken beforehand, by the
scaled loss.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stallpoint.measure.bucket_timing import BucketTiming, summed
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
        self._buckets = BucketTiming(replica.layers, replica.clock.mark, summed)
        wrapped.register_comm_hook(None, self._buckets.hook)
        self.network: nn.Module = wrapped
        self._clock = replica.clock
        self._last_ready: Mark = None

    def ready(self, layer: int) -> None:
        """Note the time: this may have been the last one."""
        self._last_ready = self._clock.mark()

    def backward_ended(self, now: Mark) -> Mark:
        """When the last layer's gradients were complete."""
        return self._last_ready

    def sent(self) -> Mapping[int, Sent]:
        """What was sent since the start of the iteration, by layer."""
        return self._buckets.sent(self._clock.seconds)

    def clear(self) -> None:
        """Forget the gradients and the messages."""
        self.network.zero_grad(set_to_none=True)
        self._buckets.clear()

    def close(self, *, wait: bool) -> None:
        """Leave the process group."""
        if wait:
            self._communicator.close()
