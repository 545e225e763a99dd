"""Whether training fits into a worker's memory, by the measured or predicted peak of its use.

The prediction starts from the most similar measured training, the base, at mini-batch b:

    peak(b) = base(b k_base / k) + extra - extra_base
    extra   = messages - (1 - 1/s) (weights + gradients) - (1 - 1/s_o) optimiser

The base is the same training if it ran, else one worker without communication (extra_base 0), else the training that is
to be changed; `terms.peaks` gives the base's peaks. A mini-batch is computed in k parts, and the activations of one
part are in memory at once (`Strategy.kept`). Weights and gradients are divided into s shards, and the optimiser's state
into s_o shards (`Strategy.divided`); 1 if undivided. Messages take the following bytes (`Strategy.buffers`). W are the
bytes of all weights, L those of the largest block, n is the number of workers, B the global mini-batch:

    ddp       W of buckets, unless gradients are views of them
    zero-1    as ddp; while weights are gathered, all weights and a worker's share: W (1 + 1/n)
    fsdp      a gathered block and `gather_ahead` more, its gradients, and a copy to send: (3 + gather_ahead) L;
              with k > 1 also the unsharded gradients of all parts before the last: W
    outputs   inputs of split layers for all samples: B values of each input and each class
    others    nothing: gradients are sent in place, or small ones packed

If outputs are split, the split layers' part S of all weights is divided: 1/s = 1/s_o = 1 - S + S/n.

Rajbhandari et al. (2020), section 3, describe the division. Activation checkpointing is predicted only from training
with checkpointing, as the blocks' part of the slope was not measured.

The largest mini-batch that fits is (available - fixed) / slope of the peaks' line. Training overrides the line: a b
that trained fits, and a b that ran out of memory does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from stallpoint.base.measured import Point, trained
from stallpoint.base.statistics import REPLICATES, Ensemble, columns, estimate, unknown_ensemble
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.terms.peaks import DEVICE, HOST, MEMORY_AXES, MEMORY_COLUMNS, Peaks, predicted
from stallpoint.models.terms.training_cells import Layers
from stallpoint.records.tables import FITS, LARGEST_BATCH
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.presets import NONE, Preset
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.workers import Placement

MEASURED, PREDICTED, UNKNOWN_BASIS = "measured", "predicted", "unknown"
OUT_OF_MEMORY = "out of memory"
"""Text in the reason of a cell that ran out of memory."""

_RowKey = tuple[str | int, ...]
"""Values of `MEMORY_AXES`, and the memory."""


class _TriedBatches(NamedTuple):
    largest_trained: float
    """Largest trained b; NaN if none."""
    smallest_failed: float
    """Smallest larger b that ran out of memory; infinite if none."""


def largest_batch(memory: Iterable[Peaks], runs: pd.DataFrame, environments: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of the largest_batch table, including training that always ran out of memory."""
    known = {(*peaks.training, peaks.memory): peaks for peaks in memory}
    failed, least = _failed(runs), environments.groupby("cell")[[*MEMORY_COLUMNS.values()]].min()
    return [_largest_row(key, known.get(key), failed.get(key, []), least) for key in sorted({*known, *failed})]


def _failed(runs: pd.DataFrame) -> Mapping[_RowKey, list[int]]:
    """Return the mini-batches that ran out of memory, by training and kind of memory."""
    reasons = dict(zip(runs["cell"], runs["reason"], strict=True))
    found: dict[_RowKey, list[int]] = {}
    for path, cell in trained(runs[runs["reason"].str.contains(OUT_OF_MEMORY, regex=False)]).items():
        key = (*(getattr(cell, name) for name in MEMORY_AXES), _exhausted_memory(cell, reasons[path]))
        found.setdefault(key, []).append(cell.worker_batch)
    return found


def _exhausted_memory(cell: TrainCell, reason: str) -> str:
    """Return the kind of exhausted memory: the OS kills processes for host memory, GPU allocators raise an error."""
    return DEVICE if cell.device == "cuda" and "killed" not in reason else HOST


