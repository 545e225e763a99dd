"""Records of a probe as a script leaves them, from the times of its iterations."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.measure.probe.probe_files import script_table
from stallpoint.records.parquet import write
from stallpoint.records.tables import ITERATIONS, PHASES, PROBES

USUAL = {"data_wait": 1.0, "host_to_device": 0.2, "forward": 6.0, "backward": 12.0, "update": 0.8}
"""Times of a rank in an iteration, ms; the rest waits for the others."""
WAITS = 2.0


def steady(ranks: int, iterations: int) -> npt.NDArray[np.float64]:
    """Return times of equal iterations, [ranks, iterations, phases] in s, with a scatter of 2 %."""
    random = np.random.default_rng(1)
    usual = 1e-3 * np.array([USUAL.get(phase, WAITS) for phase in PHASES])
    return usual * np.exp(0.02 * random.standard_normal((ranks, iterations, len(PHASES))))


def write_records(folder: Path, times: npt.NDArray[np.float64]) -> None:
    """Write the records of each rank below `folder`."""
    ranks, count, _ = times.shape
    for rank in range(ranks):
        here = folder / f"rank~{rank}/20260101"
        start = np.concatenate([[0.0], np.cumsum(times[rank].sum(axis=1))[:-1]])
        rows: dict[str, Any] = {column.name: [None] * count for column in script_table(ITERATIONS).columns}
        rows |= {"iteration": np.arange(count), "warmup": np.arange(count) == 0, "rank": [rank] * count}
        rows |= {phase: times[rank, :, index] for index, phase in enumerate(PHASES)}
        rows["start"] = start
        write(script_table(ITERATIONS), rows, here / f"{ITERATIONS.name}~000000.parquet")
        probe: dict[str, Any] = {column.name: None for column in script_table(PROBES).columns}
        probe |= {"parallelism": "ddp", "model": "Net", "cpus": "0-1", "unseen": "", "script_ranks": ranks, "layers": 0}
        probe |= {"iterations": count, "ended": "complete", "rank": rank, "threads": 1}
        write(script_table(PROBES), [probe], here / f"{PROBES.name}.parquet")
