"""Amdahl's law with the fitted serial fractions (Keuper & Pfreundt, Fig. 12)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, theme
from stallpoint.report.charts.labels import rows, smallest_row, with_interval
from stallpoint.text import number

NODES = [2**power for power in range(11)]
SYMBOL_NODES = NODES[1::2]
"""Node counts at which a curve has a point, whose shape identifies the series."""
CELLS = "train cells with scaling: compute or strong"
TIME_NAMES = {"compute": "compute time", "measured": "measured speedup"}


def speedup(serial_fraction: pd.Series[float], nodes: pd.Series[int]) -> pd.Series[float]:
    """Return Amdahl's law, S(n) = 1 / (s + (1 - s) / n); Keuper & Pfreundt, section III-D."""
    return 1 / (serial_fraction + (1 - serial_fraction) / nodes)


def draw(tables: Tables) -> alt.FacetChart:
    """Draw curves of the law over node counts far beyond the measured ones."""
    fits = rows(tables, "amdahl", CELLS)
    fits = fits[fits["serial_fraction"].notna()].sort_values(["network", "hardware"], kind="stable")
    if fits.empty:
        raise NoData(f"no {CELLS} at enough mini-batches or node counts for a fit")
    fits = fits.assign(
        panel=fits["network"] + " · " + fits["hardware"],
        basis=fits["basis"].map(TIME_NAMES),
        shown=with_interval(fits, "serial_fraction"),
        limit=[number(limit) for limit in fits["speedup_limit"]],
    )
    frame = _realistic_rows(fits.merge(pd.Series(NODES, name="nodes"), how="cross"), tables)
    # The ends of the interval are swapped, as a larger serial fraction gives a smaller speedup.
    frame = frame.assign(
        value=speedup(frame["serial_fraction"], frame["nodes"]),
        low=speedup(frame["serial_fraction_high"].fillna(frame["serial_fraction"]), frame["nodes"]),
        high=speedup(frame["serial_fraction_low"].fillna(frame["serial_fraction"]), frame["nodes"]),
    )
    ends = zip(frame["value"], frame["low"], frame["high"], frame["layer_type"] == "all", strict=True)
    frame = frame.assign(
        gets=[
            number(value) + f" ({number(low)} to {number(high)})" * all_layers for value, low, high, all_layers in ends
        ]
    )
    x, y = axes.nodes_x(frame), axes.ratio_y([1, frame["nodes"].max()], "speedup by Amdahl's law")
    return marks.panels(_layers(frame, x, y), pd.concat([frame, marks.ideal_rows(frame, "nodes")]))


def _realistic_rows(frame: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Return the rows with at most as many nodes as the largest measured mini-batch has samples."""
    scaling = tables.get("layer_scaling")
    if scaling is None or scaling.empty:
        return frame
    largest = scaling.groupby(["network", "hardware"])["worker_batch"].max().rename("largest").reset_index()
    known = frame.merge(largest, on=["network", "hardware"], how="left")
    return known[known["nodes"] <= known["largest"].fillna(NODES[-1])].drop(columns="largest")


def finding(tables: Tables) -> str:
    """Return the finding: the lowest limit of the speedup by the serial fraction of all layers together."""
    fits = rows(tables, "amdahl", CELLS)
    all_layers = fits[(fits["layer_type"] == "all") & (fits["basis"] == "compute") & fits["speedup_limit"].notna()]
    if all_layers.empty:
        return ""
    row = smallest_row(all_layers, "speedup_limit")
    return (
        f"{row['network']}: {100 * row['serial_fraction']:.1f} % of its compute time does not shrink with the "
        f"mini-batch, which limits the speedup to {number(row['speedup_limit'], 2)}"
    )


def _layers(frame: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return the marks: thin lines are layer types, thick lines all layers; lines fitted to speedups are dotted."""
    tips = marks.tips(
        layer_type="layers", basis="fitted to", series="series", nodes="nodes", gets="speedup (90 % interval)",
        shown="serial fraction (90 % interval)", limit="largest speedup",
    )  # fmt: skip
    dash = marks.dashes(dict(zip(TIME_NAMES.values(), [theme.SOLID, theme.DOTTED], strict=True)), title="fitted to")
    fit = alt.Chart().encode(x=x, color=marks.colour(frame, "layer_type"), detail="series:N")
    types = fit.transform_filter("datum.basis != 'ideal' && datum.layer_type != 'all'")
    all_layers = fit.transform_filter("datum.basis != 'ideal' && datum.layer_type == 'all'")
    return [
        marks.ideal(x, y),
        types.mark_line(strokeWidth=1.4).encode(y=y, strokeDash=dash),
        marks.points(types.transform_filter(f"indexof({SYMBOL_NODES}, datum.nodes) >= 0"), y),
        marks.band(all_layers.transform_filter(f"datum.basis == '{TIME_NAMES['compute']}'"), y),
        all_layers.mark_line(strokeWidth=3).encode(y=y, strokeDash=dash),
        marks.hover(fit.transform_filter("datum.basis != 'ideal'"), y).encode(tooltip=tips),
    ]
