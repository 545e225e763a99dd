"""All-reduces of a network's gradients, one after the other, predicted from bursts and from single messages.

On 2, 4 and 8 slow nodes all messages of a network are sent as training without overlap sends them (`naive`), once all
ranks have computed for a while. Beside them, in turns of the same job: bursts of equal messages, as collectives jobs
time them, and one message after a barrier, as `osu_allreduce` does; both are read off between the measured sizes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import narrow_networks
import numpy as np
import pandas as pd
import torch
from paired import Figure
from slow_nodes import SRUN, NotHere, slow_nodes

from stallpoint.base.statistics import estimate, generator, resampled
from stallpoint.measure.jobs.bursts import send, timed_burst
from stallpoint.measure.jobs.co_running import backward_of_convolution
from stallpoint.measure.jobs.operations import Operations
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.world import World
from stallpoint.networks.layers import layers
from stallpoint.strategies.buckets import buckets
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import PRESETS

NODES = (2, 4, 8)
SIZES = [4**power for power in range(5, 13)]
COMPUTING = 0.3
"""How long ranks compute before they send gradients, s: about the passes of these networks there."""
WAYS = {"rows": "rows of equal messages", "single": "single ones, after a barrier"}


def benchmark(scratch: Path, rounds: int) -> tuple[list[Figure], list[str]]:
    figures: list[Figure] = []
    try:
        with slow_nodes() as environment:
            for nodes in NODES:
                command = [*SRUN.format(nodes=nodes, ranks=nodes).split(), sys.executable, __file__]
                file = scratch / f"{nodes}.json"
                subprocess.run([*command, str(nodes), str(rounds), str(file)], env=environment, check=True)
                figures += _ratios(nodes, pd.DataFrame(json.loads(file.read_text())))
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"message-bursts: not run: {error}"]
    title = "message-bursts: all messages of a network, one after the other (wanted: 1)"
    return figures, [title, *(figure.line() for figure in figures)]


def _ratios(nodes: int, calls: pd.DataFrame) -> Iterator[Figure]:
    # A row ends when its slowest rank does; in training what comes after it waits for the last rank to begin.
    times = calls.groupby(["what", "size", "round"])["seconds"].agg(["max", "min"])
    by_size = {way: times["max"].loc[way].unstack("round").to_numpy() for way in WAYS}
    for network, sizes in _messages().items():
        sent = times["min"].loc[network].to_numpy()
        for way, words in WAYS.items():
            known = zip(by_size[way].T, sent, strict=True)
            ratio = [np.interp(sizes, [0, *SIZES], [row[0], *row]).sum() / seconds for row, seconds in known]
            found = resampled(np.array(ratio), generator(0, way), np.median)
            yield Figure(
                "message-bursts", f"{network}, {len(sizes)} messages, {nodes} nodes",
                f"from {words} / measured", *estimate(found),
            )  # fmt: skip


def _messages() -> dict[str, list[int]]:
    """Bytes of each message of an iteration under `naive`, by network."""
    found = {}
    for name, network in {"ResNet-50": narrow_networks.resnet50(), "GoogLeNet": narrow_networks.googlenet()}.items():
        sizes = [layer.gradient_bytes for layer in layers(network)]
        found[name] = [sum(sizes[layer] for layer in group) for group in buckets(PRESETS["naive"].preset, sizes)]
    return found


def measure(nodes: int, rounds: int, file: Path) -> None:
    """What a rank of the job does; the first round is warm-up."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    world = World.start(nodes)
    communicates = communicator("mpi", "library", 0, world, device)
    compute = backward_of_convolution(device)
    networks = _messages()
    operations = Operations(communicates, max(*SIZES, *chain.from_iterable(networks.values())), torch.device("cpu"))
    rows: list[dict[str, object]] = []
    many = dict.fromkeys(SIZES, 1)

    def note(what: str, size: int, number: int, seconds: float) -> None:
        if number:
            rows.append({"what": what, "size": size, "round": number, "rank": world.rank, "seconds": seconds})

    for number in range(rounds + 1):
        for size in SIZES:
            world.comm.Barrier()
            note("single", size, number, send([operations(ALL_REDUCE, size)]))
        for size in SIZES:
            sent = many[size]
            seconds, many[size] = timed_burst(world, operations(ALL_REDUCE, size), sent)
            note("rows", size, number, seconds / sent)
        for name, sizes in networks.items():
            world.comm.Barrier()
            until = time.perf_counter() + COMPUTING
            while time.perf_counter() < until:
                compute()
            note(name, sum(sizes), number, send([operations(ALL_REDUCE, size) for size in sizes]))
    everybody = world.comm.gather(rows)
    if world.rank == 0:
        file.write_text(json.dumps([row for of_rank in everybody for row in of_rank]))
    communicates.close()


if __name__ == "__main__":
    measure(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
