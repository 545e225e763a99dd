"""Expected duration of a visit before any measurement: the work of a cell, divided by assumed rates.

The rates are of no machine in particular: a duration may be wrong by a factor of 2.5 (`ERROR_FACTOR`), but shows before
submission whether a study takes minutes or days. Measured durations replace it (`schedule.planning.expected`). Each
kind of cell computes its duration in `Cell.seconds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from stallpoint.strategies.presets import preset_from

ERROR_FACTOR = 2.5
"""Factor, up or down, within which times from assumed rates are right in nine of ten cases."""
UNKNOWN_NETWORK_FACTOR = 10.0
"""`ERROR_FACTOR` for a study's own network of which only the inputs are known."""
CPU_RATE = 35e9
"""FLOP/s of each thread in training. A core of 2.5 to 3 GHz has a peak of 80e9 to 96e9 with AVX2, and twice that with
AVX-512. Convolutions and products of small mini-batches reached about a quarter of AVX2's peak on older cores, and 50e9
to 75e9 with AVX-512 (AlexNet, GoogLeNet, ResNet-50 at b = 8 and 16); 35e9 lies between."""
CPU_PRODUCTS_RATE = 40e9
"""FLOP/s of each thread in matrix products alone, which are larger than in training: about half of AVX2's peak."""
CUDA_RATES = {"float32": 5e12, "tf32": 20e12, "bf16": 40e12, "fp16": 40e12}
"""FLOP/s of a GPU in training: about a third of the peak of a V100 (15.7e12) or A100 (19.5e12) in float32, and less
than a fifth of the peaks of an A100's tensor cores (156e12, 312e12)."""
PASSES = 3
"""Work of an iteration as a multiple of a forward pass: the backward pass is worth two."""
BANDWIDTH = 1e9
"""B/s that each worker sends and receives: over a link of 10 Gbit/s, or in memory between processes of one machine."""
MEMORY = 10e9
"""B/s between a CPU core and memory; updates on a GPU are not counted."""
UPDATE_BYTES = 5
"""Bytes that an update reads and writes, as a multiple of the gradients' bytes: weights, momentum, gradients."""
COPY_SECONDS = 0.5
"""Seconds for one copy of each sort: 0.1 to 0.4 GB at 10e9 B/s, with several numbers of threads."""
SAMPLE_ENCODED, SAMPLE_DECODED, SAMPLE_SMALL = 0.01, 0.001, 0.0001
"""Seconds of a reader for an encoded image, for a decoded sample, and for a sample of a thousand bytes (`idx`)."""
EPOCH_SAMPLES = 1_281_167
"""Assumed number of training samples in a storage of unknown size: that of ImageNet."""
IDX_SAMPLES = 60_000
"""Assumed number of training samples of an `idx` storage whose files are not at hand: that of (Fashion-)MNIST."""
EVALUATION_FACTOR = 1.5
"""Time of a run with its evaluations as a multiple of its training time."""
REACHED_FRACTION = 0.5
"""Assumed part of a run's largest number of steps after which the run reaches its target."""
ITERATION, STEP = 0.02, 0.004
"""Seconds of an iteration that do not depend on the network's size, for calls of layers and recorded rows; the same of
a step of a run to a target, which records no rows."""
VISIT = 0.3
"""Seconds of a visit besides its iterations: set-up, agreement of ranks, writing, ordering the next visit."""
BURST = 0.25
"""Seconds of a burst of isolated all-reduces and a burst of co-running ones, unless one message takes longer."""
READ_SECONDS = 0.002
"""Seconds to read one sample, the mean of cold and warm reads."""
WRITE_RATE = 2e8
"""B/s at which a checkpoint is written and read back."""
SCRIPT_SECONDS = 20.0
"""Seconds of a command: its start with a tensor library, and a guess for its training."""
START_SECONDS = 10.0
"""Seconds until processes have started, with imports and MPI."""
VISIT_GAP = 0.2
"""Seconds between two visits."""
MACHINE_PRODUCTS = 2048**3 + 8192**2 + 2470 * 4096 * 6144
"""Multiply-adds of the products that calibrate a machine with 32 MiB of caches
(`stallpoint.measure.jobs.sgemm.machine`)."""
REFERENCE_PRODUCT = 4096, 9216
"""Depth and columns of the reference product: the size of AlexNet's largest layer."""


@dataclass(frozen=True)
class Size:
    """Size of a network in operations and bytes, known or guessed without building the network."""

    multiply_adds: float
    """Multiply-adds of the forward pass of one sample."""
    gradient_bytes: float
    known: bool = True
    """Whether the size is known, and not guessed from the inputs."""


@dataclass(frozen=True)
class KnownProperties:
    """Properties of a cell's machine, network and data that are known before its visits."""

    size: Size | None
    """Size of the cell's network, if it has one."""
    crowd: float
    """Number of threads for each core, at least 1."""
    samples: Callable[[str], float]
    """Function that returns the number of samples in a storage, by its name."""
    sample_seconds: float
    """Time in which a reader reads and decodes a sample, s."""


class TrainedCell(Protocol):
    """A cell whose workers train, with the fields that `iteration` needs."""

    @property
    def device(self) -> str: ...

    @property
    def precision(self) -> str: ...

    @property
    def threads_per_worker(self) -> int: ...

    @property
    def ranks(self) -> int: ...

    @property
    def worker_batch(self) -> int: ...

    @property
    def readers(self) -> int: ...

    @property
    def prefetch(self) -> int: ...

    @property
    def preset(self) -> dict[str, Any]: ...


def iteration(cell: TrainedCell, properties: KnownProperties) -> float:
    """Return the part of an iteration's time that depends on the network and its data, s."""
    assert properties.size
    operations = 2 * PASSES * properties.size.multiply_adds * cell.worker_batch
    if cell.device == "cuda":
        computing_seconds = operations / CUDA_RATES[cell.precision]
    else:
        computing_seconds = (
            operations / (CPU_RATE * cell.threads_per_worker) + UPDATE_BYTES * properties.size.gradient_bytes / MEMORY
        )
    reading_seconds = cell.worker_batch * properties.sample_seconds / max(1, cell.readers)
    busy_seconds = max(computing_seconds, reading_seconds) if cell.prefetch else computing_seconds + reading_seconds
    communicated_bytes = properties.size.gradient_bytes if preset_from(cell.preset).communicates else 0.0
    return properties.crowd * busy_seconds + all_reduce(communicated_bytes, cell.ranks)


def all_reduce(size: float, ranks: int) -> float:
    """Return the time of a ring all-reduce of `size` bytes among `ranks` ranks, s."""
    return 2 * (ranks - 1) / ranks * size / BANDWIDTH
