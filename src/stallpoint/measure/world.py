"""The MPI world of a job or of a visit: communicator, rank and number of workers."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from stallpoint.errors import CannotRun
from stallpoint.measure.jobs import mpi_parameters
from stallpoint.measure.mpi import MPI
from stallpoint.strategies.options import forced_scheme

# In Open MPI 5 a message crashes a rank that is still in MPI_Init, about once in 100 starts on several
# nodes (open-mpi/ompi issue 12495); this wait, in s, lets all ranks leave MPI_Init before the first message.
_SETTLE = 0.2


@dataclass(frozen=True)
class World:
    """The MPI ranks that measure together: all ranks of the job, or the ranks of one visit."""

    comm: MPI.Intracomm
    rank: int
    size: int
    reduction: str = "library"
    """Scheme by which the MPI library reduces."""

    @classmethod
    def start(cls, expected_ranks: int, reduction: str = "library") -> Self:
        """Initialise MPI (``MPI_THREAD_MULTIPLE``: a thread may communicate during the backward pass).

        Collectives use the scheme `reduction` of `strategies.presets.CHOICES`. A single expected rank needs no
        launcher. Raises `CannotRun` if MPI has not `expected_ranks` ranks, if the library does not support
        threads, or if it lacks the scheme.
        """
        if not MPI.Is_initialized():
            mpi_parameters.choose(reduction)
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
            atexit.register(MPI.Finalize)
            if MPI.COMM_WORLD.size > 1:
                time.sleep(_SETTLE)
        comm = MPI.COMM_WORLD
        if comm.size != expected_ranks:
            raise CannotRun(_wrong_size(comm.size, expected_ranks))
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise CannotRun("the MPI library does not offer MPI_THREAD_MULTIPLE; choose one built with thread support")
        mpi_parameters.verify(reduction)
        return cls(comm, comm.rank, comm.size, reduction)

    def part(self, members: Sequence[int], reduction: str) -> Self | None:
        """Return the world of the ranks `members`; return None on other ranks. Called on all ranks.

        Raises `ValueError` for a scheme that must be set before MPI is initialised.
        """
        if forced_scheme(reduction) != forced_scheme(self.reduction):
            raise ValueError(f"MPI was started to reduce by {self.reduction}, not by {reduction}")
        if self.rank not in members:
            return None
        comm = self.comm.Create_group(self.comm.Get_group().Incl(members))
        return type(self)(comm, comm.rank, comm.size, reduction)


def _wrong_size(size: int, wanted_size: int) -> str:
    """Return the message, with advice, about a launch with the wrong number of ranks."""
    problem = f"the job needs {wanted_size} MPI ranks and MPI started {size}"
    if size > 1:
        return f"{problem}: mpirun or srun was told another number of processes (-n {wanted_size} would be right)"
    if int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        return (
            f"{problem}: srun started every task as an MPI job of its own; it needs the plugin that the MPI library "
            "speaks to (srun --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH and Intel MPI; srun --mpi=list shows those "
            "there are)"
        )
    return (
        f"{problem}: either no mpirun or srun launched it, or one of another MPI library than mpi4py uses "
        f"({MPI.Get_library_version().splitlines()[0]})"
    )
