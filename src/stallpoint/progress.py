"""How far a study is: what records and logs of its cells say, also while jobs run."""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stallpoint.cells import Cell
from stallpoint.durations import in_words
from stallpoint.parquet import read
from stallpoint.records import RUNS

STATES = ("done", "failed", "started", "left")
SILENT = 60.0
"""A started job that has said nothing for this long is named as such, s: it may have been ended."""


@dataclass(frozen=True)
class State:
    """One cell: done or failed (then with its ``duration``, s), started (with its log's last words), or left."""

    cell: Cell
    state: str
    duration: float = 0.0
    words: str = ""


def states(cells: Iterable[Cell], raw: Path, logs: Path) -> list[State]:
    """The state of each cell, from its records below `raw` and its log below `logs`."""
    return [_state(cell, raw / cell.path / f"{RUNS.name}.parquet", logs / f"{cell.path}.log") for cell in cells]


def _state(cell: Cell, record: Path, log: Path) -> State:
    if record.exists():
        run = read(RUNS, record).to_pylist()[0]
        return State(cell, "failed" if run["status"] == "failed" else "done", run["duration"])
    if log.exists():
        return State(cell, "started", words=_last_words(log))
    return State(cell, "left")


def _last_words(log: Path) -> str:
    """The last line that says how far the job is or what was wrong, and when it is old, its age."""
    said = log.read_text(errors="replace").splitlines()
    lines = [line for line in said if re.search(r" \d+/\d+ after |^error: ", line)]
    silent = time.time() - log.stat().st_mtime
    words = lines[-1] if lines else "no step done yet"
    return words + (f" (nothing new for {in_words(silent)})" if silent > SILENT else "")


def summary(found: list[State]) -> Iterator[str]:
    """How many cells of each kind are in which state, what the started ones say, and how much work is left."""
    for kind in dict.fromkeys(state.cell.kind for state in found):
        counts = Counter(state.state for state in found if state.cell.kind == kind)
        yield f"{kind}: " + ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name])
    for state in found:
        if state.state == "started":
            yield f"  {state.cell.path}: {state.words}"
    yield _work_left(found)


def _work_left(found: list[State]) -> str:
    """The time of the cells left, each as long as its kind's median so far."""
    left = [state for state in found if state.state in ("started", "left")]
    if not left:
        return "every cell was measured"
    typical = _typical(found)
    if not typical:
        return f"{_cells(len(left))} to go; how long they take is not known before the first is done"
    seconds = sum(typical.get(state.cell.kind, statistics.median(typical.values())) for state in left)
    return f"{_cells(len(left))} to go: about {in_words(seconds)} if one runs at a time"


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def _typical(found: list[State]) -> Mapping[str, float]:
    durations: dict[str, list[float]] = {}
    for state in found:
        if state.state == "done":
            durations.setdefault(state.cell.kind, []).append(state.duration)
    return {kind: statistics.median(values) for kind, values in durations.items()}
