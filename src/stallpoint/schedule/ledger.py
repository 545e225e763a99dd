"""Finished visits on disk, from which a cell's record is put together.

``<visits>/<cell>/<settings>~<round>/`` belongs to one measurement of a cell: ``settings`` is a digest of all that the
cell says, so that visits with other settings never mix; ``round`` counts how often it was measured anew. In it are
``visit~1``, ``visit~2``, ... (each written whole or not at all), later ``record``, the tables of all of them, and at
last ``done~<hardware>``. Nothing here is deleted before the record that holds it is written: a job that is killed,
preempted or out of time goes on where it was.
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
from stallpoint.records.tables import ENVIRONMENTS, RUNS, SLURM_JOBS, Table
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import kind_of

RECORD = "record"
Seconds: TypeAlias = tuple[float, float, float]
"""A low, a typical and a high duration."""


def round_folder(cell: Cell, folder: Path, *, again: bool, also: str = "") -> Path:
    """Where a cell's visits are below `folder` (that of all visits to the cell); `again`: it is measured anew.

    `also` is what else the cell is measured with (the file of the study's own network, how its data was generated):
    what was measured with another one does not count.

    A measurement that was not finished goes on, whether the cell is to be measured anew or not.
    """
    settings = hashlib.sha256(f"{cell.to_json()}{also}".encode()).hexdigest()[:8]
    names = os.listdir(folder) if folder.is_dir() else []  # a glob takes several times as long, for 10,000 cells
    rounds = [int(name.rpartition("~")[2]) for name in names if name.startswith(f"{settings}~")]
    latest = max(rounds, default=1)
    if again and Measurement(cell, folder / f"{settings}~{latest}").done.exists():
        latest += 1
    return folder / f"{settings}~{latest}"


def checkpoint_of(visit: Path) -> Path:
    """Where the checkpoint is of a measurement that has the folder `visit`."""
    return visit.parent / "checkpoint"


@dataclass(frozen=True)
class Measurement:
    """One measurement of a cell: its visits so far."""

    cell: Cell
    folder: Path

    @property
    def done(self) -> Path:
        """The file that says that the record is whole. Its hardware stands at the end of its name, where a wildcard in
        its place leaves Snakemake a beginning by which it finds one output among thousands."""
        return self.folder / f"done~{self.cell.hardware}"

    @property
    def recorded(self) -> bool:
        """Whether the record is there."""
        return (self.folder / RECORD).is_dir()

    @property
    def trial_folder(self) -> Path:
        """Where a visit goes that only finds out whether cells can be visited side by side."""
        return self.folder / "beside"

    @property
    def checkpoint(self) -> Path:
        """The file from which a visit that was interrupted goes on, where its kind of job writes one."""
        return checkpoint_of(self.visit_folder(1))

    def visit_folder(self, visit: int) -> Path:
        """Where the visit of this number goes."""
        return self.folder / f"visit~{visit}"

    @property
    def visits(self) -> list[int]:
        """Numbers of the visits there are, rising."""
        return sorted(int(path.name.rpartition("~")[2]) for path in self.folder.glob("visit~*"))

    def run(self, visit: int) -> dict[str, Any]:
        """The row of `tables.RUNS` that a visit left."""
        (row,) = parquet.read(RUNS, self.visit_folder(visit) / f"{RUNS.name}.parquet").to_pylist()
        return dict(row)

    def table(self, table: Table, visit: int) -> pa.Table:
        """A table of one visit, whose rows may be none."""
        file = self.visit_folder(visit) / f"{table.name}.parquet"
        return parquet.read(table, file) if file.exists() else table.schema.empty_table()

    def write_record(self, ended: str, planned: Seconds | None = None) -> None:
        """Put the visits together, those that failed left out unless all did; then they are not needed any more.

        `ended` says why there was no further visit, `planned` what all of them were expected to take.
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
                if good and (rows := self._together(table, good)).num_rows:
                    tables[table.name] = rows
            parquet.write_cell(self.folder / RECORD, tables)
        for visit in self.visits:
            shutil.rmtree(self.visit_folder(visit))
        shutil.rmtree(self.trial_folder, ignore_errors=True)
        self.checkpoint.unlink(missing_ok=True)

    def finish(self) -> None:
        """Say that the record is whole."""
        self.done.touch()

    def _together(self, table: Table, visits: Sequence[int]) -> pa.Table:
        parts = [self.table(table, visit) for visit in visits]
        if table is ENVIRONMENTS:  # the processes are the same in all of them, as far as it says
            return parts[0]
        if table is SLURM_JOBS:
            rows = {row["slurm_job_id"]: row for part in parts for row in part.to_pylist()}
            return pa.Table.from_pylist(list(rows.values()), table.schema)
        return pa.concat_tables(parts)
