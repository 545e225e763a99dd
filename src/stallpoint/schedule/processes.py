"""The processes that measure: how they start, get orders to visit cells, and end.

The cause of an end is read from messages of the launcher, the scheduler and the kernel. The end is recorded as the
cell's result only if messages show that the cell cannot run here. A lost node, cancelled job or time limit says nothing
about the cell. Processes that died without a message are started once more (`session.Pool`).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Self

from stallpoint.errors import EXIT_BAD_INPUT, EXIT_FAILED, CannotRun, InputError
from stallpoint.records.tables import RUNS
from stallpoint.study.cells import Cell
from stallpoint.study.commands import check_template, thread_variables
from stallpoint.study.job_kind import write_failure

CHECK_ADVICE = "first: `stallpoint check`, started as the job is, holds cores, MPI and network against what is expected"
"""Advice after processes could not be started."""
LOCAL_LAUNCHER = "mpirun --oversubscribe --bind-to none -n {ranks}"
"""Launcher without a scheduler: workers share this machine's cores, each with as many threads as its cell sets."""

READY, ENDED, CANNOT_RUN = "stallpoint: ready", "stallpoint: visit ended ", "stallpoint: cannot run: "
"""Prefixes of answers of the processes (`stallpoint.measure.visiting`); other lines are from other programs."""
_PR_SET_PDEATHSIG = 1
PATIENCE = 40.0
"""Time that processes have to end after a request, s: srun gives them 30."""


@dataclass(frozen=True)
class LaunchShape:
    """Numbers of ranks, nodes and threads to launch; a launcher's text can have these fields in braces."""

    ranks: int
    nodes: int
    workers_per_node: int
    threads_per_worker: int

    @classmethod
    def of(cls, cells: Collection[Cell]) -> Self:
        """Return the shape with the largest number of nodes, workers per node and threads among `cells`."""
        nodes, workers, threads = (
            max(getattr(cell, field) for cell in cells) for field in ("nodes", "workers_per_node", "threads_per_worker")
        )
        return cls(nodes * workers, nodes, workers, threads)


@dataclass(frozen=True)
class VisitRequest:
    """Order to visit a cell once."""

    cell: Cell
    folder: Path
    """Folder in which the visit writes its tables."""
    visit: int
    """Number of the visit to the cell, from 1."""
    position: int
    """Position of the visit among all visits of the hardware entry, from 1."""
    node: int = 0
    """Index of the visit's first node."""

    def to_json(self) -> dict[str, object]:
        """Return the request as a JSON object, from which a process reads it."""
        return {**vars(self), "cell": self.cell.to_json(), "folder": str(self.folder)}


