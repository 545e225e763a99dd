"""Interface of the libraries that move bytes between the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from stallpoint.measure.synchronisation.mpi_communicator import MpiCommunicator
from stallpoint.measure.world import World


class Communicator(Protocol):
    """Interface of collectives. A collective returns when its result is complete; it returns the bytes that this rank
    sent."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""

    @property
    def rank(self) -> int:
        """Return this rank's number."""

    def all_reduce(self, values: torch.Tensor) -> int:
        """Sum over all ranks, in place."""

    def collect(self, values: torch.Tensor) -> int:
        """Add the values of every other rank to those of rank 0, one rank after the other."""

    def spread(self, values: torch.Tensor) -> int:
        """Send the values of rank 0 to every other rank, one rank after the other."""

    def all_to_all(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Send the i-th row of `outgoing`, bytes, to rank i; `received` gets a row from every rank."""

    def all_gather(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Gather every rank's `outgoing` as the rows of `received`."""

    def reduce_scatter(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Sum `outgoing` over all ranks; `received` gets this rank's row of the sum."""

    def broadcast(self, values: torch.Tensor) -> int:
        """Send the values of rank 0 to all ranks."""

    def pass_on(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Send `outgoing` to the next rank, and receive `received` from the previous one."""

    def close(self) -> None:
        """Close the communicator; called on all ranks."""


class ThroughHost:
    """Collectives of a GPU's tensors by way of buffers in the host's memory.

    Buffers are pinned and kept; with `fresh` each message gets new ones. The host sends after the copy from the device
    has ended. It need not wait for the copy back: the next copy into a pinned buffer follows in the same stream.
    """

    def __init__(self, inner: Communicator, *, fresh: bool = False) -> None:
        self._inner, self._fresh = inner, fresh
        self._pinned: dict[str, torch.Tensor] = {}
        self.ranks, self.rank = inner.ranks, inner.rank

    def all_reduce(self, values: torch.Tensor) -> int:
        """Sum over all ranks, with copies to the host and back."""
        return self._in_place(self._inner.all_reduce, values)

    def collect(self, values: torch.Tensor) -> int:
        return self._in_place(self._inner.collect, values)

    def spread(self, values: torch.Tensor) -> int:
        return self._in_place(self._inner.spread, values)

    def all_to_all(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        return self._from_to(self._inner.all_to_all, received, outgoing)

    def all_gather(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        return self._from_to(self._inner.all_gather, received, outgoing)

    def reduce_scatter(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        return self._from_to(self._inner.reduce_scatter, received, outgoing)

    def broadcast(self, values: torch.Tensor) -> int:
        return self._in_place(self._inner.broadcast, values)

    def pass_on(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        return self._from_to(self._inner.pass_on, received, outgoing)

    def close(self) -> None:
        self._inner.close()

    def _in_place(self, call: Callable[[torch.Tensor], int], values: torch.Tensor) -> int:
        host = self._host("sent", values).copy_(values)
        count = call(host)
        values.copy_(host, non_blocking=True)
        return count

    def _from_to(
        self, call: Callable[[torch.Tensor, torch.Tensor], int], received: torch.Tensor, outgoing: torch.Tensor
    ) -> int:
        host = self._host("received", received)
        count = call(host, self._host("sent", outgoing).copy_(outgoing))
        received.copy_(host, non_blocking=True)
        return count

    def _host(self, purpose: str, tensor: torch.Tensor) -> torch.Tensor:
        if self._fresh:
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        buffer = self._pinned.get(purpose)
        if buffer is None or buffer.nbytes < tensor.nbytes:
            buffer = self._pinned[purpose] = torch.empty(tensor.nbytes, dtype=torch.uint8, pin_memory=True)
        return buffer[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)


def communicator(backend: str, scheme: str, segment_bytes: int, world: World, device: torch.device) -> Communicator:
    """Return the communicator of the workers of `world`, whose gradients are on `device` (see `Preset`)."""
    if backend.startswith("mpi"):
        host, fresh = MpiCommunicator(world.comm, scheme, segment_bytes), backend == "mpi-copied"
        return ThroughHost(host, fresh=fresh) if fresh or device.type == "cuda" else host
    from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator  # imported only if needed

    return TorchCommunicator(world, device)
