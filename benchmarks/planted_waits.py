"""A training script of DistributedDataParallel over Gloo with a wait planted in it, for whoever is to find it.

usage, on each rank: planted_waits.py TOOL ITERATIONS FOLDER WHERE:SECONDS:RANK ...

TOOL is probe, traceml or none. WHERE is input, forward, backward or communication, RANK a number or all; each such case
trains a network of its own, and the probe's records go to FOLDER/<case>.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WHERE = ("input", "forward", "backward", "communication")
WIDTH, DEPTH, BATCH = int(os.environ.get("PLANTED_WIDTH", "384")), 6, 64
"""Of the network, and of a mini-batch."""
PLANTED = "4"
"""The layer whose passes wait."""

wait: dict[str, float] = {}
"""Seconds that this rank waits, by where."""


class Group(dist.ProcessGroup):
    """Gloo, where a call that sends gradients may wait."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

    def allreduce(self, *given: Any) -> Any:
        time.sleep(wait.get("communication", 0.0))
        return self._gloo.allreduce(*given)

    def allgather(self, *given: Any) -> Any:
        return self._gloo.allgather(*given)

    def broadcast(self, *given: Any) -> Any:
        return self._gloo.broadcast(*given)

    def barrier(self, *given: Any, **named: Any) -> Any:
        return self._gloo.barrier(*given, **named)

    def getBackendName(self) -> str:
        return "planted"


class Backward(torch.autograd.Function):
    """Waits in the backward pass."""

    @staticmethod
    def forward(_context: Any, values: torch.Tensor) -> torch.Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(wait.get("backward", 0.0))
        return gradient


class Waiting(nn.Linear):
    """A layer whose passes may wait."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        time.sleep(wait.get("forward", 0.0))
        found: torch.Tensor = Backward.apply(super().forward(values))
        return found


class Samples(TensorDataset):
    """Samples, the first of which in a mini-batch may be waited for."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        if index % BATCH == 0:
            time.sleep(wait.get("input", 0.0))
        return super().__getitem__(index)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [Waiting(WIDTH, WIDTH) if str(k) == PLANTED else nn.Linear(WIDTH, WIDTH) for k in range(DEPTH)]
    return DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 10)))


def loader(iterations: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    samples = BATCH * iterations
    return DataLoader(Samples(torch.randn(samples, WIDTH), torch.randint(0, 10, (samples,))), BATCH)


def train(iterations: int, around: Callable[[nn.Module], AbstractContextManager[Any]], each: Any) -> None:
    """Train; `around` is around the loop, and `each` around an iteration or told of it (`step`)."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with around(model) as kept:
        for inputs, classes in loader(iterations):
            with each(model) if each else nullcontext():
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), classes).backward()
                optimizer.step()
            if hasattr(kept, "step"):
                kept.step()


def begin() -> None:
    """Meet the other ranks."""
    dist.Backend.register_backend("planted", Group, devices=["cpu"])
    dist.init_process_group("planted")


def main(tool: str, iterations: int, folder: Path, cases: list[str]) -> None:
    probe: Any = None
    traceml: Any = None  # an environment has either package
    if tool == "probe":
        from stallpoint import probe
    if tool == "traceml":
        import traceml_ai as traceml

        traceml.init(mode="auto")
    begin()
    for case in cases:
        where, seconds, rank = case.split(":")
        wait.clear()
        if rank in ("all", str(dist.get_rank())):
            wait[where] = float(seconds)
        dist.barrier()
        around = {
            "probe": lambda model, case=case: probe(model, folder=folder / case),
            "traceml": lambda _: nullcontext(),
            "none": lambda _: nullcontext(),
        }
        train(iterations, around[tool], traceml.trace_step if traceml else None)
    dist.destroy_process_group()


if __name__ == "__main__":
    tool, iterations, folder, *cases = sys.argv[1:]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    main(tool, int(iterations), Path(folder), cases)
