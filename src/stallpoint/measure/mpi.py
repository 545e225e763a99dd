"""The MPI library. Import ``MPI`` from here: mpi4py initialises it as soon as it is imported, unless told not to."""

import os

import mpi4py

mpi4py.rc.initialize = False
# Without it waiting ranks spin, and take the cores from those that still compute when ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")

from mpi4py import MPI  # noqa: E402  (after the settings above, which it reads)

__all__ = ["MPI"]
