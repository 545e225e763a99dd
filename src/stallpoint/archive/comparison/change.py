"""Changes of times: logarithms of visits' times in two studies, compared by Student's t.

A cell has few visits, so the scatter over all cells of its hardware entry is the prior of the cell's scatter (moderated
t; Smyth 2004, "Linear models and empirical Bayes methods"). The mean over many points has a further source of error:
rounds of visits may be slow. This error is estimated from the scatter of the rounds' means (clustered by round; Liang &
Zeger 1986).

Changes are data frames with the columns ``log`` (logarithm of the ratio, new over old), ``error`` (its standard error)
and ``freedom`` (degrees of freedom of the error).

*Visits*: two studies are compared by one time for each visit.

As in all of stallpoint, intervals contain the scatter between visits (placement, neighbours, state of the machine), not
between iterations of a visit (`base.statistics.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.distributions import student_cdf, student_quantile
from stallpoint.base.measured import POINT, composed, kept, over_ranks
from stallpoint.base.section import Change
from stallpoint.base.statistics import INTERVAL, SAME_WITHIN, Reals, Scatter, scatter
from stallpoint.models.answers.controls import holm
from stallpoint.records.disturbances import without

LEVEL = 0.004
"""Family-wise error rate: the probability that any difference is reported between two equal studies.

In 94 of 100 trials with 100 equal pairs each, at most one pair raised a false alarm; at a level of 1 %, in 74.
"""
FAMILIES = {"hardware": 1 / 2, "point": 1 / 6, "speedup": 1 / 6, "layer": 1 / 6}
"""Families of comparisons (the mean over points of a hardware entry, each point, each speedup, each layer), and each
family's part of `LEVEL`, kept within the family by Holm's correction."""
ROUND_FREEDOM = 2.0
"""Degrees of freedom of the prior that rounds of visits do not differ.

With fewer, few visits would find no slowdown; with more, slow rounds would often be taken for a slow machine.
"""


def paired(old: pd.DataFrame, new: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return both studies' visits to points that both measured, with the columns study and log."""
    both = pd.concat([old.assign(study="old"), new.assign(study="new")], ignore_index=True)
    shared = both.groupby(list(by))["study"].transform("nunique") == 2
    return both[shared].assign(log=lambda rows: np.log(rows["seconds"]))


def relative_to_other_layers(both: pd.DataFrame, layer: Sequence[str], cell: Sequence[str]) -> pd.DataFrame:
    """Return visits to layers with ``log`` relative to the other layers of the cell in the visit.

    The layers' common change, the median of their deviations, is removed: a single layer's change stands out, even in a
    slow visit or on a slower machine.
    """
    each = both.groupby([*layer, "study"])["log"].mean().groupby(level=list(layer)).mean()
    usual = each.reindex(pd.MultiIndex.from_frame(both[list(layer)])).to_numpy()
    shared = (both["log"] - usual).groupby([both[name] for name in (*cell, "study", "visit")]).transform("median")
    return both.assign(log=both["log"] - shared)


