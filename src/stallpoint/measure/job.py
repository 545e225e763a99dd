"""A visit to a cell, of any kind: measure, gather the rows of all ranks, write the visit's folder.

How a visit can end:

- *ok*: the folder holds every table of the cell's kind.
- *failed*: the cell cannot run here (`CannotRun`, out of memory), or raised any other error, even `SystemExit`; the
folder holds `runs` with the reason, and the ranks go on to the next visit. If a rank fails while others wait for it
inside MPI, it ends the job by MPI_Abort; `stallpoint.schedule.processes` recognises this.
- *error*: a disk or storage failed (`errors.may_recover`), not the cell: a message and an exit status are left, but no
folder. Rows measured so far are kept like those of an interrupted job (`interruption`).
"""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import torch
from typing_extensions import override

from stallpoint.errors import EXIT_BAD_INPUT, EXIT_FAILED, CannotRun, InputError, may_recover, reason, shorten
from stallpoint.measure.device import device_of
from stallpoint.measure.interruption import Interruption, save_rows
from stallpoint.measure.launched import first_process
from stallpoint.measure.machine import environment
from stallpoint.measure.machine.energy import EnergyMeter
from stallpoint.measure.machine.sensors import Sensors, kernel_id
from stallpoint.measure.machine.sentinel import sentinel_of
from stallpoint.measure.mpi import MPI
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training import precision
from stallpoint.measure.world import World
from stallpoint.records import parquet
from stallpoint.records.tables import CONVERSIONS, ENERGY, ENVIRONMENTS, RUNS, SLURM_JOBS, STAGING, STALENESS, VISITS
from stallpoint.schedule.ledger import checkpoint_of
from stallpoint.slurm import own_job
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import run_row, write_failure
from stallpoint.study.kinds import kind_of

_GRACE = 10.0
"""Time that a rank with a problem waits for the other ranks before it ends them by force, s."""

Measure = Callable[[Any, World, Recorder], None]
Prepare = Callable[[Any, Recorder], Any]
"""Preparation of a visit: returns the cell with this node's paths, and may add rows."""
_OPTIONAL = (SLURM_JOBS, STAGING, CONVERSIONS, STALENESS)
"""Tables that a visit writes only if they have rows."""


@dataclass(frozen=True)
class _Problem:
    """Reason why a rank could not finish. The exit code `EXIT_FAILED` says that the cell cannot run here."""

    exit_code: int
    message: str
    trace: str = ""
    """Traceback of an unexpected error."""

    @override
    def __str__(self) -> str:
        return f"error: {self.message}\n{self.trace}".rstrip()


def run(
    cell: Cell,
    measure: Measure,
    folder: Path,
    world: World | None = None,
    *,
    visit: int = 1,
    position: int = 1,
    concurrent: int = 0,
    prepare: Prepare = lambda cell, _: cell,
) -> None:
    """Visit one cell and write the visit's `folder`.

    Every process of the job (or of `world` if MPI was started before) calls this function. `measure` gets the cell from
    `prepare`, the world and a recorder for the rank's rows. `visit` is the number of this visit among visits to the
    cell, `position` its number among visits to all cells. `concurrent` other cells are visited at the same time.
    An error ends in `SystemExit`.
    """
    started = datetime.now(UTC)
    try:
        world = world or World.start(cell.ranks, cell.scheme)
    except InputError as error:
        _log(f"error: {error}")
        raise SystemExit(EXIT_BAD_INPUT) from None
    except CannotRun as error:
        if first_process():
            write_failure(cell, folder, started, str(error))
        return
    recorder = Recorder(cell, world.rank, visit, checkpoint_of(folder))
    _RankVisit(cell, folder, started, position, concurrent, world, recorder, prepare).run(measure)


