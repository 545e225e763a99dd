"""All-reduce of the gradients, layer by layer: after the backward pass, or during it.

Buffers are reduced where they lie (CPU) or through pinned memory of the host (CUDA). They are summed:
each worker has scaled its loss by 1/ranks before, so that the sum is the gradient of the global mini-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pkgutil import resolve_name
from typing import Protocol

import torch

from stallpoint.measure import SYNCHRONISATIONS
from stallpoint.measure.clock import host_mark
from stallpoint.measure.world import MPI, World


class Message(Protocol):
    """The gradients of one layer on their way."""

    def complete(self) -> None:
        """The backward pass has (on a CUDA device: will have, in the order of its work) written them all."""

    def wait(self) -> None:
        """Until they are written."""

    def all_reduce(self, comm: MPI.Intracomm) -> None:
        """Sum over all ranks; returns when the sum is in the buffer."""


class HostMessage:
    """A buffer in the host's memory, which MPI reads and writes itself."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self._array = buffer.numpy()

    def complete(self) -> None:
        """Nothing to note: on a CPU what was called is done."""

    def wait(self) -> None:
        """Nothing to wait for."""

    def all_reduce(self, comm: MPI.Intracomm) -> None:
        """Sum over all ranks."""
        comm.Allreduce(MPI.IN_PLACE, self._array)


class CudaMessage:
    """A buffer on a CUDA device, copied to pinned memory and back in a stream of its own."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer
        self._host = torch.empty_like(buffer, device="cpu", pin_memory=True)
        self._stream = torch.cuda.Stream(buffer.device)  # type: ignore[no-untyped-call]
        self._written = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def complete(self) -> None:
        """Note the place in the stream of the backward pass."""
        self._written.record()

    def wait(self) -> None:
        """Until the backward pass has come to that place."""
        self._written.synchronize()

    def all_reduce(self, comm: MPI.Intracomm) -> None:
        """Sum over all ranks, both copies included."""
        with torch.cuda.stream(self._stream):
            self._host.copy_(self._buffer, non_blocking=True)
            self._stream.synchronize()
            comm.Allreduce(MPI.IN_PLACE, self._host.numpy())
            self._buffer.copy_(self._host, non_blocking=True)
            self._stream.synchronize()


class Synchronisation(ABC):
    """One way to bring the ranks' gradients together.

    `buffers` holds each learning layer's gradients by the layer's position. All ranks complete their
    layers in the same order, which is the order of the messages.
    """

    def __init__(self, comm: MPI.Intracomm, buffers: Mapping[int, torch.Tensor]) -> None:
        self._comm = comm
        self._messages: dict[int, Message] = {
            layer: CudaMessage(buffer) if buffer.is_cuda else HostMessage(buffer) for layer, buffer in buffers.items()
        }
        self.intervals: dict[int, tuple[int, int]] = {}
        """Start and end of each layer's last all-reduce, as `host_mark` tells them."""

    @abstractmethod
    def ready(self, layer: int) -> None:
        """The gradients of `layer` are complete; called during the backward pass."""

    @abstractmethod
    def finish(self) -> None:
        """After the backward pass: return when the gradients of all layers are summed; raises what went wrong."""

    @abstractmethod
    def close(self, *, wait: bool) -> None:
        """End; with `wait`, after what is under way."""

    def _all_reduce(self, layer: int) -> None:
        message = self._messages[layer]
        message.wait()
        start = host_mark()
        message.all_reduce(self._comm)
        self.intervals[layer] = start, host_mark()


class Alone(Synchronisation):
    """One worker: nothing to bring together."""

    def ready(self, layer: int) -> None:
        """Nothing to do."""

    def finish(self) -> None:
        """Nothing to wait for."""

    def close(self, *, wait: bool) -> None:
        """Nothing to end."""


class Naive(Synchronisation):
    """After the whole backward pass, the last layer first (Shi et al., eq. 2)."""

    def __init__(self, comm: MPI.Intracomm, buffers: Mapping[int, torch.Tensor]) -> None:
        super().__init__(comm, buffers)
        self._waiting: list[int] = []

    def ready(self, layer: int) -> None:
        """Keep for later."""
        self._messages[layer].complete()
        self._waiting.append(layer)

    def finish(self) -> None:
        """All-reduce one layer after the other."""
        for layer in self._waiting:
            self._all_reduce(layer)
        self._waiting.clear()

    def close(self, *, wait: bool) -> None:
        """Nothing to end."""


class WaitFree(Synchronisation):
    """Wait-free back-propagation (Shi et al., eq. 4): during the backward pass, by a communication thread.

    Each layer's turn comes as soon as it is complete; first come, first served.
    """

    def __init__(self, comm: MPI.Intracomm, buffers: Mapping[int, torch.Tensor]) -> None:
        super().__init__(comm, buffers)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="communication")
        self._under_way: list[Future[None]] = []

    def ready(self, layer: int) -> None:
        """Hand over to the communication thread."""
        self._messages[layer].complete()
        self._under_way.append(self._thread.submit(self._all_reduce, layer))

    def finish(self) -> None:
        """Wait for the communication thread; its exceptions are raised here."""
        for message in self._under_way:
            message.result()
        self._under_way.clear()

    def close(self, *, wait: bool) -> None:
        """End the communication thread."""
        self._thread.shutdown(wait=wait, cancel_futures=True)


def start(name: str, world: World, buffers: Mapping[int, torch.Tensor]) -> Synchronisation:
    """The synchronisation called `name` (see `SYNCHRONISATIONS`) between the workers of `world`."""
    kind = resolve_name(SYNCHRONISATIONS[name]) if world.size > 1 else Alone
    synchronisation: Synchronisation = kind(world.comm, buffers)
    return synchronisation
