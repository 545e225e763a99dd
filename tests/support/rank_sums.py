"""Sums of four ranks by a scheme of reduction, of which one sees in which order they were added.

As a program, ``python rank_sums.py SCHEME`` on each rank, it prints what rank 0 finds. It loads no PyTorch: on four
ranks that takes longer than all else.
"""

import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.errors import CannotRun
from stallpoint.measure.jobs import mpi_parameters
from stallpoint.measure.mpi import MPI
from stallpoint.measure.world import World

RANKS = 4
VALUES = 4000
NAN = 0x7FC00000
"""A number that is none; the bits below it are free. Of two that are added, the sum is the first."""


def summands() -> npt.NDArray[np.float32]:
    """Values of each rank, of such different size that every order of addition rounds differently."""
    random = np.random.default_rng(1)
    return (random.random((RANKS, VALUES)) * 10.0 ** random.integers(-6, 6, (RANKS, VALUES))).astype(np.float32)


def reduced(world: World, scheme: str) -> dict[str, Any]:
    """What one of four ranks finds of a scheme."""

    def reduce(own: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        total = own.copy()
        if scheme == "binary-tree":
            world.comm.Reduce(own, total)
            world.comm.Bcast(total)
        elif scheme == "sharded-servers":
            import torch  # as only ranks that are there already do

            from stallpoint.measure.synchronisation.mpi_communicator import MpiCommunicator

            MpiCommunicator(world.comm, scheme, 0).all_reduce(torch.from_numpy(total))
        else:
            world.comm.Allreduce(own, total)
        return total

    total = reduce(summands()[world.rank])
    same = world.comm.allreduce(total.tobytes(), MPI.MAX) == world.comm.allreduce(total.tobytes(), MPI.MIN)
    marks = reduce(np.full(VALUES, NAN + 1 + world.rank, np.uint32).view(np.float32)).view(np.uint32)
    return {
        "version": MPI.Get_library_version(), "total": total.tolist(), "same": same,
        "in_parts": len(set(marks[VALUES // 8 :: VALUES // 4].tolist())) > 1,
        "in_force": mpi_parameters.in_force(scheme),
    }  # fmt: skip


if __name__ == "__main__":
    try:
        world = World.start(RANKS, sys.argv[1])
    except CannotRun as error:
        sys.exit(str(error))
    found = reduced(world, sys.argv[1])
    if world.rank == 0:
        print(json.dumps(found))
