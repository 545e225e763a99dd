"""What a probe costs a script beside torch.profiler: iterations of one worker, and of two (DistributedDataParallel).

usage, as a part of it: probe.py NETWORK BATCH ITERATIONS ROUNDS FOLDER
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler talks on standard error

import torch
import torch.distributed as dist
from paired import Figure, Timing, interleaved, of, ratio
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile

import stallpoint
from stallpoint.measure.probe import Probe
from stallpoint.measure.probe.probe import SECONDS_AT_ONCE
from stallpoint.networks import find

CASES = (("lenet", 64, 50), ("googlenet", 4, 2))
"""Network, samples of a worker's mini-batch, and iterations of a round."""
BARE, AGAIN, PROBED, PROFILED = "bare", "bare again (A/A)", "probe", "torch.profiler"


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Each case on one and two workers."""
    rows: list[Timing | Figure] = []
    lines = []
    for ranks in (1, 2):
        for name, batch, iterations in CASES:
            timings = _timings(name, batch, iterations, count, scratch, ranks)
            milliseconds = 1e3 * statistics.median(one.seconds for one in of(timings, BARE)) / iterations
            found = [
                ratio(timings, AGAIN, BARE),
                ratio(timings, PROBED, BARE, "<= 1.01"),
                ratio(timings, PROFILED, BARE),
            ]
            rows += [*timings, *found]
            size = f"{len(of(timings, BARE))} rounds of {iterations} iterations ({milliseconds:.1f} ms each)"
            lines.append(f"{timings[0].benchmark}, {size}")
            lines += [one.line(digits=4) for one in found]
    return rows, lines


def _timings(name: str, batch: int, iterations: int, count: int, scratch: Path, ranks: int) -> list[Timing]:
    """What the first of `ranks` processes measured."""
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        port = any_socket.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, name, str(batch), str(iterations), str(count), str(scratch)],
            env={**os.environ, **common, "GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"benchmark probe: {name} failed on {ranks} workers")
    return [Timing(**one) for one in json.loads(said[0])]


def _measure(name: str, batch: int, iterations: int, count: int, folder: Path) -> list[Timing]:
    ranks = int(os.environ["WORLD_SIZE"])
    if ranks > 1:
        dist.init_process_group("gloo")

    def training(around: Callable[[nn.Module], AbstractContextManager[Any]]) -> Callable[[], float]:
        """Rounds of a network of its own: the hook that a probe puts on DistributedDataParallel stays there."""
        model: nn.Module = find(name).build(seed=1)
        if ranks > 1:
            model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        inputs, labels = find(name).takes.example(batch, torch.device("cpu"))

        def run() -> float:
            with around(model) as kept:
                if ranks > 1:
                    dist.barrier()
                begin = time.perf_counter()
                for _ in range(iterations):
                    optimizer.zero_grad()
                    model(inputs, labels).backward()
                    optimizer.step()
                    if isinstance(kept, Probe):
                        kept.step()
                seconds = time.perf_counter() - begin
                if isinstance(kept, Probe):  # it writes every few seconds; a round has its share of that
                    begin = time.perf_counter()
                    kept.write()
                    seconds += (time.perf_counter() - begin) * seconds / SECONDS_AT_ONCE
                return seconds

        return run

    candidates = {
        BARE: training(lambda _: nullcontext()),
        AGAIN: training(lambda _: nullcontext()),
        PROBED: training(lambda model: stallpoint.probe(model, folder=folder)),
        PROFILED: training(lambda _: profile()),
    }
    return interleaved(f"probe: {name}, b = {batch}, {ranks} worker(s)", candidates, count)


if __name__ == "__main__":
    network, *numbers, records = sys.argv[1:]
    found = _measure(network, *map(int, numbers), Path(records))
    print(json.dumps([vars(one) for one in found]))
