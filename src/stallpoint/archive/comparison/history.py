"""Comparison of several studies of a machine over time: is the machine getting slower, and since when?

Each study has a *slowdown*: the logarithm of iteration time relative to the first study, as a mean over points. Studies
of an unchanged machine differ by more than the scatter of their visits. This excess is estimated from the studies
themselves (Paule & Mandel 1982) and included in every interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq

from stallpoint.archive.comparison import change
from stallpoint.archive.comparison.change import mean_of_points, usual_scatter
from stallpoint.archive.comparison.compared_results import Results
from stallpoint.base.distributions import student_cdf, student_quantile
from stallpoint.base.measured import POINT
from stallpoint.base.section import Change
from stallpoint.base.statistics import INTERVAL, Reals, groups
from stallpoint.errors import InputError

DAYS_PER_MONTH = 30.44
"""Days of a month."""
ALARM_RATE = 0.01
"""Significance level of each of two tests, for a trend and for a step: a steady machine's false alarms."""
MIN_STUDIES = 4
"""Studies needed for a trend."""
NO_TREND = "no trend"
_MAX_DEVIATION = 4.0
"""Upper bound in the search for the standard deviation between studies (of logarithms)."""


@dataclass(frozen=True)
class Trend:
    """A line or a step fitted to slowdowns."""

    value: float
    """Slope, or height of the step."""
    error: float
    freedom: int
    between: float
    """Standard deviation between studies beyond their visits' scatter."""

    @property
    def interval(self) -> tuple[float, float]:
        half_width = float(student_quantile((1 + INTERVAL) / 2, self.freedom)) * self.error
        return self.value - half_width, self.value + half_width

    @property
    def p(self) -> float:
        """Return the two-sided p-value: the probability of a deviation from 0 at least as large if nothing changed."""
        return float(2 * student_cdf(-abs(self.value) / self.error, self.freedom))


@dataclass(frozen=True)
class PastMachine:
    """The slowdowns of one hardware from study to study, and their trend."""

    hardware: str
    slowdowns: pd.DataFrame
    """Columns name, began, log, error: a row for each study, by time."""
    trend: Trend | None
    """Slope of the log time per month; None with fewer than `MIN_STUDIES` studies."""
    step: Trend | None
    """The most significant step; None if no step is significant."""
    step_at: str
    """The first study after the step."""

    @property
    def between(self) -> float:
        """Return the standard deviation of log times between studies of one machine, beyond the scatter of visits."""
        best_fit = self.step or self.trend
        return best_fit.between if best_fit else 0.0

    @property
    def verdict(self) -> str:
        """Return the verdict on whether the machine is getting slower."""
        if self.trend is None or self.trend.p > ALARM_RATE:
            return NO_TREND
        return Change.SLOWER if self.trend.value > 0 else Change.FASTER


@dataclass(frozen=True)
class History:
    """Several studies over time: the slowdowns of each hardware, and the rate at each point."""

    machines: Sequence[PastMachine]
    rates: pd.DataFrame
    """Columns `POINT`, study, began, and samples per second as value, low and high: a row for each point and study."""


def history(studies: Sequence[Results]) -> History:
    """Return the history of machines; raise `InputError` if no point was measured in two or more of the `studies`."""
    ordered_studies = sorted(studies, key=lambda one: one.began)
    frames = [
        change.point_times(one.tables).assign(study=place, name=one.name, began=pd.Timestamp(one.began))
        for place, one in enumerate(ordered_studies)
    ]
    rows = pd.concat(frames, ignore_index=True).assign(log=lambda frame: np.log(frame["seconds"]))
    rows = rows[rows.groupby(list(POINT))["study"].transform("nunique") > 1]
    if rows.empty:
        raise InputError("no point was measured in two of the studies: there is nothing to follow over time")
    return history_of(rows)


def history_of(rows: pd.DataFrame) -> History:
    """Return the history of machines from visits to points; `rows` has the columns `POINT`, visit, seconds, log, study
    (numbered by time), name and began."""
    found = [_machine(str(hardware), here) for hardware, here in groups(rows, "hardware")]
    return History([machine for machine, _ in found], pd.concat([rates for _, rates in found], ignore_index=True))


