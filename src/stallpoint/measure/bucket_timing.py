"""When the messages of DistributedDataParallel begin and end, by its communication hook."""

# No annotations as texts here: DistributedDataParallel compares those of the hook with its own types.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from stallpoint.measure.clock import Mark
from stallpoint.measure.sent import Sent
from stallpoint.networks.layers import Layer


class BucketTiming:
    """Notes each bucket that is sent; `hook` is what DistributedDataParallel is to call for it.

    The sum is the same call as its own. Its own mean is taken while it fills its buckets; with a hook it leaves that to
    the hook, which divides by `mean_of` ranks (1: the loss was divided already).
    """

    def __init__(self, layers: Sequence[Layer], mark: Callable[[], Mark], mean_of: int = 1) -> None:
        self._mark, self._mean_of = mark, mean_of
        self.timed = True
        """Whether buckets are noted: the hook stays with DistributedDataParallel for ever."""
        self._layer_of = {
            id(weights): index for index, layer in reversed(list(enumerate(layers))) for weights in layer.parameters
        }
        self._messages: list[tuple[list[torch.Tensor], Mark, Mark]] = []

    def hook(self, group: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Sum a bucket over the ranks of the process group; None: the default one."""
        messages, number = self._messages, len(self._messages)
        if self.timed:
            parameters, start = bucket.parameters(), self._mark()
            messages.append((parameters, start, start))

        def ended(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            if number < len(messages):
                messages[number] = *messages[number][:2], self._mark()
            return done.value()[0]

        gradients = bucket.buffer()
        if self._mean_of > 1:
            gradients.div_(self._mean_of)
        work = dist.all_reduce(gradients, group=group, async_op=True)
        assert work is not None
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(ended)
        return future

    def sent(self, seconds: Callable[[Mark], float]) -> Mapping[int, Sent]:
        """What was sent since the last `clear`, by layer; a layer's parameters may go apart."""
        found: dict[int, Sent] = {}
        for number, (parameters, start, end) in enumerate(self._messages):
            begin, finish = seconds(start), seconds(end)
            for weights in parameters:
                layer = self._layer_of[id(weights)]
                before = found.get(layer, Sent(number, 0, begin, finish))
                found[layer] = Sent(number, before.bytes + weights.nbytes, before.start, finish)
        return found

    def clear(self) -> None:
        """Forget what was sent; messages that have not ended do not count."""
        self._messages = []
