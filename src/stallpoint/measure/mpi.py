"""The configured MPI library: to be imported from here, as mpi4py otherwise initialises MPI on import."""

import os

import mpi4py

mpi4py.rc.initialize = False
# Otherwise waiting ranks spin, and take cores from computing ranks if ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
# Otherwise a rank that loses the connection to another one ends itself and the job at once. During the delay, in s, the
# launcher notices which rank was killed, says so and ends the others, which then save their rows.
os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "5")

from mpi4py import MPI  # noqa: E402  (after the settings above, which it reads)

__all__ = ["MPI"]
