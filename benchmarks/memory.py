"""The most memory of training as a visit measures it, beside that of a process that trains nothing else; what it costs.

One process visits all cells in another order each round, as a study does: each by itself, and once without giving
freed memory back before, which is what measuring memory changes.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from paired import Figure, figure

from stallpoint.base.statistics import generator
from stallpoint.measure.jobs import train
from stallpoint.measure.machine import peak_memory
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.records.tables import PEAK_MEMORY
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.strategies.presets import Preset, to_values
from stallpoint.study.kinds.train_kind import TrainCell

CELLS = (
    ("alexnet", 2), ("alexnet", 8), ("alexnet", 24), ("googlenet", 1), ("googlenet", 4), ("googlenet", 8),
    ("resnet50", 1), ("resnet50", 4), ("squeezenet", 2), ("squeezenet", 8), ("vgg19", 1), ("vgg19", 3),
)  # fmt: skip
ITERATIONS = 4


def benchmark(scratch: Path, rounds: int) -> tuple[list[Figure], list[str]]:
    images = scratch / "images"
    write_synthetic(Storage("local", images, "files"), 64, seed=1)
    alone = {f"{network}, b = {b}": _printed(images, "alone", network, b)["peak"] for network, b in CELLS}
    visits = _printed(images, "visits", rounds)
    figures = [
        figure("memory", name, "peak of a visit / alone", [row["peak"] / alone[name] for row in visits["plain"][name]])
        for name in alone
    ]
    pairs = [(visits["plain"][name], visits["kept"][name]) for name in alone]
    ratios = [
        mine["seconds"] / other["seconds"] for plain, kept in pairs for mine, other in zip(plain, kept, strict=True)
    ]
    figures.append(figure("memory", "all cells", "iteration after giving memory back / without", ratios))
    figures += [
        figure("memory", name, what, [row[what] for rows in visits[name].values() for row in rows])
        for name in ("plain", "kept")
        for what in ("page faults of an iteration",)
    ]
    figures.append(
        figure(
            "memory",
            "all cells",
            "ms to give back and reset",
            [row["ms"] for rows in visits["plain"].values() for row in rows],
        )
    )
    title = f"memory, {rounds} rounds of {len(CELLS)} cells in one process, beside each in a process of its own"
    return figures, [title, *(one.line() for one in figures)]


def _printed(images: Path, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, __file__, str(images), *map(str, arguments)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def _visit(images: Path, network: str, b: int) -> dict[str, Any]:
    """Peak memory [bytes], median time and page faults of an iteration, warm-up left out, and what measuring took."""
    cell = TrainCell(
        hardware="cpu", nodes=1, repeat=1, workers_per_node=1, device="cpu", threads_per_worker=1, seed=5,
        precision="float32", anonymise=False, network=network, batch=b, storage="local", scaling="compute", sync="none",
        prefetch=2, worker_batch=b, iterations=ITERATIONS, warmup=1, readers=1, storage_path=str(images),
        storage_format="files", preset=to_values(Preset()), own_network=None,
    )  # fmt: skip
    keep = Recorder(cell, 0)
    times, faults = [], []
    for which, measured, _ in train.iterations(cell, World.start(1), keep):
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        if not which["warmup"]:
            times.append(measured.phases["iteration_time"])
    (row,) = keep.arrow(PEAK_MEMORY).to_pylist()
    return {
        "peak": row["host_peak"], "weights": row["weights"], "seconds": statistics.median(times),
        "page faults of an iteration": (faults[-1] - faults[0]) / ITERATIONS,
    }  # fmt: skip


def _alone(images: Path, network: str, b: int) -> dict[str, Any]:
    """The kernel's own mark of a process that did nothing else; less the weights that only visits need twice."""
    peak_memory._reset_peak = lambda: False
    weights = _visit(images, network, b)["weights"]
    return {"peak": peak_memory.status_bytes("VmHWM") - weights}


def _visits(images: Path, rounds: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    ways: dict[str, Callable[[], None]] = {"plain": peak_memory._give_back_freed, "kept": lambda: None}
    names = [f"{network}, b = {b}" for network, b in CELLS]
    found: dict[str, dict[str, list[dict[str, Any]]]] = {way: {name: [] for name in names} for way in ways}
    random = generator(0, "memory")
    for _ in range(rounds):
        for place in random.permutation(len(CELLS)):
            for way in random.permutation(list(ways)):
                took = []

                def timed(give_back: Callable[[], None] = ways[way], took: list[float] = took) -> None:
                    begin = time.perf_counter()
                    give_back()
                    took.append(1e3 * (time.perf_counter() - begin))

                peak_memory._give_back_freed = timed
                found[way][names[place]].append(_visit(images, *CELLS[place]) | {"ms": took[0]})
    return found


if __name__ == "__main__":
    folder, way, *arguments = sys.argv[1:]
    torch.set_num_threads(1)
    if way == "alone":
        print(json.dumps(_alone(Path(folder), arguments[0], int(arguments[1]))))
    else:
        print(json.dumps(_visits(Path(folder), int(arguments[0]))))
