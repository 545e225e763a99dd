"""What is measured with half of a constant of `stallpoint.measure.constants`, and with twice as much.

Two ranks of this machine measure as jobs do. In each round the constants take turns, in another order each time, and
what is found is divided by what all constants as they are find in the same round: 1 is wanted. Lines that say `AGAIN`
compare two such measurements with the same constants.

Run under mpirun it is one rank: ``sensitivity.py ROUNDS OUTPUT``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from paired import Figure, figure

from stallpoint.measure import constants
from stallpoint.measure.jobs import collectives, sgemm
from stallpoint.measure.jobs.train import Trainer
from stallpoint.measure.machine.sentinel import Sentinel
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.resident import network
from stallpoint.measure.training import allocator
from stallpoint.measure.training.input_pipeline import MiniBatch
from stallpoint.measure.training.layer_timing import timing_cost
from stallpoint.measure.world import World
from stallpoint.networks import find_network
from stallpoint.networks.products import Product
from stallpoint.records.tables import COLLECTIVES, CONTENTION
from stallpoint.strategies.presets import PRESETS
from stallpoint.study.kinds.collectives_kind import CollectivesCell

RANKS = 2
AGAIN = "again"
SIZES = {"1 KiB": 2**10, "64 KiB": 2**16, "4 MiB": 2**22}
CPU = torch.device("cpu")
Found: TypeAlias = dict[str, float]
"""Quantities by name."""
Values: TypeAlias = dict[str, Callable[[float], Any]]
"""By constant: what it is at so many times its value."""


def benchmark(scratch: Path, rounds: int) -> tuple[list[Figure], list[str]]:
    """Ratios by constant and quantity, and lines to print."""
    launcher = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "--bind-to", "none"]
    file = scratch / "found.json"
    command = [*launcher, "-n", str(RANKS), sys.executable, __file__, str(rounds), str(file)]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    with (scratch / "progress").open("w") as progress:
        subprocess.run(command, env=os.environ | root, stderr=progress, check=True)
    found = json.loads(file.read_text())
    figures = [
        figure("sensitivity", value, f"{quantity} / as set", ratios, "1")
        for value, quantities in found.items()
        for quantity, ratios in quantities.items()
    ]
    return figures, [f"sensitivity, {rounds} interleaved rounds", *(one.line() for one in figures)]


# --- what is measured -----------------------------------------------------------------------------


def rows(world: World) -> Found:
    """Seconds of an all-reduce in a burst of them, by size."""
    table = _visited(world)[0]
    return {
        f"all-reduce of {name}": _median(table, size, table["seconds"] / table["calls"]) for name, size in SIZES.items()
    }


def beside(world: World) -> Found:
    """Seconds of an all-reduce while all ranks compute, and what computing loses to it."""
    table = _visited(world)[1]
    lost = table["computing"] - table["operations"] * table["isolated_computing"] / table["isolated_operations"]
    return {
        "64 KiB beside computing": _median(table, SIZES["64 KiB"], table["seconds"] / table["calls"]),
        "4 MiB beside computing": _median(table, SIZES["4 MiB"], table["seconds"] / table["calls"]),
        "computing lost to 4 MiB": _median(table, SIZES["4 MiB"], lost / table["calls"]),
    }


def _visited(world: World) -> list[Any]:
    """The tables of all-reduces alone and beside computing of a visit, without warm-up."""
    cell = CollectivesCell(
        hardware="cpu", nodes=world.size, repeat=1, workers_per_node=1, device="cpu", threads_per_worker=1, seed=0,
        precision="float32", anonymise=True, backend="mpi", reduction="library",
        message_bytes=list(SIZES.values()), samples=4,
    )  # fmt: skip
    keep = Recorder(cell, world.rank)
    collectives.measure(cell, world, keep)
    tables = [keep.arrow(table).to_pandas() for table in (COLLECTIVES, CONTENTION)]
    return [table[~table["warmup"]] for table in tables]


def _median(table: Any, size: int, values: Any) -> float:
    return float(values[table["message_bytes"] == size].median())


def peak(world: World) -> Found:
    """Seconds of the product `peak` by the operation."""
    return _products(world, lambda one: one.name == "peak")


def bandwidth(world: World) -> Found:
    """Seconds of the product `bandwidth` by the byte."""
    return _products(world, lambda one: one.name == "bandwidth")


def few_rows(world: World) -> Found:
    """Seconds of the product `rows` by the byte of its matrix, at few rows."""
    return _products(world, lambda one: one.name == "rows" and one.m in (1, 4, 8))


def _products(world: World, chosen: Callable[[Product], bool]) -> Found:
    shapes = [one for one in sgemm.machine(CPU, torch.float32, constants.ROWS_LEAST) if chosen(one)]
    world.comm.Barrier()
    times: dict[int, list[float]] = {}
    for place, _, seconds in sgemm.timed(shapes, 3, CPU):
        times.setdefault(place, []).append(seconds)
    return {
        f"rows of {one.m}" if one.name == "rows" else one.name: float(np.median(times[place]))
        / (one.floating_point_operations if one.name == "peak" else one.k * one.n)
        for place, one in enumerate(shapes)
    }


def sentinel(world: World) -> Found:
    """The sentinel's time by the operation, and that of its all-reduces by the call."""
    made = Sentinel(world, CPU)
    seconds = made.run()
    return {
        "sentinel's product": float(seconds["product_seconds"] or 0) / made.side**3,
        "sentinel's all-reduce": float(seconds["all_reduce_seconds"] or 0) / made.all_reduces,
    }


