"""Collective operations by the MPI library, on buffers in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from stallpoint.measure.mpi import MPI

Segment: TypeAlias = npt.NDArray[np.float32]


class MpiCommunicator:
    """Collectives of tensors in the host's memory.

    `reduction` is a scheme of `stallpoint.presets.CHOICES`, which the library was told to use if it is the library's
    (see `mpi_parameters`); values are handed over in segments of `segment_bytes`, or whole if that is 0.
    """

    def __init__(self, comm: MPI.Intracomm, reduction: str, segment_bytes: int) -> None:
        self._comm = comm
        self._segment_bytes = segment_bytes
        self._received = np.empty(0, np.float32)
        other: dict[str, Callable[[Segment], int]] = {
            "binary-tree": self._tree,
            "parameter-server": self._server,
            "sharded-servers": self._shards,
        }
        self._sum = other.get(reduction, self._all_reduce)

    @property
    def ranks(self) -> int:
        """Ranks that take part."""
        return int(self._comm.size)

    @property
    def rank(self) -> int:
        """This one."""
        return int(self._comm.rank)

    def all_reduce(self, values: torch.Tensor) -> int:
        """Sum over all ranks, in place."""
        return self._in_segments(values, self._sum)

    def collect(self, values: torch.Tensor) -> int:
        """Rank 0 adds the values of every other rank to its own, one after the other."""
        return self._in_segments(values, self._collect)

    def spread(self, values: torch.Tensor) -> int:
        """Rank 0 sends its values to every other rank, one after the other."""
        return self._in_segments(values, self._spread)

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """The i-th row of bytes of `sent` goes to rank i; `received` has a row from every rank."""
        self._comm.Alltoall(sent.numpy(), received.numpy())
        return sent.nbytes

    def all_gather(self, received: torch.Tensor, sent: torch.Tensor) -> int:
        """`received` has a row of bytes from every rank, each what that rank gave as `sent`."""
        self._comm.Allgather(sent.numpy(), received.numpy())
        return sent.nbytes

    def close(self) -> None:
        """Nothing to end: the communicator is the job's."""

    def _in_segments(self, values: torch.Tensor, do: Callable[[Segment], int]) -> int:
        array = values.numpy()
        step = self._segment_bytes // array.itemsize or len(array)
        return sum(do(array[begin : begin + step]) for begin in range(0, len(array), step or 1))

    def _all_reduce(self, segment: Segment) -> int:
        self._comm.Allreduce(MPI.IN_PLACE, segment)
        return segment.nbytes

    def _tree(self, segment: Segment) -> int:
        """Sum at rank 0, which sends it to all."""
        if self._comm.rank == 0:
            self._comm.Reduce(MPI.IN_PLACE, segment)
        else:
            self._comm.Reduce(segment, None)
        self._comm.Bcast(segment)
        return segment.nbytes

    def _server(self, segment: Segment) -> int:
        return self._collect(segment) + self._spread(segment)

    def _shards(self, segment: Segment) -> int:
        """Each rank adds the others' values of its shard to its own, in the order of the ranks, and sends the sums."""
        shards = np.array_split(segment, self._comm.size)
        own, others = shards[self._comm.rank], [rank for rank in range(self._comm.size) if rank != self._comm.rank]
        size = len(own) * len(others)
        received = self._room(size)[:size].reshape(len(others), len(own))
        arriving = [self._comm.Irecv(row, rank) for row, rank in zip(received, others, strict=True)]
        MPI.Request.Waitall(arriving + [self._comm.Isend(shards[rank], rank) for rank in others])
        for row in received:
            own += row
        arriving = [self._comm.Irecv(shards[rank], rank) for rank in others]
        MPI.Request.Waitall(arriving + [self._comm.Isend(own, rank) for rank in others])
        return segment.nbytes - own.nbytes + received.nbytes

    def _room(self, values: int) -> Segment:
        """A buffer for at least as many received values."""
        if len(self._received) < values:
            self._received = np.empty(values, np.float32)
        return self._received

    def _collect(self, segment: Segment) -> int:
        if self._comm.rank:
            self._comm.Send(segment, 0)
            return segment.nbytes
        received = self._room(len(segment))[: len(segment)]
        for worker in range(1, self._comm.size):
            self._comm.Recv(received, worker)
            segment += received
        return 0

    def _spread(self, segment: Segment) -> int:
        if self._comm.rank:
            self._comm.Recv(segment, 0)
            return 0
        for worker in range(1, self._comm.size):
            self._comm.Send(segment, worker)
        return segment.nbytes * (self._comm.size - 1)