def _machine(hardware: str, rows: pd.DataFrame) -> tuple[PastMachine, pd.DataFrame]:
    variances = _variances(rows)
    slowdowns = _slowdowns(rows, variances)
    days = (slowdowns["began"] - slowdowns["began"].iloc[0]).dt.total_seconds().to_numpy() / 86400
    logs, errors = slowdowns["log"].to_numpy(), slowdowns["error"].to_numpy()
    trend = step = None
    step_at = ""
    if len(slowdowns) >= MIN_STUDIES and days[-1] > 0:
        trend = fit_line(days / DAYS_PER_MONTH, logs, errors)
        steps = {place: fit_line(np.arange(len(logs)) >= place, logs, errors) for place in range(1, len(logs))}
        split = min(steps, key=lambda place: steps[place].p)
        if steps[split].p * len(steps) < ALARM_RATE:  # Bonferroni's correction, as the best of several steps is chosen
            step, step_at = steps[split], str(slowdowns["name"].iloc[split])
    return PastMachine(hardware, slowdowns, trend, step, step_at), _rates(rows, variances)


def _variances(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the variance of a visit's log time at each `POINT`, pooled over studies. Its prior is from all points."""
    pooled = usual_scatter(rows, POINT)
    logs = rows.groupby([*POINT, "study"])["log"].agg(["var", "count"])
    logs = logs.assign(squares=logs["var"].fillna(0.0) * (logs["count"] - 1), freedom=logs["count"] - 1)
    sums = logs.groupby(level=list(POINT))[["squares", "freedom"]].sum()
    variance = (sums["squares"] + pooled.freedom * pooled.deviation**2) / (sums["freedom"] + pooled.freedom)
    return variance.rename("variance").reset_index()


def _slowdowns(rows: pd.DataFrame, variances: pd.DataFrame) -> pd.DataFrame:
    """Return each study's slowdown relative to the first: log times are fitted by a study term plus a point term."""
    means = rows.groupby(["study", *POINT], as_index=False)["log"].mean()
    study, point = (means.groupby(by).ngroup().to_numpy() for by in (["study"], list(POINT)))
    of_study, of_point = (np.eye(which.max() + 1)[which] for which in (study, point))
    design = np.concatenate([of_study, of_point], axis=1)
    found = np.linalg.lstsq(design, means["log"].to_numpy(), rcond=None)[0][: of_study.shape[1]]
    frames = list(rows.groupby("study"))
    return pd.DataFrame({
        "name": [frame["name"].iloc[0] for _, frame in frames],
        "began": [frame["began"].iloc[0] for _, frame in frames],
        "log": found - found[0],
        "error": [mean_of_points(frame, POINT, variances).error for _, frame in frames],
    })  # fmt: skip


def _rates(rows: pd.DataFrame, variances: pd.DataFrame) -> pd.DataFrame:
    """Return the samples per second of each point in each study, with intervals."""
    means = rows.groupby([*POINT, "study", "name", "began"])["log"].agg(["mean", "count"]).reset_index()
    found = means.merge(variances, on=list(POINT))
    freedom = len(rows) - len(means) + 1
    half_width = student_quantile((1 + INTERVAL) / 2, freedom) * np.sqrt(found["variance"] / found["count"])
    rate = found["global_batch"] / np.exp(found["mean"])
    return found.assign(value=rate, low=rate * np.exp(-half_width), high=rate * np.exp(half_width))


def fit_line(positions: npt.ArrayLike, logs: Reals, errors: Reals) -> Trend:
    """Return the slope of a line through the studies' slowdowns `logs` at `positions`, by weighted least squares.

    `errors` are the slowdowns' standard errors from the scatter of visits. The variance between studies is chosen so
    that the weighted sum of squares equals its expectation (Paule & Mandel 1982). A smaller sum of squares does not
    make the slope more certain (Knapp & Hartung 2003).
    """
    design = np.stack([np.ones(len(logs)), np.asarray(positions, dtype=np.float64)], axis=1)
    freedom = len(logs) - 2

    def squares(between: float) -> float:
        return float((_weights(errors, between) * (logs - design @ _solve(design, logs, errors, between)) ** 2).sum())

    between = _deviation_between(lambda trial: squares(trial) - freedom)
    weights = _weights(errors, between)
    covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
    scale = max(1.0, squares(between) / freedom)
    value = float(_solve(design, logs, errors, between)[1])
    return Trend(value, float(np.sqrt(scale * covariance[1, 1])), freedom, between)


def _weights(errors: Reals, between: float) -> Reals:
    return np.asarray(1 / (errors**2 + between**2))


def _solve(design: Reals, logs: Reals, errors: Reals, between: float) -> Reals:
    root = np.sqrt(_weights(errors, between))
    return np.asarray(np.linalg.lstsq(design * root[:, None], logs * root, rcond=None)[0])


def _deviation_between(excess_at: Callable[[float], float]) -> float:
    return 0.0 if excess_at(0.0) <= 0 else float(brentq(excess_at, 0.0, _MAX_DEVIATION))