@dataclass(frozen=True)
class _RankVisit:
    cell: Cell
    folder: Path
    started: datetime
    position: int
    concurrent: int
    world: World
    recorder: Recorder
    prepare: Prepare

    def run(self, measure: Measure) -> None:
        """Measure, agree with the other ranks on the end of the visit, and write."""
        agreement = self.world.comm.Dup()  # a second communicator, as other ranks may still measure with the first
        with Interruption(self._save_rows) as interruption:
            rows: dict[str, bytes] = {}
            problem = _attempt(lambda: rows.update(self._rows(measure)))
            if not all_arrive(agreement, _GRACE if problem else math.inf):
                self._end_this_rank(problem)
            if self._has_problem(agreement.allgather(problem)):
                agreement.Free()
                return
            parts = {name: self.world.comm.gather(own) or [] for name, own in rows.items()}
            with interruption.signals_delayed():
                problem = _attempt(lambda: self._write(parts)) if self.world.rank == 0 else None
            self._has_problem(agreement.allgather(problem))
        agreement.Free()  # some libraries have only 2,000 communicators, which many visits would use up

    def _rows(self, measure: Measure) -> dict[str, bytes]:
        """Measure the cell, and return this rank's rows of each table as bytes."""
        self._measure(measure)
        return {table.name: _to_bytes(self.recorder.arrow(table)) for table in kind_of(self.cell).tables[1:]}

    def _measure(self, measure: Measure) -> None:
        """Prepare this process by the cell's settings, record its environment, and measure."""
        if self.cell.device == "cuda":
            environment.choose_gpu(self.world)
        torch.set_num_threads(self.cell.threads_per_worker)
        precision.allow_only(self.cell.precision)
        precision.choose_libraries(self.cell)
        slurm_job = own_job.own_job() if self.world.rank == 0 else None
        node_limit = self.world.comm.bcast(own_job.memory_of_node(slurm_job))
        self.recorder.add(ENVIRONMENTS, **environment.describe(self.cell, self.world, node_limit))
        if slurm_job:
            self.recorder.add(SLURM_JOBS, **slurm_job)
        self.recorder.arrow(ENVIRONMENTS)  # this loads pandas, for which an interruption would leave no time
        cell = self.prepare(self.cell, self.recorder)
        device = device_of(self.cell)
        sentinel = sentinel_of(self.world, device)
        first_times = sentinel.run()
        with EnergyMeter(gpu=device.index) as self.recorder.energy:
            self.recorder.begin()
            measure(cell, self.world, self.recorder)
        self.recorder.add(ENERGY, **self.recorder.energy.row)
        last_times = sentinel.run()
        with Sensors(others=not self.cell.shared_cpus) as sensors:
            cpu_facts = {"cpus": sensors.cpus, "node_busy_error": sensors.node_busy_error, "kernel": kernel_id()}
        self.recorder.add(
            VISITS, position=self.position, concurrent=self.concurrent, started=self.started,
            duration=(datetime.now(UTC) - self.started).total_seconds(),
            preparing=(self.recorder.prepared - self.started).total_seconds(), measuring=self.recorder.measuring,
            excluded_samples=self.recorder.excluded_samples,
            **cpu_facts, threads=self.cell.threads_per_worker,
            product_before=first_times["product_seconds"], product_after=last_times["product_seconds"],
            all_reduce_before=first_times["all_reduce_seconds"], all_reduce_after=last_times["all_reduce_seconds"],
        )  # fmt: skip

    def _write(self, parts: Mapping[str, Sequence[bytes]]) -> None:
        """Write the rows of all ranks, in the order of the ranks."""
        tables = {name: pa.concat_tables(map(_from_bytes, ranks)) for name, ranks in parts.items()}
        for table in _OPTIONAL:
            if table.name in tables and not tables[table.name].num_rows:
                del tables[table.name]
        parquet.write_cell(self.folder, {RUNS.name: [run_row(self.cell, self.started)], **tables})

    def _save_rows(self) -> str:
        return save_rows(self.recorder, self.cell, self.world.rank, self.folder)

    def _end_this_rank(self, problem: _Problem | None) -> NoReturn:
        """End the job by force: the other ranks still measure, and most likely wait for this rank."""
        assert problem, "only a rank with a problem stops waiting"
        _log(f"{problem}\nrank {self.world.rank} ends the job; {self._save_rows()}")
        if problem.exit_code == EXIT_FAILED:
            with suppress(OSError, InputError):  # another rank may write the same folder
                write_failure(self.cell, self.folder, self.started, problem.message)
        self.world.comm.Abort(problem.exit_code)
        raise SystemExit(problem.exit_code)

    def _has_problem(self, problems: list[_Problem | None]) -> bool:
        """Report the first problem; return whether there is a problem. Exit if that cannot be recorded as a failure."""
        first_rank = next((rank for rank, problem in enumerate(problems) if problem), None)
        if first_rank is None:
            return False
        saved_message = self._save_rows()
        problem = problems[first_rank]
        assert problem
        write_problem = None
        if self.world.rank == first_rank:
            _log(f"{problem}\n{saved_message}")
            if problem.exit_code == EXIT_FAILED:
                write_problem = _attempt(lambda: write_failure(self.cell, self.folder, self.started, problem.message))
        # Ranks exit together, as a launcher kills the others when one exits with an error.
        write_problem = self.world.comm.allgather(write_problem)[first_rank]
        if write_problem and self.world.rank == first_rank:
            _log(f"{write_problem}")
        if write_problem or problem.exit_code != EXIT_FAILED:
            raise SystemExit((write_problem or problem).exit_code)
        return True


def _attempt(step: Callable[[], None]) -> _Problem | None:
    """Do `step`; return the problem if it failed, else None."""
    try:
        step()
    except (CannotRun, InputError) as error:
        return _Problem(EXIT_BAD_INPUT if may_recover(error) else EXIT_FAILED, shorten(str(error)))
    except BaseException as error:  # user code and libraries may raise anything; other ranks go on
        if isinstance(error, OSError) and may_recover(error):
            return _Problem(EXIT_BAD_INPUT, f"{error.filename}: {reason(error)}" if error.filename else reason(error))
        if _out_of_memory(error):
            return _Problem(EXIT_FAILED, f"out of memory: {str(error).split(chr(10))[0]}")
        return _Problem(
            EXIT_FAILED, shorten(f"{type(error).__name__}: {error}".removesuffix(": ")), traceback.format_exc()
        )
    return None


def _out_of_memory(error: BaseException) -> bool:
    """Return whether Python's, the GPU's or the CPU's allocator found no memory (the CPU's raises `RuntimeError`)."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def all_arrive(comm: MPI.Intracomm, patience: float) -> bool:
    """Sleep until all ranks call this function; return False after `patience` s. (A barrier would keep cores busy.)"""
    deadline = time.monotonic() + patience
    barrier = comm.Ibarrier()
    while not barrier.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _log(text: str) -> None:
    print(text.rstrip(), file=sys.stderr, flush=True)


def _to_bytes(table: pa.Table) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(stream.getvalue())


def _from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
