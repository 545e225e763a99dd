"""The noise scale of gradients, B_simple: an estimate of the mini-batch B up to which larger mini-batches pay.

    B_simple = tr(Σ) / |G|²

G is the true gradient, Σ the covariance of one sample's gradient (McCandlish et al. 2018, section 2.2, appendix A.1).
If g_b is the gradient of a worker's b samples, and g_B the mean gradient of all workers (B samples), then E|g_b|² =
|G|² + tr(Σ)/b, and likewise for B. Unbiased estimates are

    |G|² = (B |g_B|² - b |g_b|²) / (B - b)        tr(Σ) = (|g_b|² - |g_B|²) / (1/b - 1/B)

Both are averaged over steps before their ratio is taken, as a mean of ratios would be biased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.statistics import (
    REPLICATES,
    Ensemble,
    bootstrap,
    columns,
    generator,
    groups,
    unknown_ensemble,
)
from stallpoint.models.convergence.steps import TRAINING_COLUMNS, Steps
from stallpoint.study.kinds.convergence_kind import DIVERGED

TRAINING_PARTS = 4
"""Number of equal parts of a training: the noise grows while the loss falls."""


def rows_without_divergence(gradient_noise: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs that did not diverge, as the growing norms of diverged runs would dominate."""
    return gradient_noise[~gradient_noise["cell"].isin(runs.loc[runs["ended"] == DIVERGED, "cell"])]


def noise_scale(rows: pd.DataFrame, random: np.random.Generator) -> Ensemble:
    """Return B_simple of rows of ``gradient_noise``, samples, with intervals over seeds.

    Infinite where the gradient is not distinguishable from its noise.
    """
    b, total = rows["worker_batch"].to_numpy(np.float64), rows["batch"].to_numpy(np.float64)
    small, large = rows["small"].to_numpy(), rows["large"].to_numpy()
    signal, noise = (total * large - b * small) / (total - b), (small - large) / (1 / b - 1 / total)
    means = bootstrap(np.stack([noise, signal], axis=-1), rows["seed"], random, np.mean)
    noise_mean, signal_mean = np.maximum(means[:, 0], 0.0), means[:, 1]
    return np.asarray(np.divide(noise_mean, signal_mean, out=np.full(1 + REPLICATES, np.inf), where=signal_mean > 0))


def table(gradient_noise: pd.DataFrame, seed: int) -> Iterator[dict[str, object]]:
    """Yield the rows of the noise_scale table: every training and B, in `TRAINING_PARTS` parts of its steps."""
    rows_of_several_workers = gradient_noise[gradient_noise["batch"] > gradient_noise["worker_batch"]]
    for key, rows in groups(rows_of_several_workers, [*TRAINING_COLUMNS, "batch"]):
        part = np.ceil(TRAINING_PARTS * rows["step"] / max(rows["step"].max(), 1)).clip(1, TRAINING_PARTS).astype(int)
        for number, of_part in groups(rows.assign(part=part), "part"):
            yield {
                **dict(zip([*TRAINING_COLUMNS, "batch"], key, strict=True)),
                "part": int(number),
                "steps": len(of_part),
                **columns("noise_scale", noise_scale(of_part, generator(seed, "noise", *key, number))),
            }


def noise_scale_of_training(steps: Steps, gradient_noise: pd.DataFrame, seed: int) -> Ensemble:
    """Return the noise scale of a training over all B; NaN without recorded norms."""
    rows = _rows_with_values(gradient_noise, steps.training, TRAINING_COLUMNS)
    rows = rows[rows["batch"] > rows["worker_batch"]]
    random = generator(seed, "noise", *steps.training.values())
    return noise_scale(rows, random) if len(rows) else unknown_ensemble()


def critical_batches(
    found: Iterable[Steps], noise: Callable[[Steps], Ensemble], threshold: float
) -> list[dict[str, object]]:
    """Return the rows of the critical_batches table: B_crit of every training from its steps, and its `noise` scale.

    The noise scale is that of the complete training at all B. It may differ from B_crit, as it assumes equal curvature
    in all directions, and grows while the loss falls. (Merrill et al., 2025, find the critical batch by branching.)
    """
    return [_row(steps, noise(steps), threshold) for steps in found]


def _row(steps: Steps, measured: Ensemble, threshold: float) -> dict[str, object]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = measured / steps.critical
    return {
        **steps.training,
        "ranks": steps.ranks,
        "batches": len(steps.reaching),
        "largest_reaching": max(steps.reaching, default=0),
        **columns("least_steps", steps.least_steps),
        **columns("least_samples", steps.least_samples),
        **columns("bend", steps.bend if steps.sure else np.append(steps.bend[:1], unknown_ensemble()[1:])),
        **columns("critical_batch", steps.critical),
        **columns("perfect_to", steps.perfect_to(threshold)),
        **columns("no_gain_from", steps.no_gain_from(threshold)),
        **columns("noise_scale", measured),
        **columns("noise_over_critical", ratio),
    }


def _rows_with_values(frame: pd.DataFrame, values: Mapping[str, Any], names: Sequence[str]) -> pd.DataFrame:
    return frame[np.logical_and.reduce([frame[name] == values[name] for name in names])] if len(frame) else frame
