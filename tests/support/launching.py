"""Starts jobs as the workflow does: a Python program under mpirun, on this machine."""

import os
import subprocess
import sys
from pathlib import Path

from stallpoint.cells import Cell

MPIRUN = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "--bind-to", "none"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("OMPI_COMM", "SLURM", "PMI"))},
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

JOB = """
import sys
from pathlib import Path
from stallpoint.kinds import cell_from_json
from stallpoint.errors import CannotRun, InputError
from stallpoint.measure import collectives, job, storage_reads
from stallpoint.records import COLLECTIVES
text, folder = sys.argv[1:]
cell = cell_from_json(text)
measure = collectives.measure if cell.kind == "collectives" else storage_reads.measure
{body}
job.run(cell, measure, Path(folder))
"""


def start_job(cell: Cell, folder: Path, *, ranks: int, body: str = "") -> subprocess.Popen[str]:
    """Start `cell` on `ranks` processes; `body` is Python that may put another function in place of `measure`."""
    program = [sys.executable, "-c", JOB.format(body=body), cell.to_json(), str(folder)]
    launcher = [*MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    return subprocess.Popen(
        [*launcher, *program], env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run_job(cell: Cell, folder: Path, *, ranks: int, body: str = "") -> tuple[int, str]:
    """Run `cell` to its end; exit status and what it printed."""
    with start_job(cell, folder, ranks=ranks, body=body) as job:
        output, errors = job.communicate(timeout=600)
    return job.returncode, output + errors
