"""The files that a probe writes: ``FOLDER/rank~0/<start>/iterations~000000.parquet``, ... and ``probes.parquet``.

Each file has the rows of some iterations and is written atomically, so that records of a killed script survive. Tables
are those of raw records without the columns that a study adds (cell, axes, visit).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from stallpoint.errors import InputError
from stallpoint.records import parquet
from stallpoint.records.tables import (
    CELL,
    ITERATIONS,
    LAYERS,
    PEAK_MEMORY,
    PROBES,
    TRAIN_AXES,
    VISIT,
    Table,
    columns,
)

OF_STUDY = {column.name for column in (CELL, *TRAIN_AXES, VISIT)}
"""Columns of raw records that a script cannot know."""
FOLDER = "STALLPOINT_PROBE"
"""Environment variable that names the folder of the records, unless the script names it."""
DEFAULT = "probe-records"
START = "%Y%m%dT%H%M%S.%f"
"""Format of a recording's start (UTC), which names its folder."""
STATES = Table(
    "states",
    "states: one row each time that a rank writes its records",
    tuple(
        columns("""
            rank          | int  |    | rank
            iteration     | int  |    | the last iteration that was written
            samples       | real |    | samples of the rank in an iteration since the row before; null where no
                DataLoader gives them
            backend       | text |    | what carries collectives, such as gloo or nccl; empty without a process group
            frequency     | real | Hz | mean clock of its CPUs; null where unknown
            gpu_clock     | real | Hz | clock of the GPU's multiprocessors; null without NVML
            temperature   | real |    | hottest sensor of the GPU, or else of the node, in degrees Celsius; null where
                unknown
            memory        | int  | B  | resident memory of the process
            device_memory | int  | B  | memory that PyTorch has allocated on the GPU; null without one
        """)
    ),
)
"""Table of a rank's clock, temperature and memory, which may drift over a run of hours."""


def script_table(table: Table) -> Table:
    """Return the table that a probe writes: a table of raw records without the columns `OF_STUDY`."""
    own = tuple(column for column in table.columns if column.name not in OF_STUDY)
    return Table(f"probe_{table.name}", table.description, own)


_IN_PARTS = (ITERATIONS, LAYERS, STATES)
"""Tables that are written in several files; `PROBES` and `PEAK_MEMORY` have one row for each rank."""


@dataclass
class Recording:
    """Recording of one rank: its folder, and the rows that are not written yet."""

    folder: Path
    rank: int
    _rows: dict[str, list[Mapping[str, Sequence[Any]]]] = field(default_factory=dict)
    """Parts of each table as columns; adding a part is one append, which is almost free for the script."""
    _first: int = 0
    """Number of the first iteration that is not on disk."""
    _next: int = 0

    @classmethod
    def begin(cls, folder: Path, rank: int) -> Recording:
        """Return a new recording of a rank below `folder`."""
        start = datetime.now(UTC).strftime(START)
        return cls(folder / f"rank~{rank}" / start, rank)

    def add(self, iteration: Mapping[str, Any], layers: Mapping[str, Sequence[Any]] | None) -> None:
        """Add the next iteration: a value for each column of `ITERATIONS`, and a list for each column of `LAYERS`."""
        self._keep(ITERATIONS, {name: [value] for name, value in iteration.items()})
        if layers:
            rows = len(layers["layer"])
            which = {name: [iteration[name]] * rows for name in ("iteration", "warmup")}
            self._keep(LAYERS, {**which, **layers})
        self._next += 1

    def write(self, state: Mapping[str, Any]) -> None:
        """Write all pending rows to disk, with the rank's present `state` as a row of `STATES`."""
        if self._next > self._first:
            self._keep(STATES, {name: [value] for name, value in {"iteration": self._next - 1, **state}.items()})
        for table in _IN_PARTS:
            if parts := self._rows.pop(table.name, None):
                columns = {name: list(chain.from_iterable(part[name] for part in parts)) for name in parts[0]}
                parquet.write(script_table(table), columns, self.folder / f"{table.name}~{self._first:06d}.parquet")
        self._first = self._next

    def write_once(self, table: Table, row: Mapping[str, Any]) -> None:
        """Write the rank's only row of a table to disk, in place of any earlier row."""
        parquet.write(script_table(table), [{"rank": self.rank, **row}], self.folder / f"{table.name}.parquet")

    def _keep(self, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
        ranks = [self.rank] * len(next(iter(columns.values())))
        self._rows.setdefault(table.name, []).append({"rank": ranks, **columns})


@dataclass(frozen=True)
class RankRecords:
    """Latest recording of a rank, in memory."""

    probe: Mapping[str, Any]
    """The rank's row of `PROBES`."""
    tables: Mapping[str, pa.Table]
    """Tables of iterations, layers and peak memory by name; missing ones are empty."""


def recordings(folder: Path, rank: int) -> list[Path]:
    """Return the folders of a rank's recordings below `folder`, the oldest first."""
    return [file.parent for file in sorted((folder / f"rank~{rank}").glob(f"*/{PROBES.name}.parquet"))]


def read(folder: Path, rank: int) -> RankRecords | None:
    """Return a rank's latest recording below `folder`; None without one. `InputError` for damaged files."""
    found = recordings(folder, rank)
    if not found:
        return None
    tables = {
        table.name: pa.concat_tables([script_table(table).schema.empty_table(), *stream(table, found[-1])])
        for table in (*_IN_PARTS, PEAK_MEMORY)
    }
    return RankRecords(probe_row(found[-1]), tables)


def probe_row(folder: Path) -> dict[str, Any]:
    """Return the row of `PROBES` in the folder of a recording."""
    (part,) = stream(PROBES, folder)
    (row,) = part.to_pylist()
    return dict(row)


def stream(table: Table, folder: Path, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the content of each file of a table, the oldest first; with `names`, only these columns."""
    for file in sorted([*folder.glob(f"{table.name}.parquet"), *folder.glob(f"{table.name}~*.parquet")]):
        try:
            with parquet.open_file(script_table(table), file) as opened:
                yield parquet.read_rows(opened, file, names)
        except InputError as error:
            raise InputError(f"record of a probe: {error}") from None