def training(world: World) -> Found:
    """An iteration of two networks, some of whose gradients are about as large as `IN_PLACE_BYTES`."""
    return {f"iteration of {name}": _iteration(world, name, batch) for name, batch in (("alexnet", 4), ("resnet50", 2))}


def _iteration(world: World, name: str, batch: int) -> float:
    mini_batch = MiniBatch(*find_network(name).takes.example(batch, CPU), 0.0, 0.0)
    seconds = []
    with Trainer(network(find_network(name), 1, CPU), world, PRESETS["wfbp"].preset, CPU) as trainer:
        for _ in range(4):
            world.comm.Barrier()
            seconds.append(trainer.step(lambda: mini_batch).phases["iteration_time"])
    return float(np.median(seconds[1:]))


def timing(world: World) -> Found:
    """What timing a layer takes."""
    world.comm.Barrier()
    return {"timing a layer": timing_cost.__wrapped__(CPU)}


# --- what it is measured with ---------------------------------------------------------------------


def scaled(value: Any, part: float) -> Any:
    """So many times a constant, or each number of it."""
    if isinstance(value, Mapping):
        return {key: scaled(one, part) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(scaled(one, part) for one in value)
    return type(value)(part * value) if isinstance(value, int) and part * value >= 1 else part * value


def vary(*names: str) -> Values:
    """Each of the constants at so many times its value."""
    return {name: lambda part, name=name: scaled(getattr(constants, name), part) for name in names}


def matrix(part: float, bounds: tuple[int, int]) -> tuple[int, int]:
    """Bounds that leave so many times the least size, whatever caches there are."""
    return (int(part * bounds[0]),) * 2


MEASURED: tuple[tuple[Callable[[World], Found], Values], ...] = (
    (rows, vary("BURST_SECONDS", "BURST_MESSAGES")),
    (beside, vary("ISOLATED_SECONDS", "BESIDE_PIECES", "BESIDE_MESSAGES", "PIECE_IMAGES")),
    (peak, vary("PEAK_SIDE")),
    (few_rows, {"ROWS_BYTES": lambda part: matrix(part, constants.ROWS_BYTES)}),
    (bandwidth, {"BANDWIDTH_BYTES": lambda part: {"cpu": matrix(part, constants.BANDWIDTH_BYTES["cpu"])}}),
    (sentinel, vary("SENTINEL_SECONDS", "SENTINEL_CACHE")),
    (training, vary("IN_PLACE_BYTES")),
    (timing, vary("TINY_LAYERS", "PAIRS")),
)
"""What is measured, and the constants that it is measured with."""


@contextmanager
def put(values: Mapping[str, Any]) -> Iterator[None]:
    """Constants with other values while the block runs."""
    before = {name: getattr(constants, name) for name in values}
    for name, value in values.items():
        setattr(constants, name, value)
    yield
    for name, value in before.items():
        setattr(constants, name, value)


def measure(rounds: int, file: Path) -> None:
    """What a rank of the job does; the first round is warm-up."""
    torch.set_num_threads(1)
    allocator.keep_freed()
    world, random = World.start(RANKS), np.random.default_rng(0)
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for function, wanted in MEASURED:
            values = {f"{name} x {part:g}": {name: of(part)} for name, of in wanted.items() for part in (0.5, 2)}
            values = {f"{function.__name__}, {AGAIN}": {}, **values}
            usual = function(world)
            for name in map(str, random.permutation(list(values))):
                with put(values[name]):
                    here = function(world)
                for quantity, value in here.items() if number else ():
                    found.setdefault(name, {}).setdefault(quantity, []).append(value / usual[quantity])
    if world.rank == 0:
        file.write_text(json.dumps({name: found[name] for name in sorted(found)}))


if __name__ == "__main__":
    measure(int(sys.argv[1]), Path(sys.argv[2]))
