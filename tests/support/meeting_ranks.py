"""One of two ranks that meet as training does: ``python -m meeting_ranks RANK SOCKET``; prints JSON of where.

They know each other through a socket of the file system in place of MPI, so that each may stand in a network namespace
of its own. What they then exchange goes over the network alone.
"""

import json
import os
import sys
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import torch

from stallpoint.measure.synchronisation.rendezvous import interface, network_of_ranks, reachable
from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
from stallpoint.measure.world import World

VALUES = 250_000
"""Of 4 bytes each, that are summed."""


class Pair:
    """As much of a communicator as two ranks need to meet."""

    def __init__(self, rank: int, other: Connection) -> None:
        self._rank, self._other = rank, other

    def allgather(self, value: Any) -> list[Any]:
        self._other.send(value)
        other = self._other.recv()
        return [other, value] if self._rank else [value, other]

    def bcast(self, value: Any) -> Any:
        return self.allgather(value)[0]


def received(name: str) -> int:
    """Bytes that came in over an interface."""
    (line,) = [line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith(f"{name}:")]
    return int(line.partition(":")[2].split()[0])


def meet(rank: int, other: Connection) -> dict[str, Any]:
    """Sum over both ranks; where they met, what came out, and the bytes that came over the interface."""
    world = World(Pair(rank, other), rank, 2)  # type: ignore[arg-type]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # as a visit of ranks on one node leaves it to the next one
    name, subnet = network_of_ranks(world)
    _, address = interface(world)
    hosts = reachable(world)
    before = received(name)
    communicator = TorchCommunicator(world, torch.device("cpu"))
    values = torch.full((VALUES,), 1.0 + rank)
    communicator.all_reduce(values)
    world.comm.allgather(None)
    communicator.close()
    return {
        "interface": name, "subnet": subnet, "address": address, "hosts": hosts, "sums": values.unique().tolist(),
        "bytes": received(name) - before,
    }  # fmt: skip


if __name__ == "__main__":
    rank, path = int(sys.argv[1]), sys.argv[2]
    if rank:
        connection = Client(path, "AF_UNIX")
    else:
        with Listener(path, "AF_UNIX") as listener:
            print("ready", flush=True)
            connection = listener.accept()
    print(json.dumps(meet(rank, connection)))