def changes(both: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the change of each group by columns `by`; `both` has visits to one hardware entry, from `paired`.

    Further columns: ``old`` and ``new``, geometric means of the visits' ``seconds``, ``old_visits`` and ``new_visits``,
    and ``variance``, the variance of a visit's ``log``.
    """
    usual = usual_scatter(both, by)
    seconds = np.exp(np.log(both["seconds"]).groupby([both[name] for name in (*by, "study")]).mean()).unstack("study")
    each = both.groupby([*by, "study"])["log"].agg(["mean", "count", "var"])
    of = each.assign(squares=each["var"].fillna(0.0) * (each["count"] - 1)).unstack("study")
    (old, new), (old_visits, new_visits), (first, second) = (
        (of[what, "old"], of[what, "new"]) for what in ("mean", "count", "squares")
    )
    squares = first + second + usual.freedom * usual.deviation**2
    freedom = old_visits + new_visits - 2 + usual.freedom
    found = pd.DataFrame({
        "old": seconds["old"], "new": seconds["new"], "old_visits": old_visits, "new_visits": new_visits,
        "log": new - old, "variance": squares / freedom,
        "error": np.sqrt(squares / freedom * (1 / old_visits + 1 / new_visits)), "freedom": freedom,
    })  # fmt: skip
    return found.reset_index()


def usual_scatter(both: pd.DataFrame, by: Sequence[str]) -> Scatter:
    """Return the scatter of all visits in `both`; its degrees of freedom are at most the number of visits.

    Layers of a cell share its visits, so that many layers are no more evidence than one layer.
    """
    found = scatter(both.assign(repeat=1, time=np.exp(both["log"])), [*by, "study"], "time")
    visits = both[[*POINT, "study", "visit"]].drop_duplicates()
    more = len(visits) - len(visits[[*POINT, "study"]].drop_duplicates())
    return replace(found, freedom=max(1.0, min(found.freedom, more)) if more else found.freedom)


@dataclass(frozen=True)
class MeanOfPoints:
    """Error of the mean over a study's points; two studies' errors add up to the error of a change."""

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
        """Return the standard error of the mean: that of independent visits, or a larger one if rounds differ."""
        found = ROUND_FREEDOM * self.independent + self.freedom * max(self.independent, self.clustered)
        return float(np.sqrt(found / self.known))

    @property
    def known(self) -> float:
        """Return the degrees of freedom of the error."""
        return ROUND_FREEDOM + self.freedom


def pooled_change(both: pd.DataFrame, by: Sequence[str], each: pd.DataFrame) -> dict[str, float]:
    """Return the mean change of all points; `each` has the changes of the points, from `changes` of `both`."""
    old, new = (mean_of_points(rows, by, each) for _, rows in both.groupby("study"))
    return {"log": float(each["log"].mean()), "error": (old + new).error, "freedom": (old + new).known}


def mean_of_points(rows: pd.DataFrame, by: Sequence[str], each: pd.DataFrame) -> MeanOfPoints:
    """Return the error of the mean over a study's points; `each` has the ``variance`` of a visit to each point."""
    visits = rows.merge(each[[*by, "variance"]], on=list(by))
    point = visits.groupby(list(by))["log"]
    weight = 1 / (point.transform("count") * point.ngroups)
    residual = (visits["log"] - point.transform("mean")) * weight
    parts = pd.DataFrame({"residual": residual, "variance": visits["variance"] * weight**2})
    rounds = parts.groupby(visits["visit"]).sum()
    independent = float(rounds["variance"].sum())
    count = independent**2 / float((rounds["variance"] ** 2).sum())  # number of equal rounds with the same information
    if len(rounds) < 2:
        return MeanOfPoints(independent, independent, 0.0)
    return MeanOfPoints(independent, float((rounds["residual"] ** 2).sum()) * count / (count - 1), count - 1)


def judged(found: pd.DataFrame, part: float, between: float = 0.0) -> pd.DataFrame:
    """Return the changes of a family with the columns of the verdict: ratio, ratio_low, ratio_high, p, change.

    `part` is the family's share of `LEVEL`. `between` is the standard deviation between equal studies (of logarithms),
    beyond the scatter of visits.
    """
    log, error, freedom = (found[name].to_numpy() for name in ("log", "error", "freedom"))
    error = np.hypot(error, np.sqrt(2) * between)
    wide = student_quantile((1 + INTERVAL) / 2, freedom) * error
    p: Reals = 2 * student_cdf(-np.abs(log) / error, freedom)
    differs = holm(p.tolist(), LEVEL * part)
    return found.assign(
        ratio=np.exp(log), ratio_low=np.exp(log - wide), ratio_high=np.exp(log + wide), p=p,
        change=_words(log, wide, np.array(differs)),
    )  # fmt: skip


def _words(log: Reals, wide: Reals, differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.str_]:
    within_margin = np.abs(log) + wide < np.log1p(SAME_WITHIN)
    words = [Change.SLOWER, Change.FASTER, Change.SAME]
    return np.select([differs & (log > 0), differs, within_margin], words, Change.UNDECIDED)


# --- visits ---------------------------------------------------------------------------------------

LAYER = (*POINT, "layer", "layer_type")


def point_times(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return columns `POINT`, visit and seconds, the mean of the visit's undisturbed iterations over ranks.

    `tables` has runs, iterations, layers and disturbances, as in `stallpoint.records.tables`. Composed iterations are
    predictions, and excluded.
    """
    iterations = without(tables["iterations"], tables["disturbances"])
    iterations = iterations[~iterations["cell"].isin(composed(tables["runs"]))]
    return step_times(over_ranks(iterations, tables["layers"].iloc[:0]))


def step_times(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of `point_times` from iterations reduced by `measured.over_ranks`."""
    return _visits(steps.assign(seconds=steps["iteration_time"]), POINT, "mean")


def layer_times(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return columns `LAYER`, visit and seconds, the median forward and backward time of each layer in the visit.

    Only rank 0 is used, of the cells with the fewest workers of each network and hardware entry, ideally one worker.
    """
    layers = kept(without(tables["layers"], tables["disturbances"]))
    fewest = layers.groupby(["network", "hardware"])["ranks"].transform("min")
    isolated = layers[(layers["ranks"] == fewest) & (layers["rank"] == 0)]
    return _visits(isolated.assign(seconds=isolated["forward"] + isolated["backward"]), LAYER, "median")


def _visits(rows: pd.DataFrame, by: Sequence[str], statistic: str) -> pd.DataFrame:
    """Return one row for each visit, or for each repeat if there are several, as repeats are separate jobs."""
    repeated = rows.groupby(list(by))["repeat"].transform("nunique") > 1
    rows = rows.assign(visit=rows["visit"].where(~repeated, rows["repeat"]))
    times = rows.groupby([*by, "visit"], as_index=False)["seconds"].agg(statistic)
    known: pd.DataFrame = times[np.isfinite(times["seconds"]) & (times["seconds"] > 0)]
    return known
