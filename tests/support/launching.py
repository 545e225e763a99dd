"""Starts jobs as the workflow does, under mpirun on this machine, or lets ranks that are there already do them."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import forked
import little
import pytest
from resident_ranks import Ranks
from torch.distributed import TCPStore

from stallpoint.study.cells import Cell

MPIRUN = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "--bind-to", "none"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("OMPI_COMM", "SLURM", "PMI"))},
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
VISITING = {
    **ENVIRONMENT,
    "OMP_NUM_THREADS": "1",
    "MEASURES_QUICKLY": "1",
    "PYTHONPATH": os.pathsep.join([str(Path(little.__file__).with_name("at_start")), *filter(None, sys.path)]),
}
"""Of processes that take cells in turns, and measure quickly."""
PLANTED_JOB = str(Path(little.__file__).with_name("planted_job.py"))
Measure = Callable[..., None]
Plant = Callable[[pytest.MonkeyPatch], None]
"""Changes what a job does, on each of its ranks."""


def copied() -> dict[str, str]:
    """Return variables of programs that start as copies (`forked`), and find the modules that tests do."""
    return {forked.VARIABLE: forked.address(), "PYTHONPATH": VISITING["PYTHONPATH"]}


def run_job(
    ranks: Ranks, cell: Cell, folder: Path, *, plant: Plant | None = None, measure: Measure | None = None
) -> tuple[int, str]:
    """Run `cell` to its end on as many of the ranks as it has; exit status, and what they printed."""
    ends = ranks(visit, cell, folder, plant, measure, count=cell.ranks)
    (status,) = {status for status, _ in ends}
    return status, "".join(printed for _, printed in ends)


def visit(world: Any, cell: Cell, folder: Path, plant: Plant | None, measure: Measure | None) -> tuple[int, str]:
    """One rank's part of a job: exit status, and what it printed."""
    from stallpoint.measure import job, resident
    from stallpoint.study.kinds import kind_of

    resident._built.cache_clear()  # networks of the same name may be others' in each test
    status = 0
    with io.StringIO() as printed, redirect_stdout(printed), redirect_stderr(printed):
        with pytest.MonkeyPatch.context() as patch:
            if plant:
                plant(patch)
            try:
                job.run(cell, measure or kind_of(cell).measure(), folder, world)
            except SystemExit as end:
                status = int(end.code or 0)
        return status, printed.getvalue()


def start_job(cell: Cell, folder: Path, *, ranks: int, body: str = "", **variables: str) -> subprocess.Popen[str]:
    """Start `cell` on `ranks` processes; `body` is Python that may put another function in place of `measure`."""
    program = [sys.executable, PLANTED_JOB, cell.to_json(), str(folder), body]
    launcher = [*MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    environment = {**ENVIRONMENT, **variables}
    return subprocess.Popen(
        [*launcher, *program], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def end_of_job(cell: Cell, folder: Path, *, ranks: int, body: str = "") -> tuple[int, str]:
    """Run `cell` to its end on processes of its own, copies (`forked`); exit status, and what they printed."""
    with start_job(cell, folder, ranks=ranks, body=body, **copied()) as job:
        output, errors = job.communicate(timeout=600)
    return job.returncode, output + errors


def stores(count: int) -> list[TCPStore]:
    """Return stores in which ranks meet, held here as by torchrun: a port that is only free may soon be another's."""
    return [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(count)]


def as_torchrun(workers: int, script: Path | str, *arguments: object, **variables: str) -> list[str]:
    """Run a script on so many workers, copies (`forked`) with the variables that torchrun gives; what each printed."""
    (store,) = stores(1)
    common = {
        "WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo", **variables,
    }  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, script, *map(str, arguments)],
            env={**os.environ, **copied(), **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(workers)
    ]  # fmt: skip
    try:
        printed = [one.communicate(timeout=600)[0] for one in started]
    finally:
        for one in started:
            one.kill()
    assert not any(one.returncode for one in started), "\n".join(printed)
    return printed
