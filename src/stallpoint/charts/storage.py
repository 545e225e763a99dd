"""Rates and latencies of reading the training set, by storage (Keuper & Pfreundt, section IV)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import Tables, axes, marks
from stallpoint.charts.frames import compact, estimate, rows, with_interval
from stallpoint.numerals import number


def draw(tables: Tables) -> alt.VConcatChart:
    """Above: samples read in a second by all nodes; below: time to read one sample."""
    frame = rows(tables, "storage_rates", "storage cells")
    frame = frame.sort_values(
        ["hardware", "order", "cache", "storage", "nodes"], ascending=[True, False, True, True, True]
    )
    panel = frame["hardware"] + "\n" + frame["order"] + " reads, " + frame["cache"] + " cache"
    frame = frame.assign(panel=panel, basis="measured", resident=[f"{share:.0%}" for share in frame["resident"]])
    return alt.vconcat(_rates(frame), _latencies(frame), spacing=36)


def _rates(frame: pd.DataFrame) -> alt.FacetChart:
    frame = estimate(frame, "samples_per_second", "samples/s")
    frame = frame.assign(bytes_read=with_interval(frame, "bytes_per_second", "MB/s", scale=1e-6))
    x, y = axes.nodes_x(frame), axes.log10_y(axes.reach(frame), "reading rate [samples/s]", "~s")
    columns = ["panel", "storage", "nodes", "basis", "value", "low", "high", "shown", "bytes_read", "resident"]
    frame = compact(axes.clipped(frame, y), columns)
    base = marks.only("measured").encode(x=x, color=marks.colour(frame, "storage"))
    tips = marks.tips(
        storage="storage", nodes="nodes", shown="rate (90 % interval)", bytes_read="bytes (90 % interval)",
        resident="in the page cache before",
    )  # fmt: skip
    layers = [base.mark_line().encode(y=y), marks.error_bars(base, y), marks.points(base, y).encode(tooltip=tips)]
    return marks.panels(layers, frame)


def _latencies(frame: pd.DataFrame) -> alt.FacetChart:
    percentiles = ["latency_p50", "latency_p95", "latency_p99"]
    for name in percentiles:
        frame[f"{name}_shown"] = [f"{number(seconds * 1e3)} ms" for seconds in frame[name]]
        frame[name] = frame[name] * 1e3
    frame = compact(frame, ["panel", "storage", "nodes", *percentiles, *[f"{name}_shown" for name in percentiles]])
    scale, axis = axes.log10(frame[percentiles].to_numpy().ravel())
    y = alt.Y("latency_p50:Q", title="time to read a sample [ms]", scale=scale, axis=axis)
    x = alt.X("nodes:O", title="nodes", axis=alt.Axis(labelAngle=0))
    base = alt.Chart().encode(
        x=x, xOffset="storage:N", color=marks.colour(frame, "storage"),
        tooltip=marks.tips(
            storage="storage", nodes="nodes", latency_p50_shown="median", latency_p95_shown="95th percentile",
            latency_p99_shown="99th percentile",
        ),
    )  # fmt: skip
    layers = [
        base.mark_rule(strokeWidth=2).encode(y=y, y2="latency_p99:Q"),
        base.mark_tick(thickness=2, size=9).encode(y=marks.at(y, "latency_p95")),
        base.mark_point(filled=True, size=50, opacity=1).encode(y=y),
    ]
    return marks.panels(layers, frame)
