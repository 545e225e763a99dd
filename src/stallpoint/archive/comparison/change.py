"""Changes of times from an old to a new study: logarithms of ratios, tested by Student's t.

A cell has few visits. The scatter over all cells on the same hardware is therefore the prior of the cell's scatter
(moderated t; Smyth 2004, "Linear models and empirical Bayes methods"). All visits in a round may be slow, which adds an
error to the mean over many points. This error is estimated from the scatter of the rounds' means (clustered by round;
Liang & Zeger 1986).

Changes are data frames with the columns ``log`` (logarithm of new time / old time), ``error`` (its standard error) and
``freedom`` (degrees of freedom of the error).

As everywhere in stallpoint (`base.statistics.bootstrap`), a visit counts as one time. Intervals contain the scatter
between visits (placement, neighbours, state of the machine), but not the scatter between iterations of a visit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.distributions import student_cdf, student_quantile
from stallpoint.base.measured import POINT, composed, kept, step_rows
from stallpoint.base.section import Change
from stallpoint.base.statistics import INTERVAL, SAME_WITHIN, Reals, Scatter, scatter
from stallpoint.models.answers.controls import holm
from stallpoint.records.disturbances import without

ERROR_RATE = 0.004
"""Family-wise error rate: the probability that any difference is reported between two equal studies.

In 94 of 100 trials with 100 equal pairs each, at most one pair raised a false alarm; at a level of 1 %, in 74.
"""
FAMILIES = {"hardware": 1 / 2, "point": 1 / 6, "speedup": 1 / 6, "layer": 1 / 6}
"""Families of comparisons (the mean over points of a hardware entry, each point, each speedup, each layer), and each
family's part of `ERROR_RATE`, kept within the family by Holm's correction."""
ROUND_FREEDOM = 2.0
"""Degrees of freedom of the prior that rounds of visits do not differ.

With fewer, few visits would find no slowdown; with more, slow rounds would often be taken for a slow machine.
"""


def pair_visits(old: pd.DataFrame, new: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the rows of both studies (visits) whose `keys` occur in both, with columns ``study`` and ``log``."""
    visits = pd.concat([old.assign(study="old"), new.assign(study="new")], ignore_index=True)
    is_shared = visits.groupby(list(keys))["study"].transform("nunique") == 2
    return visits[is_shared].assign(log=lambda rows: np.log(rows["seconds"]))


def relative_to_other_layers(visits: pd.DataFrame, layer: Sequence[str], cell: Sequence[str]) -> pd.DataFrame:
    """Return visits to layers with ``log`` relative to the other layers of the cell in the same visit.

    The change that a visit's layers have in common (the median of their deviations) is removed. The change of a single
    layer thus stands out, even in a slow visit or on a slower machine.
    """
    layer_means = visits.groupby([*layer, "study"])["log"].mean().groupby(level=list(layer)).mean()
    mean_logs = layer_means.reindex(pd.MultiIndex.from_frame(visits[list(layer)])).to_numpy()
    common_deviation = (
        (visits["log"] - mean_logs).groupby([visits[name] for name in (*cell, "study", "visit")]).transform("median")
    )
    return visits.assign(log=visits["log"] - common_deviation)