class Processes:
    """The processes of one MPI job, which visit one cell after another.

    There are enough processes for each of `cells`, and the MPI library reduces by `scheme`. `launcher` is a command
    that starts them, such as ``mpirun -n {ranks}`` with fields of `LaunchShape`; one rank needs no launcher. Raises
    `InputError` if the launcher cannot be used, `CannotRun` if MPI does not work here.
    """

    def __init__(self, cells: Collection[Cell], scheme: str, *, launcher: str, log: Path) -> None:
        self._log = log
        shape = LaunchShape.of(cells)
        if launcher == LOCAL_LAUNCHER and shape.nodes > 1 and "SLURM_JOB_ID" in os.environ:
            raise InputError(f"{shape.nodes} nodes of Slurm, but the profile has no resource launcher (profiles/slurm)")
        command = [
            sys.executable,
            "-m",
            "stallpoint.measure",
            str(shape.ranks),
            str(shape.workers_per_node),
            scheme,
        ]
        if shape.ranks > 1:
            command = [*_start_command(launcher, shape), *command]
        log.parent.mkdir(parents=True, exist_ok=True)
        self.died = ""
        """Description of an unexplained end: ``rank 3 was killed (signal 9)``."""
        self.killed = False
        """Whether signal 9 ended the processes."""
        self._read_before = log.stat().st_size if log.exists() else 0
        self._oom_kills = oom_kills()
        try:
            with log.open("ab") as messages:
                self._job = subprocess.Popen(
                    command,
                    env=_environment(shape.threads_per_worker),
                    preexec_fn=end_with_parent,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=messages,
                    text=True,
                )
        except FileNotFoundError:
            raise InputError(
                f"no program {command[0]!r} to start {shape.ranks} ranks with; set resource launcher in the profile"
            ) from None
        answer = self._answer(READY, CANNOT_RUN)
        if answer is None:
            raise InputError(
                f"processes could not be started (exit status {self._job.wait()}); {log} ends with\n"
                f"{_last_words(log)}\n{CHECK_ADVICE}"
            )
        if answer.startswith(CANNOT_RUN):
            self.end()
            raise CannotRun(answer.removeprefix(CANNOT_RUN))

    def visit(self, *orders: VisitRequest) -> list[str]:
        """Carry out `orders` at the same time; return the problem of each order, an empty text if there is none.

        A visit without tables is a problem, unless it was killed for lack of memory: the cell is then recorded as
        failed. If processes died during several concurrent visits, it is unknown which visit was at fault. No problem
        is returned then, although tables are missing. Processes that have ended take no more orders.
        """
        self._read_before, self._oom_kills = self._log.stat().st_size, oom_kills()
        assert self._job.stdin
        with suppress(BrokenPipeError):
            self._job.stdin.write(json.dumps([order.to_json() for order in orders]) + "\n")
            self._job.stdin.flush()
        answer = self._answer(ENDED)
        if answer is not None:
            exit_codes = [int(code) for code in answer.removeprefix(ENDED).split()]
            return [self._explain(order, code) if code else "" for order, code in zip(orders, exit_codes, strict=True)]
        exit_code = self._job.wait()
        return [self._explain(orders[0], exit_code)] if len(orders) == 1 else [""] * len(orders)

    def _explain(self, order: VisitRequest, exit_code: int) -> str:
        """Return the problem of a visit that ended with `exit_code`; empty if the failure is recorded for the cell."""
        if exit_code == EXIT_FAILED and (order.folder / f"{RUNS.name}.parquet").exists():
            return ""
        end = VisitEnd(exit_code, self._new_output(), oom_kills() - self._oom_kills)
        if reason := end.out_of_memory:
            write_failure(order.cell, order.folder, datetime.now(UTC), reason)
            return ""
        self.died, self.killed = end.died, end.killed
        why = end.refusal or f"ended with exit status {exit_code}; {self._log} ends with\n{_last_words(self._log)}"
        return f"{order.cell.path}: visit {order.visit}: {why}"

    @property
    def ended(self) -> bool:
        return self._job.poll() is not None

    def end(self) -> None:
        """End the processes after the last visit; stop them if they have not ended after `PATIENCE` s."""
        assert self._job.stdin
        with suppress(BrokenPipeError):
            self._job.stdin.write("\n")  # an empty line means the end: some launchers keep the processes' input open
            self._job.stdin.close()
        try:
            self._job.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # finished visits are on disk: killing loses none
            self.stop()

    def stop(self) -> None:
        """Interrupt the processes during a visit: they save their rows and end, or are killed after `PATIENCE` s."""
        self._job.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._job.wait(PATIENCE)
        self._job.kill()
        self._job.wait()

    def _answer(self, *beginnings: str) -> str | None:
        """Return the processes' next output line that begins with one of `beginnings`; None at the output's end."""
        assert self._job.stdout
        return next((line.rstrip() for line in self._job.stdout if line.startswith(beginnings)), None)

    def _new_output(self) -> str:
        """Return the messages of the processes since the last order."""
        return self._log.read_bytes()[self._read_before :].decode(errors="replace")


def _start_command(launcher: str, shape: LaunchShape) -> list[str]:
    """Return the launcher's command as words, with the numbers of `shape` in place of its fields."""
    values = asdict(shape)
    check_template("resource launcher", launcher, values)
    return shlex.split(launcher.format(**values))


def end_with_parent() -> None:
    """Let Linux send SIGTERM to this process when its parent dies: else it would wait for orders forever."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _environment(threads: int) -> dict[str, str]:
    """Return the environment of the processes: `threads` threads in each, and this Python's programs first in PATH.

    If the user is root, as in a container, two more variables let Open MPI run.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    return {**os.environ, **root, **thread_variables(threads), "PATH": path}


def _last_words(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) or "(it is empty)"


# --- causes of the end of a visit's processes -----------------------------------------------------

