"""Rates of memory copies, measured by one worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from stallpoint.records.tables import COPIES
from stallpoint.study import work
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import JobKind, RequestedCells


@dataclass(frozen=True, slots=True)
class CopiesCell(Cell):
    """Measurement of the rates at which one worker copies memory."""

    kind: ClassVar[str] = "copies"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "repeat")

    samples: int
    """Number of timed copies of each sort in a visit."""

    @override
    def seconds(self, properties: work.KnownProperties) -> float:
        return work.VISIT + (1 + self.samples) * work.COPY_SECONDS * properties.crowd


def called_for(study: RequestedCells, repeat: int) -> Iterator[CopiesCell]:
    """Yield a cell for each hardware entry on which the study trains."""
    for hardware in dict.fromkeys(cell.hardware for cell in study.training):
        yield CopiesCell(samples=study.config["copies"]["samples"], **study.common("copies", hardware, (1, 1), repeat))


KIND = JobKind(CopiesCell, "measure.jobs.copies:measure", (COPIES,), "copies cells", "grey", "copies", called_for)
