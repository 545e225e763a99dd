"""What moves bytes between the ranks, whatever library does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from stallpoint.measure.synchronisation.mpi_communicator import MpiCommunicator
from stallpoint.measure.world import World


class Communicator(Protocol):
    """Collectives; each returns the bytes this rank put into messages, when its result is there."""

    @property
    def ranks(self) -> int:
        """Ranks that take part."""

    @property
    def rank(self) -> int:
        """This one."""

    def all_reduce(self, values: torch.Tensor) -> int:
        """Sum over all ranks, in place."""

    def collect(self, values: torch.Tensor) -> int:
        """Rank 0 adds the values of every other rank to its own, one after the other."""

    def spread(self, values: torch.Tensor) -> int:
        """Rank 0 sends its values to every other rank, one after the other."""

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """The i-th row of bytes of `sent` goes to rank i; `received` has a row from every rank."""

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """`received` has a row from every rank, each what that rank gave as `sent`."""

    def reduce_scatter(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """`received` is this rank's row of the sum of what all ranks `sent`."""

    def broadcast(self, values: torch.Tensor) -> int:
        """Rank 0's values to all."""

    def pass_on(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """`sent` goes to the next rank, `received` comes from the one before."""

    def close(self) -> None:
        """End; all ranks do."""


class Staged:
    """Collectives of tensors through other memory of the host: pinned and kept, or `fresh` for each message.

    The host waits for each copy that it then sends. For the copy back to a device nobody waits: the next one into the
    same pinned memory comes after it in the same stream.
    """

    def __init__(self, inner: Communicator, *, fresh: bool = False) -> None:
        self._inner, self._fresh = inner, fresh
        self._pinned: dict[str, torch.Tensor] = {}
        self.ranks, self.rank = inner.ranks, inner.rank

    def all_reduce(self, values: torch.Tensor) -> int:
        """See `Communicator`; both copies included."""
        return self._in_place(self._inner.all_reduce, values)

    def collect(self, values: torch.Tensor) -> int:
        """See `Communicator`."""
        return self._in_place(self._inner.collect, values)

    def spread(self, values: torch.Tensor) -> int:
        """See `Communicator`."""
        return self._in_place(self._inner.spread, values)

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """See `Communicator`."""
        return self._from_to(self._inner.all_to_all, received, sent)

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """See `Communicator`."""
        return self._from_to(self._inner.all_gather, received, sent)

    def reduce_scatter(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """See `Communicator`."""
        return self._from_to(self._inner.reduce_scatter, received, sent)

    def broadcast(self, values: torch.Tensor) -> int:
        """See `Communicator`."""
        return self._in_place(self._inner.broadcast, values)

    def pass_on(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """See `Communicator`."""
        return self._from_to(self._inner.pass_on, received, sent)

    def close(self) -> None:
        """End what it goes through."""
        self._inner.close()

    def _in_place(self, do: Callable[[torch.Tensor], int], values: torch.Tensor) -> int:
        host = self._host("sent", values).copy_(values)
        sent = do(host)
        values.copy_(host, non_blocking=True)
        return sent

    def _from_to(
        self, do: Callable[[torch.Tensor, torch.Tensor], int], received: torch.Tensor, sent: torch.Tensor
    ) -> int:
        host = self._host("received", received)
        count = do(host, self._host("sent", sent).copy_(sent))
        received.copy_(host, non_blocking=True)
        return count

    def _host(self, use: str, like: torch.Tensor) -> torch.Tensor:
        """Memory of the size of `like`."""
        if self._fresh:
            return torch.empty(like.shape, dtype=like.dtype)
        buffer = self._pinned.get(use)
        if buffer is None or buffer.nbytes < like.nbytes:
            buffer = self._pinned[use] = torch.empty(like.nbytes, dtype=torch.uint8, pin_memory=True)
        return buffer[: like.nbytes].view(like.dtype).view(like.shape)


def communicator(backend: str, scheme: str, segment_bytes: int, world: World, device: torch.device) -> Communicator:
    """What communicates between the workers of `world` whose gradients are on `device` (see `Preset`)."""
    if backend.startswith("mpi"):
        host, fresh = MpiCommunicator(world.comm, scheme, segment_bytes), backend == "mpi-copied"
        return Staged(host, fresh=fresh) if fresh or device.type == "cuda" else host
    from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator  # loads slowly

    return TorchCommunicator(world, device)
