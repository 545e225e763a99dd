"""Disturbed iterations of training: how many of them are found, and how many others are taken for disturbed.

Two ranks train a small network, each with one thread, by all-reduces during the backward pass, while a process keeps
one core busy a third of the time, in spans of 0.5 to 1.5 s. An iteration that such a span covers by more than half, on
any rank, is disturbed; one that no span touches is not. Iterations are left out while anything ran that nobody planted:
every half a second says so by the CPU time of the kernel, less that of the ranks and of the planted process.

Under mpirun it is one rank: ``disturbances.py IMAGES SECONDS OUTPUT``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from paired import Figure
from scipy.stats import beta

from stallpoint.measure.machine.sensors import Sensors
from stallpoint.models.base.statistics import generator
from stallpoint.records.disturbances import disturbed, on_all_ranks

RANKS = 2
IMAGES = (4, 16, 64)
"""Mini-batches of a worker: iterations of some 8, 16 and 50 ms on a core that has nothing else to do."""
SECONDS = 20.0
"""How long each job trains."""
MAX_JOBS = 4
"""Jobs for each mini-batch where others keep the machine busy; fewer once ENOUGH_TIME is left of them."""
ENOUGH_TIME = 20.0
SPAN = (0.5, 1.5)
"""Shortest and longest time the core is kept busy, s."""
IDLE = 2
"""How much longer it is left alone after it."""
LOOK, QUIET = 0.5, 0.1
"""How often to look whether anything else runs, s, and up to what share of a core nothing does."""
PATIENCE = 60.0
"""How long to wait until nothing else runs, s, before each job."""
BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
for span in sys.argv[2:]:
    begin, end = map(float, span.split("-"))
    time.sleep(max(0, begin - time.perf_counter()))
    while time.perf_counter() < end:
        pass
"""


def train(images: int, seconds: float, output: str) -> pd.DataFrame:
    """Iterations of all ranks in about so many seconds, with what their sensors read."""
    import torch
    from torch import nn

    from stallpoint.measure.jobs.train import Trainer
    from stallpoint.measure.machine.sensors import Sensors, between, kernel_id
    from stallpoint.measure.training import allocator
    from stallpoint.measure.training.pipeline import MiniBatch
    from stallpoint.measure.world import World
    from stallpoint.networks.layers import Classifier
    from stallpoint.strategies.presets import PRESETS

    torch.set_num_threads(1)
    allocator.keep_freed()
    world, cpu = World.start(RANKS), torch.device("cpu")
    torch.manual_seed(1)
    network = Classifier(
        conv1=nn.Conv2d(3, 32, 3, padding=1), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 3, padding=1), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(), fc1=nn.Linear(64 * 8 * 8, 128), relu3=nn.ReLU(), fc2=nn.Linear(128, 10),
    )  # fmt: skip
    batch = MiniBatch(torch.randn(images, 3, 32, 32), torch.randint(10, (images,)), 0.0, 0.0)
    rows: list[dict[str, Any]] = []
    Path(f"{output}.{world.rank}").write_text(str(os.getpid()))
    with Trainer(network, world, PRESETS["wfbp"].preset, cpu) as trainer, Sensors() as sensors:
        which = {"cell": str(images), "visit": 0, "rank": world.rank, "kernel": kernel_id(), "threads": 1}
        which |= {"cpus": sensors.cpus, "node_busy_error": sensors.node_busy_error}
        times = [trainer.step(lambda: batch).phases["iteration_time"] for _ in range(20)]
        for iteration in range(world.comm.bcast(int(seconds / float(np.median(times))))):
            first, begin = sensors.read(), time.perf_counter()
            measured = trainer.step(lambda: batch)
            end, second = time.perf_counter(), sensors.read()
            taken = {"iteration": iteration, "begin": begin, "end": end, "iteration_time": end - begin}
            rows.append({**which, **measured.phases, **taken, **between(first, second)})
    return pd.DataFrame([row for some in world.comm.allgather(rows) for row in some])


def spans(seconds: float, seed: int) -> list[tuple[float, float]]:
    """When the core is to be kept busy, from now on, on the clock that all processes of a machine share."""
    random, now, found = generator(seed, "spans"), time.perf_counter(), []
    end = now + seconds
    while now < end:
        length = random.uniform(*SPAN)
        now += IDLE * length
        found.append((now, now + length))
        now += length
    return found


@contextmanager
def busy(cpu: int, when: list[tuple[float, float]]) -> Iterator[int]:
    """A process that computes on `cpu` in these spans, while the block runs."""
    command = [sys.executable, "-c", BUSY, str(cpu), *(f"{begin}-{end}" for begin, end in when)]
    with subprocess.Popen(command) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def covered(rows: pd.DataFrame, when: list[tuple[float, float]]) -> pd.Series[float]:
    """Share of each row's iteration that spans cover, on the rank where it is largest."""
    begin, end = rows["begin"].to_numpy()[:, None], rows["end"].to_numpy()[:, None]
    first, last = np.array(when).T
    share = np.maximum(0, np.minimum(end, last) - np.maximum(begin, first)).sum(axis=1) / (end - begin)[:, 0]
    return rows.assign(share=share).groupby("iteration")["share"].transform("max")


