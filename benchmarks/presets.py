"""Presets against PyTorch's DistributedDataParallel and against no communication, on two ranks of this machine.

Every candidate trains its own copy of the network in the same two processes, one iteration after the other in turn,
so that all see the same machine. An iteration lasts until both ranks have ended it. *Exposed communication* is what an
iteration takes longer than that without any communication, in the same round.

Run under mpirun it is one rank: ``presets.py NETWORK BATCH ROUNDS OUTPUT [PRESET ...]``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

RANKS = 2
NETWORKS = {"alexnet": (16, 20), "googlenet": (8, 16), "resnet50": (4, 16)}
"""Worker's mini-batch and rounds."""
IDEAL, PEER = "no communication", "DistributedDataParallel"
OURS = ("naive", "wfbp", "wfbp-segmented", "segmented")


def candidates(network: str, batch: int, presets: Sequence[str]) -> dict[str, Callable[[], None]]:
    """One iteration of each; this loads PyTorch and starts MPI."""
    import torch
    from torch import nn

    from stallpoint.measure import memory
    from stallpoint.measure.optimiser import Sgd
    from stallpoint.measure.pipeline import MiniBatch
    from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
    from stallpoint.measure.train import Trainer
    from stallpoint.measure.world import World
    from stallpoint.networks import find
    from stallpoint.presets import PRESETS

    torch.set_num_threads(1)
    memory.keep_freed()
    world, cpu, known = World.start(RANKS), torch.device("cpu"), find(network)
    torch.manual_seed(world.rank)
    images = torch.randn(batch, 3, known.image_size, known.image_size)
    labels = torch.randint(1000, (batch,))
    data = MiniBatch(images, labels, 0.0, 0.0)

    def plain(model: nn.Module) -> Callable[[], None]:
        parameters = list(model.parameters())
        optimiser = Sgd(parameters)

        def step() -> None:
            model(images, labels).backward()
            optimiser.step(parameters)
            model.zero_grad(set_to_none=True)

        return step

    def preset(name: str) -> Callable[[], None]:
        trainer = Trainer(known.build(1), world, PRESETS[name].preset, cpu, warmup=2)
        return lambda: (trainer.step(lambda: data), None)[1]

    TorchCommunicator(world, cpu)
    return {
        IDEAL: plain(known.build(1)),
        PEER: plain(nn.parallel.DistributedDataParallel(known.build(1))),
        **{name: preset(name) for name in presets},
    }


def measure(network: str, batch: int, rounds: int, presets: Sequence[str]) -> dict[str, list[float]]:
    """Seconds of every candidate in every round, until the slower rank had ended; two rounds before are left out."""
    steps = candidates(network, batch, presets)
    from stallpoint.measure.mpi import MPI

    comm = MPI.COMM_WORLD
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(-3, rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            comm.Barrier()
            begin = time.perf_counter()
            steps[name]()
            took = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
            if number >= 0:
                seconds[name].append(took)
    return seconds


def interval(values: Callable[[np.ndarray], float], rounds: int) -> tuple[float, float, float]:
    """A statistic of rounds (given by their numbers): its value, and its 90 % interval by bootstrap."""
    random = np.random.default_rng(0)
    drawn = [values(random.integers(0, rounds, rounds)) for _ in range(2000)]
    return (values(np.arange(rounds)), *np.quantile(drawn, [0.05, 0.95]))


def report(network: str, seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """Lines with each candidate's median, and its ratios to the peer."""
    times = {name: np.array(values) for name, values in seconds.items()}
    rounds = len(times[IDEAL])

    def exposed(name: str, which: np.ndarray) -> float:
        return float(np.median((times[name] - times[IDEAL])[which]))

    lines = [f"  {network}: {IDEAL} {np.median(times[IDEAL]) * 1e3:.0f} ms"]
    for name in times:
        if name == IDEAL:
            continue
        own = f"{np.median(times[name]) * 1e3:.0f} ms, exposed {exposed(name, np.arange(rounds)) * 1e3:.0f} ms"
        if name == PEER:
            lines.append(f"    {name:<28}{own}")
            continue
        hidden = interval(lambda which, name=name: exposed(name, which) / exposed(PEER, which), rounds)
        faster = interval(lambda which, name=name: float(np.median((times[PEER] / times[name])[which])), rounds)
        texts = ["{:.2f} ({:.2f} to {:.2f})".format(*values) for values in (hidden, faster)]
        lines.append(f"    {name:<28}{own}; of the peer's: exposed {texts[0]}, throughput {texts[1]}")
    return lines


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print; the rounds of `count` are multiplied, as one iteration is no measurement."""
    from paired import Timing

    timings, lines = [], [f"  wanted: exposed <= 0.5 of the peer's, throughput >= 1 (AlexNet 1.05), {RANKS} ranks"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    for network, (batch, rounds) in NETWORKS.items():
        output = scratch / f"{network}.json"
        arguments = [network, str(batch), str(rounds * max(1, count // 5)), str(output), *OURS]
        launcher = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
        subprocess.run([*launcher, sys.executable, __file__, *arguments], env={**os.environ, **root}, check=True)
        seconds = json.loads(output.read_text())
        timings += [
            Timing(f"presets, {network}", name, number, value, 0)
            for name, values in seconds.items()
            for number, value in enumerate(values)
        ]
        lines += report(network, seconds)
    return timings, lines


if __name__ == "__main__":
    network, batch, rounds, output, *presets = sys.argv[1:]
    seconds = measure(network, int(batch), int(rounds), presets or OURS)
    from stallpoint.measure.mpi import MPI

    if MPI.COMM_WORLD.rank == 0:
        Path(output).write_text(json.dumps(seconds))
        print(*report(network, seconds), sep="\n", flush=True)
