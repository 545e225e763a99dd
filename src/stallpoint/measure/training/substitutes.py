"""Mini-batches that cost less than those of the storage: for interventions, and where another rank reads."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from stallpoint.measure.training.decoding import Buffers
from stallpoint.measure.training.pipeline import InputPipeline, MiniBatch


class SyntheticData(InputPipeline):
    """Puts mini-batches together from one sample in memory, by the same threads: nothing is read or decoded."""

    _sample: tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]] | None = None

    def _load(self, index: int, buffers: Buffers, place: int) -> tuple[float, float]:
        if self._sample is None:
            times = super()._load(index, buffers, place)
            self._sample = buffers.inputs[place].copy(), buffers.labels[place].copy()
            return times
        begin = time.perf_counter()
        buffers.inputs[place], buffers.labels[place] = self._sample
        return 0.0, time.perf_counter() - begin


class FixedMiniBatch(InputPipeline):
    """Gives the first mini-batch again and again."""

    _first: MiniBatch | None = None

    def next_batch(self) -> MiniBatch:
        """The first one; after that it takes no time."""
        if self._first is None:
            self._first = super().next_batch()
            return self._first
        return replace(self._first, read=0.0, decode=0.0)


class NothingToRead:
    """Stands for the input pipeline of a rank that gets all from others, as a context manager."""

    left_out = 0
    """As `InputPipeline.left_out`."""

    def next_batch(self) -> MiniBatch:
        """No sample."""
        return MiniBatch(torch.empty(0), torch.empty(0, dtype=torch.int64), read=0.0, decode=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""
