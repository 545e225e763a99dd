"""Finished visits on disk, from which a cell's record is assembled.

The folder ``<visits>/<cell>/<settings>~<round>/`` belongs to one measurement of a cell: ``settings`` is a digest of the
cell's settings, so that visits with other settings never mix; ``round`` counts repeated measurements. The folder holds
``visit~1``, ``visit~2``, ... (each complete or absent), later ``record``, the tables of all visits, and finally
``done~<hardware>``. No visit is deleted before the record that contains it is written: the next job continues from the
visits of a job that was killed, preempted or ran out of time. ``<raw>/<cell>`` has the files of the latest ``record``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from stallpoint.records import parquet
from stallpoint.records.atomic import atomic
from stallpoint.records.tables import ENVIRONMENTS, RUNS, SLURM_JOBS, Table
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import kind_of

RECORD = "record"
Seconds: TypeAlias = tuple[float, float, float]
"""A low, a typical and a high duration."""


def round_folder(cell: Cell, folder: Path, *, again: bool, inputs: str = "") -> Path:
    """Return the folder of the cell's current measurement, in `folder`, which holds all measurements of the cell.

    With `again`, a finished measurement is followed by a new one; an unfinished measurement is always continued.
    `inputs` identifies further inputs of the measurement (the file of the study's own network, how its data was
    generated): visits with other inputs do not count.
    """
    settings = hashlib.sha256(f"{cell.to_json()}{inputs}".encode()).hexdigest()[:8]
    names = os.listdir(folder) if folder.is_dir() else []  # a glob would take several times as long for 10,000 cells
    rounds = [int(name.rpartition("~")[2]) for name in names if name.startswith(f"{settings}~")]
    latest = max(rounds, default=1)
    if again and Measurement(cell, folder / f"{settings}~{latest}").done.exists():
        latest += 1
    return folder / f"{settings}~{latest}"


def checkpoint_of(visit: Path) -> Path:
    """Return the path of the checkpoint of the measurement that has the folder `visit`."""
    return visit.parent / "checkpoint"


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # some file systems (BeeGFS) have no links between folders
        shutil.copy2(source, target)


@dataclass(frozen=True)
class Measurement:
    """One measurement of a cell: the folder of its visits, and of the record made of them."""

    cell: Cell
    folder: Path

    @property
    def done(self) -> Path:
        """File that marks the record as complete. Its name has the hardware, Snakemake's wildcard, at the end:
        Snakemake finds one of thousands of outputs by the constant prefix before the wildcard."""
        return self.folder / f"done~{self.cell.hardware}"

    @property
    def recorded(self) -> bool:
        return (self.folder / RECORD).is_dir()

    @property
    def raw(self) -> Path:
        """Folder of the raw records of the cell's latest measurement."""
        visits = self.folder.parents[1 + self.cell.path.count("/")]
        return visits.with_name("raw") / self.cell.path

    @property
    def placed(self) -> bool:
        """Whether the cell's raw records are the record of this measurement."""
        folders = self.folder / RECORD, self.raw
        try:
            record, raw = ((folder / f"{RUNS.name}.parquet").stat() for folder in folders)
            tables, raw_tables = (set(os.listdir(folder)) for folder in folders)
        except OSError:
            return False
        return (record.st_size, record.st_mtime_ns) == (raw.st_size, raw.st_mtime_ns) and tables <= raw_tables

    @property
    def trial_folder(self) -> Path:
        """Folder of the trial visit that tests whether cells can be visited side by side."""
        return self.folder / "trial"

    @property
    def checkpoint(self) -> Path:
        """File from which an interrupted visit continues, if the cell's kind of job writes checkpoints."""
        return checkpoint_of(self.visit_folder(1))

    def visit_folder(self, visit: int) -> Path:
        return self.folder / f"visit~{visit}"

    @property
    def visits(self) -> list[int]:
        """Numbers of the finished visits, rising."""
        return sorted(int(path.name.rpartition("~")[2]) for path in self.folder.glob("visit~*"))

    def run(self, visit: int) -> dict[str, Any]:
        """Return a visit's row of `tables.RUNS`."""
        (row,) = parquet.read(RUNS, self.visit_folder(visit) / f"{RUNS.name}.parquet").to_pylist()
        return dict(row)

    def table(self, table: Table, visit: int) -> pa.Table:
        """Return the rows of `table` from one visit; none if the visit has no such table."""
        file = self.visit_folder(visit) / f"{table.name}.parquet"
        return parquet.read(table, file) if file.exists() else table.schema.empty_table()

    def write_record(self, ended: str, planned: Seconds | None = None) -> None:
        """Assemble the record from all visits that did not fail (from the last, if all failed), and delete the visits.

        `ended` is the reason why no more visits follow, `planned` the expected duration of all visits, s.
        """
        if not self.recorded:
            runs = {visit: self.run(visit) for visit in self.visits}
            good = [visit for visit, run in runs.items() if run["status"] == "ok"]
            chosen = good or list(runs)[-1:]
            first = runs[chosen[0]]
            expected = zip(("planned_low", "planned", "planned_high"), planned or [None] * 3, strict=True)
            duration = sum(runs[visit]["duration"] for visit in chosen)
            row = {**first, "duration": duration, **dict(expected), "ended": ended if good else ""}
            tables: dict[str, parquet.Rows] = {RUNS.name: [row]}
            for table in kind_of(self.cell).tables[1:]:
                if good and (rows := self._joined(table, good)).num_rows:
                    tables[table.name] = rows
            parquet.write_cell(self.folder / RECORD, tables)
        for visit in self.visits:
            shutil.rmtree(self.visit_folder(visit))
        shutil.rmtree(self.trial_folder, ignore_errors=True)
        self.checkpoint.unlink(missing_ok=True)

    def finish(self) -> None:
        """Mark the record as complete, and link or copy it as the cell's raw records."""
        self.done.touch()
        if not self.placed:
            with atomic(self.raw) as scratch:
                shutil.copytree(self.folder / RECORD, scratch, copy_function=_link)
                os.utime(scratch)  # the copied folder has the time of the record, but its content is new

    def _joined(self, table: Table, visits: Sequence[int]) -> pa.Table:
        parts = [self.table(table, visit) for visit in visits]
        if table is ENVIRONMENTS:  # all visits have the same rows
            return parts[0]
        if table is SLURM_JOBS:
            rows = {row["slurm_job_id"]: row for part in parts for row in part.to_pylist()}
            return pa.Table.from_pylist(list(rows.values()), table.schema)
        return pa.concat_tables(parts)
