"""Speedup over workers, measured and predicted (Keuper & Pfreundt, Fig. 1; Shi et al., Figs. 2 to 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.base.stall import VERDICTS
from stallpoint.report.charts import NoData, Tables, axes, marks, shapes
from stallpoint.report.charts.labels import (
    AXES,
    arrange,
    compact_rows,
    estimate,
    label,
    placement_in_words,
    rows,
    sort_by_lead,
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
    is_answer = (predictions["scaling"] != "compute") & (predictions["sync"] != NONE)
    return marks.panels(*_curves(tables, arrange(predictions[is_answer])))


def finding(tables: Tables) -> str:
    """Return the finding: the measured verdicts of the fastest curves of each network, stalls first."""
    curves = sort_by_lead(rows(tables, "stalling", CELLS), tables).query("lead")
    is_repeated = curves["network"].duplicated(keep=False)
    curves = curves.assign(
        network=curves["network"] + (" at mini-batch " + curves["batch"].astype(str)).where(is_repeated, "")
    )
    verdicts = [
        f"{one['network']} {VERDICTS[one['verdict']]} {placement_in_words({**one, 'ranks': int(one['verdict_ranks'])})}"
        if one["verdict"] in VERDICTS
        else f"{one['network']} {one['verdict']}"
        for _, one in curves.iterrows()
    ]
    rest = f" and {len(verdicts) - MAX_NAMED} more" if len(verdicts) > MAX_NAMED else ""
    return "; ".join(verdicts[:MAX_NAMED]) + rest


def _relative(predictions: pd.DataFrame) -> str:
    fewest_ranks = predictions.groupby(list(AXES))["ranks"].min().unique()
    units = axes.unit(predictions)
    unit = {"processes": "process"}.get(units, units.removesuffix("s"))
    return f"1 {unit}" if list(fewest_ranks) == [1] else f"the fewest {units}"


MAX_NAMED = 4
"""Maximum number of curves named in the finding."""


def _curves(
    tables: Tables, predictions: pd.DataFrame, *, title: str = TITLE, legend: bool = True
) -> tuple[list[alt.Chart], pd.DataFrame]:
    """Return layers of a chart that draw speedup curves, and the rows that they draw, from `predictions`.

    Several curves of a preset have the preset's colour. Their predicted points then have different shapes, too.
    """
    predictions = with_machines(predictions, tables)
    speedups = pd.concat(
        [estimate(predictions, f"{basis}_speedup").assign(basis=basis) for basis in ("measured", "predicted")]
    )
    if speedups.empty:
        raise NoData(f"no {CELLS} whose speedup is known")
    y = axes.ratio_y(axes.span(speedups), title.format(_relative(predictions)))
    stalls = _stall_points(tables, predictions, axis_bottom=y["scale"]["domain"][0])
    x = axes.ranks_x(speedups, extra_values=stalls["ranks"])
    tips = {"series": "series", "ranks": axes.unit(speedups), "basis": "basis", "shown": "speedup (90 % interval)"}
    is_hollow = speedups["series"].nunique() > speedups["sync"].nunique()
    lines = (replace(shapes.MEASURED, legend=legend), replace(shapes.PREDICTED, legend=legend, hollow=is_hollow))
    frame = pd.concat([speedups, marks.ideal_rows(speedups, "ranks"), axes.clip_intervals(stalls, x)])
    layers, frame = shapes.curve_layers(frame, x, y, tips, lines)
    stall = marks.rows_of("stall").encode(color=marks.preset_channels(speedups)[0])
    tooltip = marks.tips(series="series", shown="stalls at n (90 % interval)", cause="because of")
    layers += [
        stall.mark_rule(strokeWidth=2).encode(x=marks.axis(x, "low"), x2="high:Q", y=y),
        stall.mark_point(shape="triangle-up", filled=True, size=110, opacity=1).encode(x=x, y=y, tooltip=tooltip),
    ]
    return layers, frame


def _stall_points(tables: Tables, predictions: pd.DataFrame, axis_bottom: float) -> pd.DataFrame:
    """Return the stalling points that were reached, at the `axis_bottom` of their curve's panel."""
    stall_rows = tables.get("stalling")
    if stall_rows is None or stall_rows.empty:
        return predictions.iloc[:0][["panel", "ranks"]].assign(low=0.0, high=0.0, cause="")
    names = predictions[[*AXES, "panel", "series"]].drop_duplicates()
    points = stall_rows[stall_rows["reached"].astype(bool)].merge(names, on=list(AXES))
    return estimate(points, "stall_ranks", axes.unit(predictions)).assign(
        basis="stall", ranks=points["stall_ranks"], value=axis_bottom, cause=points["dominant_cause"]
    )


# --- the small chart of a card --------------------------------------------------------------------

WIDTH, HEIGHT = 320, 110
MAX_CURVES = 4
"""Maximum number of curves on a card; the chart of all speedups has more."""


def draw_card(tables: Tables, card: Mapping[str, str]) -> alt.TopLevelMixin:
    """Draw the fastest curves of a card's network and hardware in one panel. A card about one batch size B shows
    strong scaling at B only."""
    selection: dict[str, str | int] = {name: card[name] for name in ("network", "hardware")}
    if "batch" in card:
        selection |= {"scaling": "strong", "batch": int(card["batch"])}
    card_tables = {name: _selected_rows(rows(tables, name, CELLS), selection) for name in ("predictions", "stalling")}
    fastest = card_tables["stalling"].nlargest(MAX_CURVES, "best_speedup")[list(AXES)]
    predictions = card_tables["predictions"].merge(fastest, on=list(AXES))
    varying_axes = [axis for axis in AXES if varies(predictions, axis)]
    labelled_rows = predictions.assign(panel="", series=label(predictions, varying_axes or ["sync"]))
    layers, frame = _curves(card_tables, labelled_rows, title="speedup", legend=False)
    rows_drawn = compact_rows(frame, marks.fields(layers, frame))
    chart: alt.TopLevelMixin = alt.layer(*layers, data=rows_drawn).properties(width=WIDTH, height=HEIGHT)
    return chart


def _selected_rows(frame: pd.DataFrame, selection: dict[str, str | int]) -> pd.DataFrame:
    return frame[(frame[list(selection)] == pd.Series(selection)).all(axis=1)]
