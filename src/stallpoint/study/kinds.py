"""The kinds of job: all that a kind is stands in one record.

A new kind is a module in `measure.jobs` with ``measure(cell, world, recorder)``, its cell in `cells`,
the tables that it records in `stallpoint.records.tables`, and its `JobKind` here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from stallpoint.errors import InputError
from stallpoint.records import tables as records
from stallpoint.records.tables import Table
from stallpoint.study.cell_values import check_value
from stallpoint.study.cells import (
    Cell,
    CollectivesCell,
    CommandCell,
    ConvergenceCell,
    CopiesCell,
    ImportedCollectivesCell,
    ImportedTrainCell,
    InterventionCell,
    SgemmCell,
    StorageCell,
    TrainCell,
)


@dataclass(frozen=True)
class JobKind:
    """One kind of job."""

    cell: type[Cell]
    """What one experiment of this kind is: its axes, its settings, the reduction scheme that MPI is started with."""
    module: str
    """Module of `stallpoint.measure` that measures it; empty where its records are imported."""
    records: tuple[Table, ...]
    """The tables that are this kind's own."""
    missing: str
    """What a study without it lacks, as claims and pages say it."""

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
        where = (records.ENVIRONMENTS, records.SLURM_JOBS, records.VISITS) if self.measured else ()
        return (records.RUNS, *where, *self.records)

    def measure(self) -> Callable[..., None]:
        """The function that measures a cell of this kind: ``measure(cell, world, recorder)``."""
        found: Callable[..., None] = import_module(f"stallpoint.measure.jobs.{self.module}").measure
        return found


_STORAGE = (records.STORAGE_READS, records.STORAGE_PASSES, records.STORAGE_OPERATIONS)
_TRAINING = (records.ITERATIONS, records.LAYERS)
_BESIDE_TRAINING = (records.PEAK_MEMORY, records.STAGING, records.STALENESS)

KINDS: dict[str, JobKind] = {
    kind.name: kind
    for kind in (
        JobKind(TrainCell, "train", (*_TRAINING, records.INSTRUMENTATION, *_BESIDE_TRAINING), "train cells"),
        JobKind(CommandCell, "command", (*_TRAINING, records.PEAK_MEMORY, records.PROBES), "command cells"),
        JobKind(InterventionCell, "intervention", (records.INTERVENED, *_BESIDE_TRAINING), "interventions"),
        JobKind(SgemmCell, "sgemm", (records.SGEMM,), "sgemm cells"),
        JobKind(CollectivesCell, "collectives", (records.COLLECTIVES, records.CONTENTION), "collectives cells"),
        JobKind(StorageCell, "storage_reads", (*_STORAGE, records.STAGING, records.CONVERSIONS), "storage cells"),
        JobKind(CopiesCell, "copies", (records.COPIES,), "copies cells"),
        JobKind(
            ConvergenceCell,
            "convergence",
            (records.CONVERGENCE, records.CONVERGENCE_RUNS, records.GRADIENT_NOISE, records.STALENESS),
            "convergence cells",
        ),
        JobKind(ImportedTrainCell, "", _TRAINING, "imported training runs"),
        JobKind(ImportedCollectivesCell, "", (records.COLLECTIVES,), "imported all-reduces"),
    )
}
MEASURED = tuple(name for name, kind in KINDS.items() if kind.measured)
IMPORTED = tuple(name for name, kind in KINDS.items() if not kind.measured)


def kind_of(cell: Cell) -> JobKind:
    """The kind of a cell."""
    return KINDS[cell.kind]


def cell_from_json(text: str) -> Cell:
    """Rebuild a cell from `Cell.to_json`; raises `InputError` where the text is not a cell."""
    try:
        values: dict[str, Any] = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"a cell is expected as JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"a cell is expected as JSON, not {text[:40]!r}")
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise InputError(f"a cell of unknown kind {kind!r}; known: {', '.join(KINDS)}")
    cell = KINDS[kind].cell
    if wrong := sorted(({*cell.later(), *values}) ^ {one.name for one in fields(cell)}):
        raise InputError(f"not a {kind} cell: missing or unknown {', '.join(wrong)}")
    for name, value in values.items():
        check_value(cell, name, value)
    return cell(**values)
