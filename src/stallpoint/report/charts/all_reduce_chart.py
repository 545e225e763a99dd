"""All-reduce time and rate by message size. The fit is alpha [s] + beta [s/byte] · bytes, maybe in several pieces."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import largest_row, rows, with_interval
from stallpoint.report.charts.shapes import Line
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.study.workers import nodes_and_workers, placement_in_words
from stallpoint.text import number

CURVE = ["hardware", "backend", "reduction", "nodes", "ranks"]
BUSY = ", while computing (points only: lines are fitted to idle workers)"
TIME_LABEL = (
    "datum.value >= 1 ? format(datum.value, '~g') + ' s' : datum.value >= 0.001 ? format(1e3 * datum.value, '~g') + "
    "' ms' : format(1e6 * datum.value, '~g') + ' µs'"
)
LINES = (replace(shapes.MEASURED, dash=None), Line("fitted", theme.DASHED))
SIZE_LABEL = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : format(datum.value, '~g') + ' B'"
)


def draw(tables: Tables) -> alt.VConcatChart:
    """Draw times above and rates below: measured points with their spread, and a fitted line for each node count."""
    frame = _frame(tables)
    rates = frame.assign(
        value=frame["message_bytes"] / frame["value"] / 1e9,
        low=frame["message_bytes"] / frame["high"] / 1e9,
        high=frame["message_bytes"] / frame["low"] / 1e9,
    )
    rates["shown"] = [f"{number(rate)} GB/s" for rate in rates["value"]]
    times_chart = _panels(frame, "time of one all-reduce", alt.Axis(labelExpr=TIME_LABEL))
    rates_chart = _panels(rates, "message size / time [GB/s]", alt.Axis(format="~g"))
    return alt.vconcat(times_chart, rates_chart, spacing=30)


def _frame(tables: Tables) -> pd.DataFrame:
    """Return measured points and fitted lines, with their panels."""
    measured = _measured_rows(tables)
    frame = pd.concat([measured, _fitted(tables, measured)])
    scheme = frame["reduction"].replace("library", "MPI library").where(frame["backend"] != "torch", "torch")
    scheme += (frame["backend"] == "mpi-copied").map({False: "", True: ", copied"})
    frame = frame.assign(panel=frame["hardware"] + "\n" + scheme + frame["busy"].map({False: "", True: BUSY}))
    frame = frame.sort_values([*CURVE[:-2], "busy", "ranks", "nodes", "message_bytes"], kind="stable")
    return frame.assign(
        nodes=[nodes_and_workers((n, p // n)) for n, p in zip(frame["nodes"], frame["ranks"], strict=True)]
    )


def _panels(frame: pd.DataFrame, title: str, labels: alt.Axis) -> alt.FacetChart:
    sizes = sorted(frame["message_bytes"].unique())
    ticks = [size for size in (4**power for power in range(20)) if sizes[0] <= size <= sizes[-1]]
    x = alt.X(
        "message_bytes:Q",
        title="message size",
        scale=alt.Scale(type="log", base=2, domain=axes.log_domain(sizes), nice=False),
        axis=alt.Axis(values=ticks, labelExpr=SIZE_LABEL, grid=False),
    )
    y = axes.log10_y(frame[["value", "low", "high"]].to_numpy().ravel(), title)
    labels["values"] = y["axis"]["values"]
    y["axis"] = labels
    colour = marks.colour(frame, "nodes", "nodes")
    return shapes.curves(
        frame, x, y, {"nodes": "nodes", "message_bytes": "message size [bytes]", "shown": "is"}, LINES, colour=colour
    )


def finding(tables: Tables) -> str:
    """Return the finding: the largest rate and the shortest time of a message, on the most workers."""
    frame = _measured_rows(tables).query("not busy")
    frame = frame[frame["ranks"] == frame["ranks"].max()]
    best = largest_row(frame.assign(rate=frame["message_bytes"] / frame["value"] / 1e9), "rate")
    shortest = f"takes {number(1e6 * frame['value'].min(), 2)} µs at least"
    placement = placement_in_words(int(best["ranks"]), int(best["ranks"] // best["nodes"]))
    return f"On {placement} an all-reduce moves at most {number(best['rate'], 2)} GB/s and {shortest}"


def _measured_rows(tables: Tables) -> pd.DataFrame:
    """Return the median and the middle 90 % of each message's time on its slowest rank, for idle and busy ranks."""
    idle = _all_reduces(rows(tables, "collectives", "collectives cells"))
    if idle.empty:
        raise NoData("no collectives cells with two workers or more")
    frame = idle.assign(busy=False)
    contention = tables.get("contention")
    if contention is not None and len(contention):
        busy = _all_reduces(contention)
        frame = pd.concat([frame, busy.assign(busy=True)])
    frame = frame.assign(seconds=frame["seconds"] / frame["calls"])
    calls = frame.groupby(["busy", "cell", *CURVE, "message_bytes", "sample"])["seconds"].max()
    quantiles = calls.groupby(["busy", *CURVE, "message_bytes"]).quantile(np.array([0.05, 0.5, 0.95])).unstack()
    frame = quantiles.set_axis(["low", "value", "high"], axis=1).reset_index()
    spread = zip(frame["value"], frame["low"], frame["high"], strict=True)
    return frame.assign(
        basis="measured", shown=[f"{number(v)} s (middle 90 %: {number(a)} to {number(b)})" for v, a, b in spread]
    )


def _all_reduces(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[~frame["warmup"].astype(bool) & (frame["ranks"] > 1) & (frame["operation"] == ALL_REDUCE)]


def _fitted(tables: Tables, measured: pd.DataFrame) -> pd.DataFrame:
    """Return the fitted times of each placement with idle ranks, over the range of measured message sizes."""
    fits = tables.get("communication", pd.DataFrame(columns=["fit", "alpha"]))
    fits = fits[(fits["fit"] == "place") & fits["alpha"].notna()]
    fits = fits[fits["operation"] == ALL_REDUCE] if len(fits) else fits
    if fits.empty:
        return measured.iloc[:0]
    sizes = np.geomspace(measured["message_bytes"].min(), measured["message_bytes"].max(), 40)
    return pd.concat([_fitted_curve(fit.sort_values("from_bytes"), sizes) for _, fit in fits.groupby(CURVE)])


def _fitted_curve(segments: pd.DataFrame, sizes: npt.NDArray[np.float64]) -> pd.DataFrame:
    """Return the points of a piecewise linear fit at `sizes` and at its breaks, with each piece's fit as text."""
    starts = segments["from_bytes"].to_numpy()
    points = np.unique(np.append(sizes, starts[(starts > sizes[0]) & (starts < sizes[-1])]))
    lengths = np.clip(points[:, None], starts, np.append(starts[1:], np.inf)) - starts
    value = segments["alpha"].iloc[0] + lengths @ segments["beta"].to_numpy()
    texts = zip(with_interval(segments, "alpha", "s"), with_interval(segments, "beta", "s/B"), strict=True)
    shown = np.array([f"alpha {alpha}, beta {beta}" for alpha, beta in texts])
    curve = {"message_bytes": points, "value": value, "low": value, "high": value, "basis": "fitted"}
    labels = {name: segments[name].iloc[0] for name in CURVE} | {"busy": False}
    return pd.DataFrame({**labels, **curve, "shown": shown[np.searchsorted(starts, points, side="right") - 1]})
