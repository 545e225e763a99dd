"""Starting a measuring job: as many processes as its cell has ranks, and what to make of how they end."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from stallpoint.cells import Cell
from stallpoint.errors import InputError

THIS_MACHINE = "mpirun --oversubscribe --bind-to none -n {ranks}"
"""Launcher without a scheduler: workers share this machine's cores, and each computes with as many as its cell says."""

FIELDS = ("ranks", "nodes", "workers_per_node", "threads_per_worker")
"""What a launcher's text can name in braces."""


def launch(cell: Cell, folder: Path, *, launcher: str, log: Path) -> None:
    """Run the job that measures `cell` into `folder`, its messages going to the file `log`.

    `launcher` starts MPI processes, e.g. ``mpirun -n {ranks}`` (see `FIELDS`). One rank is started without it. A
    job that was killed for want of memory is recorded as failed; any other bad end raises `InputError` with the
    job's last words.
    """
    command = [sys.executable, "-m", "stallpoint.measure", cell.to_json(), str(folder)]
    if cell.ranks > 1:
        command = [*_started_by(launcher, cell), *command]
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("wb") as messages:
            exit_code = subprocess.run(
                command, env=_environment(), stdin=subprocess.DEVNULL, stdout=messages, stderr=messages
            ).returncode
    except FileNotFoundError:
        raise InputError(
            f"no program {command[0]!r} to start {cell.ranks} ranks with; set resource launcher in the profile"
        ) from None
    if exit_code:
        from stallpoint.measure.job import record_failure  # only here: loads the tensor library

        if not record_failure(cell, folder, exit_code, log):
            raise InputError(f"{cell.path} ended with exit status {exit_code}; {log} ends with\n{_last_words(log)}")


def _started_by(launcher: str, cell: Cell) -> list[str]:
    """The launcher's command line for this cell."""
    try:
        return shlex.split(launcher.format(**{field: getattr(cell, field) for field in FIELDS}))
    except (KeyError, IndexError, ValueError) as error:
        names = ", ".join(f"{{{field}}}" for field in FIELDS)
        raise InputError(f"resource launcher {launcher!r}: {error}; it can name {names}") from None


def _environment() -> dict[str, str]:
    """This process's variables, with the programs beside this Python (mpirun) found first.

    Open MPI wants to be told twice that whoever works as root (in a container, say) means it.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    return {**os.environ, **root, "PATH": path}


def _last_words(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
