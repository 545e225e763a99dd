"""The MPI library, configured. Import ``MPI`` from here, as mpi4py initialises MPI on import unless configured."""

import os

import mpi4py

mpi4py.rc.initialize = False
# Without this setting waiting ranks spin, and take the cores from those that still compute when ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
# Without this setting a rank that loses a killed rank would end itself and the job at once. During the delay, in s,
# the launcher notices the killed rank: it ends the others, which then save their rows, and reports which was
# killed.
os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "5")

from mpi4py import MPI  # noqa: E402  (after the settings above, which it reads)

__all__ = ["MPI"]
