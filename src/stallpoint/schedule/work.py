"""How long a visit takes where nothing was measured yet: the work that the cell asks for, over rates stated here.

The rates are those of no machine in particular: such a time may well be wrong by a factor of two (`FACTOR`), and
serves to find out before submission whether a study takes minutes or days. Once a machine has measured anything, what
it really took replaces them (`expected`). No tensor library is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stallpoint.errors import InputError
from stallpoint.networks import NETWORKS
from stallpoint.records import parquet
from stallpoint.records.tables import NETWORK_LAYERS
from stallpoint.storage import FORMATS, SampleSet
from stallpoint.storage.idx import IdxImages
from stallpoint.storage.images import EncodedImages
from stallpoint.strategies.presets import preset_from
from stallpoint.study.cells import (
    Cell,
    CollectivesCell,
    CommandCell,
    ConvergenceCell,
    CopiesCell,
    SgemmCell,
    StorageCell,
    TrainCell,
)

FACTOR = 2.5
"""Times from stated rates are right to within this factor, up or down, nine times out of ten."""
FACTOR_UNKNOWN = 10.0
"""The same for a network of the study's own of which nothing is known yet but its inputs."""
CPU_RATE = 35e9
"""FLOP/s of each thread in training: a core of 2.5 to 3 GHz has 80 to 96 at most with AVX2, and twice that with
AVX-512. Convolutions and products of small mini-batches reached about a quarter of the one on older cores, and 50e9 to
75e9 with the other (AlexNet, GoogLeNet, ResNet-50 at b = 8 and 16); this lies between."""
CPU_PRODUCTS_RATE = 40e9
"""FLOP/s of each thread in plain matrix products, which are larger: about half of the most with AVX2."""
CUDA_RATES = {"float32": 5e12, "tf32": 20e12, "bf16": 40e12, "fp16": 40e12}
"""FLOP/s of a GPU in training: about a third of the most of a V100 (15.7e12) or A100 (19.5e12) in float32, and less
than a fifth of that of an A100's tensor cores (156e12, 312e12)."""
PASSES = 3
"""Forward passes that an iteration's products are worth: the backward pass takes two."""
BANDWIDTH = 1e9
"""B/s that each worker sends and receives: a link of 10 Gbit/s, or memory of one machine shared by processes."""
MEMORY = 10e9
"""B/s of a CPU core's memory; a GPU's is not what an update waits for."""
UPDATE_BYTES = 5
"""Times that an update reads or writes as many bytes as there are gradients: weights, momentum, gradients."""
COPIES = 0.5
"""Seconds for one copy of each sort: 0.1 to 0.4 GB at 10e9 B/s, by several numbers of threads."""
SAMPLE_ENCODED, SAMPLE_DECODED, SAMPLE_SMALL = 0.01, 0.001, 0.0001
"""Seconds that a reader takes to read and decode one image, for one sample that is decoded already, and for one of a
thousand bytes (`idx`)."""
EPOCH_SAMPLES = 1_281_167
"""Training samples of a storage of which nobody knows yet how many it has: ImageNet's."""
EVALUATED = 1.5
"""Times that a run to a target takes for its evaluations beside its training."""
REACHED = 0.5
"""Part of its most steps after which a run reaches its target: nobody knows before."""
ITERATION, STEP = 0.02, 0.004
"""Seconds of an iteration that the size of the network does not matter for: calls of layers, rows that are kept; and
of a step of a run to a target, which keeps none."""
VISIT = 0.3
"""Seconds of a visit beside its iterations: setting up, agreeing, writing, the order for the next one."""
ROW = 0.25
"""Seconds of a burst of all-reduces and of the one beside computing, unless one message takes longer."""
READ = 0.002
"""Seconds to read one sample, of cold and warm ones on average."""
WRITING = 2e8
"""B/s at which a checkpoint is written and read back."""
SCRIPT = 20.0
"""Seconds of a command: its start, with a tensor library, and training that nothing is known of."""
START = 10.0
"""Seconds until processes have started: imports, MPI."""
BETWEEN = 0.2
"""Seconds between two visits."""
_MACHINE_PRODUCTS = 2048**3 + 8192**2 + 2470 * 4096 * 6144
"""Multiply-adds of what tells about a machine with 32 MiB of caches (`stallpoint.measure.jobs.sgemm.machine`)."""
_REFERENCE = 4096 * 9216
"""Multiply-adds of the reference product for each sample of a mini-batch."""


@dataclass(frozen=True)
class Size:
    """What is known of a network without building it."""

    multiply_adds: float
    gradient_bytes: float
    known: bool = True
    """Else both are guessed from its inputs."""


