"""The class `JobKind`: each kind of job is an instance, which a module of `study.kinds` defines.

The last part makes a cell's row of the table ``runs``, and writes the folder of a cell that cannot run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stallpoint import load
from stallpoint.records.parquet import write_cell
from stallpoint.records.tables import ENERGY, ENVIRONMENTS, RUNS, SLURM_JOBS, VISITS, Table
from stallpoint.strategies.presets import Preset
from stallpoint.study.cells import Cell
from stallpoint.text import for_terminal


@dataclass(frozen=True)
class RequestedCells:
    """Parts of a study from which a kind of job makes its cells: entries, training cells, imported all-reduces."""

    config: Mapping[str, Any]
    presets: Mapping[str, Preset]
    own_networks: Mapping[str, dict[str, Any]]
    """The study's entries under ``networks``."""
    storage: Mapping[str, Mapping[str, Any]]
    folders: Collection[str]
    """Names of the storage entries whose format is a folder."""
    staging: Mapping[str, Mapping[str, Any]]
    """Fields by which cells stage a storage entry, by its name."""
    defaults: Mapping[str, Mapping[str, Any]]
    """Hardware -> fields that all its cells have, from the hardware entry and the study."""
    training: Sequence[Any]
    """Training cells (`TrainCell`)."""
    timed: Sequence[Any]
    """Training cells that stallpoint trains itself, neither commands nor imports."""
    imported: Sequence[Any]
    """All-reduces measured by other programs (`ImportedCollectivesCell`)."""

    def common(self, section: str, hardware: str, placement: Sequence[int], repeat: int) -> dict[str, Any]:
        """Return values of the fields that all cells have. The study's `section` may set the number of visits."""
        nodes, workers = placement
        visits = {"visits": self.config[section]["visits"]} if "visits" in self.config[section] else {}
        return {**self.defaults[hardware], "nodes": nodes, "workers_per_node": workers, "repeat": repeat, **visits}


def as_list(entry: Any) -> list[Any]:
    """Return `entry` as a list; a single value becomes a list of one."""
    return entry if isinstance(entry, list) else [entry]


@dataclass(frozen=True)
class JobKind:
    """One kind of job: its cells, the function that measures them, and the tables of their records."""

    cell: type[Cell]
    """Class of the cells: axes, settings, expected time, rows of the record."""
    function: str
    """Name (`stallpoint.load`) of the function that measures a cell; empty if records are imported."""
    records: tuple[Table, ...]
    """Tables that only cells of this kind have."""
    missing: str
    """Words in claims and pages for what a study without cells of this kind lacks."""
    colour: str = "grey"
    """Colour in charts of the study's time."""
    section: str = ""
    """Section of a study that asks for cells of this kind."""
    called_for: Callable[[RequestedCells, int], Iterator[Cell]] | None = None
    """Function that yields the cells of one repeat in a study with this section."""
    optional_tables: tuple[Table, ...] = field(default=())
    """Tables that a complete record may lack, for example with one worker or without staging."""

    @property
    def name(self) -> str:
        """Name of the kind in paths, rules and the column ``kind``."""
        return self.cell.kind

    @property
    def measured(self) -> bool:
        """Whether cells of this kind are measured by stallpoint, and not imported from files."""
        return bool(self.function)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables that the record of a cell may have; the record of a failed cell has only `tables.RUNS`."""
        measuring_tables = (ENVIRONMENTS, SLURM_JOBS, VISITS, ENERGY) if self.measured else ()
        return (RUNS, *measuring_tables, *self.records)

    def measure(self) -> Callable[..., None]:
        """Return the function that measures a cell of this kind: ``measure(cell, world, recorder)``."""
        function: Callable[..., None] = load(self.function)
        return function


# --- rows of the table runs -----------------------------------------------------------------------


def run_row(cell: Cell, started: datetime, *, failure: str = "", source: str = "") -> dict[str, Any]:
    """Return the cell's row of `tables.RUNS`; `failure` says why the cell cannot run, `source` names imported files."""
    return {
        "cell": cell.path,
        "kind": cell.kind,
        "status": "failed" if failure else "ok",
        "reason": for_terminal(failure),
        "started": started,
        "duration": (datetime.now(UTC) - started).total_seconds(),
        **dict.fromkeys(("planned", "planned_low", "planned_high"), None),
        "settings": cell.to_json(),
        "ended": "",
        "source": source,
        **{name: getattr(cell, name) for name in ("hardware", "nodes", "workers_per_node", "ranks", "repeat")},
    }


def write_failure(cell: Cell, folder: Path, started: datetime, reason: str) -> None:
    """Write to the `folder` of a record or a visit that the cell cannot run here, with the `reason`."""
    write_cell(folder, {RUNS.name: [run_row(cell, started, failure=reason)]})
