"""Processes that visit one cell after another: ``python -m stallpoint.measure RANKS PER_NODE REDUCTION``.

Started once, or once for each rank by an MPI launcher, they import what they need and initialise MPI; then rank 0 takes
orders from its standard input, a line each, and answers on its standard output (`stallpoint.turns.processes` is at the
other end of both). Those who are not needed for a visit sleep.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

from stallpoint.cells import Cell
from stallpoint.errors import CannotRun
from stallpoint.kinds import cell_from_json, kind_of
from stallpoint.measure import job
from stallpoint.measure.world import World, first_process
from stallpoint.turns.processes import CANNOT_RUN, ENDED, READY


def serve(ranks: int, per_node: int, reduction: str) -> None:
    """Visit cells as ordered, until an order for nothing; every process of the job calls this.

    Of `ranks` in all, `per_node` in their order share a node.
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
    parts: dict[tuple[int, int, str], World | None] = {}
    while order := _next(world):
        cell = cell_from_json(order["cell"])
        shape = cell.nodes, cell.workers_per_node, cell.scheme
        if shape not in parts:
            parts[shape] = world.part(members(cell, per_node), cell.scheme)
        exit_code = _visit(cell, order, part) if (part := parts[shape]) else 0
        job.all_arrive(world.comm, math.inf)
        if world.rank == 0:
            _answer(f"{ENDED}{exit_code}")


def members(cell: Cell, per_node: int) -> list[int]:
    """The ranks that visit the cell, where `per_node` of all ranks share a node: as many of each node as it has."""
    return [node * per_node + worker for node in range(cell.nodes) for worker in range(cell.workers_per_node)]


def _visit(cell: Cell, order: dict[str, Any], part: World) -> int:
    """Visit the cell; exit status of the visit, the same on all ranks that took part."""
    try:
        job.run(
            cell, kind_of(cell).measure(), Path(order["folder"]), part, visit=order["visit"], turn=order["turn"]
        )  # fmt: skip
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _next(world: World) -> dict[str, Any] | None:
    """The next order, on all ranks; None at the end. Waiting takes no core from anybody."""
    line = sys.stdin.readline() if world.rank == 0 else ""
    job.all_arrive(world.comm, math.inf)
    line = world.comm.bcast(line)
    return dict(json.loads(line)) if line.strip() else None


def _leave_unread() -> None:
    """Read what a launcher gives to every rank (srun does), so that it never waits for this one to read."""
    while os.read(0, 65536):
        pass


def _answer(text: str) -> None:
    print(text, flush=True)
