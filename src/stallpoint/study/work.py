"""What a visit takes where nothing was measured yet: the work that a cell asks for, over rates stated here.

The rates are those of no machine in particular: such a time may well be wrong by a factor of two (`FACTOR`), and
serves to find out before submission whether a study takes minutes or days. Once a machine has measured anything, what
it really took replaces them (`schedule.expected`). Each kind of cell says what it asks for (`Cell.seconds`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from stallpoint.strategies.presets import preset_from

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
COPY = 0.5
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
MACHINE_PRODUCTS = 2048**3 + 8192**2 + 2470 * 4096 * 6144
"""Multiply-adds of what tells about a machine with 32 MiB of caches (`stallpoint.measure.jobs.sgemm.machine`)."""
REFERENCE = 4096 * 9216
"""Multiply-adds of the reference product for each sample of a mini-batch."""


@dataclass(frozen=True)
class Size:
    """What is known of a network without building it."""

    multiply_adds: float
    gradient_bytes: float
    known: bool = True
    """Else both are guessed from its inputs."""


@dataclass(frozen=True)
class Known:
    """What is known of a cell's machine, network and data before it is visited."""

    size: Size | None
    """Of its network, if it has one."""
    crowd: float
    """Workers that share a core, at least 1."""
    samples: Callable[[str], float]
    """Samples of a storage, by its name."""
    sample_seconds: float
    """Time in which a reader reads and decodes one of them, s."""


class Trained(Protocol):
    """A cell whose workers train."""

    @property
    def device(self) -> str:
        """As of all cells."""
        ...

    @property
    def precision(self) -> str:
        """As of all cells."""
        ...

    @property
    def threads_per_worker(self) -> int:
        """As of all cells."""
        ...

    @property
    def ranks(self) -> int:
        """As of all cells."""
        ...

    @property
    def worker_batch(self) -> int:
        """As of a training cell."""
        ...

    @property
    def readers(self) -> int:
        """As of a training cell."""
        ...

    @property
    def prefetch(self) -> int:
        """As of a training cell."""
        ...

    @property
    def preset(self) -> dict[str, Any]:
        """As of a training cell."""
        ...


def iteration(cell: Trained, known: Known) -> float:
    """Return the seconds of one iteration that depend on its network and data."""
    assert known.size
    operations = 2 * PASSES * known.size.multiply_adds * cell.worker_batch
    if cell.device == "cuda":
        computing = operations / CUDA_RATES[cell.precision]
    else:
        computing = (
            operations / (CPU_RATE * cell.threads_per_worker) + UPDATE_BYTES * known.size.gradient_bytes / MEMORY
        )
    reading = cell.worker_batch * known.sample_seconds / max(1, cell.readers)
    busy = max(computing, reading) if cell.prefetch else computing + reading
    sent = known.size.gradient_bytes if preset_from(cell.preset).communicates else 0.0
    return known.crowd * busy + all_reduce(sent, cell.ranks)


def all_reduce(size: float, ranks: int) -> float:
    """Return the seconds in which every rank sends and receives what a ring does for `size` bytes."""
    return 2 * (ranks - 1) / ranks * size / BANDWIDTH
