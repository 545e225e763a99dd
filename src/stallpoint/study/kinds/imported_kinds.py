"""Measurements imported from files of other programs."""

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
    """An imported training run, from files in the layout of Shi et al. (2018), Table VI."""

    kind: ClassVar[str] = "imported-train"

    files: list[str]
    """Files of ranks, in the order of the ranks; not every rank needs one."""
    read: float | None
    """Time to read and decode a mini-batch, s; None if the files have it, as the worker reads in line."""
    host_to_device: float
    """Copy of the mini-batch to the device, s."""
    update: float
    """Model update, s."""
    iteration_time: float | None = field(default=None, kw_only=True, metadata=LATER)
    """Time of an iteration measured besides the files, s; None if unknown."""
    isolated: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether the cell is a worker of a larger run without its communication, as an isolated worker."""

    @property
    def composed(self) -> bool:
        """Whether iterations are composed of the times of their layers, not measured."""
        return self.iteration_time is None

    @property
    @override
    def recorded_ranks(self) -> int:
        """Number of ranks in the files."""
        return len(self.files)


@dataclass(frozen=True, slots=True)
class ImportedCollectivesCell(Cell):
    """All-reduce over message sizes as another program measured it."""

    kind: ClassVar[str] = "imported-collectives"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "nodes", "workers_per_node", "backend", "reduction", "repeat")

    backend: str
    reduction: str
    files: list[str]
    """One file with the program's output, or traces of ranks of a run."""
    format: str
    """``nccl-tests``, ``osu``, ``imb`` or ``layers``."""
    warmup: int = field(default=0, kw_only=True, metadata=LATER)
    """Warm-up iterations in files of layers."""

    @property
    @override
    def recorded_ranks(self) -> int:
        """Number of ranks in the files; 1 for a log, which covers all ranks."""
        return 1


TRAIN_KIND = JobKind(ImportedTrainCell, "", TRAINING, "imported training runs")
COLLECTIVES_KIND = JobKind(ImportedCollectivesCell, "", (COLLECTIVES,), "imported all-reduces")
