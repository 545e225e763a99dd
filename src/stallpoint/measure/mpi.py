"""mpi4py's `MPI`, configured; import it only from here, as mpi4py would otherwise initialise MPI on import."""

import os

import mpi4py

mpi4py.rc.initialize = False
# Let waiting ranks yield: by default they spin, and take cores from computing ranks if ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
# Delay, in s, of MPI_Abort. Without delay, a rank that loses its connection to a killed rank would end the job at once.
# With a delay, the launcher notices the killed rank first, reports it and ends the others, which then save their rows.
os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "5")

from mpi4py import MPI  # noqa: E402  (after the settings above, which it reads)

__all__ = ["MPI"]
