"""The largest mini-batch that fits into a worker's memory: (available - fixed) / slope, between what was tried.

A b that was trained fits, and one that ran out of memory does not, whatever the line says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from stallpoint.models.base.measured import trained
from stallpoint.models.base.statistics import REPLICATES, Ensemble, columns
from stallpoint.models.terms.peaks import AVAILABLE, BESIDE_BATCH, DEVICE, HOST, Peaks
from stallpoint.study.kinds.train_kind import TrainCell

MEASURED, PREDICTED, UNKNOWN_BASIS = "measured", "predicted", "unknown"
OUT_OF_MEMORY = "out of memory"
"""Words in the reason of a cell that failed for want of memory."""

_Key = tuple[str | int, ...]
"""Values of `BESIDE_BATCH`, and the memory."""


class _Tried(NamedTuple):
    ran: float
    """Largest b that was trained; not a number where none was."""
    failed: float
    """Smallest b above it that ran out of memory; infinite where none did."""


def table(memory: Iterable[Peaks], runs: pd.DataFrame, environments: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of the largest_batch table; also of training that always ran out of memory."""
    known = {(*peaks.training, peaks.memory): peaks for peaks in memory}
    failed = _failed(runs)
    return [_row(key, known.get(key), failed.get(key, []), environments) for key in sorted({*known, *failed})]


def _failed(runs: pd.DataFrame) -> Mapping[_Key, list[int]]:
    """Each b that ran out of which memory."""
    reasons = dict(zip(runs["cell"], runs["reason"], strict=True))
    found: dict[_Key, list[int]] = {}
    for path, cell in trained(runs[runs["reason"].str.contains(OUT_OF_MEMORY, regex=False)]).items():
        key = (*training_of(cell), _ran_out_of(cell, reasons[path]))
        found.setdefault(key, []).append(cell.worker_batch)
    return found


def training_of(cell: TrainCell) -> _Key:
    """Values of `BESIDE_BATCH` of a cell."""
    return tuple(getattr(cell, name) for name in BESIDE_BATCH)


def _ran_out_of(cell: TrainCell, reason: str) -> str:
    """Which memory a cell lacked: a system kills for want of its own, and a GPU's allocator says so."""
    return DEVICE if cell.device == "cuda" and "killed" not in reason else HOST


def _row(key: _Key, peaks: Peaks | None, failed: list[int], environments: pd.DataFrame) -> dict[str, object]:
    ran = float(max(peaks.batches)) if peaks else np.nan
    # What failed at a b that was trained elsewhere (another job, another node) is no limit of the hardware.
    tried = _Tried(ran, min((b for b in failed if not b <= ran), default=np.inf))
    here = environments[environments["cell"].isin(peaks.cells if peaks else [])]
    available = float(here[AVAILABLE[str(key[-1])]].min()) if len(here) else np.nan
    line = np.full((1 + REPLICATES, 2), np.nan) if peaks is None or peaks.line is None else peaks.line
    off = peaks.off if peaks else np.ones(1 + REPLICATES)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_line = np.floor((available / off - line[:, 0]) / line[:, 1])
    basis, note = _basis(tried, line, available)
    return {
        **dict(zip((*BESIDE_BATCH, "memory"), key, strict=True)),
        "available": available,
        **columns("fixed", line[:, 0]),
        **columns("slope", line[:, 1]),
        "largest_measured": tried.ran,
        "smallest_failed": tried.failed if np.isfinite(tried.failed) else np.nan,
        **_largest(tried, basis, by_line),
        "basis": basis,
        "note": note,
    }


def _basis(tried: _Tried, line: Ensemble, available: float) -> tuple[str, str]:
    """Where the largest b is from, and what is missing where it is unknown."""
    if tried.ran < tried.failed < np.inf:
        return MEASURED, ""
    if np.isnan(tried.ran):
        return UNKNOWN_BASIS, "every b that was tried ran out of memory"
    if np.isnan(available):
        return UNKNOWN_BASIS, "the memory that a worker may use was not recorded"
    if np.isnan(line).any():
        return UNKNOWN_BASIS, "one b was measured; two tell how memory grows with b"
    if not (line[:, 1] > 0).all():
        return UNKNOWN_BASIS, "memory does not grow measurably with the b that were measured"
    return PREDICTED, ""


def _largest(tried: _Tried, basis: str, by_line: Ensemble) -> dict[str, float]:
    if basis == UNKNOWN_BASIS:
        return columns("largest_batch", by_line * np.nan)
    if not np.isfinite(by_line).all():
        low, high = tried.ran, tried.failed - 1
        return {"largest_batch": low, "largest_batch_low": low, "largest_batch_high": high}
    return columns("largest_batch", np.clip(by_line, tried.ran, tried.failed - 1))
