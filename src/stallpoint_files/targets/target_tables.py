"""Tables of trainings to a target: workers, mini-batch, and the samples, steps or time to the target.

Columns are recognised by their headings (``samples_to_target``, ``steps_to_target``, ``epochs_to_target``,
``minutes_to_target``, ``time to train``, ``TTT``), other columns as in `counted_table`. A row's missing time to the
target is computed from its samples and rate, or its steps and iteration time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.tables.counted_table import CountedTable, left_out
from stallpoint_files.tables.grids import tables
from stallpoint_files.tables.text_columns import TextColumn
from stallpoint_files.texts.headings import BRACKETS, COUNTS, ColumnKind, kind_of
from stallpoint_files.texts.numbers import MISSING

_TO = r"_(to|until|till)_(reach_|the_)*(target|train|solution|accuracy|quality|convergence|converge|stop)(?![a-z]).*"
_LATENCY = re.compile(r"(avg\.?|average)?\s*(latency|result|time)\s*[\[(]?\s*(in )?min(ute)?s?[\])]?", re.IGNORECASE)
"""Headings of minutes in tables published by MLCommons."""
_TIME = r"(days?|minutes?|mins?|hours?|h|seconds?|secs?|s|(wall)?_?(clock_)?time)"
_HEADINGS = {
    "samples": rf"(training_)?(samples|examples|sequences|images|tokens){_TO}",
    "steps": rf"(training_)?(steps|iterations|updates){_TO}",
    "epochs": rf"epochs{_TO}",
    "time": rf"{_TIME}{_TO}|(ttt|tta|ttc)(?![a-z]).*",
}
_ALONE = re.compile(r"(run_?)?(minutes?|mins?|hours?|time_min(utes)?)")
"""Headings of a run's time, if the table also has a mini-batch or the samples to the target."""
_BATCHES = ("global_batch", "batch", "batch_per_worker")
_SYSTEM = re.compile(r"system|cluster|name", re.IGNORECASE)
"""Headings of columns that may name the machine of each count."""
_VALUES = (*_HEADINGS, "alone", "rate", "iteration", "epoch")
_UNIT = re.compile(r"(?<![a-z])(days?|m(in(ute)?s?)?|h(rs?|ours?)?|s(ec(ond)?s?)?|ms)(?![a-z])")
DIFFERENCE = 0.05
"""Minimum fraction of the logged time that samples at the logged rate leave unexplained, to be reported."""


@dataclass(frozen=True)
class TargetRun:
    """A training until its target."""

    series: str
    workers: int
    batch: float | None
    """Global mini-batch, samples."""
    needed: float | None
    """Samples to the target, or epochs if the table has no samples."""
    seconds: float | None
    """Time to the target, s."""
    working_seconds: float | None = None
    """Time to the target by the logged rate or iteration time, s: without evaluation and start-up."""
    per_node: float | None = None
    line: int = 0
    task: str = ""
    """Benchmark of MLPerf Training by its name there."""


@dataclass(frozen=True)
class TargetTable:
    """Trainings to a target from one table."""

    runs: Sequence[TargetRun]
    counted: str = "workers"
    needed: str = "samples"
    notes: Sequence[str] = ()
    setup: str = ""
    """Text of the file about model, precision and hardware."""


def recognised(document: Document) -> bool:
    """Return whether the text has headings of worker counts and of the samples, steps or time to a target."""
    return bool(tables(document, _is_head))


def _kind(heading: str) -> str:
    if _LATENCY.fullmatch(heading.strip()):
        return "time"
    name = re.sub(r"[\s-]+", "_", BRACKETS.sub("", heading).strip(" *`_").lower())
    return next((kind for kind, pattern in _HEADINGS.items() if re.fullmatch(pattern, name)), "") or (
        "alone" if _ALONE.fullmatch(name) else ""
    )


def _is_head(cells: Sequence[str]) -> bool:
    kinds = {_kind(cell) or kind_of(cell) for cell in cells}
    needed = bool(kinds & {"samples", "steps", "epochs"})
    timed = bool(kinds & {"time", "alone", "rate", "iteration"}) or {"epochs", "epoch"} <= kinds
    batched = bool(kinds & set(_BATCHES))
    with_time = bool(kinds & {"time", "alone"}) and batched
    target = any(re.search(r"target|tt[ta]|latency", cell, re.IGNORECASE) for cell in cells if _kind(cell) == "time")
    return bool(kinds & {"workers", "nodes"}) and ((needed and timed) or with_time or target)


def read(document: Document) -> list[TargetTable]:
    """Return the runs in each table; `InputError` names the wrong line."""
    if grids := tables(document, _is_head):
        return [_Targets(document, grid, grid.above if len(grids) > 1 else "").runs() for grid in grids]
    raise InputError(f"{document.path}, line 1: no heading of worker counts and of samples or minutes to a target")


