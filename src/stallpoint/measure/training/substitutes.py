"""Mini-batches that cost less than those of the storage: for interventions, and where another rank reads."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from stallpoint.measure.training.decoding import Buffers
from stallpoint.measure.training.input_pipeline import InputPipeline, MiniBatch


class SyntheticData(InputPipeline):
    """Input pipeline that assembles mini-batches from one sample in memory, by the same threads, without reading or
    decoding."""

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
        """Return the first mini-batch; it takes no time after the first call."""
        if self._first is None:
            self._first = super().next_batch()
            return self._first
        return replace(self._first, read=0.0, decode=0.0)


class NothingToRead:
    """Input pipeline of a rank that reads nothing itself, as a context manager."""

    excluded = 0

    def next_batch(self) -> MiniBatch:
        """Return no sample."""
        return MiniBatch(torch.empty(0), torch.empty(0, dtype=torch.int64), read=0.0, decode=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""
