"""The interface `JobKind`, of which each module of `study.kinds` has one instance.

Also a cell's row in the table ``runs``, and the folder of a cell that cannot run.
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
    """Training cells of a study, and what a kind needs to add its own cells."""

    config: Mapping[str, Any]
    presets: Mapping[str, Preset]
    own_networks: Mapping[str, dict[str, Any]]
    """The study's entries under ``networks``."""
    storage: Mapping[str, Mapping[str, Any]]
    """Storage entries, of which `folders` can be read and `staging` says how cells copy them first."""
    folders: Collection[str]
    staging: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Mapping[str, Any]]
    """Hardware -> fields of every cell there, from its entry and the study."""
    training: Sequence[Any]
    """Training cells (`TrainCell`)."""
    timed: Sequence[Any]
    """Training cells that stallpoint trains itself, neither commands nor imports."""
    imported: Sequence[Any]
    """All-reduces measured by other programs (`ImportedCollectivesCell`)."""

    def common(self, section: str, hardware: str, placement: Sequence[int], repeat: int) -> dict[str, Any]:
        """Return the fields common to cells of any kind; visits are those of the section, if it sets them."""
        nodes, workers = placement
        asked = {"visits": self.config[section]["visits"]} if "visits" in self.config[section] else {}
        return {**self.defaults[hardware], "nodes": nodes, "workers_per_node": workers, "repeat": repeat, **asked}


def as_list(entry: Any) -> list[Any]:
    """Return `entry` as a list; a single value becomes a list of one."""
    return entry if isinstance(entry, list) else [entry]


@dataclass(frozen=True)
class JobKind:
    """One kind of job."""

    cell: type[Cell]
    """Class of its cells: axes, settings, expected time, rows of the record."""
    function: str
    """Name (`stallpoint.load`) of the function that measures a cell; empty where records are imported."""
    records: tuple[Table, ...]
    """Tables of this kind."""
    missing: str
    """Words for what a study without this kind lacks, in claims and pages."""
    colour: str = "grey"
    """Colour in charts of the study's time."""
    section: str = ""
    """Section of a study that asks for such cells."""
    called_for: Callable[[RequestedCells, int], Iterator[Cell]] | None = None
    """Generator of the cells of one repeat, in a study with this section."""
    lacks: tuple[Table, ...] = field(default=())
    """Tables that a complete record may lack, such as with one worker or without staging."""

    @property
    def name(self) -> str:
        """Name in paths, rules and the column ``kind``."""
        return self.cell.kind

    @property
    def measured(self) -> bool:
        """Whether cells of this kind are run, not imported."""
        return bool(self.function)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables that a cell's folder may have; a failed cell has only `tables.RUNS`."""
        where = (ENVIRONMENTS, SLURM_JOBS, VISITS, ENERGY) if self.measured else ()
        return (RUNS, *where, *self.records)

    def measure(self) -> Callable[..., None]:
        """Return the function that measures a cell of this kind: ``measure(cell, world, recorder)``."""
        found: Callable[..., None] = load(self.function)
        return found


# --- rows of runs ---------------------------------------------------------------------------------


def run_row(cell: Cell, started: datetime, *, failure: str = "", source: str = "") -> dict[str, Any]:
    """Return the cell's row of `tables.RUNS`; `source` names imported files."""
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
    """Write the folder of a cell, or of a visit to it, that cannot run here."""
    write_cell(folder, {RUNS.name: [run_row(cell, started, failure=reason)]})
