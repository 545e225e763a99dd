"""Speedup against workers, measured and predicted (Keuper & Pfreundt, Fig. 1; Shi et al., Figs. 2 to 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.base.stall import UP_TO
from stallpoint.report.charts import NoData, Tables, axes, marks, shapes
from stallpoint.report.charts.labels import (
    AXES,
    arrange,
    compact,
    estimate,
    label,
    leading_first,
    placement_in_words,
    rows,
    varies,
    with_machines,
)
from stallpoint.strategies.presets import NONE

CELLS = "train cells with scaling strong or weak"
TITLE = "speedup relative to {}"
"""Title of the axis, with the count to which speedups refer."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw speedup curves with intervals, the ideal line, and the stalling points as triangles on the axis.

    Training without communication is excluded, as nobody would choose it.
    """
    predictions = rows(tables, "predictions", CELLS)
    answers = (predictions["scaling"] != "compute") & (predictions["sync"] != NONE)
    return marks.panels(*_curves(tables, arrange(predictions[answers])))


def finding(tables: Tables) -> str:
    """Return the measured verdicts of the fastest curve of each network and verdict, stalls first."""
    curves = leading_first(rows(tables, "stalling", CELLS), tables).query("lead")
    several = curves["network"].duplicated(keep=False)
    curves = curves.assign(
        network=curves["network"] + (" at mini-batch " + curves["batch"].astype(str)).where(several, "")
    )
    verdicts = [
        f"{one['network']} {UP_TO[one['verdict']]} {placement_in_words({**one, 'ranks': int(one['verdict_ranks'])})}"
        if one["verdict"] in UP_TO
        else f"{one['network']} {one['verdict']}"
        for _, one in curves.iterrows()
    ]
    more = f" and {len(verdicts) - MAX_NAMED} more" if len(verdicts) > MAX_NAMED else ""
    return "; ".join(verdicts[:MAX_NAMED]) + more


def _relative(predictions: pd.DataFrame) -> str:
    fewest = predictions.groupby(list(AXES))["ranks"].min().unique()
    counted = axes.workers(predictions)
    one = {"processes": "process"}.get(counted, counted.removesuffix("s"))
    return f"1 {one}" if list(fewest) == [1] else f"the fewest {counted}"


MAX_NAMED = 4
"""Maximum number of curves named in the finding."""


def _curves(
    tables: Tables, predictions: pd.DataFrame, *, title: str = TITLE, legend: bool = True
) -> tuple[list[alt.Chart], pd.DataFrame]:
    """Return layers and rows of the curves of `predictions`, in their ``panel`` and ``series``.

    If curves of a panel share a preset, and so a colour, their predictions have shapes too.
    """
    predictions = with_machines(predictions, tables)
    known = pd.concat(
        [estimate(predictions, f"{basis}_speedup").assign(basis=basis) for basis in ("measured", "predicted")]
    )
    if known.empty:
        raise NoData(f"no {CELLS} whose speedup is known")
    y = axes.ratio_y(axes.reach(known), title.format(_relative(predictions)))
    stalls = _stalls(tables, predictions, bottom=y["scale"]["domain"][0])
    x = axes.ranks_x(known, beyond=stalls["ranks"])
    tips = {"series": "series", "ranks": axes.workers(known), "basis": "basis", "shown": "speedup (90 % interval)"}
    hollow = known["series"].nunique() > known["sync"].nunique()
    lines = (replace(shapes.MEASURED, legend=legend), replace(shapes.PREDICTED, legend=legend, hollow=hollow))
    frame = pd.concat([known, marks.ideal_rows(known, "ranks"), axes.clipped(stalls, x)])
    layers, frame = shapes.curves_in_one(frame, x, y, tips, lines)
    stall = marks.only("stall").encode(color=marks.by_preset(known)[0])
    tooltip = marks.tips(series="series", shown="stalls at n (90 % interval)", cause="because of")
    layers += [
        stall.mark_rule(strokeWidth=2).encode(x=marks.at(x, "low"), x2="high:Q", y=y),
        stall.mark_point(shape="triangle-up", filled=True, size=110, opacity=1).encode(x=x, y=y, tooltip=tooltip),
    ]
    return layers, frame


def _stalls(tables: Tables, predictions: pd.DataFrame, bottom: float) -> pd.DataFrame:
    """Return reached stalling points, at the bottom of the panel of their curve."""
    stalling = tables.get("stalling")
    if stalling is None or stalling.empty:
        return predictions.iloc[:0][["panel", "ranks"]].assign(low=0.0, high=0.0, cause="")
    names = predictions[[*AXES, "panel", "series"]].drop_duplicates()
    points = stalling[stalling["reached"].astype(bool)].merge(names, on=list(AXES))
    return estimate(points, "stall_ranks", axes.workers(predictions)).assign(
        basis="stall", ranks=points["stall_ranks"], value=bottom, cause=points["dominant_cause"]
    )


# --- the small chart of a card --------------------------------------------------------------------

WIDTH, HEIGHT = 320, 110
MAX_CURVES = 4
"""Maximum number of curves on a card; the chart of all speedups has more."""


def draw_card(tables: Tables, about: Mapping[str, str]) -> alt.TopLevelMixin:
    """Draw the fastest curves of a card's network and hardware entry in one panel, with a legend if there are several.
    A card of one batch size B shows strong scaling at B only."""
    chosen: dict[str, str | int] = {name: about[name] for name in ("network", "hardware")}
    if "batch" in about:
        chosen |= {"scaling": "strong", "batch": int(about["batch"])}
    here = {name: _rows_at(rows(tables, name, CELLS), chosen) for name in ("predictions", "stalling")}
    fastest = here["stalling"].nlargest(MAX_CURVES, "best_speedup")[list(AXES)]
    predictions = here["predictions"].merge(fastest, on=list(AXES))
    varying = [axis for axis in AXES if varies(predictions, axis)]
    named = predictions.assign(panel="", series=label(predictions, varying or ["sync"]))
    layers, frame = _curves(here, named, title="speedup", legend=False)
    rows_drawn = compact(frame, marks.fields(layers, frame))
    chart: alt.TopLevelMixin = alt.layer(*layers, data=rows_drawn).properties(width=WIDTH, height=HEIGHT)
    return chart


def _rows_at(frame: pd.DataFrame, chosen: dict[str, str | int]) -> pd.DataFrame:
    return frame[(frame[list(chosen)] == pd.Series(chosen)).all(axis=1)]
