"""Progress of a study while jobs run, and after them: from visits and records of cells, and from logs of jobs.

A measuring job runs as long as it holds its file (`one_job.hold`). The state of a job in Slurm is read from the queue.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS
from stallpoint.schedule import one_job
from stallpoint.schedule.ledger import RECORD
from stallpoint.schedule.requested import block_of, measurement
from stallpoint.slurm import orphaned_jobs, slurm_queue
from stallpoint.study.cells import Cell
from stallpoint.text import in_words

STATES = ("done", "failed", "started", "to do")
SILENT_SECONDS = 60.0
"""Age of a log from which a report mentions it, s."""


@dataclass(frozen=True)
class State:
    """State of one cell: done or failed (it has a record), started (it has visits), or to do."""

    cell: Cell
    state: str
    visits: int = 0
    """Number of visits so far; for a cell with a record, the number that the study asks for."""
    duration: float = 0.0
    """Total duration of all visits, s."""


def states(cells: Iterable[Cell], results: Path, inputs: Callable[[Cell], str] = lambda _: "") -> list[State]:
    """Return the state of each cell by the files in `results`; `inputs` is the function from `measured_with`."""
    return [_state(cell, results, inputs(cell)) for cell in cells]


def _state(cell: Cell, results: Path, inputs: str) -> State:
    found = measurement(cell, results / "visits", again=False, inputs=inputs)
    record = found.folder / RECORD if found.is_recorded else results / "raw" / cell.path
    if found.is_recorded or (not found.folder.parent.exists() and record.exists()):  # imported cells have only a record
        (run,) = read(RUNS, record / f"{RUNS.name}.parquet").to_pylist()
        return State(cell, "failed" if run["status"] == "failed" else "done", cell.visits, run["duration"])
    durations = [float(str(found.run(visit)["duration"])) for visit in found.visits]
    return State(cell, "started" if durations else "to do", len(durations), sum(durations))


def summary(
    cell_states: list[State], logs: Path, schedule: Path, queue: str | None = None, nested: Collection[str] = ()
) -> Iterator[str]:
    """Yield lines for the terminal: counts of cells by kind and state, the state of each block, the remaining work.

    `logs` is the folder of the jobs' logs, `schedule` the folder of their agendas. `queue` is the output of
    `slurm_queue.command`; None without Slurm. `nested` has hardware entries as in `requested.block_of`.
    """
    for kind in dict.fromkeys(state.cell.kind for state in cell_states):
        counts = Counter(state.state for state in cell_states if state.cell.kind == kind)
        yield f"{kind}: " + ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name])
    unfinished = [state for state in cell_states if state.state in ("started", "to do")]
    runs = {run.name for run in orphaned_jobs.known(schedule / orphaned_jobs.FILE)}
    jobs = {job.rule: job for job in slurm_queue.jobs_of_runs(queue or "") if job.run in runs}
    for block in dict.fromkeys(block_of(state.cell, nested) for state in unfinished):
        holder = one_job.holder(one_job.file_of(schedule / f"{block}.json"))
        words = list(_block_state(logs / f"{block}.log", jobs.get(f"measure_{block}"), holder, in_slurm=bool(runs)))
        if words:
            yield f"  {block}: {'; '.join(words)}"
    yield _remaining_work(unfinished, _median_durations(cell_states))


def _block_state(log: Path, job: slurm_queue.QueuedJob | None, holder: str, *, in_slurm: bool) -> Iterator[str]:
    """Yield words for the state of a block's job, and the last message in its log."""
    if job:
        yield job.words
    elif holder:
        yield f"running, {holder}"
    elif log.exists():
        yield "ended"
    elif in_slurm:
        yield "no job is in Slurm's queue"
    if log.exists():
        is_pending = job is not None and job.state == "PENDING"
        yield f"{'before that, ' if is_pending else ''}{_last_words(log)}"


def _last_words(log: Path) -> str:
    """Return the last progress message or error in a log, and the log's age if that is over `SILENT_SECONDS`."""
    all_lines = log.read_text(errors="replace").splitlines()
    lines = [line for line in all_lines if re.search(r"^visit \d+: | \d+/\d+ after |^error: ", line)]
    silent_seconds = time.time() - log.stat().st_mtime
    words = lines[-1] if lines else "no visit yet"
    return words + (f" (nothing new for {in_words(silent_seconds)})" if silent_seconds > SILENT_SECONDS else "")


def _remaining_work(unfinished: list[State], typical: Mapping[str, float]) -> str:
    """Return words for the remaining visits and their time; `typical` has the median duration of a visit by kind."""
    if not unfinished:
        return "every cell was measured"
    counts = Counter({state.cell.kind: 0 for state in unfinished})
    for state in unfinished:
        counts[state.cell.kind] += max(0, state.cell.visits - state.visits)
    words = f"{len(unfinished)} cell{'' if len(unfinished) == 1 else 's'} and {counts.total()} visits to go"
    if not typical:
        return f"{words}; how long they take is known after the first visit"
    seconds = sum(count * typical.get(kind, statistics.median(typical.values())) for kind, count in counts.items())
    return f"{words}: about {in_words(seconds)}, and what precision asks for"


def _median_durations(cell_states: list[State]) -> Mapping[str, float]:
    """Return the median duration of a visit, s, by kind of cell."""
    durations: dict[str, list[float]] = {}
    for state in cell_states:
        if state.visits and state.state != "failed":
            durations.setdefault(state.cell.kind, []).append(state.duration / state.visits)
    return {kind: statistics.median(values) for kind, values in durations.items()}