def _largest_row(key: _RowKey, peaks: Peaks | None, failed: list[int], least_free: pd.DataFrame) -> dict[str, object]:
    """Return the row of a training; `least_free` is the memory available in each cell, bytes."""
    largest_trained = float(max(peaks.batches)) if peaks else np.nan
    # A b that ran out of memory in one job, but trained in another, fits.
    tried_batches = _TriedBatches(largest_trained, min((b for b in failed if not b <= largest_trained), default=np.inf))
    available_bytes = float(least_free[MEMORY_COLUMNS[str(key[-1])]].reindex(list(peaks.cells) if peaks else []).min())
    line = np.full((1 + REPLICATES, 2), np.nan) if peaks is None or peaks.line is None else peaks.line
    line_scatter = peaks.off if peaks else np.ones(1 + REPLICATES)
    with np.errstate(divide="ignore", invalid="ignore"):
        batches_by_line = np.floor((available_bytes / line_scatter - line[:, 0]) / line[:, 1])
    basis, note = _largest_basis(tried_batches, line, available_bytes)
    return {
        **dict(zip((*MEMORY_AXES, "memory"), key, strict=True)),
        "available": available_bytes,
        **columns("fixed", line[:, 0]),
        **columns("slope", line[:, 1]),
        "largest_measured": tried_batches.largest_trained,
        "smallest_failed": tried_batches.smallest_failed if np.isfinite(tried_batches.smallest_failed) else np.nan,
        **_largest_columns(tried_batches, basis, batches_by_line),
        "basis": basis,
        "note": note,
    }


def _largest_basis(tried_batches: _TriedBatches, line: Ensemble, available_bytes: float) -> tuple[str, str]:
    """Return the basis of the largest b (measured, predicted or unknown); if it is unknown, also what is missing."""
    if tried_batches.largest_trained < tried_batches.smallest_failed < np.inf:
        return MEASURED, ""
    if np.isnan(tried_batches.largest_trained):
        return UNKNOWN_BASIS, "every b that was tried ran out of memory"
    if np.isnan(available_bytes):
        return UNKNOWN_BASIS, "the memory that a worker may use was not recorded"
    if np.isnan(line).any():
        return UNKNOWN_BASIS, "one b was measured; two tell how memory grows with b"
    if not (line[:, 1] > 0).all():
        return UNKNOWN_BASIS, "memory does not grow measurably with the b that were measured"
    return PREDICTED, ""


def _largest_columns(tried_batches: _TriedBatches, basis: str, batches_by_line: Ensemble) -> dict[str, float]:
    if basis == UNKNOWN_BASIS:
        return columns("largest_batch", batches_by_line * np.nan)
    low, high = tried_batches.largest_trained, tried_batches.smallest_failed - 1
    if not np.isfinite(batches_by_line).all():
        return {"largest_batch": low, "largest_batch_low": low, "largest_batch_high": high}
    return columns("largest_batch", np.clip(batches_by_line, low, high))


