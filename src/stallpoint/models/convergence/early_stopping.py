"""Large mini-batches against early stopping of the smallest one, at equal accuracy (Keuper & Pfreundt 2016, III-C).

If a mini-batch B is k times as large, training on as many samples takes 1/k of the steps and ends with less accuracy.
Training with the smallest B passes that accuracy long before its end, and could stop there. A larger B pays only if its
speedup is larger than that of stopping early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.statistics import (
    Ensemble,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    unknown_ensemble,
)
from stallpoint.models.convergence.steps import TRAINING_COLUMNS
from stallpoint.study.kinds.convergence_kind import MAX_STEPS

_USUAL_SCATTER = Scatter(0.005, 4.0)
"""Usual scatter of the best accuracy between seeds, which is smaller than that of times."""


def table(evaluations: pd.DataFrame, runs: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Return the rows of the early_stopping table, from runs without a target that completed all steps."""
    if runs.empty:
        return []
    complete = runs[(runs["ended"] == MAX_STEPS) & runs["target"].isna()]
    return [row for key, rows in groups(complete, TRAINING_COLUMNS) for row in _rows(key, rows, evaluations, seed)]


def _rows(key: Sequence[Any], runs: pd.DataFrame, evaluations: pd.DataFrame, seed: int) -> Iterator[dict[str, object]]:
    steps = evaluations.groupby("cell")["step"].max()
    best = {int(batch): _best_trial(rows) for batch, rows in groups(runs, "batch")}
    smallest = min(best)
    smallest_evaluations = evaluations[evaluations["cell"].isin(best[smallest]["cell"])]
    curves = [of_run.sort_values("step") for _, of_run in groups(smallest_evaluations, "cell")]
    complete = float(steps[best[smallest]["cell"]].mean())
    reference = _accuracy(best[smallest], generator(seed, "accuracy", *key, smallest))
    for batch, rows in best.items():
        accuracy = _accuracy(rows, generator(seed, "accuracy", *key, batch))
        accuracy_difference = np.zeros_like(accuracy) if batch == smallest else accuracy - reference
        early, speedup = complete / _steps_to_accuracy(curves, accuracy), complete / float(steps[rows["cell"]].mean())
        yield {
            **dict(zip(TRAINING_COLUMNS, key, strict=True)),
            "batch": batch,
            "against": smallest,
            **columns("accuracy", accuracy),
            **(apart := columns("difference", accuracy_difference)),
            "verdict": compared(apart["difference_low"], apart["difference_high"]),
            **columns("speedup", np.full_like(accuracy, speedup)),
            **columns("early_over_batch", unknown_ensemble() if batch == smallest else early / speedup),
        }


def _best_trial(rows: pd.DataFrame) -> pd.DataFrame:
    means = rows.groupby("trial")["best_accuracy"].mean()
    return rows[rows["trial"] == means.idxmax()]


def _accuracy(rows: pd.DataFrame, random: np.random.Generator) -> Ensemble:
    return bootstrap(rows["best_accuracy"], rows["seed"], random, np.mean, _USUAL_SCATTER)


def _steps_to_accuracy(curves: Sequence[pd.DataFrame], accuracy: Ensemble) -> Ensemble:
    """Return the mean steps to each `accuracy`, interpolated between evaluations; all steps if it is not reached."""
    return np.asarray(np.mean([_crossing_steps(curve, accuracy) for curve in curves], axis=0))


def _crossing_steps(curve: pd.DataFrame, accuracy: Ensemble) -> Ensemble:
    steps = curve["step"].to_numpy(np.float64)
    best = np.maximum.accumulate(curve["validation_accuracy"].to_numpy(np.float64))
    after = np.searchsorted(best, accuracy).clip(1, len(best) - 1)
    accuracy_gain = np.maximum(best[after] - best[after - 1], np.finfo(np.float64).tiny)
    part = ((accuracy - best[after - 1]) / accuracy_gain).clip(0, 1)
    return np.asarray(steps[after - 1] + part * (steps[after] - steps[after - 1]))


class AccuracyVerdict(StrEnum):
    """Comparison of two accuracies."""

    LOWER = "lower"
    HIGHER = "higher"
    UNCLEAR = "not distinguishable"


def compared(low: float, high: float) -> AccuracyVerdict:
    """Return whether an accuracy is lower or higher, by the interval of its difference; unclear for NaN."""
    return AccuracyVerdict.LOWER if high < 0 else AccuracyVerdict.HIGHER if low > 0 else AccuracyVerdict.UNCLEAR