def wait_until_quiet() -> None:
    """Until nothing has run for two looks, or `PATIENCE` is at its end."""
    end, quiet = time.perf_counter() + PATIENCE, 0
    with Sensors() as sensors:
        while quiet < 2 and time.perf_counter() < end:
            before = sensors.read().node_busy or 0.0
            time.sleep(LOOK)
            quiet = quiet + 1 if (sensors.read().node_busy or 0.0) - before < QUIET * LOOK else 0


def job(scratch: Path, images: int, number: int) -> pd.DataFrame:
    """Iterations of one job while the core is kept busy at times, and what other processes took meanwhile."""
    output = scratch / f"{images}-{number}.pickle"
    mpirun = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [*mpirun, sys.executable, __file__, str(images), str(SECONDS), str(output)]
    pids = [Path(f"{output}.{rank}") for rank in range(RANKS)]
    when = spans(10 * SECONDS, 1000 * number + images)
    looks = []
    with busy(max(os.sched_getaffinity(0)), when) as planted, Sensors() as sensors:
        with subprocess.Popen(command, env={**os.environ, **root}) as ranks:
            while ranks.poll() is None:
                if all(pid.exists() and pid.read_text() for pid in pids):
                    own = sum(_cpu_time(pid) for pid in [planted, *(int(pid.read_text()) for pid in pids)])
                    looks.append((time.perf_counter(), (sensors.read().node_busy or np.nan) - own))
                time.sleep(LOOK)
        if ranks.returncode:
            raise SystemExit(f"benchmark command failed ({ranks.returncode}): {' '.join(command)}")
    rows = pd.read_pickle(output)
    at, others = np.array(looks).T
    share = np.diff(others) / np.diff(at)
    # The look before the iteration began, to the one after it ended.
    first = np.clip(np.searchsorted(at, rows["begin"]) - 1, 0, len(share) - 1)
    last = np.clip(np.searchsorted(at, rows["end"]) - 1, 0, len(share) - 1)
    rows["others"] = np.maximum(share[first], share[last])
    rows["others"] = rows.groupby("iteration")["others"].transform("max")
    return rows.assign(covered=covered(rows, when), visit=number)


def _cpu_time(pid: int) -> float:
    """CPU time of another process, s (clock_getcpuclockid); 0 once it has ended."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def share(name: str, what: str, marked: pd.Series[bool], wanted: str) -> Figure:
    """Share of iterations that are marked, and its 90 % interval (Jeffreys)."""
    yes, no = int(marked.sum()), int((~marked).sum())
    low, high = (float(beta.ppf(part, yes + 0.5, no + 0.5)) for part in (0.05, 0.95))
    return Figure("disturbances", name, f"{what} that are marked", yes / max(1, yes + no), low, high, wanted)


def benchmark(scratch: Path, rounds: int) -> tuple[list[Figure], list[str]]:
    """Both shares for each mini-batch; `rounds` is not used."""
    figures, lines = [], ["disturbances: a core kept busy a third of the time beside two ranks on this machine"]
    for images in IMAGES:
        jobs: list[pd.DataFrame] = []
        while len(jobs) < MAX_JOBS and sum(_quiet(rows)["iteration_time"].sum() for rows in jobs) < ENOUGH_TIME:
            wait_until_quiet()
            jobs.append(job(scratch, images, len(jobs)))
        rows = pd.concat(jobs, ignore_index=True)
        rows["reason"] = on_all_ranks(rows, disturbed(rows))
        kept, every = _quiet(rows), rows[rows["rank"] == 0]
        name, marked = f"{images} images", kept["reason"] != ""
        lines.append(
            f"  {name}: {len(every) - len(kept)} of {len(every)} iterations left out; "
            f"others took {every['others'].mean():.2f} cores (mean)"
        )
        half, untouched = kept["covered"] > 0.5, kept["covered"] == 0
        for what, these, wanted in (("disturbed", half, ">= 0.95"), ("other", untouched, "<= 0.05")):
            if these.any():
                milliseconds = f"{1e3 * kept.loc[these, 'iteration_time'].median():.0f} ms"
                lines.append(f"  {name}: {these.sum()} {what} iterations, {milliseconds} (median)")
                figures.append(share(name, f"{what} iterations", marked[these], wanted))
    return figures, [*lines, *(figure.line() for figure in figures)]


def _quiet(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each iteration beside which nothing else ran."""
    return rows[(rows["rank"] == 0) & (rows["others"] < QUIET)]


if __name__ == "__main__":
    found = train(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
    from stallpoint.measure.mpi import MPI

    if MPI.COMM_WORLD.rank == 0:
        found.to_pickle(sys.argv[3])
