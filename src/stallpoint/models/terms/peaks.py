"""Peak memory of training against the mini-batch: fixed + slope · b.

Weights, gradients and the optimiser's state do not depend on b; activations, their gradients and mini-batches are in
proportion to it. Other memory (workspaces that the library chooses by b, pages that the allocator wastes) counts as
scatter about the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.base.measured import trained
from stallpoint.base.non_negative_fits import non_negative_fit
from stallpoint.base.priors import MEMORY_PEAK
from stallpoint.base.statistics import (
    REPLICATES,
    Ensemble,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    scatter,
    unknown_ensemble,
)

HOST, DEVICE = "host", "device"
MEMORY_COLUMNS = {HOST: "available_memory", DEVICE: "gpu_available_memory"}
"""Column of the environments table with the memory available to a worker."""
MEMORY_AXES = ("network", "hardware", "workers_per_node", "sync", "prefetch", "shards")
"""Axes that memory depends on, other than b."""
TENSOR_COLUMNS = ("weights", "gradients", "optimiser")
OFF_THE_LINE = 0.05
"""Prior relative scatter of a peak about the line: visits to a cell differ by as much, as the allocator wastes
differently (`benchmarks/run.py memory`)."""
_PRIOR_FREEDOM = 2.0  # degrees of freedom of the prior scatter `OFF_THE_LINE`


@dataclass(frozen=True)
class Peaks:
    """Peak memory of one training at each measured b."""

    training: tuple[str | int, ...]
    """Values of `MEMORY_AXES`."""
    memory: str
    """`HOST` or `DEVICE`."""
    batches: Sequence[int]
    """Measured b, rising."""
    measured: Ensemble
    """Bytes, [1 + REPLICATES, batches]."""
    parts: Sequence[dict[str, float]]
    """Known parts of each peak, bytes."""
    cells: tuple[str, ...]
    line: Ensemble | None
    """Fixed bytes and bytes for each sample, [1 + REPLICATES, 2]; None with fewer than two b."""
    off: Ensemble
    """Factor of a peak's scatter about the line, [1 + REPLICATES]."""

    @property
    def labels(self) -> dict[str, str | int]:
        """Return the columns that identify the training."""
        return {**dict(zip(MEMORY_AXES, self.training, strict=True)), "memory": self.memory}


def fit(peak_memory: pd.DataFrame, runs: pd.DataFrame, seed: int) -> list[Peaks]:
    """Return the peaks of all training cells except interventions, from the tidy tables."""
    cells = trained(runs)
    rows = peak_memory[peak_memory["cell"].isin(cells)]
    shards = rows["cell"].map({path: cell.shards for path, cell in cells.items()})
    rows = rows.assign(workers_per_node=rows["ranks"] // rows["nodes"], shards=shards.astype("int64"))
    return [
        peaks
        for memory in (HOST, DEVICE)
        for _, of_hardware in groups(rows[rows[f"{memory}_peak"].notna()], "hardware")
        for peaks in _hardware_peaks(of_hardware, memory, seed)
    ]


def _hardware_peaks(rows: pd.DataFrame, memory: str, seed: int) -> Iterator[Peaks]:
    column = f"{memory}_peak"
    # A visit's peak is that of its most demanding rank, such as a parameter server.
    peak_rows = rows.loc[rows.groupby(["cell", "visit"])[column].idxmax()]
    usual = scatter(peak_rows, (*MEMORY_AXES, "worker_batch"), column)
    for key, of_training in groups(peak_rows, MEMORY_AXES):
        drawn = memory, *key[: MEMORY_AXES.index("shards")]  # all numbers of shards have equal draws
        at = dict(groups(of_training, "worker_batch"))
        measured = np.stack(
            [_peak(found, column, usual, generator(seed, "memory", *drawn, b)) for b, found in at.items()], axis=1
        )
        batches = [int(b) for b in at]
        line = non_negative_fit(_line_design(batches), measured) if len(batches) > 1 else None
        yield Peaks(
            key, memory, batches, measured, [_parts(found, memory) for found in at.values()],
            tuple(of_training["cell"].unique()), line,
            _spread(batches, measured, line, generator(seed, "line", *drawn)),
        )  # fmt: skip


def _peak(rows: pd.DataFrame, column: str, usual: Scatter, random: np.random.Generator) -> Ensemble:
    """Return the mean peak over visits. The scatter between runs is a prior: all visits to a cell are of one run."""
    visits = rows["cell"] + "/" + rows["visit"].astype(str)
    found = bootstrap(rows[column], visits, random, np.mean, usual)
    run_deviation = MEMORY_PEAK.deviation / np.sqrt(rows["cell"].nunique())
    return np.asarray(found * np.exp(run_deviation * np.append(0.0, random.standard_normal(REPLICATES))))


def _line_design(batches: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.stack([np.ones(len(batches)), np.asarray(batches, dtype=np.float64)], axis=-1)


def _spread(batches: Sequence[int], measured: Ensemble, line: Ensemble | None, random: np.random.Generator) -> Ensemble:
    """Return draws of a peak's ratio to the line: Student's t, scaled by the scatter of peaks and its prior."""
    residuals = np.zeros(2) if line is None else np.log(measured[0] / (_line_design(batches) @ line[0]))
    freedom = _PRIOR_FREEDOM + len(residuals) - 2
    scale = np.sqrt((_PRIOR_FREEDOM * OFF_THE_LINE**2 + (residuals**2).sum()) / freedom)
    return np.concatenate([[1.0], np.exp(np.clip(scale * random.standard_t(freedom, REPLICATES), -1, 1))])


def _parts(rows: pd.DataFrame, memory: str) -> dict[str, float]:
    """Return the bytes of the peak's known parts, and the rest. With a GPU, tensors are not in host memory."""
    means = rows[[f"{memory}_peak", "process", *TENSOR_COLUMNS]].mean()
    there = memory == DEVICE or rows["device_peak"].isna().all()
    known = {
        "process": float(means["process"]) if memory == HOST else 0.0,
        **{name: float(means[name]) if there else 0.0 for name in TENSOR_COLUMNS},
    }
    return {**known, "rest": float(means[f"{memory}_peak"]) - sum(known.values())}


def table(found: Iterable[Peaks]) -> list[dict[str, object]]:
    """Return the rows of the memory table."""
    return [
        {
            **peaks.labels,
            "worker_batch": b,
            **columns("peak", peaks.measured[:, index]),
            **peaks.parts[index],
            **columns("predicted", predicted(peaks, b)),
        }
        for peaks in found
        for index, b in enumerate(peaks.batches)
    ]


def predicted(peaks: Peaks, b: float) -> Ensemble:
    """Return the peak memory at b by the line, bytes; NaN without a line."""
    if peaks.line is None:
        return unknown_ensemble()
    return np.asarray((peaks.line[:, 0] + peaks.line[:, 1] * b) * peaks.off)
