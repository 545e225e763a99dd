"""Presets against PyTorch's DistributedDataParallel and against no communication, on two ranks of this machine.

Every candidate trains its own copy of the network in the same two processes, one iteration after the other in turn,
so that all see the same machine. An iteration lasts until both ranks have ended it; its exposed communication is what
it takes longer than the one without any communication in the same round.

Run under mpirun it is one rank: ``presets.py NETWORK BATCH ROUNDS OUTPUT``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from paired import Figure, Timing, figure, interleaved, of, ratio

RANKS = 2
NETWORKS = {"alexnet": 16, "googlenet": 8, "resnet50": 4}
"""Worker's mini-batch."""
ALONE, PEER = "no communication", "DistributedDataParallel"
OURS = ("segmented", "wfbp-segmented")


def candidates(network: str, batch: int) -> dict[str, Callable[[], float]]:
    """One iteration of each, which returns the seconds until both ranks had ended it."""
    import torch
    from torch import nn

    from stallpoint.measure.jobs.train import Trainer
    from stallpoint.measure.mpi import MPI
    from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
    from stallpoint.measure.training import allocator
    from stallpoint.measure.training.input_pipeline import MiniBatch
    from stallpoint.measure.training.optimisers import Sgd
    from stallpoint.measure.world import World
    from stallpoint.networks import find_network
    from stallpoint.strategies.presets import PRESETS

    torch.set_num_threads(1)
    allocator.keep_freed()
    world, cpu = World.start(RANKS), torch.device("cpu")
    torch.manual_seed(world.rank)
    inputs, labels = find_network(network).takes.example(batch, cpu)
    inputs.normal_()

    def timed(step: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            world.comm.Barrier()
            begin = time.perf_counter()
            step()
            return float(world.comm.allreduce(time.perf_counter() - begin, MPI.MAX))

        return run

    def plain(model: nn.Module) -> Callable[[], object]:
        parameters = list(model.parameters())
        optimiser = Sgd(parameters)

        def step() -> None:
            model(inputs, labels).backward()
            optimiser.step(parameters)
            model.zero_grad(set_to_none=True)

        return step

    def preset(name: str) -> Callable[[], object]:
        trainer = Trainer(find_network(network).build(1), world, PRESETS[name].preset, cpu)
        return lambda: trainer.step(lambda: MiniBatch(inputs, labels, 0.0, 0.0))

    TorchCommunicator(world, cpu)
    steps = {
        ALONE: plain(find_network(network).build(1)),
        PEER: plain(nn.parallel.DistributedDataParallel(find_network(network).build(1))),
        **{name: preset(name) for name in OURS},
    }
    for step in steps.values():  # DistributedDataParallel forms its buckets in the first iteration
        step()
    return {name: timed(step) for name, step in steps.items()}


def results(timings: list[Timing], network: str) -> tuple[list[Figure], list[str]]:
    """Ratios to the peer, and lines with the medians."""
    benchmark = timings[0].benchmark
    seconds = {name: [timing.seconds for timing in of(timings, name)] for name in (ALONE, PEER, *OURS)}
    lines = [f"{benchmark}, {len(seconds[ALONE])} interleaved rounds"]
    for name, values in seconds.items():
        exposed = statistics.median(own - less for own, less in zip(values, seconds[ALONE], strict=True))
        lines.append(f"  {name:<28}{1e3 * statistics.median(values):>8.0f} ms, exposed {1e3 * exposed:.0f} ms")
    figures = [ratio(timings, ALONE, PEER)]
    for name in OURS:
        faster = [peer / own for peer, own in zip(seconds[PEER], seconds[name], strict=True)]
        wanted = ">= 1.05" if network == "alexnet" else ">= 1"
        figures += [
            ratio(timings, name, PEER, "<= 0.5 for the best", above=ALONE),
            figure(benchmark, name, f"throughput, ratio to {PEER}", faster, f"{wanted} for the best"),
        ]
    return figures, [*lines, *(found.line(digits=2) for found in figures)]


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Measurements and lines to print."""
    mpirun = [str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    rows: list[Timing | Figure] = []
    lines: list[str] = []
    for network, batch in NETWORKS.items():
        output = scratch / f"{network}.json"
        command = [*mpirun, sys.executable, __file__, network, str(batch), str(4 * count), str(output)]
        subprocess.run(command, env={**os.environ, **root}, check=True)
        timings = [Timing(**timing) for timing in json.loads(output.read_text())]
        figures, text = results(timings, network)
        rows += [*timings, *figures]
        lines += text
    return rows, lines


if __name__ == "__main__":
    network, batch, rounds, output = sys.argv[1:]
    name = f"presets, {network}, batch {batch} on each of {RANKS} ranks"
    timings = interleaved(name, candidates(network, int(batch)), int(rounds))
    from stallpoint.measure.mpi import MPI

    if MPI.COMM_WORLD.rank == 0:
        Path(output).write_text(json.dumps([asdict(timing) for timing in timings]))
        print(*results(timings, network)[1], sep="\n", flush=True)
