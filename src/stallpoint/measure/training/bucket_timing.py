"""Times at which DistributedDataParallel's buckets start and end, noted by its communication hook."""

# No `from __future__ import annotations`: DistributedDataParallel compares the hook's annotations with its types.
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from stallpoint.measure.clock import Mark
from stallpoint.measure.training.transfers import Transfer
from stallpoint.networks.layers import Layer

Send = Callable[[GradBucket], torch.futures.Future[Any]]
"""Function that sends a bucket; its future holds the result, alone or in a list."""


class BucketTiming:
    """Timer of DistributedDataParallel's buckets: it calls `hook` for each bucket, and `hook` calls `send`.

    `bytes_of` returns the bytes that are sent for a parameter's gradient.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        mark: Callable[[], Mark],
        send: Send,
        bytes_of: Callable[[torch.Tensor], int] = lambda weights: weights.nbytes,
    ) -> None:
        self._mark, self._send, self._bytes_of = mark, send, bytes_of
        self.timed = True
        """Whether buckets are timed; set to False at the end, as DistributedDataParallel keeps its hook."""
        self.calling: Callable[[bool], None] | None = None
        """Function called when a `call` begins and ends, if the computing thread waits in the call."""
        self.called: Mark = None
        """End of the last `call` in which the computing thread waited."""
        self._layer_of = {
            id(weights): index for index, layer in reversed(list(enumerate(layers))) for weights in layer.parameters
        }
        self._messages: list[tuple[list[torch.Tensor], Mark, Mark]] = []

    def hook(self, _state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        messages, number = self._messages, len(self._messages)
        if self.timed:
            parameters, start = bucket.parameters(), self._mark()
            messages.append((parameters, start, start))

        def ended(done: torch.futures.Future[Any]) -> torch.Tensor:
            if number < len(messages):
                messages[number] = *messages[number][:2], self._mark()
            value = done.value()
            found: torch.Tensor = value if isinstance(value, torch.Tensor) else value[0]
            return found

        future: torch.futures.Future[torch.Tensor] = self._send(bucket).then(ended)
        return future

    @contextmanager
    def call(self) -> Iterator[None]:
        """Mark the block of `send` in which it hands the bucket over. If the computing thread waits in the block, the
        bucket's message begins after the block."""
        if not (self.timed and self.calling):
            yield
            return
        self.calling(True)
        yield
        self.calling(False)
        self.called = self._mark()
        self._messages[-1] = self._messages[-1][0], self.called, self.called

    def transfers(self, seconds: Callable[[Mark], float]) -> Mapping[int, Transfer]:
        """Return by layer the transfer of its gradients since the last `clear`; they may be in several buckets."""
        found: dict[int, Transfer] = {}
        for number, (parameters, start, end) in enumerate(self._messages):
            begin, finish = seconds(start), seconds(end)
            for weights in parameters:
                layer = self._layer_of[id(weights)]
                earlier = found.get(layer, Transfer(number, 0, begin, finish))
                found[layer] = Transfer(number, earlier.bytes + self._bytes_of(weights), earlier.start, finish)
        return found

    def under_way(self, seconds: Callable[[Mark], float]) -> list[tuple[float, float]]:
        """Return start and end of each bucket's message since the last `clear`, s."""
        return [(seconds(start), seconds(end)) for _, start, end in self._messages]

    def clear(self) -> None:
        """Forget all transfers, even unfinished ones."""
        self._messages, self.called = [], None


def summed(bucket: GradBucket, group: dist.ProcessGroup | None = None) -> torch.futures.Future[Any]:
    """Sum a bucket over the ranks of a process group, as DistributedDataParallel does without a hook."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    assert work is not None
    future: torch.futures.Future[Any] = work.get_future()
    return future
