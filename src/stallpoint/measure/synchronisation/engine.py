"""Engine that sends gradients in messages, during the backward pass or after it.

Messages are sent one after the other, in the same order on all ranks, the last layer's first. During the backward pass
a communication thread sends each message as soon as the gradients of its layers are complete. Its calls block: calls
that do not block make progress only while a thread is inside the MPI library. After the pass the main thread sends.

An *exchange* of a message sums its gradients over all ranks, or updates the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import nn
from typing_extensions import override

from stallpoint.measure.clock import IterationClock, Mark
from stallpoint.measure.device import thread_for
from stallpoint.measure.synchronisation.communicator import Communicator
from stallpoint.measure.synchronisation.compression import Reducer
from stallpoint.measure.synchronisation.gradients import Bucket, Gradients
from stallpoint.measure.synchronisation.interface import Synchronisation, Transfer
from stallpoint.measure.synchronisation.streams import stream_for

Plan = Sequence[Sequence[int]]
"""Positions of the layers of each message, in the order of sending."""
Replan = Callable[[Sequence[float | None]], Plan | None]
"""Function from the times at which layers' gradients were complete to a new plan, or None to keep the present one."""


class Engine(Synchronisation):
    """Synchronisation by messages that stallpoint sends itself; see `assembly` for its parts."""

    def __init__(
        self,
        network: nn.Module,
        gradients: Gradients,
        exchange: Exchange,
        plan: Plan,
        clock: IterationClock,
        device: torch.device,
        *,
        during_backward: bool,
        replan: Replan,
        end: Callable[[], None],
    ) -> None:
        self.network = network
        self.updates = exchange.updates
        self._gradients, self._exchange, self._clock, self._replan, self._end = gradients, exchange, clock, replan, end
        self._stream = stream_for(device)
        self._thread = thread_for(device, "communication") if during_backward else None
        self._under_way: list[Future[None]] = []
        self._sent: dict[int, tuple[int, int, Mark, Mark]] = {}
        self._set_plan(plan)

    @override
    def ready(self, layer: int) -> None:
        """Note that the gradients of `layer` are complete; if its message is now complete, have it sent in its turn."""
        self._gradients.complete(layer)
        self._missing[self._message_of[layer]].discard(layer)
        if self._thread:
            self._send_complete(self._thread)

    @override
    def finish(self) -> None:
        """Wait until the communication thread has sent all messages; without this thread, send them. A GPU's results
        may come later, in its stream."""
        if self._thread:
            for future in self._under_way:
                future.result()
            self._under_way.clear()
        else:
            written = self._stream.note()
            for message in self._messages:
                self._send(message, written)
        self._stream.join()
        self._begin()

    @override
    def transfers(self) -> Mapping[int, Transfer]:
        seconds = self._clock.seconds
        return {
            layer: Transfer(number, size, seconds(start), seconds(end))
            for layer, (number, size, start, end) in self._sent.items()
        }

    @override
    def clear(self) -> None:
        self._gradients.clear()

    @override
    def learn(self, gradient_ready: Sequence[float | None]) -> None:
        """Make a new plan from measured times, if the preset merges gradients."""
        plan = self._replan(gradient_ready)
        if plan:
            self._set_plan(plan)

    @override
    def close(self, *, wait: bool) -> None:
        """End the communication thread; with `wait`, also close the communicator."""
        if self._thread:
            self._thread.shutdown(wait=wait, cancel_futures=True)
        if wait:
            self._end()

    def _set_plan(self, plan: Plan) -> None:
        self._messages = [Bucket(number, tuple(layers)) for number, layers in enumerate(plan)]
        self._message_of = {layer: message.number for message in self._messages for layer in message.layers}
        self._begin()

    def _begin(self) -> None:
        """Mark all messages as incomplete and not sent."""
        self._missing = [set(message.layers) for message in self._messages]
        self._next = 0

    def _send_complete(self, thread: ThreadPoolExecutor) -> None:
        """Hand complete messages over to the communication thread, in order."""
        while self._next < len(self._messages) and not self._missing[self._next]:
            message = self._messages[self._next]
            self._under_way.append(thread.submit(self._send, message, self._stream.note()))
            self._next += 1

    def _send(self, message: Bucket, written: Mark) -> None:
        with self._stream.entered():
            self._stream.wait(written)
            start = self._stream.mark()
            size = self._exchange.send(message)
            end = self._stream.mark()
        sizes = {layer: self._gradients.bytes_of(layer) for layer in message.layers}
        for layer, part in sizes.items():
            self._sent[layer] = message.number, size * part // sum(sizes.values()), start, end


class Exchange(Protocol):
    """Interface of exchanges, which send one message after the other."""

    updates: bool
    """Whether weights are updated by the exchange, instead of gradients summed."""

    def send(self, message: Bucket) -> int:
        """Send a message; return the bytes that this rank sent, once the result is complete."""


class Sum:
    """Exchange by which every rank gets the sum of the gradients."""

    updates = False

    def __init__(self, gradients: Gradients, reducer: Reducer) -> None:
        self._gradients, self._reducer = gradients, reducer

    def send(self, message: Bucket) -> int:
        """Sum the message's spans, one after the other."""
        return sum(self._reducer.sum(span.values, span.offset) for span in self._gradients.spans(message))


class EmptyMessages:
    """Exchange that sums a single value instead of the gradients, to show what messages cost without gradients."""

    updates = False

    def __init__(self, communicator: Communicator, device: torch.device) -> None:
        self._communicator, self._value = communicator, torch.zeros(1, device=device)

    def send(self, message: Bucket) -> int:
        """Sum the single value over all ranks."""
        return self._communicator.all_reduce(self._value)


class ParameterServer:
    """Exchange by which every rank sends its gradients to rank 0, which updates the weights and sends them back.

    Rank 0 is also a worker. The update is part of the communication, as workers wait for it: a rank's exposed
    communication ends when the rank has received the new weights (rank 0: has sent them), and the update phase is empty
    on all ranks. Only rank 0 keeps momenta.
    """

    updates = True

    def __init__(
        self, gradients: Gradients, communicator: Communicator, update: Callable[[list[nn.Parameter]], None]
    ) -> None:
        self._gradients, self._communicator, self._update = gradients, communicator, update

    def send(self, message: Bucket) -> int:
        """Send gradients and receive weights."""
        parameters = self._gradients.parameters(message)
        count = sum(self._communicator.collect(span.values) for span in self._gradients.spans(message))
        if self._communicator.rank == 0:
            self._update(parameters)
        return count + sum(self._communicator.spread(weights.detach().view(-1)) for weights in parameters)