def changes(visits: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the change of each group of visits (by `keys`); `visits` are both studies' visits, from `pair_visits`.

    Further columns: ``old`` and ``new``, geometric means of the visits' ``seconds``; ``old_visits`` and ``new_visits``;
    and ``variance``, the variance of a visit's ``log``.
    """
    scatter_of_visits = usual_scatter(visits, keys)
    seconds = np.exp(np.log(visits["seconds"]).groupby([visits[name] for name in (*keys, "study")]).mean()).unstack(
        "study"
    )
    study_means = visits.groupby([*keys, "study"])["log"].agg(["mean", "count", "var"])
    columns = study_means.assign(squares=study_means["var"].fillna(0.0) * (study_means["count"] - 1)).unstack("study")
    (old, new), (old_visits, new_visits), (first, second) = (
        (columns[what, "old"], columns[what, "new"]) for what in ("mean", "count", "squares")
    )
    squares = first + second + scatter_of_visits.freedom * scatter_of_visits.deviation**2
    freedom = old_visits + new_visits - 2 + scatter_of_visits.freedom
    found = pd.DataFrame({
        "old": seconds["old"], "new": seconds["new"], "old_visits": old_visits, "new_visits": new_visits,
        "log": new - old, "variance": squares / freedom,
        "error": np.sqrt(squares / freedom * (1 / old_visits + 1 / new_visits)), "freedom": freedom,
    })  # fmt: skip
    return found.reset_index()


def usual_scatter(paired_visits: pd.DataFrame, keys: Sequence[str]) -> Scatter:
    """Return the scatter of visits within groups. Its degrees of freedom are at most the number of repeated visits.

    Layers of a cell share its visits, so that many layers are no more evidence than one layer.
    """
    found = scatter(paired_visits.assign(repeat=1, time=np.exp(paired_visits["log"])), [*keys, "study"], "time")
    visits = paired_visits[[*POINT, "study", "visit"]].drop_duplicates()
    repeated_visits = len(visits) - len(visits[[*POINT, "study"]].drop_duplicates())
    return replace(found, freedom=max(1.0, min(found.freedom, repeated_visits)) if repeated_visits else found.freedom)


@dataclass(frozen=True)
class MeanOfPoints:
    """Variances of a study's mean over its points. A difference of two such means has the sum of their variances."""

    independent: float
    """Variance of the mean if visits are independent."""
    clustered: float
    """Cluster-robust variance of the mean; a cluster is a round (all first visits, all second visits, ...)."""
    freedom: float
    """Degrees of freedom of `clustered`."""

    def __add__(self, other: MeanOfPoints) -> MeanOfPoints:
        return MeanOfPoints(
            self.independent + other.independent, self.clustered + other.clustered, self.freedom + other.freedom
        )

    @property
    def error(self) -> float:
        """Return the standard error of the mean, larger than that of independent visits if rounds of visits differ."""
        found = ROUND_FREEDOM * self.independent + self.freedom * max(self.independent, self.clustered)
        return float(np.sqrt(found / self.error_freedom))

    @property
    def error_freedom(self) -> float:
        return ROUND_FREEDOM + self.freedom


def pooled_change(paired_visits: pd.DataFrame, keys: Sequence[str], point_changes: pd.DataFrame) -> dict[str, float]:
    """Return the mean of `point_changes`, the changes of all points on one hardware (from `changes`)."""
    old, new = (mean_of_points(rows, keys, point_changes) for _, rows in paired_visits.groupby("study"))
    return {"log": float(point_changes["log"].mean()), "error": (old + new).error, "freedom": (old + new).error_freedom}


def mean_of_points(rows: pd.DataFrame, keys: Sequence[str], variances: pd.DataFrame) -> MeanOfPoints:
    """Return the variances of a study's mean over points; `variances` has, by point, the variance of one visit."""
    visits = rows.merge(variances[[*keys, "variance"]], on=list(keys))
    point = visits.groupby(list(keys))["log"]
    weight = 1 / (point.transform("count") * point.ngroups)
    residual = (visits["log"] - point.transform("mean")) * weight
    parts = pd.DataFrame({"residual": residual, "variance": visits["variance"] * weight**2})
    rounds = parts.groupby(visits["visit"]).sum()
    independent = float(rounds["variance"].sum())
    count = independent**2 / float((rounds["variance"] ** 2).sum())  # effective number of rounds
    if len(rounds) < 2:
        return MeanOfPoints(independent, independent, 0.0)
    return MeanOfPoints(independent, float((rounds["residual"] ** 2).sum()) * count / (count - 1), count - 1)


def judge(found: pd.DataFrame, share: float, study_deviation: float = 0.0) -> pd.DataFrame:
    """Return the changes of a family with the columns of their verdict: ratio, ratio_low, ratio_high, p, change.

    `share` is the family's part of the error rate `ERROR_RATE`. `study_deviation` is the standard deviation
    of log times between studies of an unchanged machine, beyond the scatter of visits.
    """
    log, error, freedom = (found[name].to_numpy() for name in ("log", "error", "freedom"))
    error = np.hypot(error, np.sqrt(2) * study_deviation)
    half_width = student_quantile((1 + INTERVAL) / 2, freedom) * error
    p_values: Reals = 2 * student_cdf(-np.abs(log) / error, freedom)
    is_different = holm(p_values.tolist(), ERROR_RATE * share)
    return found.assign(
        ratio=np.exp(log), ratio_low=np.exp(log - half_width), ratio_high=np.exp(log + half_width), p=p_values,
        change=_change_words(log, half_width, np.array(is_different)),
    )  # fmt: skip


def _change_words(log: Reals, half_width: Reals, is_different: npt.NDArray[np.bool_]) -> npt.NDArray[np.str_]:
    is_within_margin = np.abs(log) + half_width < np.log1p(SAME_WITHIN)
    words = [Change.SLOWER, Change.FASTER, Change.SAME]
    return np.select([is_different & (log > 0), is_different, is_within_margin], words, Change.UNDECIDED)


# --- times of visits ------------------------------------------------------------------------------

LAYER = (*POINT, "layer", "layer_type")


def point_times(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the mean iteration time of each visit to each point: columns `POINT`, visit and seconds.

    `tables` has runs, iterations, layers and disturbances, as in `stallpoint.records.tables`. Disturbed iterations are
    excluded, and composed iterations, which are predictions.
    """
    iterations = without(tables["iterations"], tables["disturbances"])
    iterations = iterations[~iterations["cell"].isin(composed(tables["runs"]))]
    return step_times(step_rows(iterations, tables["layers"].iloc[:0]))


def step_times(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of `point_times` from iterations that `measured.step_rows` reduced over ranks."""
    return _visit_times(steps.assign(seconds=steps["iteration_time"]), POINT, "mean")


def layer_times(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the median time of each layer in each visit, forward plus backward: columns `LAYER`, visit and seconds.

    Only the cells with the fewest workers (ideally one) of each network and hardware are used, and only their rank 0.
    """
    layers = kept(without(tables["layers"], tables["disturbances"]))
    fewest_ranks = layers.groupby(["network", "hardware"])["ranks"].transform("min")
    layer_rows = layers[(layers["ranks"] == fewest_ranks) & (layers["rank"] == 0)]
    return _visit_times(layer_rows.assign(seconds=layer_rows["forward"] + layer_rows["backward"]), LAYER, "median")


def _visit_times(rows: pd.DataFrame, keys: Sequence[str], statistic: str) -> pd.DataFrame:
    """Return one time for each visit. If a cell was repeated in separate jobs, each repeat counts as one visit."""
    has_repeats = rows.groupby(list(keys))["repeat"].transform("nunique") > 1
    rows = rows.assign(visit=rows["visit"].where(~has_repeats, rows["repeat"]))
    times = rows.groupby([*keys, "visit"], as_index=False)["seconds"].agg(statistic)
    valid_times: pd.DataFrame = times[np.isfinite(times["seconds"]) & (times["seconds"] > 0)]
    return valid_times
