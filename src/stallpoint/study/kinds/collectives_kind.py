"""Collective operations with messages of several sizes, timed without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from typing_extensions import override

from stallpoint.records.tables import COLLECTIVES, CONTENTION, Table
from stallpoint.strategies.options import ALL_REDUCE, OPERATIONS
from stallpoint.study import work
from stallpoint.study.cells import LATER, Cell
from stallpoint.study.job_kind import JobKind, RequestedCells, as_list


@dataclass(frozen=True, slots=True)
class CollectivesCell(Cell):
    """Timing of collective operations by message size, with one backend and one reduction scheme."""

    kind: ClassVar[str] = "collectives"
    axes: ClassVar[tuple[str, ...]] = ("hardware", "nodes", "workers_per_node", "backend", "reduction", "repeat")

    backend: str
    """``mpi`` or ``torch``."""
    reduction: str
    message_bytes: list[int]
    samples: int
    """Number of timed bursts of each size in a visit."""
    operations: list[str] | None = field(default=None, kw_only=True, metadata=LATER)
    """Timed operations, of `stallpoint.strategies.options.OPERATIONS`; None: only all-reduces."""

    @property
    def timed_operations(self) -> list[str]:
        return self.operations or [ALL_REDUCE]

    @property
    @override
    def scheme(self) -> str:
        return self.reduction

    @property
    @override
    def like(self) -> tuple[str, ...]:
        return (self.backend, self.reduction)

    @override
    def seconds(self, properties: work.KnownProperties) -> float:
        rows = sum(work.BURST * properties.crowd + 4 * work.all_reduce(size, self.ranks) for size in self.message_bytes)
        return work.VISIT + (1 + self.samples) * rows * len(self.timed_operations)

    @override
    def rows(self, table: Table, visits: int) -> tuple[int | None, str]:
        if table is not COLLECTIVES:
            return Cell.rows(self, table, visits)
        rows_per_visit = (self.samples + 1) * len(self.message_bytes) * len(self.timed_operations)
        return visits * rows_per_visit, f"{visits} visits of ranks with {rows_per_visit} rows of messages"


Scheme = tuple[str, int, int, str, str]
"""Hardware, nodes, workers per node, backend and reduction scheme."""


def called_for(request: RequestedCells, repeat: int) -> Iterator[CollectivesCell]:
    """Yield a cell for each combination (`Scheme`) that training cells use and that has no imported measurements."""
    section = request.config["collectives"]
    imported_schemes = {tuple(getattr(cell, axis) for axis in CollectivesCell.axes[:-1]) for cell in request.imported}
    for scheme, operations in sorted(_operations_of_schemes(request).items()):
        hardware, nodes, workers, backend, reduction = scheme
        if scheme not in imported_schemes:
            yield CollectivesCell(
                backend=backend,
                reduction=reduction,
                message_bytes=_message_sizes(section),
                samples=section["samples"],
                operations=None if operations == [ALL_REDUCE] else operations,
                **request.common("collectives", hardware, (nodes, workers), repeat),
            )


def _operations_of_schemes(request: RequestedCells) -> dict[Scheme, list[str]]:
    """Return scheme -> operations to time: all-reduces, operations that training uses, and those that the study lists.

    If weights are sharded inside nodes, training needs collectives inside a node, and among one worker of each node.
    """
    cells = {
        ((cell.hardware, cell.nodes, cell.workers_per_node), cell.sync) for cell in request.training if cell.ranks > 1
    }
    called: dict[Scheme, set[str]] = {}
    for (hardware, nodes, workers), sync in cells:
        preset = request.presets[sync]
        if not preset.communicates:
            continue
        for placement, operations in preset.strategy.places((nodes, workers)).items():
            if placement != (1, 1):
                called.setdefault((hardware, *placement, preset.communicator, preset.scheme), set()).update(operations)
    named_operations = {ALL_REDUCE, *as_list(request.config["collectives"].get("operations", []))}
    return {scheme: [name for name in OPERATIONS if name in used | named_operations] for scheme, used in called.items()}


def _message_sizes(collectives: Mapping[str, int]) -> list[int]:
    """Return the sizes of messages, bytes: the smallest, each next size 4 times as large, and last the largest."""
    sizes = []
    size = collectives["smallest"]
    while size < collectives["largest"]:
        sizes.append(size)
        size *= 4
    return [*sizes, collectives["largest"]]


KIND = JobKind(
    CollectivesCell,
    "measure.jobs.collectives:measure",
    (COLLECTIVES, CONTENTION),
    "collectives cells",
    "green",
    "collectives",
    called_for,
    optional_tables=(CONTENTION,),
)
