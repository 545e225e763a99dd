"""Validation accuracy against seen samples, and against time, of networks trained to a target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, shapes, theme
from stallpoint.report.charts.labels import largest_row, rows, smallest_row
from stallpoint.text import number, sort_key

CELLS = "convergence cells"
RUN = ["network", "hardware", "storage", "sync", "recipe", "nodes", "ranks", "batch", "trial", "seed"]
SERIES = RUN[:-2]
X_TITLES = {"samples": "samples seen", "seconds": "seconds of training"}


def draw(tables: Tables) -> alt.FacetChart:
    """Draw accuracy over samples and over time, for each network and hardware: a line for each run."""
    frame = _lines(tables)
    frame = pd.concat([frame.assign(at=frame[name], of=words) for name, words in X_TITLES.items()])
    frame["panel"] = frame["network"] + " · " + frame["hardware"] + "\n" + frame["of"]
    frame = frame.sort_values(["network", "hardware", "of", *RUN, "step"], kind="stable")
    y = alt.Y("value:Q", title="validation accuracy [%]", scale=alt.Scale(zero=False))
    tips = {"run": "run", "nodes:Q": "nodes", "shown": "accuracy", "at": "at"}
    return runs(frame, "at", None, y, tips, opacity=0.8)


def runs(
    frame: pd.DataFrame,
    x: str,
    title: str | None,
    y: alt.Y,
    tips: Mapping[str, str],
    *,
    opacity: float = 1,
    names: Collection[str] = (),
    overlay: Sequence[alt.Chart] = (),
) -> alt.FacetChart:
    """Return a chart with a line for each ``run``. Each ``series``, also of the further `names`, has a colour.

    The layers in `overlay` are drawn above the lines, in the same colours.
    """
    series = sorted({*frame["series"], *names}, key=sort_key)
    legend = alt.Legend(title=None) if len(series) > 1 else None
    colour = alt.Color("series:N", scale=theme.colours("series", series), legend=legend)
    x_axis = alt.X(f"{x}:Q", title=title, axis=alt.Axis(format="~s", grid=False))
    line = replace(shapes.MEASURED, intervals="", width=1.2, opacity=opacity)
    layers = [layer.encode(color=colour) for layer in overlay]
    rows = frame.assign(basis=line.basis)
    return shapes.curves(rows, x_axis, y, tips, [line], colour=colour, details=["run"], overlay=layers, own_axes=["x"])


def finding(tables: Tables) -> str:
    """Return the accuracy at the largest and the smallest mini-batch, for the training that loses most accuracy."""
    frame = _lines(tables)
    best = frame.groupby([*(axis for axis in RUN if axis != "trial")], as_index=False)["value"].max()
    best = best.groupby(["network", "hardware", "recipe", "batch"], as_index=False)["value"].mean()
    curves = best.sort_values("batch").groupby(["network", "hardware", "recipe"])
    ends = pd.DataFrame({
        "small": curves["batch"].first(), "large": curves["batch"].last(),
        "first": curves["value"].first(), "last": curves["value"].last(),
    }).reset_index()  # fmt: skip
    ends = ends[ends["large"] > ends["small"]]
    if ends.empty:
        best_row = largest_row(best, "value")
        return f"{best_row['network']} reaches {number(best_row['value'], 3)} % at B = {best_row['batch']}"
    row = smallest_row(ends.assign(gain=ends["last"] - ends["first"]), "gain")
    accuracy = f"{number(row['last'], 3)} % at B = {row['large']}, {number(row['first'], 3)} % at {row['small']}"
    return f"{row['network']}, {row['recipe']}: {accuracy}"


def best_trials(frame: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the rows of each series' best trial, by the mean of the best `value` of each of the trial's runs."""
    best = frame.groupby(RUN)[value].max().groupby([*SERIES, "trial"]).mean().reset_index()
    best = best.sort_values([*SERIES, value], ascending=[*[True] * len(SERIES), False], kind="stable")
    return frame.merge(best.drop_duplicates(SERIES)[[*SERIES, "trial"]], on=[*SERIES, "trial"])


def _lines(tables: Tables) -> pd.DataFrame:
    """Return the evaluations of the best trials. The name of a series is its B, with other settings if they vary."""
    frame = best_trials(rows(tables, "convergence", CELLS), "validation_accuracy")
    many = (frame["ranks"] > frame["nodes"]).any()
    units = {"storage": "", "sync": "", "recipe": "", "nodes": " nodes", **({"ranks": " workers"} if many else {})}
    series = "B = " + frame["batch"].astype(str)
    for axis, unit in units.items():
        if frame[axis].nunique() > 1:
            series = series + " · " + frame[axis].astype(str) + unit
    accuracy = 100 * frame["validation_accuracy"]
    return frame.assign(
        series=series,
        run=series + ", seed " + frame["seed"].astype(str),
        value=accuracy,
        shown=[f"{number(value, 3)} %" for value in accuracy],
    )
