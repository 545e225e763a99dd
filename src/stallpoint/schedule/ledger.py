"""The ledger: folders with a cell's finished visits, from which the record of the cell is assembled.

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
    """Return the folder of a cell's current measurement; `folder` holds all measurements of the cell.

    An unfinished measurement is always continued. With `again`, a finished measurement is followed by a new one.
    `inputs` is a text that identifies further inputs, such as the code of the study's own network: visits with other
    inputs do not count.
    """
    settings = hashlib.sha256(f"{cell.to_json()}{inputs}".encode()).hexdigest()[:8]
    names = os.listdir(folder) if folder.is_dir() else []  # for 10,000 cells, this is several times as fast as a glob
    rounds = [int(name.rpartition("~")[2]) for name in names if name.startswith(f"{settings}~")]
    latest_round = max(rounds, default=1)
    if again and Measurement(cell, folder / f"{settings}~{latest_round}").done.exists():
        latest_round += 1
    return folder / f"{settings}~{latest_round}"


def checkpoint_of(visit: Path) -> Path:
    """Return the path of the checkpoint, which is next to the folder `visit` of the measurement."""
    return visit.parent / "checkpoint"


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # hard links between folders fail on some file systems, such as BeeGFS
        shutil.copy2(source, target)


@dataclass(frozen=True)
class Measurement:
    """One measurement of a cell, in a folder with its visits and the record that is made of them."""

    cell: Cell
    folder: Path

    @property
    def done(self) -> Path:
        """File that marks the record as complete. Its name ends with the hardware, a wildcard of Snakemake: a file is
        found quickly among thousands of outputs if its name begins with constant text."""
        return self.folder / f"done~{self.cell.hardware}"

    @property
    def is_recorded(self) -> bool:
        return (self.folder / RECORD).is_dir()

    @property
    def raw(self) -> Path:
        """Folder with the raw records of the cell: those of its latest measurement."""
        visits = self.folder.parents[1 + self.cell.path.count("/")]
        return visits.with_name("raw") / self.cell.path

    @property
    def placed(self) -> bool:
        """Whether the cell's raw records are those of this measurement."""
        folders = self.folder / RECORD, self.raw
        try:
            record, raw = ((folder / f"{RUNS.name}.parquet").stat() for folder in folders)
            tables, raw_tables = (set(os.listdir(folder)) for folder in folders)
        except OSError:
            return False
        return (record.st_size, record.st_mtime_ns) == (raw.st_size, raw.st_mtime_ns) and tables <= raw_tables

    @property
    def trial_folder(self) -> Path:
        """Folder of a trial visit: a test whether cells can be visited side by side."""
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
        """Return the row of `tables.RUNS` from one visit."""
        (row,) = parquet.read(RUNS, self.visit_folder(visit) / f"{RUNS.name}.parquet").to_pylist()
        return dict(row)

    def table(self, table: Table, visit: int) -> pa.Table:
        """Return the rows of `table` from one visit; an empty table if the visit did not write it."""
        file = self.visit_folder(visit) / f"{table.name}.parquet"
        return parquet.read(table, file) if file.exists() else table.schema.empty_table()

    def write_record(self, ended: str, planned: Seconds | None = None) -> None:
        """Assemble the record from all visits that did not fail, or from the last if all visits failed; delete visits.

        `ended` is the reason why the cell gets no more visits, `planned` the expected duration of all its visits, s.
        """
        if not self.is_recorded:
            runs = {visit: self.run(visit) for visit in self.visits}
            good_visits = [visit for visit, run in runs.items() if run["status"] == "ok"]
            chosen_visits = good_visits or list(runs)[-1:]
            first_run = runs[chosen_visits[0]]
            expected = zip(("planned_low", "planned", "planned_high"), planned or [None] * 3, strict=True)
            duration = sum(runs[visit]["duration"] for visit in chosen_visits)
            row = {**first_run, "duration": duration, **dict(expected), "ended": ended if good_visits else ""}
            tables: dict[str, parquet.Rows] = {RUNS.name: [row]}
            for table in kind_of(self.cell).tables[1:]:
                if good_visits and (rows := self._joined(table, good_visits)).num_rows:
                    tables[table.name] = rows
            parquet.write_cell(self.folder / RECORD, tables)
        for visit in self.visits:
            shutil.rmtree(self.visit_folder(visit))
        shutil.rmtree(self.trial_folder, ignore_errors=True)
        self.checkpoint.unlink(missing_ok=True)

    def finish(self) -> None:
        """Mark the record as complete, and link (or copy) its files to the folder of the cell's raw records."""
        self.done.touch()
        if not self.placed:
            with atomic(self.raw) as scratch:
                shutil.copytree(self.folder / RECORD, scratch, copy_function=_link_file)
                os.utime(scratch)  # `copytree` gives the new folder the old time of the record

    def _joined(self, table: Table, visits: Sequence[int]) -> pa.Table:
        parts = [self.table(table, visit) for visit in visits]
        if table is ENVIRONMENTS:  # every visit has the same rows of this table
            return parts[0]
        if table is SLURM_JOBS:
            rows = {row["slurm_job_id"]: row for part in parts for row in part.to_pylist()}
            return pa.Table.from_pylist(list(rows.values()), table.schema)
        return pa.concat_tables(parts)
