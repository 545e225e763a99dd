"""Amdahl's law with the fitted serial fractions (Keuper & Pfreundt, Fig. 12)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks, theme
from stallpoint.charts.frames import compact, rows, with_interval
from stallpoint.numerals import number

NODES = [2**power for power in range(11)]
FITTED_TO = {"compute": "compute time", "measured": "measured speedup"}


def speedup(serial_fraction: pd.Series[float], nodes: pd.Series[int]) -> pd.Series[float]:
    """Amdahl's law, S(n) = 1 / (s + (1 - s) / n); Keuper & Pfreundt, section III-D."""
    return 1 / (serial_fraction + (1 - serial_fraction) / nodes)


def draw(tables: Tables) -> alt.FacetChart:
    """Curves of the law over node counts far beyond any measured one."""
    fits = rows(tables, "amdahl", "train cells with scaling: compute or strong")
    fits = fits[fits["serial_fraction"].notna()].sort_values(["network", "hardware"], kind="stable")
    if fits.empty:
        raise NoData("no train cells with scaling: compute or strong at enough mini-batches or node counts for a fit")
    fits = fits.assign(
        panel=fits["network"] + " · " + fits["hardware"],
        basis=fits["basis"].map(FITTED_TO),
        shown=with_interval(fits, "serial_fraction"),
        limit=[number(limit) for limit in fits["speedup_limit"]],
    )
    frame = fits.merge(pd.Series(NODES, name="nodes"), how="cross").merge(_largest(tables), how="left")
    frame = frame[frame["nodes"] <= frame["worker_batch"].fillna(NODES[-1])]
    # A larger serial fraction gives a smaller speedup: the ends of the interval change places.
    frame = frame.assign(
        value=speedup(frame["serial_fraction"], frame["nodes"]),
        low=speedup(frame["serial_fraction_high"].fillna(frame["serial_fraction"]), frame["nodes"]),
        high=speedup(frame["serial_fraction_low"].fillna(frame["serial_fraction"]), frame["nodes"]),
    )
    ends = zip(frame["value"], frame["low"], frame["high"], strict=True)
    frame = frame.assign(gets=[f"{number(value)} ({number(low)} to {number(high)})" for value, low, high in ends])
    x, y = axes.nodes_x(frame), axes.ratio_y([1, frame["nodes"].max()], "speedup by Amdahl's law")
    columns = ["panel", "layer_type", "series", "nodes", "basis", "value", "low", "high", "shown", "gets"]
    columns += ["limit", "start"]
    drawn = compact(pd.concat([frame, marks.ideal_rows(frame, "nodes")]), columns)
    return marks.panels(_layers(frame, x, y), drawn)


def _largest(tables: Tables) -> pd.DataFrame:
    """The largest mini-batch of a lone worker: split over more nodes, each would have less than a sample."""
    layers = tables.get("layer_scaling")
    if layers is None or layers.empty:
        return pd.DataFrame(columns=["network", "hardware", "worker_batch"])
    return layers.groupby(["network", "hardware"])["worker_batch"].max().reset_index()


def _layers(frame: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Thin lines for the layer types, thick ones and the band for all layers, dotted where speedup was fitted."""
    tips = marks.tips(
        layer_type="layers", basis="fitted to", series="series", nodes="nodes", gets="speedup (90 % interval)",
        shown="serial fraction (90 % interval)", limit="largest speedup",
    )  # fmt: skip
    dash = alt.StrokeDash(
        "basis:N",
        scale=alt.Scale(domain=list(FITTED_TO.values()), range=[theme.SOLID, theme.DOTTED]),
        legend=alt.Legend(title="fitted to", symbolType="stroke", symbolSize=marks.DASH_SIZE),
    )
    fit = alt.Chart().encode(x=x, color=marks.colour(frame, "layer_type"), detail="series:N")
    marked = [nodes for nodes in NODES if nodes <= frame["nodes"].max()][
        2::2
    ]  # for shapes: lines are calculated everywhere
    types = fit.transform_filter("datum.basis != 'ideal' && datum.layer_type != 'all'")
    whole = fit.transform_filter("datum.basis != 'ideal' && datum.layer_type == 'all'")
    return [
        marks.ideal(x, y),
        types.mark_line(strokeWidth=1.4).encode(y=y, strokeDash=dash),
        marks.points(types.transform_filter(f"indexof({marked}, datum.nodes) >= 0"), y),
        marks.band(whole.transform_filter(f"datum.basis == '{FITTED_TO['compute']}'"), y),
        whole.mark_line(strokeWidth=3).encode(y=y, strokeDash=dash),
        marks.hover(fit.transform_filter("datum.basis != 'ideal'"), y).encode(tooltip=tips),
    ]
