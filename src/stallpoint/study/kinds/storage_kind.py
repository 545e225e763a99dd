"""Reading of a training set by all workers at once, without training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from typing_extensions import override

from stallpoint.records.tables import CONVERSIONS, STAGING, STORAGE_OPERATIONS, STORAGE_PASSES, STORAGE_READS
from stallpoint.study import work
from stallpoint.study.cells import LATER, Cell
from stallpoint.study.job_kind import JobKind, RequestedCells, as_list

CHECKPOINT_WRITE, CHECKPOINT_READ = "checkpoint write", "checkpoint read"
"""Operations of the table ``storage_operations`` that need `StorageCell.checkpoint_bytes`."""


@dataclass(frozen=True, slots=True)
class StorageCell(Cell):
    """Measurement of how fast all workers together read a training set, without training."""

    kind: ClassVar[str] = "storage"
    axes: ClassVar[tuple[str, ...]] = ("storage", "hardware", "nodes", "workers_per_node", "repeat")

    storage: str
    storage_path: str
    storage_format: str
    samples: int
    """Number of samples that each worker reads in each pass."""
    readers: int = field(default=1, kw_only=True, metadata=LATER)
    """Number of threads with which each worker reads at once; passes with a single thread are always measured."""
    drop_caches: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether the kernel's caches are dropped before a cold pass, if that is permitted."""
    checkpoint_bytes: int | None = field(default=None, kw_only=True, metadata=LATER)
    """Bytes of a checkpoint that is written and read back; None: no checkpoint is written."""
    server_memory: float | None = field(default=None, kw_only=True, metadata=LATER)
    """Total memory of the servers behind the storage, bytes; None if unknown."""
    stage_to: str = field(default="", kw_only=True, metadata=LATER)
    stage_keep: bool = field(default=False, kw_only=True, metadata=LATER)

    @property
    @override
    def like(self) -> tuple[str, ...]:
        return (self.storage,)

    @override
    def seconds(self, properties: work.KnownProperties) -> float:
        passes = 6 * len({1, self.readers}) + 2  # 6: three orders of reading, each cold and warm; 2: look-ups, decoding
        return (
            work.VISIT
            + passes * self.samples * work.READ_SECONDS * properties.crowd
            + 2 * (self.checkpoint_bytes or 0) / work.WRITE_RATE
        )


def called_for(request: RequestedCells, repeat: int) -> Iterator[StorageCell]:
    """Yield a cell for each storage entry that has a folder, if training reads it or ``storage_reads`` names it."""
    section, storage = request.config["storage_reads"], request.storage
    also = as_list(section.get("also", []))
    usage = {(cell.hardware, cell.nodes, cell.workers_per_node, cell.storages) for cell in request.training}
    for name, hardware, *placement in sorted({(one, *at) for *at, trained in usage for one in (*trained, *also)}):
        if name not in request.folders:
            continue
        memory_gb = storage[name].get("server_memory_gb")
        yield StorageCell(
            storage=name,
            storage_path=storage[name]["path"],
            storage_format=storage[name]["format"],
            **{option: section[option] for option in ("samples", "readers", "drop_caches")},
            checkpoint_bytes=section.get("checkpoint_bytes"),
            server_memory=None if memory_gb is None else memory_gb * 1e9,
            **request.staging[name],
            **request.common("storage_reads", hardware, placement, repeat),
        )


KIND = JobKind(
    StorageCell,
    "measure.jobs.storage_reads:measure",
    (STORAGE_READS, STORAGE_PASSES, STORAGE_OPERATIONS, STAGING, CONVERSIONS),
    "storage cells",
    "pink",
    "storage_reads",
    called_for,
    optional_tables=(STAGING, CONVERSIONS),
)
