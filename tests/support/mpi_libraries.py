"""MPI libraries beside Open MPI, which is in the environment of the tests.

They come from the package index, each in a folder of its own: in one environment they would replace each other's
``mpiexec``. mpi4py takes the library that ``MPI4PY_LIBMPI`` names.
"""

import fcntl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from launching import ENVIRONMENT, MPIRUN


@dataclass(frozen=True)
class MpiLibrary:
    """One MPI library, installed when it is first asked for."""

    version: str
    """How its own version text begins."""
    requirement: str = ""
    """What pip installs; empty for the one that is there."""

    def launch(self, ranks: int) -> list[str]:
        """The command that starts a program on so many ranks of this machine."""
        if not self.requirement:
            return [*MPIRUN, "-n", str(ranks)]
        return [str(self._folder() / "bin" / "mpiexec"), "-n", str(ranks)]

    def environment(self) -> dict[str, str]:
        """Environment of such a program."""
        return {**ENVIRONMENT, **self.settings()}

    def settings(self) -> dict[str, str]:
        """What a program's environment has to have, whatever starts it."""
        if not self.requirement:
            return {}
        # Ranks outnumber cores here: Intel MPI would bind each to one of them.
        return {"MPI4PY_LIBMPI": str(self._folder() / "lib" / "libmpi.so.12"), "I_MPI_PIN": "off"}

    def _folder(self) -> Path:
        """Where it is; tests that run beside each other install it once."""
        folder = Path(sys.prefix) / "mpi" / self.requirement
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / ".ready").exists():
                options = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location", "--no-deps"]
                subprocess.run(
                    [sys.executable, "-m", "pip", "install", *options, "--prefix", folder, self.requirement], check=True
                )
                (folder / ".ready").touch()
        return folder


OPEN_MPI = MpiLibrary("Open MPI")
MPICH = MpiLibrary("MPICH", "mpich==5.0.2")
INTEL_MPI = MpiLibrary("Intel(R) MPI", "impi-rt==2021.18.1")  # newer ones want a libfabric that the index lacks
