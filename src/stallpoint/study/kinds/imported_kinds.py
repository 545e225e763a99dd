"""What others measured, from files of other programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from stallpoint.records.tables import COLLECTIVES, ITERATIONS, Table
from stallpoint.study.cells import LATER, Cell
from stallpoint.study.job_kind import JobKind
from stallpoint.study.kinds.train_kind import TRAINING, TrainCell

PROFILER = "profiler"
"""The format of a profiler's traces."""


@dataclass(frozen=True, slots=True)
class ImportedTrainCell(TrainCell):
    """A training run that others measured, from files in the layout of Shi et al. (2018), Table VI, or of profilers."""

    kind: ClassVar[str] = "imported-train"

    files: list[str]
    """One for each rank that has one, from rank 0."""
    read: float | None
    """Time to read and decode a mini-batch, s; None where the worker reads in line, as the files then say it."""
    host_to_device: float
    """Copy of the mini-batch to the device, s."""
    update: float
    """Model update, s."""
    format: str = field(default="layers", kw_only=True, metadata=LATER)
    """What the files are: ``layers``, or traces of a ``profiler``, which say themselves what the entry leaves out."""
    iteration_time: float | None = field(default=None, kw_only=True, metadata=LATER)
    """What an iteration took, s, as measured beside files of layers; None where nobody says it."""
    isolated: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether what was sent is left out: what a worker of a larger run computed, as if it had been alone."""

    @property
    def composed(self) -> bool:
        """Whether its iterations are put together from the times of their layers: nobody measured them."""
        return self.format == "layers" and self.iteration_time is None

    @property
    def recorded_ranks(self) -> int:
        """Ranks that the files say something of."""
        return len(self.files)

    def rows(self, table: Table, visits: int) -> tuple[int | None, str]:
        """As `Cell.rows`; a profiler's traces hold as many iterations as they hold."""
        if table is ITERATIONS and self.format == PROFILER:
            return None, ""
        return TrainCell.rows(self, table, visits)


@dataclass(frozen=True, slots=True)
class ImportedCollectivesCell(Cell):
    """All-reduce over message sizes as another program measured it."""

    kind: ClassVar[str] = "imported-collectives"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "nodes", "workers_per_node", "backend", "reduction", "repeat")

    backend: str
    reduction: str
    files: list[str]
    """One file: what the program printed; or traces of a run, one for each rank that has one."""
    format: str
    """``nccl-tests``, ``osu``, ``profiler`` or ``layers``."""
    warmup: int = field(default=0, kw_only=True, metadata=LATER)
    """Iterations of files of layers that are warm-up."""

    @property
    def recorded_ranks(self) -> int:
        """As in `ImportedTrainCell`: a log is of all ranks at once."""
        return 1


TRAIN_KIND = JobKind(ImportedTrainCell, "", TRAINING, "imported training runs")
COLLECTIVES_KIND = JobKind(ImportedCollectivesCell, "", (COLLECTIVES,), "imported all-reduces")
