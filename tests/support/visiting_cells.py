"""Cells that take next to no time, for tests of taking turns."""

from dataclasses import replace
from pathlib import Path

from stallpoint.schedule.agenda import Agenda, Limits
from stallpoint.schedule.ledger import Measurement, round_folder
from stallpoint.strategies.presets import PRESETS, to_values
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.study.kinds.train_kind import TrainCell

COMMON = {
    "hardware": "cpu", "nodes": 1, "repeat": 1, "workers_per_node": 1, "device": "cpu", "threads_per_worker": 1,
    "seed": 1, "precision": "float32", "anonymise": True,
}  # fmt: skip


def collectives(nodes: int = 2, *, visits: int = 2, reduction: str = "library", size: int = 1024) -> CollectivesCell:
    return CollectivesCell(
        **{**COMMON, "nodes": nodes}, visits=visits, backend="mpi", reduction=reduction, message_bytes=[size], samples=1
    )


def train(nodes: int = 1, *, visits: int = 2, network: str = "alexnet", scaling: str = "strong") -> TrainCell:
    return TrainCell(
        **{**COMMON, "nodes": nodes}, visits=visits, network=network, batch=2, storage="local", scaling=scaling,
        sync="wfbp", prefetch=0, worker_batch=2 // nodes, iterations=1, warmup=0, readers=1, storage_path="images",
        storage_format="files", preset=to_values(PRESETS["wfbp"].preset), own_network=None,
    )  # fmt: skip


def sgemm(network: str = "alexnet", *, visits: int = 2, **settings: object) -> SgemmCell:
    cell = SgemmCell(**COMMON, visits=visits, network=network, batches=[1], samples=1, own_network=None)
    return replace(cell, **settings)


def agenda(cells: list[Cell], visits: Path, limits: Limits | None = None) -> Agenda:
    """The cells in turns, with their visits below `visits`."""
    measurements = [Measurement(cell, round_folder(cell, visits / cell.path, again=False)) for cell in cells]
    return Agenda.of(measurements, limits or Limits(), seed=1)
