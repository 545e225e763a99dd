"""Axes: nodes, mini-batches and sizes on log2 scales with ticks at the measured values, times on log10 scales."""

from __future__ import annotations

import math
from collections.abc import Iterable

import altair as alt
import pandas as pd

MARGIN = 1.18
"""Free space at both ends of a logarithmic axis, as a factor."""


def log_domain(values: Iterable[float]) -> list[float]:
    """Return the range of the positive values, with a margin at both ends."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    return [float(f"{min(positive) / MARGIN:.4g}"), float(f"{max(positive) * MARGIN:.4g}")]


def log2_ticks(domain: list[float]) -> list[float]:
    """Return powers of two in the domain, or round numbers if there are few powers."""
    low, high = (math.ceil(math.log2(domain[0])), math.floor(math.log2(domain[1])))
    return [2.0**power for power in range(low, high + 1)] if high - low >= 3 else log10_ticks(domain)


DECADE = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    tuple(tenth / 10 for tenth in range(10, 100)),
)
"""Ticks within a decade, from sparse to dense."""


def log10_ticks(domain: list[float]) -> list[float]:
    """Return the sparsest ticks of `DECADE` of which at least four are in the domain."""
    low, high = (math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1])))
    ticks: list[float] = []
    for parts in DECADE:
        ticks = [float(f"{part}e{power}") for power in range(low, high + 1) for part in parts]
        ticks = [tick for tick in ticks if domain[0] <= tick <= domain[1]]
        if len(ticks) >= 4:
            break
    return ticks


def span(frame: pd.DataFrame) -> list[float]:
    """Return the extremes of ``value`` and of its intervals, limited to half the least and twice the largest value."""
    least, most = frame["value"].min(), frame["value"].max()
    return [least, most, max(frame["low"].min(), least / 2), min(frame["high"].max(), most * 2)]


def clip_intervals(frame: pd.DataFrame, axis: alt.X | alt.Y, rows: pd.Series[bool] | None = None) -> pd.DataFrame:
    """Return `frame` with intervals cut at the ends of the logarithmic axis, in all rows or in the selected `rows`."""
    domain = axis["scale"]["domain"] if isinstance(axis["scale"], alt.Scale) else None
    if not isinstance(domain, list):
        return frame
    ends = frame[["low", "high"]]
    cut_ends = ends.clip(*domain)
    return frame.assign(**(cut_ends if rows is None else cut_ends.where(rows, ends)))


def counts_x(
    frame: pd.DataFrame, field: str, title: str, *, is_falling: bool = False, extra_values: Iterable[float] = ()
) -> alt.X:
    """Return a log2 axis with integer ticks at the values of `field`. The axis also contains the `extra_values`.

    With `is_falling`, the largest value is on the left.
    """
    values = sorted({int(value) for value in frame[field]})
    scale = alt.Scale(type="log", base=2, domain=log_domain([*values, *extra_values]), reverse=is_falling, nice=False)
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(values=values, format="d", grid=False))


def unit(frame: pd.DataFrame) -> str:
    """Return what a worker axis counts: processes of one machine, workers if nodes have several, or else nodes."""
    if not (frame["workers_per_node"].dropna() == 1).all():
        return "workers"
    return "processes" if "one_machine" in frame and frame["one_machine"].eq(True).all() else "nodes"


def ranks_x(frame: pd.DataFrame, extra_values: Iterable[float] = ()) -> alt.X:
    """Return the log2 axis of worker counts; `unit` is its title.

    If nodes have the same number of workers on all curves, ticks at full nodes also show the number of nodes.
    """
    x = counts_x(frame, "ranks", unit(frame), extra_values=extra_values)
    full_nodes = frame["workers_per_node"].dropna().unique()
    if len(full_nodes) == 1 and full_nodes[0] > 1:
        per_node = f"{full_nodes[0]:g}"
        nodes = f"format(datum.value / {per_node}, '~r') + (datum.value == {per_node} ? ' node' : ' nodes')"
        x["axis"]["labelExpr"] = f"datum.value < {per_node} ? datum.label : [datum.label, {nodes}]"
    return x


def nodes_x(frame: pd.DataFrame) -> alt.X:
    """Return the log2 axis of node counts."""
    return counts_x(frame, "nodes", "nodes")


BATCH = "mini-batch of one worker, b [samples]"


def batch_x(frame: pd.DataFrame) -> alt.X:
    """Return the log2 axis of a worker's mini-batch b. Small b are on the right, where nodes are many."""
    return counts_x(frame, "worker_batch", BATCH, is_falling=True)


def ratio_y(values: Iterable[float], title: str) -> alt.Y:
    """Return a log2 axis for ``value``, a speedup (a ratio, no unit)."""
    domain = log_domain(values)
    axis = alt.Axis(values=log2_ticks(domain), format="~g")
    return alt.Y("value:Q", title=title, scale=alt.Scale(type="log", base=2, domain=domain, nice=False), axis=axis)


def log10(values: Iterable[float], number_format: str = "~g") -> tuple[alt.Scale, alt.Axis]:
    """Return scale and axis of a logarithmic quantity with a unit."""
    domain = log_domain(values)
    scale = alt.Scale(type="log", domain=domain, nice=False)
    return scale, alt.Axis(values=log10_ticks(domain), format=number_format)


def log10_y(values: Iterable[float], title: str) -> alt.Y:
    """Return a log10 axis for ``value``, a time or rate."""
    scale, axis = log10(values)
    return alt.Y("value:Q", title=title, scale=scale, axis=axis)
