"""Training runs and all-reduces that were measured by other programs, and are imported from their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from typing_extensions import override

from stallpoint.records.tables import COLLECTIVES
from stallpoint.study.cells import LATER, Cell
from stallpoint.study.job_kind import JobKind
from stallpoint.study.kinds.train_kind import TRAINING, TrainCell


@dataclass(frozen=True, slots=True)
class ImportedTrainCell(TrainCell):
    """A training run that is imported from files in the layout of Shi et al. (2018), Table VI."""

    kind: ClassVar[str] = "imported-train"

    files: list[str]
    """Files of ranks, in the order of the ranks; some ranks may have no file."""
    read: float | None
    """Time to read and decode a mini-batch, s; None if the files have it, as the worker reads in line."""
    host_to_device: float
    """Time to copy the mini-batch to the device, s."""
    update: float
    """Time to update the weights, s."""
    iteration_time: float | None = field(default=None, kw_only=True, metadata=LATER)
    """Measured time of an iteration that the files do not have, s; None if unknown."""
    isolated: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether the cell is one worker of a larger run, without communication, as if the worker were isolated."""

    @property
    def composed(self) -> bool:
        """Whether iteration times are not measured, but composed of the times of layers."""
        return self.iteration_time is None

    @property
    @override
    def recorded_ranks(self) -> int:
        """Number of ranks that have a file."""
        return len(self.files)


@dataclass(frozen=True, slots=True)
class ImportedCollectivesCell(Cell):
    """All-reduces of several message sizes, measured by another program."""

    kind: ClassVar[str] = "imported-collectives"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "nodes", "workers_per_node", "backend", "reduction", "repeat")

    backend: str
    reduction: str
    files: list[str]
    """File with the program's output, or traces of a run's ranks."""
    format: str
    """``nccl-tests``, ``osu``, ``imb`` or ``layers``."""
    warmup: int = field(default=0, kw_only=True, metadata=LATER)
    """Number of warm-up iterations in traces."""

    @property
    @override
    def recorded_ranks(self) -> int:
        """Number of ranks that have rows: 1, as each row is of all ranks together."""
        return 1


TRAIN_KIND = JobKind(ImportedTrainCell, "", TRAINING, "imported training runs")
COLLECTIVES_KIND = JobKind(ImportedCollectivesCell, "", (COLLECTIVES,), "imported all-reduces")