class _Targets(CountedTable):
    """One table while it is read."""

    @override
    def kind_of(self, column: TextColumn) -> str:
        return _kind(column.heading) or super().kind_of(column)

    @override
    def value_columns(self) -> list[TextColumn]:
        return self.of(*_VALUES)

    @override
    def setting_columns(self) -> list[TextColumn]:
        """Return the columns that distinguish series: not the mini-batch, which is analysed itself, nor columns whose
        every word belongs to one count, such as names of systems."""
        counts = self.first(*COUNTS)
        found = []
        for column in super().setting_columns():
            on: dict[str, set[str]] = {}
            for cell, count in zip(column.cells, counts.cells if counts else (), strict=False):
                on.setdefault(cell, set()).add(count)
            named = column.kind != ColumnKind.SETTING or _SYSTEM.search(column.heading)
            names = named and len(on) > 1 and max(map(len, on.values())) == 1
            if column.kind not in _BATCHES and not names:
                found.append(column)
        return found

    def runs(self) -> TargetTable:
        """Return the table's runs."""
        needed = self.first("samples", "steps", "epochs")
        if self._bare_batch:
            self.notes.append(f"{self.of('batch')[0].heading} is taken for the mini-batch of all workers")
        time = self.first("time", "alone")
        if time and not _UNIT.search(time.heading.lower().replace("_", " ")):
            self.notes.append(f"{time.heading} names no unit and is taken for minutes")
        rows = [run for row in range(len(self.lines)) if (run := self._run(row, needed.kind if needed else "", time))]
        if not any(row.seconds for row in rows):
            raise self.document.error(self.line, "no row has a time to the target, or samples and a rate")
        unit = "samples" if not needed or (needed.kind == "steps" and self.of(*_BATCHES)) else needed.kind
        return TargetTable(rows, self.counted, unit, (*self.notes, *left_out(self.document, self.left)))

    @property
    def _bare_batch(self) -> str:
        """Return ``batch`` if this is the table's only kind of mini-batch column; else an empty text."""
        return "batch" if self.of("batch") and not self.of("global_batch", "batch_per_worker") else ""

    def _run(self, row: int, needed: str, time: TextColumn | None) -> TargetRun | None:
        if not (counted := self.workers(row)):
            return None
        workers, per_node = counted
        each = self.number(row, "batch_per_worker")
        batch = self.number(row, self._bare_batch or "global_batch") or (each and each * workers)
        amount = self.number(row, needed) if needed else None
        steps = amount if needed == "steps" else None
        if steps and batch:
            amount = steps * batch
        seconds = self._seconds(row, time)
        working = self._working_seconds(row, needed, amount, batch, steps)
        return TargetRun(
            self.series(row) or self.name, workers, batch, amount, seconds or working, seconds and working, per_node,
            self.lines[row], self._task(row),
        )  # fmt: skip

    def _task(self, row: int) -> str:
        """Return the row's benchmark of MLPerf, if a column names it."""
        cells = (column.cells for column in self.columns if column.heading.lower() == "benchmark")
        return re.sub(r"[\W_]+", "_", next((of[row].lower() for of in cells), ""))

    def _seconds(self, row: int, time: TextColumn | None) -> float | None:
        """Return the time to the target, s."""
        if time is None or MISSING.fullmatch(text := time.cells[row]):
            return None
        seconds = self.amount(row, time, text, ColumnKind.EPOCH)  # the time to a target is that of a complete run
        words = f"{time.heading} {text}".lower().replace("_", " ")
        unit = _UNIT.search(words) or re.search(r"\d(h|m|s|ms|min)(?![a-z])|:", words)
        return seconds if unit or seconds is None else 60 * seconds

    def _working_seconds(
        self, row: int, needed: str, amount: float | None, batch: float | None, steps: float | None
    ) -> float | None:
        """Return the time of the row's samples at its rate, or of its steps at its iteration time, s."""
        for kind in ("rate", "iteration", "epoch"):
            column = self.first(kind)
            if column and (amount or steps):
                value = self.amount(row, column, column.cells[row])
                if value and kind == "rate" and needed == "samples":
                    return (amount or 0) / value
                if value and kind == "epoch" and needed == "epochs":
                    return value * (amount or 0)
                if value and kind == "iteration" and (steps or (needed == "samples" and batch)):
                    return value * (steps or (amount or 0) / (batch or 1))
        return None


def unexplained(run: TargetRun) -> float | None:
    """Return the fraction of the time to the target that samples at the logged rate do not explain, if it is large."""
    if not run.seconds or not run.working_seconds:
        return None
    rest = 1 - run.working_seconds / run.seconds
    return rest if abs(rest) > DIFFERENCE else None