class Fits(StrEnum):
    """Whether training fits into a worker's memory."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"
    """The interval contains the available memory."""
    UNKNOWN = "unknown"


_ISOLATED_AXES = ("network", "hardware", "prefetch", "memory")
"""Columns on which the memory of an isolated worker depends, besides b."""


class MemoryUse(NamedTuple):
    """Predicted and available memory of a worker."""

    memory: str
    """`DEVICE` if device memory is known, else `HOST`."""
    peak: Ensemble
    """Peak use, bytes; NaN if unknown."""
    available: float
    """Bytes; NaN if not recorded."""
    fits: Fits


class _MeasuredTraining(NamedTuple):
    """A training whose peak memory was measured."""

    peaks: Peaks
    preset: Preset | None
    """None for an isolated worker."""
    placement: Placement


class MemoryModel:
    """Predictions of a worker's memory at any point, and of whether training fits into it."""

    def __init__(
        self,
        peaks: Iterable[Peaks],
        largest: Iterable[Mapping[str, object]],
        networks: Mapping[str, Layers],
        presets: Mapping[str, Preset],
        peak_memory: pd.DataFrame,
        environments: pd.DataFrame,
        cuts: Mapping[str, Cuts] | None = None,
    ) -> None:
        """Take measured peaks. `largest` are rows of the largest_batch table; `cuts` are the same as `Cluster.cuts`."""
        self._peaks = {(*one.training, one.memory): one for one in peaks}
        isolated = [one for one in self._peaks.values() if one.labels["sync"] == NONE]
        self._isolated = {tuple(one.labels[name] for name in _ISOLATED_AXES): one for one in isolated}
        self._tried = {tuple(row[name] for name in (*MEMORY_AXES, "memory")): row for row in largest}
        self._networks, self._presets, self._cuts = networks, presets, cuts or {}
        self._peak_memory, self._environments = peak_memory, environments
        visits = peak_memory.groupby(["cell", "visit"])[[f"{memory}_peak" for memory in (DEVICE, HOST)]].max()
        self._of_visits = dict(iter(visits.groupby("cell")))
        self._available = cache(self._least_available)

    def held_out(self, point: Point) -> MemoryUse:
        """Predict the memory of a point from an isolated worker, even if the point was trained."""
        return self._fit(point, lambda memory: [self._from_one_worker(point, memory)])

    def __call__(self, point: Point, unchanged: Point) -> MemoryUse:
        """Predict the memory of `point` from the same training, else an isolated worker, else `unchanged` training."""
        return self._fit(
            point,
            lambda memory: [
                self._trained(point, memory), self._from_one_worker(point, memory), self._trained(unchanged, memory),
            ],
        )  # fmt: skip

    def measured(self, cells: Sequence[str], memory: str) -> float:
        """Return the peak memory of `cells`, bytes, averaged over visits; NaN if none was measured."""
        peak_rows = [self._of_visits[cell][f"{memory}_peak"] for cell in sorted({*cells}) if cell in self._of_visits]
        return float(pd.concat(peak_rows).mean()) if peak_rows else np.nan

    def _fit(self, point: Point, bases: Callable[[str], Sequence[_MeasuredTraining | None]]) -> MemoryUse:
        found = ((memory, base) for memory in (DEVICE, HOST) for base in bases(memory) if base is not None)
        memory, base = next(found, (HOST, None))
        peak = unknown_ensemble()
        if base is not None:
            layers, cuts = self._networks.get(point.network), self._cuts.get(point.network)
            peak = _peak(base, point, self._presets[point.sync], layers, cuts)
        free_bytes = self._available(point.hardware, point.placement[1], memory)
        tried_batches = self._tried.get((*self._training_key(point), memory), {})
        return MemoryUse(memory, peak, free_bytes, _verdict(point.worker_batch, tried_batches, peak, free_bytes))

    def _training_key(self, point: Point) -> tuple[str | int, ...]:
        """Return the point's values of `MEMORY_AXES`."""
        derived_values = {
            "workers_per_node": point.placement[1],
            "shards": self._presets[point.sync].strategy.shards(point.placement),
        }
        return tuple(derived_values[name] if name in derived_values else getattr(point, name) for name in MEMORY_AXES)

    def _trained(self, point: Point, memory: str) -> _MeasuredTraining | None:
        known = self._peaks.get((*self._training_key(point), memory))
        return _MeasuredTraining(known, self._presets[point.sync], point.placement) if known else None

    def _from_one_worker(self, point: Point, memory: str) -> _MeasuredTraining | None:
        keys = ((point.network, point.hardware, prefetch, memory) for prefetch in (point.prefetch, 0))
        known = next((self._isolated[key] for key in keys if key in self._isolated), None)
        return _MeasuredTraining(known, None, (1, 1)) if known else None

    def _least_available(self, hardware: str, workers: int, memory: str) -> float:
        """Return the least memory available to a worker, bytes; nodes with this number of `workers` count, else all."""
        hardware_rows = self._peak_memory[self._peak_memory["hardware"] == hardware]
        same_worker_rows = hardware_rows[hardware_rows["ranks"] // hardware_rows["nodes"] == workers]
        cells = (same_worker_rows if len(same_worker_rows) else hardware_rows)["cell"]
        return float(self._environments.loc[self._environments["cell"].isin(cells), MEMORY_COLUMNS[memory]].min())


def fits(curves: Iterable[CurvePoints], memory: MemoryModel) -> Iterator[dict[str, object]]:
    """Yield the rows of the fits table: every point of every curve."""
    for curve in curves:
        for ranks, one in sorted(curve.predicted.items()):
            found = memory.held_out(one.point)
            cells = curve.measured[ranks].cells if ranks in curve.measured else ()
            yield {
                **one.point.labels("worker_batch"),
                "memory": found.memory,
                **columns("predicted", found.peak),
                "measured": memory.measured(cells, found.memory),
                "available": found.available,
                "fits": found.fits,
            }


def _verdict(b: int, tried_batches: Mapping[str, object], peak: Ensemble, available_bytes: float) -> Fits:
    """Return whether mini-batch `b` fits, by training that tried it, else by predicted peak and available memory."""
    if tried_batches and b <= float(str(tried_batches["largest_measured"])):
        return Fits.YES
    if tried_batches and b >= float(str(tried_batches["smallest_failed"])):
        return Fits.NO
    _, low, high = estimate(peak)
    if np.isnan([low, high, available_bytes]).any():
        return Fits.UNKNOWN
    return Fits.YES if high <= available_bytes else Fits.NO if low > available_bytes else Fits.UNDECIDED


def _peak(base: _MeasuredTraining, point: Point, preset: Preset, layers: Layers | None, cuts: Cuts | None) -> Ensemble:
    """Return the peak memory of the point's most demanding worker, bytes."""
    same_training = base.preset == preset and base.placement == point.placement
    is_checkpointing = bool(base.preset and base.preset.activation_checkpointing)
    if not same_training and (layers is None or is_checkpointing != preset.activation_checkpointing):
        return unknown_ensemble()
    base_kept_share = base.preset.strategy.kept(base.placement) if base.preset else 1.0
    b = point.worker_batch * preset.strategy.kept(point.placement) / base_kept_share
    batches = base.peaks.batches
    peak = base.peaks.measured[:, batches.index(int(b))] if b in batches else predicted(base.peaks, b)
    if same_training or layers is None:
        return peak
    now, had = _shards(preset, point.placement, layers, cuts), _shards(base.preset, base.placement, layers, cuts)
    if now is None or had is None:
        return unknown_ensemble()
    parts = base.peaks.parts[0]
    undivided_bytes = had[0] * (parts["weights"] + parts["gradients"]), had[1] * parts["optimiser"]
    added_bytes = _added_bytes(preset, point.placement, now, undivided_bytes, layers, cuts, point.worker_batch)
    own_bytes = _added_bytes(base.preset, base.placement, had, undivided_bytes, layers, cuts, b) if base.preset else 0.0
    return np.asarray(peak + added_bytes - own_bytes)


def _shards(
    preset: Preset | None, placement: Placement, layers: Layers, cuts: Cuts | None
) -> tuple[float, float] | None:
    """Return the number of shards of weights and gradients, and of the optimiser state; None if unknown."""
    if preset is None or placement == (1, 1):
        return 1, 1
    return preset.strategy.divided(placement, layers.gradient_bytes.tolist(), lambda: cuts.split if cuts else None)


def _added_bytes(
    preset: Preset,
    placement: Placement,
    divided: tuple[float, float],
    undivided_bytes: tuple[float, float],
    layers: Layers,
    cuts: Cuts | None,
    worker_batch: float,
) -> float:
    """Return the bytes that messages add to a worker's memory, minus what sharding saves of the `undivided_bytes`."""
    if placement == (1, 1):
        return 0.0
    saved_bytes = sum((1 - 1 / parts) * size for parts, size in zip(divided, undivided_bytes, strict=True))
    sizes = layers.gradient_bytes.tolist()
    return preset.strategy.buffers(placement, layers.names, sizes, cuts, worker_batch) - saved_bytes


def largest(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the rows of a study's largest_batch table."""
    return largest_batch(fitted.memory, fitted.tidy["runs"], fitted.tidy["environments"])


def memory(fitted: FittedStudy) -> MemoryModel:
    """Return the memory model of a study."""
    return MemoryModel(
        fitted.memory, fitted.once(largest), fitted.reduced.training_cells.networks, fitted.presets,
        fitted.tidy["peak_memory"], fitted.tidy["environments"], fitted.asked.cuts,
    )  # fmt: skip


QUESTIONS = (
    Question(LARGEST_BATCH, lambda fitted: fitted.once(largest)),
    Question(FITS, lambda fitted: fits(fitted.training_curves, fitted.once(memory))),
)
