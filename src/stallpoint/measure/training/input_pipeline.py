"""The input pipeline of one worker: reading and decoding, with prefetching.

Prefetching uses threads: starting processes after MPI is initialised is unsafe, and threads suffice, as file reads and
image decoding release Python's lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from stallpoint.measure.device import has_streams, in_stream, thread_for
from stallpoint.measure.training.decoding import Buffers, decoder
from stallpoint.networks.inputs import Inputs
from stallpoint.storage import Storage


@dataclass(frozen=True)
class MiniBatch:
    """One worker's mini-batch of b samples; valid until the next one is requested."""

    inputs: torch.Tensor
    """Inputs of the network: normalised images, float32 [b, channels, size, size], or tokens, int64 [b, length]."""
    labels: torch.Tensor
    """Classes of images, int64 [b], or next tokens, int64 [b, length]."""
    read: float
    """Time to read from the storage, summed over samples, s."""
    decode: float
    """Time to decode, for images also to resize and normalise, summed over samples, s."""


class ReadOrder(Protocol):
    """Interface of orders in which a worker reads samples."""

    def indices(self, iteration: int) -> list[int]:
        """Return the indices of a worker's samples in an iteration, at most a mini-batch; iterations count from 0."""


class SampleOrder:
    """Shuffled order of samples: all workers share one permutation for each epoch.

    The permutations of all epochs form one sequence. It is cut into global mini-batches of ``ranks · batch`` samples,
    of which rank r reads the r-th part. So no sample is read twice in an epoch, and the samples of an iteration depend
    only on the size of the global mini-batch, not on the number of ranks.
    """

    def __init__(self, samples: int, *, batch: int, rank: int, ranks: int, seed: int) -> None:
        self._samples, self._batch, self._rank, self._ranks, self._seed = samples, batch, rank, ranks, seed
        self._permutation = lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self._seed, epoch]).permutation(self._samples)

    def indices(self, iteration: int) -> list[int]:
        """Return the indices of this worker's samples in an iteration; iterations count from 0."""
        first = (iteration * self._ranks + self._rank) * self._batch
        positions = (divmod(position, self._samples) for position in range(first, first + self._batch))
        return [int(self._permutation(epoch)[offset]) for epoch, offset in positions]


@dataclass(frozen=True)
class _Pending:
    buffers: Buffers
    samples: list[Future[tuple[float, float]]]


class InputPipeline:
    """Source of one worker's mini-batches; a context manager.

    With `prefetch` = 0, `next_batch` reads in the calling thread; else `readers` threads keep `prefetch` mini-batches
    ready. The first mini-batch is that of iteration `begin`. With `pinned`, mini-batches are in pinned memory, from
    which a GPU copies asynchronously. `order` is the order of samples, by default `SampleOrder`. The constructor raises
    `InputError` if the storage is missing, empty or not of the kind that the network `takes`; `next_batch` raises it,
    with the file's name, if a sample is unreadable.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        takes: Inputs,
        batch: int,
        rank: int,
        ranks: int,
        prefetch: int,
        readers: int,
        seed: int,
        begin: int = 0,
        pinned: bool = False,
        order: ReadOrder | None = None,
    ) -> None:
        self._stored = storage.open()
        self.excluded = self._stored.excluded
        self._decoder = decoder(self._stored, takes)
        self._order = order or SampleOrder(self._stored.samples, batch=batch, rank=rank, ranks=ranks, seed=seed)
        # Buffers are kept, for `prefetch` mini-batches and the one in use: new memory would cost page faults.
        memory = (self._decoder.buffers(batch) for _ in range(prefetch + 1))
        self._buffers = deque(_pinned(buffers) if pinned else buffers for buffers in memory)
        self._iteration = begin
        self._pool = ThreadPoolExecutor(readers, "reader") if prefetch else None
        self._ahead: deque[_Pending] = deque()
        for _ in range(prefetch):
            self._start_next()

    def next_batch(self) -> MiniBatch:
        """Wait for the next mini-batch and return it."""
        self._start_next()
        pending = self._ahead.popleft()
        times = [sample.result() for sample in pending.samples]
        return MiniBatch(
            inputs=torch.from_numpy(pending.buffers.inputs)[: len(times)],
            labels=torch.from_numpy(pending.buffers.labels)[: len(times)],
            read=sum(read for read, _ in times),
            decode=sum(decode for _, decode in times),
        )

    def close(self) -> None:
        """Stop prefetching, and close the storage's files; further calls do nothing."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        self._stored.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_next(self) -> None:
        """Start to read the next mini-batch into the buffers that have been free for longest."""
        buffers = self._buffers[0]
        self._buffers.rotate(-1)
        indices = self._order.indices(self._iteration)
        self._iteration += 1
        samples = [self._start_sample(index, buffers, row) for row, index in enumerate(indices)]
        self._ahead.append(_Pending(buffers, samples))

    def _start_sample(self, index: int, buffers: Buffers, row: int) -> Future[tuple[float, float]]:
        if self._pool:
            return self._pool.submit(self._load, index, buffers, row)
        future: Future[tuple[float, float]] = Future()
        future.set_result(self._load(index, buffers, row))
        return future

    def _load(self, index: int, buffers: Buffers, row: int) -> tuple[float, float]:
        """Read and decode one sample into its row of `buffers`; return the seconds of reading and of decoding."""
        begin = time.perf_counter()
        data = self._stored.read(index)
        read_end = time.perf_counter()
        self._decoder.decode(index, data, buffers, row)
        return read_end - begin, time.perf_counter() - read_end


