"""Several cells measured by one job, one after the other: ``srun ... python benchmarks/in_turns.py RAW CELLS.json``.

That way cells of few nodes and of many are measured within a minute of each other, with no programs started in between.
Each takes as many of the job's nodes as it has, while the others sleep; its records are those of a job of its own.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stallpoint.cells import Cell
from stallpoint.kinds import cell_from_json
from stallpoint.measure import job
from stallpoint.measure.world import World
from stallpoint.program import program
from stallpoint.records import RUNS


def write(cells: Sequence[Cell], file: Path) -> None:
    """The cells of one job, in their order; a scheme that MPI is told before it starts needs a job of its own."""
    file.write_text(json.dumps([cell.to_json() for cell in cells]))


def main(raw: Path, cells: Sequence[Cell]) -> None:
    """Measure those of `cells` whose folders below `raw` are not there yet."""
    world = World.start(max(cell.ranks for cell in cells), job.reduction_of(cells[0]))
    missing = (cell for cell in cells if not (raw / cell.path / f"{RUNS.name}.parquet").exists())
    for cell in world.comm.bcast(list(missing) if world.rank == 0 else None):
        begin = time.monotonic()
        if part := world.first(cell.ranks, job.reduction_of(cell)):
            job.run(cell, job.measure_of(cell), raw / cell.path, part)
        job.all_arrive(world.comm, math.inf)
        if world.rank == 0:
            print(f"{time.monotonic() - begin:5.0f} s  {cell.path}", flush=True)


if __name__ == "__main__":
    with program():
        folder, listed = sys.argv[1:]
        main(Path(folder), [cell_from_json(text) for text in json.loads(Path(listed).read_text())])
