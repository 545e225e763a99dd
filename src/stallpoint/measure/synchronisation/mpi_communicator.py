"""Collective operations by the MPI library on tensors in the host's memory, without copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from stallpoint.measure.mpi import MPI
from stallpoint.strategies.options import SHARDED_SERVERS, sharded_servers

Segment: TypeAlias = npt.NDArray[np.float32]


class MpiCommunicator:
    """Collectives of tensors in the host's memory by MPI.

    `scheme` is a preset's reduction scheme: one of the library's (see `mpi_parameters`), or one that this class makes
    of the library's calls. A reduction takes one call for each `segment_bytes` bytes; 0 means one call for all.
    """

    def __init__(self, comm: MPI.Intracomm, scheme: str, segment_bytes: int) -> None:
        self._comm = comm
        self._segment_bytes = segment_bytes
        self._received = np.empty(0, np.float32)
        reductions: dict[str, Callable[[Segment], int]] = {
            "binary-tree": self._tree,
            "parameter-server": self._server,
        }
        self._sum = reductions.get(scheme, self._all_reduce)
        if scheme.startswith(SHARDED_SERVERS):
            self._servers = min(sharded_servers(scheme) or comm.size, comm.size)
            self._sum = self._shards

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return int(self._comm.size)

    @property
    def rank(self) -> int:
        return int(self._comm.rank)

    def all_reduce(self, values: torch.Tensor) -> int:
        """Sum over all ranks, in place."""
        return self._in_segments(values, self._sum)

    def collect(self, values: torch.Tensor) -> int:
        """Add the values of every other rank to those of rank 0, one rank after the other."""
        return self._in_segments(values, self._collect)

    def spread(self, values: torch.Tensor) -> int:
        """Send the values of rank 0 to every other rank, one rank after the other."""
        return self._in_segments(values, self._spread)

    def all_to_all(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Send the i-th row of `outgoing`, bytes, to rank i; `received` gets a row from every rank."""
        self._comm.Alltoall(outgoing.numpy(), received.numpy())
        return outgoing.nbytes

    def all_gather(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Gather every rank's `outgoing` as the rows of `received`."""
        self._comm.Allgather(outgoing.numpy(), received.numpy())
        return outgoing.nbytes

    def reduce_scatter(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Sum `outgoing` over all ranks; `received` gets this rank's row of the sum."""
        self._comm.Reduce_scatter_block(outgoing.numpy(), received.numpy())
        return outgoing.nbytes

    def broadcast(self, values: torch.Tensor) -> int:
        """Send the values of rank 0 to all ranks, by the library's algorithm."""
        self._comm.Bcast(values.numpy())
        return values.nbytes

    def pass_on(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Send `outgoing` to the next rank, and receive `received` from the previous one."""
        rank, ranks = self._comm.rank, self._comm.size
        self._comm.Sendrecv(outgoing.numpy(), (rank + 1) % ranks, recvbuf=received.numpy(), source=(rank - 1) % ranks)
        return outgoing.nbytes

    def close(self) -> None:
        """Do nothing, as the communicator belongs to the job."""

    def _in_segments(self, values: torch.Tensor, call: Callable[[Segment], int]) -> int:
        array = values.numpy()
        step = self._segment_bytes // array.itemsize or len(array)
        return sum(call(array[begin : begin + step]) for begin in range(0, len(array), step or 1))

    def _all_reduce(self, segment: Segment) -> int:
        self._comm.Allreduce(MPI.IN_PLACE, segment)
        return segment.nbytes

    def _tree(self, segment: Segment) -> int:
        """Sum at rank 0, and send the sum to all ranks."""
        if self._comm.rank == 0:
            self._comm.Reduce(MPI.IN_PLACE, segment)
        else:
            self._comm.Reduce(segment, None)
        self._comm.Bcast(segment)
        return segment.nbytes

    def _server(self, segment: Segment) -> int:
        return self._collect(segment) + self._spread(segment)

    def _shards(self, segment: Segment) -> int:
        """Sum each shard at its server, rank by rank, and send the sums to all ranks."""
        rank, shards = self._comm.rank, np.array_split(segment, self._servers)
        is_server = rank < self._servers
        shard = shards[rank] if is_server else segment[:0]
        workers = [other for other in range(self._comm.size) if is_server and other != rank]
        servers = [other for other in range(self._servers) if other != rank]
        size = len(shard) * len(workers)
        received = self._receive_buffer(size)[:size].reshape(len(workers), len(shard))
        requests = [self._comm.Irecv(row, worker) for row, worker in zip(received, workers, strict=True)]
        MPI.Request.Waitall(requests + [self._comm.Isend(shards[server], server) for server in servers])
        for row in received:
            shard += row
        requests = [self._comm.Irecv(shards[server], server) for server in servers]
        MPI.Request.Waitall(requests + [self._comm.Isend(shard, worker) for worker in workers])
        return segment.nbytes - shard.nbytes + received.nbytes

    def _receive_buffer(self, values: int) -> Segment:
        """Return a buffer for at least `values` received values."""
        if len(self._received) < values:
            self._received = np.empty(values, np.float32)
        return self._received

    def _collect(self, segment: Segment) -> int:
        if self._comm.rank:
            self._comm.Send(segment, 0)
            return segment.nbytes
        received = self._receive_buffer(len(segment))[: len(segment)]
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