def _pinned(buffers: Buffers) -> Buffers:
    return Buffers(*(torch.from_numpy(part).pin_memory().numpy() for part in (buffers.inputs, buffers.labels)))


NextBatch = Callable[[], MiniBatch]


class DevicePrefetch:
    """Prefetch of one mini-batch of `source` into the memory of `device`.

    While the device computes, a thread waits for the mini-batch and copies it through pinned memory, in a separate
    stream if the device has streams. An iteration waits only if the copy has not ended.
    """

    def __init__(self, source: NextBatch, device: torch.device) -> None:
        self._source, self._device = source, device
        self._stream = torch.Stream(device) if has_streams(device) else None
        self._thread = thread_for(device, "device-prefetch")
        self._ahead = self._thread.submit(self._copy)

    def next_batch(self) -> MiniBatch:
        """Return the next mini-batch, on the device; raise the error if reading it failed."""
        batch = self._ahead.result()
        self._ahead = self._thread.submit(self._copy)
        return batch

    def close(self) -> None:
        """Stop prefetching after the pending mini-batch."""
        self._ahead.cancel()
        self._thread.shutdown()

    def _copy(self) -> MiniBatch:
        batch = self._source()
        with in_stream(self._stream):
            inputs, labels = (self._on_device(tensor) for tensor in (batch.inputs, batch.labels))
        if self._stream:
            self._stream.synchronize()  # the source may overwrite its buffer as soon as this function returns
        return replace(batch, inputs=inputs, labels=labels)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._stream is None:
            return tensor.clone()
        return tensor.pin_memory().to(self._device, non_blocking=True)


class SyntheticData(InputPipeline):
    """Input pipeline whose threads assemble mini-batches from one sample in memory, without reading or decoding."""

    _sample: tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]] | None = None

    @override
    def _load(self, index: int, buffers: Buffers, row: int) -> tuple[float, float]:
        if self._sample is None:
            times = super()._load(index, buffers, row)
            self._sample = buffers.inputs[row].copy(), buffers.labels[row].copy()
            return times
        begin = time.perf_counter()
        buffers.inputs[row], buffers.labels[row] = self._sample
        return 0.0, time.perf_counter() - begin


class FixedMiniBatch(InputPipeline):
    """Input pipeline that repeats the first mini-batch."""

    _first: MiniBatch | None = None

    @override
    def next_batch(self) -> MiniBatch:
        """Return the first mini-batch, without waiting after the first call."""
        if self._first is None:
            self._first = super().next_batch()
            return self._first
        return replace(self._first, read=0.0, decode=0.0)


class NothingToRead:
    """Input pipeline of a rank that reads nothing; a context manager."""

    excluded = 0

    def next_batch(self) -> MiniBatch:
        """Return a mini-batch without samples."""
        return MiniBatch(torch.empty(0), torch.empty(0, dtype=torch.int64), read=0.0, decode=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""
