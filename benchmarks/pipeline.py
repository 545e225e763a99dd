"""The input pipeline against PyTorch's DataLoader: the same files, decoder, normalisation, workers and batches ahead.

The DataLoader has processes, stallpoint threads (starting processes beside MPI is unsafe). Both go on without end;
what counts is the time of some mini-batches after the first ones, with nobody computing meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count as numbers
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from stallpoint.measure.training.decoding import decoder
from stallpoint.measure.training.input_pipeline import InputPipeline, SampleOrder
from stallpoint.networks.inputs import Images
from stallpoint.storage import Storage
from stallpoint.storage.generate import prepare

SAMPLES, BATCH, BATCHES, AHEAD, WORKERS, SEED = 512, 32, 12, 2, 2, 1
TAKES = Images(224)
FORMATS = ("files", "tar")


class Samples(Dataset):
    """Samples as stallpoint decodes them, one for each index."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._opened: Any = None

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._opened is None:  # samples are read in the worker's own process
            self._opened = self._storage.open()
            self._decoder = decoder(self._opened, TAKES)
        sample = self._decoder.buffers(1)
        self._decoder.decode(index, self._opened.read(index), sample, 0)
        return torch.from_numpy(sample.inputs[0]), torch.from_numpy(sample.labels)[0]


class Order(Sampler):
    """Mini-batches in stallpoint's order, without end."""

    def __iter__(self) -> Iterator[list[int]]:
        order = SampleOrder(SAMPLES, batch=BATCH, rank=0, ranks=1, seed=SEED)
        return (order.indices(iteration) for iteration in numbers())


def data_loader(storage: Storage) -> Callable[[], object]:
    """PyTorch's; each worker has as many batches ahead as make `AHEAD` in all, but one at least."""
    loader = DataLoader(
        Samples(storage), batch_sampler=Order(), num_workers=WORKERS, prefetch_factor=max(1, AHEAD // WORKERS)
    )
    batches = iter(loader)
    return lambda: next(batches)


def stallpoint(storage: Storage, stack: ExitStack) -> Callable[[], object]:
    """Ours."""
    settings = {"takes": TAKES, "batch": BATCH, "rank": 0, "ranks": 1, "seed": SEED}
    return stack.enter_context(InputPipeline(storage, prefetch=AHEAD, readers=WORKERS, **settings)).next_batch


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print."""
    from paired import interleaved, report

    results, lines = [], []
    for name in FORMATS:
        storage = Storage(name, scratch / name, name)
        prepare(storage, generate=SAMPLES, seed=SEED)

        def seconds(of: Callable[[ExitStack], Callable[[], object]]) -> Callable[[], float]:
            def run() -> float:
                with ExitStack() as stack:  # only one of them works at a time
                    next_batch = of(stack)
                    for _ in range(AHEAD + WORKERS):
                        next_batch()
                    begin = time.perf_counter()
                    for _ in range(BATCHES):
                        next_batch()
                    return time.perf_counter() - begin

            return run

        candidates = {
            "stallpoint": seconds(lambda stack, storage=storage: stallpoint(storage, stack)),
            "DataLoader": seconds(lambda stack, storage=storage: data_loader(storage)),
        }
        timings = interleaved(f"pipeline, {BATCHES} mini-batches of {BATCH} from {name}", candidates, count)
        figures, said = report(timings, "stallpoint", "DataLoader", "<= 1.0")
        results += [*timings, *figures]
        lines += said
    return results, lines
