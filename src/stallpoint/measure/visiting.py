"""Processes that visit one cell after another: ``python -m stallpoint.measure RANKS PER_NODE REDUCTION``.

An MPI launcher starts one process for each rank (a single rank needs no launcher). They initialise MPI; then rank 0
reads orders from its standard input and answers on its standard output (`schedule.processes` is at the other end). One
line holds the orders of all concurrent visits; the answer follows when the last of these visits has ended. Ranks
without a visit sleep.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

from stallpoint.errors import CannotRun
from stallpoint.measure import job
from stallpoint.measure.launched import first_process
from stallpoint.measure.training.staging import Staging
from stallpoint.measure.world import World
from stallpoint.schedule.processes import CANNOT_RUN, ENDED, READY
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import cell_from_json, kind_of


def serve(ranks: int, per_node: int, reduction: str) -> None:
    """Visit the cells of incoming orders until an empty order; called in every process of the job.

    The job has `ranks` ranks, of which `per_node` consecutive ones share a node.
    """
    try:
        world = World.start(ranks, reduction)
    except CannotRun as error:
        if first_process():
            _answer(f"{CANNOT_RUN}{error}")
        return
    if world.rank == 0:
        _answer(READY)
    else:
        threading.Thread(target=_leave_unread, daemon=True).start()
    with Staging(world) as staging:
        _carry_out(world, per_node, staging)


def _carry_out(world: World, per_node: int, staging: Staging) -> None:
    """Carry out all orders: stage the storages of the cells, then visit the cells."""
    parts: dict[tuple[int, int, int, str], World | None] = {}
    while orders := _next_orders(world):
        exit_code, first_ranks = 0, []
        cells = [cell_from_json(order["cell"]) for order in orders]
        staged = [staging.stage(cell) for cell in cells]
        for order, cell, prepare in zip(orders, cells, staged, strict=True):
            node = int(order["node"])
            shape = node, cell.nodes, cell.workers_per_node, cell.scheme
            ranks_of_cell = members(cell, per_node, node)
            first_ranks.append(ranks_of_cell[0])
            if shape not in parts:
                parts[shape] = world.part(ranks_of_cell, cell.scheme)
            if part := parts[shape]:  # the part is None if this rank does not measure the cell
                exit_code = _visit(cell, order, part, prepare, concurrent=len(orders) - 1)
        job.all_arrive(world.comm, math.inf)
        if codes := world.comm.gather(exit_code):
            _answer(f"{ENDED}{' '.join(str(codes[rank]) for rank in first_ranks)}")


def members(cell: Cell, per_node: int, node: int = 0) -> list[int]:
    """Return the ranks that measure the cell on consecutive nodes from `node` on; a node has `per_node` ranks."""
    nodes = range(node, node + cell.nodes)
    return [number * per_node + worker for number in nodes for worker in range(cell.workers_per_node)]


def _visit(cell: Cell, order: dict[str, Any], part: World, prepare: job.Prepare, *, concurrent: int) -> int:
    """Visit the cell with the ranks of `part`; return the exit status of the visit, equal on all these ranks."""
    try:
        job.run(
            cell, lambda *given: kind_of(cell).measure()(*given), Path(order["folder"]), part,
            visit=order["visit"], position=order["position"], concurrent=concurrent, prepare=prepare,
        )  # fmt: skip
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _next_orders(world: World) -> list[dict[str, Any]]:
    """Sleep until orders come; return them, equal on all ranks; empty at the end. No two orders share a node."""
    line = sys.stdin.readline() if world.rank == 0 else ""
    job.all_arrive(world.comm, math.inf)
    line = world.comm.bcast(line)
    return list(json.loads(line)) if line.strip() else []


def _leave_unread() -> None:
    """Read and drop this rank's input. srun, say, sends input to every rank, and blocks if a rank leaves it unread."""
    while os.read(0, 65536):
        pass


def _answer(text: str) -> None:
    print(text, flush=True)
