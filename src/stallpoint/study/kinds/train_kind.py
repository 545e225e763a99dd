"""Training with a preset; the training cells of a study are the points of its scaling curves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from typing_extensions import override

from stallpoint.records.tables import (
    INSTRUMENTATION,
    INTERVENED,
    ITERATIONS,
    LAYERS,
    PEAK_MEMORY,
    STAGING,
    STALENESS,
    Table,
)
from stallpoint.strategies.presets import preset_from
from stallpoint.study import work
from stallpoint.study.cells import LATER, Cell
from stallpoint.study.job_kind import JobKind


@dataclass(frozen=True, slots=True)
class TrainCell(Cell):
    """Training of a network by SGD on ``ranks`` workers; a preset synchronises their gradients."""

    kind: ClassVar[str] = "train"
    axes: ClassVar[tuple[str, ...]] = (
        "network", "hardware", "nodes", "workers_per_node", "batch", "storage", "scaling", "sync", "prefetch", "repeat",
    )  # fmt: skip

    network: str
    batch: int
    """Mini-batch as configured: the global mini-batch B (``strong``) or a worker's b (``weak``, ``compute``)."""
    storage: str
    scaling: str
    """``strong`` (b = B/ranks), ``weak`` (b fixed) or ``compute`` (a single worker with mini-batch b)."""
    sync: str
    """Name of the preset that synchronises gradients; ``none`` for compute cells."""
    prefetch: int
    """Number of mini-batches read ahead while computing; 0: they are read in line."""
    worker_batch: int
    """Number of samples in one worker's mini-batch, b."""
    iterations: int
    """Number of iterations of a visit after the warm-up."""
    warmup: int
    """Number of first iterations of a visit, which are recorded and marked as warm-up."""
    readers: int
    """Number of threads that decode samples if ``prefetch`` > 0."""
    storage_path: str
    storage_format: str
    preset: dict[str, Any]
    """Fields of the preset `sync` (`to_values`)."""
    own_network: dict[str, Any] | None
    """The study's entry under ``networks``; None for a network of the registry."""
    stage_to: str = field(default="", kw_only=True, metadata=LATER)
    """Folder on each node to which the storage is copied (`measure.training.staging`); empty: not copied."""
    stage_keep: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether this copy is kept when the job ends."""

    @property
    @override
    def scheme(self) -> str:
        return preset_from(self.preset).scheme

    @property
    def shards(self) -> int:
        """Number of shards into which the preset divides the weights at the cell's placement (`Strategy.shards`)."""
        return preset_from(self.preset).strategy.shards(self.placement)

    @property
    def global_batch(self) -> int:
        """Number of samples in the mini-batches of all workers together, B."""
        return self.worker_batch * self.ranks

    @override
    def seconds(self, properties: work.KnownProperties) -> float:
        return work.VISIT + (self.warmup + self.iterations) * (work.ITERATION + work.iteration(self, properties))

    @override
    def rows(self, table: Table, visits: int) -> tuple[int | None, str]:
        if table not in (ITERATIONS, INTERVENED):
            return Cell.rows(self, table, visits)
        iterations = self.warmup + self.iterations
        return visits * iterations, f"{visits} visits of ranks with {iterations} iterations"


TRAINING = (ITERATIONS, LAYERS)
TABLES_WHILE_TRAINING = (PEAK_MEMORY, STAGING, STALENESS)
KIND = JobKind(
    TrainCell,
    "measure.jobs.train:measure",
    (*TRAINING, INSTRUMENTATION, *TABLES_WHILE_TRAINING),
    "train cells",
    "blue",
    optional_tables=(STAGING, STALENESS),
)
