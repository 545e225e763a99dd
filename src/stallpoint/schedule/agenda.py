"""What is to be measured now, in turns: a file that the workflow writes when it starts and the job reads.

A job cannot tell from its files which cells it is to measure: a cell may be wanted alone, or again. So the workflow
says it: the cells of one hardware entry, where their visits go, and when it is enough.
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
"""How long to wait for a file that another node wrote to a shared file system, s."""


@dataclass(frozen=True)
class Limits:
    """When visits have been enough."""

    precision: float = 0.0
    """Wanted half-width of the 90 % interval of each speedup, relative; 0: each cell's own number of visits."""
    minutes: float | None = None
    """Wall time that visits may take, min."""
    node_hours: float | None = None
    """The same times the nodes of the job."""


@dataclass(frozen=True)
class Agenda:
    """Cells that take turns in one job."""

    orders: Sequence[tuple[str, str]]
    """Each cell as JSON, and the folder of its visits (`ledger.round_folder`)."""
    limits: Limits
    seed: int
    planned: Mapping[str, Seconds] = field(default_factory=dict)
    """What the visits still to come to each cell, by its path, are expected to take: low, typical, high."""

    @classmethod
    def of(
        cls,
        measurements: Iterable[Measurement],
        limits: Limits,
        seed: int,
        planned: Mapping[str, Seconds] | None = None,
    ) -> Self:
        """The agenda of these measurements."""
        return cls([(one.cell.to_json(), str(one.folder)) for one in measurements], limits, seed, planned or {})

    def write(self, file: Path) -> None:
        """Write it whole."""
        with atomic(file) as scratch:
            scratch.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path, patience: float = PATIENCE) -> Self:
        """Read it, waiting for a file that shows up late."""
        deadline = time.monotonic() + patience
        while not file.exists():
            if time.monotonic() > deadline:
                raise InputError(f"{file}: the workflow writes it before it starts this job, but it is not there")
            time.sleep(1)
        values: dict[str, Any] = json.loads(file.read_text())
        orders = [(str(cell), str(folder)) for cell, folder in values["orders"]]
        return cls(orders, Limits(**values["limits"]), int(values["seed"]), values["planned"])

    def measurements(self) -> list[Measurement]:
        """The measurements that are to be made."""
        return [Measurement(cell_from_json(text), Path(folder)) for text, folder in self.orders]
