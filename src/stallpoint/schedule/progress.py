"""How far a study is: what visits and records of its cells and the logs of their turns say, also while jobs run.

Whether turns go on is known from the file that their job holds (`turns.alone`), and what Slurm does with the job from
Slurm's queue, if there is one.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS
from stallpoint.schedule import one_job
from stallpoint.schedule.ledger import RECORD
from stallpoint.schedule.requested import block_of, measurement
from stallpoint.slurm import left_jobs, slurm_queue
from stallpoint.study.cells import Cell
from stallpoint.text import in_words

STATES = ("done", "failed", "started", "left")
SILENT = 60.0
"""Turns of which nothing was heard for this long are named as such, s."""


@dataclass(frozen=True)
class State:
    """One cell: done or failed (it has a record), started (it was visited), or left."""

    cell: Cell
    state: str
    visits: int = 0
    """Visits so far; of a record, those that the cell has at least."""
    duration: float = 0.0
    """Of all of them, s."""


def states(cells: Iterable[Cell], results: Path, also: Callable[[Cell], str] = lambda _: "") -> list[State]:
    """The state of each cell of the study with these results; `also` as `targets.measured_with` gives it."""
    return [_state(cell, results, also(cell)) for cell in cells]


def _state(cell: Cell, results: Path, also: str) -> State:
    found = measurement(cell, results / "visits", again=False, also=also)
    record = found.folder / RECORD if found.recorded else results / "raw" / cell.path
    if found.recorded or (not found.folder.parent.exists() and record.exists()):  # what is imported has no visits
        (run,) = read(RUNS, record / f"{RUNS.name}.parquet").to_pylist()
        return State(cell, "failed" if run["status"] == "failed" else "done", cell.visits, run["duration"])
    durations = [float(str(found.run(visit)["duration"])) for visit in found.visits]
    return State(cell, "started" if durations else "left", len(durations), sum(durations))


def summary(found: list[State], logs: Path, turns: Path, queue: str | None = None) -> Iterator[str]:
    """How many cells of each kind are in which state, how it is with the turns of those left, and how much is left.

    `logs` is the folder of the logs of the turns, `turns` that of what belongs to them in the results; `queue` is an
    answer to `slurm_queue.command`, where there is Slurm.
    """
    for kind in dict.fromkeys(state.cell.kind for state in found):
        counts = Counter(state.state for state in found if state.cell.kind == kind)
        yield f"{kind}: " + ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name])
    left = [state for state in found if state.state in ("started", "left")]
    runs = {run.name for run in left_jobs.known(turns / left_jobs.FILE)}
    jobs = {job.rule: job for job in slurm_queue.jobs_of_runs(queue or "") if job.run in runs}
    for block in dict.fromkeys(block_of(state.cell) for state in left):
        runs_now = one_job.holder(one_job.file_of(turns / f"{block}.json"))
        words = list(_of_block(logs / f"{block}.log", jobs.get(f"take_turns_{block}"), runs_now, in_slurm=bool(runs)))
        if words:
            yield f"  {block}: {'; '.join(words)}"
    yield _work_left(left, _typical(found))


def _of_block(log: Path, job: slurm_queue.Job | None, runs_now: str, *, in_slurm: bool) -> Iterator[str]:
    """How it is with the turns of a block, and what their log says last."""
    if job:
        yield job.words
    elif runs_now:
        yield f"running, {runs_now}"
    elif log.exists():
        yield "ended"
    elif in_slurm:
        yield "no job is in Slurm's queue"
    if log.exists():
        waits = job is not None and job.state == "PENDING"
        yield f"{'before that, ' if waits else ''}{_last_words(log)}"


def _last_words(log: Path) -> str:
    """The last line that says how far the turns are or what was wrong, and when it is old, its age."""
    said = log.read_text(errors="replace").splitlines()
    lines = [line for line in said if re.search(r"^visit \d+: | \d+/\d+ after |^error: ", line)]
    silent = time.time() - log.stat().st_mtime
    words = lines[-1] if lines else "no visit yet"
    return words + (f" (nothing new for {in_words(silent)})" if silent > SILENT else "")


def _work_left(left: list[State], typical: Mapping[str, float]) -> str:
    """The time of the visits left, each as long as its kind's median so far."""
    if not left:
        return "every cell was measured"
    counts = Counter({state.cell.kind: 0 for state in left})
    for state in left:
        counts[state.cell.kind] += max(0, state.cell.visits - state.visits)
    words = f"{len(left)} cell{'' if len(left) == 1 else 's'} and {counts.total()} visits to go"
    if not typical:
        return f"{words}; how long they take is not known before the first"
    seconds = sum(count * typical.get(kind, statistics.median(typical.values())) for kind, count in counts.items())
    return f"{words}: about {in_words(seconds)}, and what precision asks for"


def _typical(found: list[State]) -> Mapping[str, float]:
    """The median duration of a visit, by kind."""
    durations: dict[str, list[float]] = {}
    for state in found:
        if state.visits and state.state != "failed":
            durations.setdefault(state.cell.kind, []).append(state.duration / state.visits)
    return {kind: statistics.median(values) for kind, values in durations.items()}
