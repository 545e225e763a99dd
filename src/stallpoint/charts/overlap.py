"""Each layer's backward pass and all-reduce on one time axis (Shi et al., section IV: wait-free back-propagation)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, marks, theme
from stallpoint.charts.frames import AXES, compact, label, rows, with_interval
from stallpoint.numerals import number

CHOICE = ["network", "hardware", "sync"]
ROW_HEIGHT, WIDTH = 14, 640


def draw(tables: Tables) -> alt.FacetChart:
    """Bars for one run at a time, which a menu selects: for each network, hardware and sync that on most nodes."""
    runs = _runs(tables)
    tasks = pd.concat([_tasks(runs, basis) for basis in ("measured", "predicted")])
    tasks = tasks.dropna(subset=["start", "end"])
    if tasks.empty:
        raise NoData("no train cells with two workers or more whose layers were timed")
    tasks = tasks.assign(
        shown=[f"{number(a)} to {number(b)} ms" for a, b in zip(tasks["start"], tasks["end"], strict=True)]
    )
    columns = ["panel", "layer", "layer_index", "basis", "task", "start", "end", "shown", "size", "nodes"]
    frame = compact(tasks, columns)
    chosen = _menu(list(dict.fromkeys(runs["panel"])))
    return _bars(frame).transform_filter("datum.panel == overlap_run").add_params(chosen)


def _bars(frame: pd.DataFrame) -> alt.FacetChart:
    """Measured tasks filled, predicted ones as dashed outlines below them, and the end of the backward pass."""
    last_first = alt.EncodingSortField("layer_index", order="descending")
    bases = ["measured", "predicted"]
    legend = alt.Legend(title=None, symbolType="square", symbolFillColor="transparent", symbolStrokeColor=theme.GREY)
    colour = marks.colour(frame, "task")
    bars = alt.Chart().mark_bar(strokeWidth=1.2).encode(
        x=alt.X("start:Q", title="time since the start of the backward pass [ms]", scale=alt.Scale(zero=True)),
        x2="end:Q",
        y=alt.Y("layer:N", sort=last_first, title=None, axis=alt.Axis(labelOverlap=False)),
        yOffset=alt.YOffset("basis:N", scale=alt.Scale(domain=bases, paddingInner=0.15)),
        color=colour,
        stroke=alt.Stroke("task:N", scale=colour["scale"], legend=colour["legend"]),
        fillOpacity=alt.condition("datum.basis == 'measured'", alt.value(1), alt.value(0)),
        strokeDash=alt.StrokeDash("basis:N", scale=alt.Scale(domain=bases, range=[theme.SOLID, [3, 2]]), legend=legend),
        tooltip=marks.tips(
            layer="layer", task="task", nodes="nodes", basis="basis", shown="from, to", size="gradients"
        ),
    )  # fmt: skip
    end = alt.Chart().transform_filter("datum.basis == 'measured' && datum.task == 'backward pass'")
    rule = end.mark_rule(style="ideal", strokeDash=[2, 2]).encode(x="max(end):Q")
    height = alt.Step(ROW_HEIGHT, **{"for": "position"})
    chart = alt.layer(bars, rule, data=frame).properties(width=WIDTH, height=height)
    return chart.facet(
        alt.Facet("panel:N", title=None, header=alt.Header(labelAnchor="start", labelExpr="split(datum.value, ': ')"))
    )


def _menu(runs: list[str]) -> alt.Parameter:
    """The run shown: the first one, or another through a menu of the web page."""
    bind = alt.binding_select(options=runs, name="run: ") if len(runs) > 1 else alt.Undefined
    return alt.param(name="overlap_run", value=runs[0], bind=bind)


def _runs(tables: Tables) -> pd.DataFrame:
    """For each network, hardware and way of synchronising, the layers of one run on the most nodes."""
    frame = rows(tables, "layer_predictions", "train cells on two nodes or more")
    frame = frame[frame["ranks"] > 1]
    order = frame.sort_values([*CHOICE, "nodes", *AXES], ascending=[True] * 2 + [False] * 2 + [True] * len(AXES))
    first = order.drop_duplicates(CHOICE)[[*AXES, "nodes"]]
    runs = first.merge(frame, on=[*AXES, "nodes"])
    place, series = label(runs, ["network", "hardware"]), label(runs, [axis for axis in AXES if axis not in CHOICE[:2]])
    return runs.assign(
        panel=place + ": " + series + " · " + runs["nodes"].astype(str) + " nodes" + _costs(tables, runs)
    )


def _costs(tables: Tables, runs: pd.DataFrame) -> pd.Series[str]:
    """What communicating costs each run, for its heading; empty where training without it was not measured."""
    costs = tables.get("hidden_communication")
    if costs is None or costs.empty:
        return pd.Series("", index=runs.index)
    at = runs[[*AXES, "nodes"]].merge(costs, on=[*AXES, "nodes"], how="left").set_index(runs.index)
    words = zip(with_interval(at, "cost", "s"), with_interval(at, "isolated", "s"), strict=True)
    said = pd.Series([f": costs {cost}, alone {isolated}" for cost, isolated in words], index=runs.index)
    return said.where(at["cost"].notna(), "")


def _tasks(runs: pd.DataFrame, basis: str) -> pd.DataFrame:
    """Start and end [ms] of the two tasks of every layer that learns.

    The backward pass runs from the last layer to the first without a gap, so its times add up.
    """
    ordered = runs.sort_values("layer_index", ascending=False)
    end = ordered.groupby("panel")[f"{basis}_backward"].cumsum()
    backward = ordered.assign(task="backward pass", start=end - ordered[f"{basis}_backward"], end=end)
    all_reduce = ordered.assign(
        task="all-reduce", start=ordered[f"{basis}_all_reduce_start"], end=ordered[f"{basis}_all_reduce_end"]
    )
    tasks = pd.concat([backward, all_reduce])
    tasks = tasks[tasks["gradient_bytes"] > 0]
    size = [f"{number(size / 1e6)} MB" for size in tasks["gradient_bytes"]]
    return tasks.assign(basis=basis, start=tasks["start"] * 1e3, end=tasks["end"] * 1e3, size=size)