_SIGNALS = {signal.strsignal(number): int(number) for number in signal.Signals}
"""Numbers of signals by the descriptions of the C library, which Slurm's srun prints."""
_KILLED_RANK = (
    r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on\s+signal (?P<signal>\d+)",
    rf"task (?P<rank>\d+): (?P<words>{'|'.join(map(re.escape, filter(None, _SIGNALS)))})",
)
"""Messages of Open MPI's mpirun and Slurm's srun about a rank that a signal ended."""
_EARLY_EXIT = re.compile(r"due to process rank (\d+) with PID \d+ on node \S+\s+exiting\s+improperly")
"""Message of mpirun about a rank that exited before MPI was finalised."""
_END_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that request a process to end."""
_OUT_OF_MEMORY = re.compile(r"oom[-_ ]kill|out[-_ ]of[-_ ]memory|exceeded (job|step) memory limit", re.IGNORECASE)
_NODE_LOSS = re.compile(r"node[-_ ]fail|launch failed|error: node \S+ .*(down|not responding)", re.IGNORECASE)
_CANCEL_WORDS = ("CANCELLED", "TIME LIMIT", "interrupted by SIG")


@dataclass(frozen=True)
class VisitEnd:
    """How the processes of one visit ended, and what their messages show about the cause."""

    exit_code: int
    text: str
    """Messages of the processes and their launcher during the visit."""
    oom_kills: int = 0
    """Number of processes that this node's kernel killed for lack of memory during the visit."""

    @property
    def died(self) -> str:
        """Description of an unexplained end: ``rank 3 was killed (signal 9)``, ``ended with exit status 1``.

        Empty if a node was lost, somebody ended the processes, or they reported invalid input.
        """
        if _NODE_LOSS.search(self.text) or self.refusal:
            return ""
        if rank_and_signal := self._first_rank:
            return f"rank {rank_and_signal[0]} {_signal_in_words(rank_and_signal[1])}"
        if early_exit := _EARLY_EXIT.search(self.text):
            return f"rank {early_exit[1]} exited early"
        number = self.exit_code - 128 if self.exit_code > 128 else -self.exit_code
        if any(words in self.text for words in _CANCEL_WORDS) or number in _END_REQUESTS:
            return ""
        return _signal_in_words(number) if number > 0 else f"ended with exit status {self.exit_code}"

    @property
    def killed(self) -> bool:
        """Whether signal 9 (SIGKILL) ended the processes without an earlier request to end."""
        return self.died.endswith(_signal_in_words(signal.SIGKILL))

    @property
    def out_of_memory(self) -> str:
        """Reason for the cell's record if the processes were killed for lack of memory; else empty."""
        if not self.killed:
            return ""
        found = _OUT_OF_MEMORY.search(self.text)
        evidence = f"the log says {found[0]!r}" if found else "the kernel says so" if self.oom_kills > 0 else ""
        return f"{self.died}: out of memory, {evidence}" if evidence else ""

    @property
    def refusal(self) -> str:
        """Last error message of processes that ended because of invalid input; empty for any other end."""
        errors = re.findall("^error: (.*)$", self.text, re.MULTILINE)
        return errors[-1] if errors and self.exit_code == EXIT_BAD_INPUT else ""

    @property
    def _first_rank(self) -> tuple[str, int] | None:
        """The rank that a signal ended first, and this signal; None if the launcher does not name a rank.

        The launcher interrupts all other ranks after that, and kills ranks that do not end in time. A rank that was
        cancelled or reports an interruption before it was killed is therefore not the first.
        """
        for found in chain(*(re.finditer(pattern, self.text) for pattern in _KILLED_RANK)):
            groups = found.groupdict()
            number = int(groups.get("signal") or _SIGNALS[groups.get("words")])
            was_interrupted = re.search(rf"interrupted by SIG\w+: the rows of rank {found['rank']} ", self.text)
            if number not in _END_REQUESTS and not was_interrupted:
                return (found["rank"], number) if "CANCELLED" not in self.text[: found.start()] else None
        return None


def _signal_in_words(number: int) -> str:
    """Return words for a process that a signal ended: ``was killed (signal 9)``."""
    words = "was killed" if number == signal.SIGKILL else f"crashed: {signal.strsignal(number) or 'unknown'}"
    return f"{words} (signal {number:d})"


def oom_kills(vmstat_file: Path = Path("/proc/vmstat")) -> int:
    """Return how many processes (of all users) this node's kernel has killed for lack of memory; 0 if unknown."""
    try:
        found = re.search(r"^oom_kill (\d+)$", vmstat_file.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
