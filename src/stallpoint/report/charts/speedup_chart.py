"""Speedup against workers, measured and predicted (Keuper & Pfreundt, Fig. 1; Shi et al., Figs. 2 to 4)."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks
from stallpoint.report.charts.labels import (
    AXES,
    FILTERS,
    arrange,
    compact,
    estimate,
    leading_first,
    rows,
    with_interval,
)
from stallpoint.strategies.presets import NONE
from stallpoint.study.workers import place_in_words

CELLS = "train cells with scaling strong or weak"
TITLE = "speedup relative to {}"
"""Title of the axis; the count it refers to is that of the study."""


def draw(tables: Tables) -> alt.FacetChart:
    """Speedup curves with intervals, the ideal line, and the stalling points as triangles on the axis.

    Training without communication is no curve to choose.
    """
    predictions = rows(tables, "predictions", CELLS)
    answers = (predictions["scaling"] != "compute") & (predictions["sync"] != NONE)
    return marks.panels(*curves(tables, arrange(predictions[answers])))


def finding(tables: Tables) -> str:
    """What was measured of the fastest curves: which stall, which scale, which are undecided."""
    curves = leading_first(rows(tables, "stalling", CELLS), tables).query("lead")
    words = {"stalls": "stalls at", "scales": "scales to", "undecided": "undecided at", "withheld": "withheld"}
    said = [
        f"{one['network']} {words[one['verdict']]}" + ("" if one["verdict"] == "withheld" else f" {_place(one)}")
        for _, one in curves.iterrows()
    ]
    more = f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    return "; ".join(said[:MOST_NAMED]) + more


def _place(one: Any) -> str:
    count = int(one["verdict_ranks"]) * (2 if one["verdict"] == "undecided" else 1)
    return place_in_words(count, int(one["workers_per_node"]))


def _relative(predictions: pd.DataFrame) -> str:
    fewest = predictions.groupby(list(AXES))["ranks"].min().unique()
    one = axes.workers(predictions).removesuffix("s")
    return f"1 {one}" if list(fewest) == [1] else f"the fewest {one}s"


MOST_NAMED = 4
"""Curves that the title names."""


def curves(
    tables: Tables, predictions: pd.DataFrame, *, title: str = TITLE, dashes: alt.StrokeDash | None = None
) -> tuple[list[alt.Chart], pd.DataFrame]:
    """Layers and rows of the curves of `predictions`, which say by ``panel`` and ``series`` where they stand.

    Where several curves of a panel share a preset, and so a colour, predicted ones have their shape too.
    """
    known = pd.concat(
        [estimate(predictions, f"{basis}_speedup").assign(basis=basis) for basis in ("measured", "predicted")]
    )
    if known.empty:
        raise NoData(f"no {CELLS} whose speedup is known")
    y = axes.ratio_y(axes.reach(known), title.format(_relative(predictions)))
    stalls = _stalls(tables, predictions, bottom=y["scale"]["domain"][0])
    x = axes.ranks_x(known, beyond=stalls["ranks"])
    least, most = x["scale"]["domain"]
    stalls = stalls.assign(low=stalls["low"].clip(least, most), high=stalls["high"].clip(least, most))
    frame = pd.concat([axes.clipped(known, y), marks.ideal_rows(known, "ranks"), stalls])
    frame = compact(frame, ["panel", "series", "ranks", "basis", "value", "low", "high", "shown", "cause", "start"])
    colour, shape = marks.by_preset(known)
    variants = known["series"].nunique() > known["sync"].nunique()
    tips = marks.tips(series="series", ranks=axes.workers(known), basis="basis", shown="speedup (90 % interval)")
    measured, predicted = (marks.only(basis).encode(x=x, color=colour) for basis in ("measured", "predicted"))
    lines = alt.Chart().transform_filter("datum.basis == 'measured' || datum.basis == 'predicted'")
    stall = marks.only("stall").encode(color=colour)
    layers = [
        marks.ideal(x, y),
        marks.band(predicted, y),
        lines.mark_line().encode(x=x, y=y, color=colour, strokeDash=dashes or marks.dashes()),
        marks.error_bars(measured, y),
        marks.hover(predicted, y).encode(tooltip=tips),
        *([predicted.mark_point(filled=False, size=40, opacity=1).encode(y=y, shape=shape)] if variants else []),
        marks.points(measured, y, shape).encode(tooltip=tips),
        stall.mark_rule(strokeWidth=2).encode(x=marks.at(x, "low"), x2="high:Q", y=y),
        stall.mark_point(shape="triangle-up", filled=True, size=110, opacity=1).encode(
            x=x, y=y, tooltip=marks.tips(series="series", shown="stalls at n (90 % interval)", cause="because of")
        ),
    ]
    return layers, frame


def _stalls(tables: Tables, predictions: pd.DataFrame, bottom: float) -> pd.DataFrame:
    """Stalling points that were reached, at the bottom of the panel of their curve."""
    columns = [
        "panel",
        "series",
        "basis",
        "ranks",
        "workers_per_node",
        "value",
        "low",
        "high",
        "shown",
        "cause",
        *FILTERS,
    ]
    stalling = tables.get("stalling")
    if stalling is None or stalling.empty:
        return pd.DataFrame(columns=columns, dtype=float)
    names = predictions[[*AXES, "panel", "series"]].drop_duplicates()
    points = stalling[stalling["reached"].astype(bool)].merge(names, on=list(AXES))
    points = points.assign(
        basis="stall",
        ranks=points["stall_ranks"],
        value=bottom,
        low=points["stall_ranks_low"].fillna(points["stall_ranks"]),
        high=points["stall_ranks_high"].fillna(points["stall_ranks"]),
        shown=with_interval(points, "stall_ranks", axes.workers(predictions)),
        cause=points["dominant_cause"],
    )
    return points[columns]
