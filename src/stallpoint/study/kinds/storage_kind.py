"""Reading the training set from all workers at once, in isolation."""

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
    """Reading the training set from all workers at once."""

    kind: ClassVar[str] = "storage"
    axes: ClassVar[tuple[str, ...]] = ("storage", "hardware", "nodes", "workers_per_node", "repeat")

    storage: str
    storage_path: str
    storage_format: str
    samples: int
    """Samples read by each worker in each pass."""
    readers: int = field(default=1, kw_only=True, metadata=LATER)
    """Threads of each worker that read at once; if several, one thread alone is measured as well."""
    drop_caches: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether all caches of the kernel are dropped before a cold pass, if permitted."""
    checkpoint_bytes: int | None = field(default=None, kw_only=True, metadata=LATER)
    """Size of a checkpoint that is written and read back; None without one."""
    server_memory: float | None = field(default=None, kw_only=True, metadata=LATER)
    """Memory of all servers behind the storage, bytes; None if unknown."""
    stage_to: str = field(default="", kw_only=True, metadata=LATER)
    stage_keep: bool = field(default=False, kw_only=True, metadata=LATER)

    @property
    @override
    def like(self) -> tuple[str, ...]:
        return (self.storage,)

    @override
    def seconds(self, known: work.KnownProperties) -> float:
        passes = 6 * len({1, self.readers}) + 2  # 3 orders cold and warm; file look-ups and decoding
        return (
            work.VISIT
            + passes * self.samples * work.READ * known.crowd
            + 2 * (self.checkpoint_bytes or 0) / work.WRITING
        )


def called_for(asked: RequestedCells, repeat: int) -> Iterator[StorageCell]:
    """Yield a cell for each storage in a folder that training reads, and for each that the study names."""
    section, storage = asked.config["storage_reads"], asked.storage
    also = as_list(section.get("also", []))
    places = {(cell.hardware, cell.nodes, cell.workers_per_node, cell.storages) for cell in asked.training}
    for name, hardware, *placement in sorted({(one, *at) for *at, trained in places for one in (*trained, *also)}):
        if name not in asked.folders:
            continue
        memory = storage[name].get("server_memory_gb")
        yield StorageCell(
            storage=name,
            storage_path=storage[name]["path"],
            storage_format=storage[name]["format"],
            **{option: section[option] for option in ("samples", "readers", "drop_caches")},
            checkpoint_bytes=section.get("checkpoint_bytes"),
            server_memory=None if memory is None else memory * 1e9,
            **asked.staging[name],
            **asked.common("storage_reads", hardware, placement, repeat),
        )


KIND = JobKind(
    StorageCell,
    "measure.jobs.storage_reads:measure",
    (STORAGE_READS, STORAGE_PASSES, STORAGE_OPERATIONS, STAGING, CONVERSIONS),
    "storage cells",
    "pink",
    "storage_reads",
    called_for,
    lacks=(STAGING, CONVERSIONS),
)
