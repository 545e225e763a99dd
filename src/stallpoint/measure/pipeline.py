"""The input pipeline of one worker: read, decode, normalise, and (with prefetch) do so ahead of time.

Reading ahead uses threads: starting processes after MPI is initialised is unsafe, and file reads and
image decoding do their work without Python's lock.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from stallpoint.storage import Storage

# Mean and standard deviation of ImageNet's channels (red, green, blue) on the scale 0..1.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
_SCALE = (1 / (255 * _DEVIATION))[:, None, None]
_SHIFT = (-_MEAN / _DEVIATION)[:, None, None]


@dataclass(frozen=True)
class MiniBatch:
    """One worker's mini-batch of b samples; valid until the next one is asked for."""

    images: torch.Tensor
    """float32 [b, 3, size, size], normalised."""
    labels: torch.Tensor
    """int64 [b]."""
    read: float
    """Time to read from the storage, summed over samples, in s."""
    decode: float
    """Time to decode, resize and normalise, summed over samples, in s."""


class SampleOrder:
    """Which sample each worker reads when: all workers share one permutation for each epoch.

    The epochs' permutations follow one another; the global mini-batch i is the i-th run of
    ``ranks · batch`` samples of that sequence, and rank r takes the r-th part of it. So no sample is read
    twice in an epoch, and the samples of an iteration do not depend on the number of ranks that share it.
    """

    def __init__(self, samples: int, *, batch: int, rank: int, ranks: int, seed: int) -> None:
        self._samples, self._batch, self._rank, self._ranks, self._seed = samples, batch, rank, ranks, seed
        self._permutation = lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self._seed, epoch]).permutation(self._samples)

    def indices(self, iteration: int) -> list[int]:
        """Indices of this worker's samples in the given iteration (from 0)."""
        first = (iteration * self._ranks + self._rank) * self._batch
        places = (divmod(position, self._samples) for position in range(first, first + self._batch))
        return [int(self._permutation(epoch)[offset]) for epoch, offset in places]


@dataclass(frozen=True)
class _Pending:
    """A mini-batch in the making."""

    images: npt.NDArray[np.float32]
    labels: list[int]
    samples: list[Future[tuple[float, float]]]


class InputPipeline:
    """Mini-batches of one worker, as a context manager.

    `prefetch` = 0 reads when asked, in the calling thread; otherwise `readers` threads keep that many
    mini-batches ahead. A storage that is missing or empty raises `InputError` here, an unreadable image
    in `next_batch`, naming its file.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        image_size: int,
        batch: int,
        rank: int,
        ranks: int,
        prefetch: int,
        readers: int,
        seed: int,
    ) -> None:
        self._images = storage.open()
        self._size = image_size
        self._order = SampleOrder(self._images.samples, batch=batch, rank=rank, ranks=ranks, seed=seed)
        # One buffer for each mini-batch ahead and one for that in use: fresh memory would cost page faults.
        self._buffers = deque(np.empty((batch, 3, image_size, image_size), np.float32) for _ in range(prefetch + 1))
        self._iteration = 0
        self._pool = ThreadPoolExecutor(readers, "reader") if prefetch else None
        self._ahead: deque[_Pending] = deque()
        for _ in range(prefetch):
            self._start_next()

    def next_batch(self) -> MiniBatch:
        """The next mini-batch; waits until it is ready."""
        self._start_next()
        pending = self._ahead.popleft()
        times = [sample.result() for sample in pending.samples]
        return MiniBatch(
            images=torch.from_numpy(pending.images),
            labels=torch.tensor(pending.labels, dtype=torch.int64),
            read=sum(read for read, _ in times),
            decode=sum(decode for _, decode in times),
        )

    def close(self) -> None:
        """Stop reading ahead and close the storage's files; idempotent."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        self._images.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_next(self) -> None:
        """Begin the next mini-batch in the buffer that was free for longest."""
        images = self._buffers[0]
        self._buffers.rotate(-1)
        indices = self._order.indices(self._iteration)
        self._iteration += 1
        samples = [self._start_sample(index, image) for index, image in zip(indices, images, strict=True)]
        self._ahead.append(_Pending(images, [self._images.label(index) for index in indices], samples))

    def _start_sample(self, index: int, out: npt.NDArray[np.float32]) -> Future[tuple[float, float]]:
        if self._pool:
            return self._pool.submit(self._load, index, out)
        done: Future[tuple[float, float]] = Future()
        done.set_result(self._load(index, out))
        return done

    def _load(self, index: int, out: npt.NDArray[np.float32]) -> tuple[float, float]:
        """Read, decode and normalise one sample into `out` [3, size, size]; seconds of reading and of the rest."""
        begin = time.perf_counter()
        data = self._images.read(index)
        read = time.perf_counter()
        np.multiply(self._images.decode(index, data, self._size), _SCALE, out=out)
        out += _SHIFT
        return read - begin, time.perf_counter() - read
