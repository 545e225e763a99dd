"""The agenda of one job: a file that the workflow writes when it starts, and that the job reads.

A job cannot learn from existing files which cells to measure: single cells may be requested, or measured once more.
The agenda lists the cells of one hardware entry, the folders of their visits, and the limits of the visits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.schedule.ledger import Measurement, Seconds
from stallpoint.study.kinds import cell_from_json

PATIENCE = 60.0
"""Time to wait for a file that another node wrote to a shared file system, s."""


@dataclass(frozen=True)
class Limits:
    """Limits at which a job's visits end: a precision, or a budget of time or node-hours."""

    precision: float = 0.0
    """Wanted relative half-width of the 90 % interval of each speedup; 0: each cell gets its own number of visits."""
    minutes: float | None = None
    """Maximum wall time of all visits, min."""
    node_hours: float | None = None
    """Maximum wall time of all visits times the nodes of the job, h."""
    threshold: float = 0.0
    """Gain for each doubling below which a curve stalls; 0: only the precision decides."""

    @property
    def has_budget(self) -> bool:
        """Whether the wall time or the node-hours of visits are limited."""
        return self.minutes is not None or self.node_hours is not None


@dataclass(frozen=True)
class Agenda:
    """Cells that one job measures in an interleaved schedule."""

    orders: Sequence[tuple[str, str]]
    """Pairs of a cell as JSON and the folder of its visits (`ledger.round_folder`)."""
    limits: Limits
    seed: int
    planned: Mapping[str, Seconds] = field(default_factory=dict)
    """Expected duration of the remaining visits to each cell, by its path: low, typical, high, s."""
    mark: str = ""
    """File that is written once all cells of the block are measured, and lists the folders `raw`."""
    raw: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        measurements: Iterable[Measurement],
        limits: Limits,
        seed: int,
        planned: Mapping[str, Seconds] | None = None,
    ) -> Self:
        return cls([(one.cell.to_json(), str(one.folder)) for one in measurements], limits, seed, planned or {})

    def write(self, file: Path) -> None:
        with atomic(file) as scratch:
            scratch.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path, patience: float = PATIENCE) -> Self:
        """Read an agenda; if the file does not exist yet, wait for it up to `patience` s."""
        deadline = time.monotonic() + patience
        while not file.exists():
            if time.monotonic() > deadline:
                raise InputError(
                    f"{file}: missing, although the workflow writes it before this job; start snakemake again"
                )
            time.sleep(1)
        values: dict[str, Any] = json.loads(file.read_text())
        orders = [(str(cell), str(folder)) for cell, folder in values["orders"]]
        return cls(**{**values, "orders": orders, "limits": Limits(**values["limits"])})

    def measurements(self) -> list[Measurement]:
        return [Measurement(cell_from_json(text), Path(folder)) for text, folder in self.orders]

    def finish(self) -> None:
        if self.mark:
            with atomic(Path(self.mark)) as scratch:
                scratch.write_text("\n".join(self.raw))
