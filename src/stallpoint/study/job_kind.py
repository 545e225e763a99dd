"""What a kind of job is: one record says all, and stands in the kind's own module in `study.kinds`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from stallpoint.records.tables import ENVIRONMENTS, RUNS, SLURM_JOBS, VISITS, Table
from stallpoint.strategies.presets import Preset
from stallpoint.study.cells import Cell


@dataclass(frozen=True)
class Asked:
    """Training cells of a study, and what a kind needs to add its own cells beside them."""

    config: Mapping[str, Any]
    presets: Mapping[str, Preset]
    own_networks: Mapping[str, dict[str, Any]]
    """The study's entries under ``networks``."""
    storage: Mapping[str, Mapping[str, Any]]
    """Storage entries, of which `folders` can be read and `staging` says how cells copy them first."""
    folders: Collection[str]
    staging: Mapping[str, Mapping[str, Any]]
    told: Mapping[str, Mapping[str, Any]]
    """Hardware -> what its entry and the study say to every cell there."""
    training: Sequence[Any]
    """Training cells (`TrainCell`)."""
    timed: Sequence[Any]
    """Those that stallpoint trains itself."""
    imported: Sequence[Any]
    """All-reduces that others measured (`ImportedCollectivesCell`)."""

    def common(self, section: str, hardware: str, place: Sequence[int], repeat: int) -> dict[str, Any]:
        """What every cell is told: hardware, nodes and workers on each, repeat, and visits if the section says so."""
        nodes, workers = place
        asked = {"visits": self.config[section]["visits"]} if "visits" in self.config[section] else {}
        return {**self.told[hardware], "nodes": nodes, "workers_per_node": workers, "repeat": repeat, **asked}


def as_list(entry: Any) -> list[Any]:
    """Return a list; a single value stands for a list of one."""
    return entry if isinstance(entry, list) else [entry]


@dataclass(frozen=True)
class JobKind:
    """One kind of job."""

    cell: type[Cell]
    """What one experiment of this kind is: axes, settings, expected time, rows of its record."""
    module: str
    """Module of `measure.jobs` that measures it; empty where its records are imported."""
    records: tuple[Table, ...]
    """The tables that are this kind's own."""
    missing: str
    """What a study without it lacks, as claims and pages say it."""
    colour: str = "grey"
    """In charts of the study's time."""
    section: str = ""
    """Section of a study that asks for such cells beside training."""
    called_for: Callable[[Asked, int], Iterator[Cell]] | None = None
    """The cells that a study with this section has, of one repeat."""
    lacks: tuple[Table, ...] = field(default=())
    """Tables that a whole record may lack: of one worker, of nothing staged, converted or served."""

    @property
    def name(self) -> str:
        """As in paths, rules and the column ``kind``."""
        return self.cell.kind

    @property
    def measured(self) -> bool:
        """Whether it is run, and not imported."""
        return bool(self.module)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables in a cell's folder; a failed cell holds `tables.RUNS` alone, and not every cell is of Slurm."""
        where = (ENVIRONMENTS, SLURM_JOBS, VISITS) if self.measured else ()
        return (RUNS, *where, *self.records)

    def measure(self) -> Callable[..., None]:
        """The function that measures a cell of this kind: ``measure(cell, world, recorder)``."""
        found: Callable[..., None] = import_module(f"stallpoint.measure.jobs.{self.module}").measure
        return found
