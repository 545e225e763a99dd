"""All-reduce time by message size and its fit alpha + beta · bytes, maybe in pieces."""

from __future__ import annotations

import altair as alt
import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks
from stallpoint.charts.frames import compact, rows, with_interval
from stallpoint.numerals import number

CURVE = ["hardware", "backend", "reduction", "nodes"]
BUSY = ", while computing"
SIZE_LABEL = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : format(datum.value, '~g') + ' B'"
)


def draw(tables: Tables) -> alt.FacetChart:
    """Measured points with their spread, a fitted line for each node count."""
    measured = _measured(tables)
    fitted = _fitted(tables, measured)
    frame = pd.concat([measured, fitted])
    scheme = frame["reduction"].where(frame["backend"] == "mpi", frame["backend"]).replace("library", "MPI library")
    frame = frame.assign(panel=frame["hardware"] + "\n" + scheme + frame["busy"].map({False: "", True: BUSY}))
    frame = frame.sort_values([*CURVE[:-1], "busy", "nodes", "message_bytes"], kind="stable")
    sizes = sorted(measured["message_bytes"].unique())
    ticks = [size for size in (4**power for power in range(20)) if sizes[0] <= size <= sizes[-1]]
    x = alt.X(
        "message_bytes:Q",
        title="message size [bytes]",
        scale=alt.Scale(type="log", base=2, domain=axes.log_domain(sizes), nice=False),
        axis=alt.Axis(values=ticks, labelExpr=SIZE_LABEL, grid=False),
    )
    y = axes.log10_y(frame[["value", "low", "high"]].to_numpy().ravel(), "time of one all-reduce [s]", "~s")
    frame = compact(
        frame.assign(nodes=frame["nodes"].astype(str)),
        ["panel", "nodes", "message_bytes", "basis", "value", "low", "high", "shown"],
    )
    colour = marks.colour(frame, "nodes", "nodes")
    tips = marks.tips(nodes="nodes", message_bytes="message size [bytes]", shown="time")
    points = marks.only("measured").encode(x=x, color=colour)
    fit = marks.only("fitted").encode(x=x, y=y, color=colour, strokeDash=marks.dashes("fitted"))
    fit_tips = marks.tips(nodes="nodes", shown="fit (90 % intervals)")
    layers = [
        fit.mark_line(),
        marks.hover(fit, y).encode(tooltip=fit_tips),
        marks.error_bars(points, y),
        marks.points(points, y).encode(tooltip=tips),
    ]
    return marks.panels(layers, frame)


def _measured(tables: Tables) -> pd.DataFrame:
    """Median and middle 90 % of the time of a message, by its slowest rank, on idle ranks and on `busy` ones."""
    idle = _several_ranks(rows(tables, "collectives", "collectives cells"))
    if idle.empty:
        raise NoData("no collectives cells with two workers or more")
    frame = idle.assign(busy=False)
    contention = tables.get("contention")
    if contention is not None and len(contention):
        busy = _several_ranks(contention)
        frame = pd.concat([frame, busy.assign(busy=True)])
    frame = frame.assign(seconds=frame["seconds"] / frame["messages"])
    calls = frame.groupby(["busy", "cell", *CURVE, "message_bytes", "sample"])["seconds"].max()
    quantiles = calls.groupby(["busy", *CURVE, "message_bytes"]).quantile(np.array([0.05, 0.5, 0.95])).unstack()
    frame = quantiles.set_axis(["low", "value", "high"], axis=1).reset_index()
    spread = zip(frame["value"], frame["low"], frame["high"], strict=True)
    return frame.assign(
        basis="measured", shown=[f"{number(v)} s (middle 90 %: {number(a)} to {number(b)})" for v, a, b in spread]
    )


def _several_ranks(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[~frame["warmup"].astype(bool) & (frame["ranks"] > 1)]


def _fitted(tables: Tables, measured: pd.DataFrame) -> pd.DataFrame:
    """The fit of each node count on idle ranks, over the measured sizes."""
    fits = tables.get("communication", pd.DataFrame(columns=["fit", "alpha"]))
    fits = fits[(fits["fit"] == "nodes") & fits["alpha"].notna()]
    if fits.empty:
        return measured.iloc[:0]
    sizes = np.geomspace(measured["message_bytes"].min(), measured["message_bytes"].max(), 40)
    return pd.concat([_curve(fit.sort_values("from_bytes"), sizes) for _, fit in fits.groupby(CURVE)])


def _curve(pieces: pd.DataFrame, sizes: npt.NDArray[np.float64]) -> pd.DataFrame:
    """One fit at `sizes` and at its breaks, so that the pieces are seen; the text is that of each size's own piece."""
    starts = pieces["from_bytes"].to_numpy()
    at = np.unique(np.append(sizes, starts[(starts > sizes[0]) & (starts < sizes[-1])]))
    inside = np.clip(at[:, None], starts, np.append(starts[1:], np.inf)) - starts
    value = pieces["alpha"].iloc[0] + inside @ pieces["beta"].to_numpy()
    texts = zip(with_interval(pieces, "alpha", "s"), with_interval(pieces, "beta", "s/B"), strict=True)
    shown = np.array([f"alpha {alpha}, beta {beta}" for alpha, beta in texts])
    curve = {"message_bytes": at, "value": value, "low": value, "high": value, "basis": "fitted"}
    labels = {name: pieces[name].iloc[0] for name in CURVE} | {"busy": False}
    return pd.DataFrame({**labels, **curve, "shown": shown[np.searchsorted(starts, at, side="right") - 1]})
