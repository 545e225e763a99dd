"""Simulation-based calibration of the scaling laws (Talts et al. 2018).

Rates are made by a law whose coefficients are drawn from its prior, with a mini-batch that stays (weak scaling), fitted
up to 16 workers and predicted at 64. What is refused counts apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from judging import COVERAGE, Study, shares
from paired import Figure

from stallpoint.models.scaling.extrapolation import extrapolate
from stallpoint.models.scaling.laws import LAWS, Law, Model
from stallpoint.models.scaling.series_placement import Placements

TRIALS = 40
NOISES = (0.01, 0.02, 0.05, 0.1)
COUNTS = (1, 2, 4, 8, 16, 64)
"""The last is predicted from the others."""


def studies() -> Iterator[Study]:
    """Coverage, refusals and median error of each law at each noise."""
    for law in LAWS:
        for noise in NOISES:
            yield partial(_study, law, noise)


def _study(law: Law, noise: float) -> Iterator[Figure]:
    found = [_trial(law, noise, trial) for trial in range(TRIALS)]
    answered = [(held, error) for held, error in found if np.isfinite(error)]
    case = f"law {law.name}, noise {noise:.0%}"
    if answered:
        held, errors = zip(*answered, strict=True)
        yield from shares(case, {"rates at 64": held}, {"rates at 64": COVERAGE}, len(answered))
        low, median, high = np.quantile(errors, (0.05, 0.5, 0.95))
        yield Figure("truth", case, "error at 64", median, low, high, "")
    yield from shares(case, {"refused at 64": [not np.isfinite(error) for _, error in found]}, {}, TRIALS)


def _trial(law: Law, noise: float, trial: int) -> tuple[bool, float]:
    """Whether a new measurement is in the interval, and how far off the law's own rate is; not a number if refused."""
    random = np.random.default_rng([2018, trial, round(1000 * noise)])
    workers, batch = np.array(COUNTS, dtype=np.float64), np.full(len(COUNTS), 32.0)
    places = Placements(workers, np.full(len(COUNTS), np.nan), batch)
    model = Model.of(law, places)
    truth = workers * np.exp(-model.log_time(random.standard_normal((1, len(model.priors))), places)[0])
    measured = truth * np.exp(noise * random.standard_normal(len(workers)))
    rates = pd.DataFrame({
        "series": "s", "workers": COUNTS, "workers_per_node": np.nan, "batch_per_worker": batch,
        "samples_per_second": [*measured[:-1], np.nan],
    })  # fmt: skip
    found = extrapolate(rates).iloc[-1]
    held = bool(found["lower"] <= measured[-1] <= found["upper"])
    return held, abs(float(found["predicted"]) / truth[-1] - 1)