def size_of(network: str, own: Mapping[str, Any] | None, descriptions: Path) -> Size:
    """The size of a network: of the registry, or the study's `own`, as described in `descriptions` by an earlier run.

    A network that was not described yet counts like ResNet-50 for images of its size, or like 12 million weights for
    each token.
    """
    if own is None and network in NETWORKS:
        return Size(NETWORKS[network].multiply_adds, NETWORKS[network].gradient_bytes)
    file = descriptions / f"{network}.parquet"
    if file.exists():
        rows = parquet.read(NETWORK_LAYERS, file).to_pydict()
        return Size(float(sum(rows["multiply_adds"])), float(sum(rows["gradient_bytes"])))
    entry = own or {}
    if "sequence_length" in entry:
        return Size(12e6 * entry["sequence_length"], 4 * 12e6, known=False)
    resnet = NETWORKS["resnet50"]
    part = (entry.get("image_size", 224) / 224) ** 2
    return Size(part * resnet.multiply_adds, resnet.gradient_bytes, known=False)


def seconds(
    cell: Cell, size: Size | None, cores: int | None = None, samples: Mapping[str, int] = MappingProxyType({})
) -> float:
    """Typical duration of one visit to a cell that is measured, s.

    `size` is that of its network, if it has one; `samples` are those of each storage, as far as they are known. All
    ranks share `cores`, where they are on one machine; None: every rank has the cores that the study says. So has one
    with a GPU: a machine of so many GPUs has cores for them.
    """
    crowd = max(1.0, cell.ranks * cell.threads_per_worker / cores) if cores and cell.device == "cpu" else 1.0
    if isinstance(cell, CommandCell):
        return VISIT + SCRIPT * crowd
    if isinstance(cell, TrainCell):
        assert size
        return VISIT + (cell.warmup + cell.iterations) * _iteration(cell, size, crowd)
    if isinstance(cell, ConvergenceCell):
        assert size
        epoch = samples.get(cell.storage) or _epoch(cell.storage_format, cell.storage_path)
        steps = max(1.0, cell.most_epochs * epoch / cell.batch)
        most = 60 * cell.most_minutes if cell.most_minutes else float("inf")
        steps *= 1.0 if cell.target is None else REACHED
        return VISIT + EVALUATED * min(most, steps * _iteration(cell, size, crowd))
    if isinstance(cell, SgemmCell):
        assert size
        each = (size.multiply_adds + _REFERENCE) * sum(cell.batches) + _MACHINE_PRODUCTS
        rate = CUDA_RATES[cell.precision] if cell.device == "cuda" else CPU_PRODUCTS_RATE * cell.threads_per_worker
        return VISIT + (1 + cell.samples) * 2 * each * crowd / rate
    if isinstance(cell, CollectivesCell):
        rows = sum(ROW * crowd + 4 * _all_reduce(bytes_, cell.ranks) for bytes_ in cell.message_bytes)
        return VISIT + (1 + cell.samples) * rows * len(cell.sent)
    if isinstance(cell, StorageCell):
        passes = 6 * len({1, cell.readers}) + 2  # three orders, cold and warm; looking up files, decoding
        return VISIT + passes * cell.samples * READ * crowd + 2 * (cell.checkpoint_bytes or 0) / WRITING
    if isinstance(cell, CopiesCell):
        return VISIT + (1 + cell.samples) * COPIES * crowd
    return VISIT  # of a kind that nothing is known of until it was visited


def _iteration(cell: TrainCell | ConvergenceCell, size: Size, crowd: float) -> float:
    operations = 2 * PASSES * size.multiply_adds * cell.worker_batch
    if cell.device == "cuda":
        computing = operations / CUDA_RATES[cell.precision]
    else:
        computing = operations / (CPU_RATE * cell.threads_per_worker) + UPDATE_BYTES * size.gradient_bytes / MEMORY
    reading = cell.worker_batch * _sample(cell.storage_format) / max(1, cell.readers)
    busy = max(computing, reading) if cell.prefetch else computing + reading
    sent = size.gradient_bytes if preset_from(cell.preset).communicates else 0.0
    beside = STEP if isinstance(cell, ConvergenceCell) else ITERATION
    return beside + crowd * busy + _all_reduce(sent, cell.ranks)


@cache
def _epoch(name: str, path: str) -> int:
    """Samples of a storage that was not looked through yet, where its files say it at a glance."""
    try:
        known = IdxImages.count(Path(path)) if FORMATS.get(name) is IdxImages else None
    except InputError:  # which the job will say
        known = None
    return known or EPOCH_SAMPLES


def _sample(name: str) -> float:
    """Seconds that a reader takes for a sample of a format."""
    held = FORMATS.get(name, SampleSet)
    if issubclass(held, IdxImages):
        return SAMPLE_SMALL
    return SAMPLE_ENCODED if issubclass(held, EncodedImages) else SAMPLE_DECODED


def _all_reduce(size: float, ranks: int) -> float:
    """Seconds in which every rank sends and receives what a ring does."""
    return 2 * (ranks - 1) / ranks * size / BANDWIDTH
