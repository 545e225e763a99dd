"""Share of an iteration spent waiting for training data, by storage (Keuper & Pfreundt, Fig. 13)."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import NoData, Tables, axes, marks
from stallpoint.charts.frames import arrange, at_place, compact, estimate, most, rows
from stallpoint.numerals import number

FLAT = 1.0
"""Where no curve waits longer than this [% of its iteration], one panel holds them all."""


def draw(tables: Tables) -> alt.FacetChart:
    """A curve for each storage over the workers."""
    cells = "train cells with scaling strong or weak"
    frame = rows(tables, "data_share", cells)
    frame = estimate(frame[frame["scaling"] != "compute"], "share", "%", scale=100)
    if frame.empty:
        raise NoData(f"no {cells}")
    frame = arrange(frame.assign(name=frame["storage"], storage=""), single=True)
    counted = axes.workers(frame)
    frame = frame.assign(basis="measured", curve=frame["panel"])
    frame["storage"] = frame["name"]
    if frame["high"].max() < FLAT:
        frame["panel"] = "all curves"
    wait = [f"{number(seconds)} s" for seconds in frame["data_wait"]]
    frame = compact(
        frame.assign(wait=wait),
        [
            "panel",
            "storage",
            "ranks",
            "workers_per_node",
            "worker_batch",
            "basis",
            "value",
            "low",
            "high",
            "shown",
            "wait",
            "network",
            "curve",
        ],
    )
    x = axes.ranks_x(frame)
    top = min(100.0, max(frame["high"].max() * 1.05, 1.0))
    y = alt.Y("value:Q", title="data wait [% of iteration]", scale=alt.Scale(domain=[0, top]))
    base = marks.only("measured").encode(x=x, color=marks.colour(frame, "storage"))
    tips = marks.tips(
        storage="storage",
        ranks=counted,
        worker_batch="b [samples]",
        shown="share (90 % interval)",
        wait="wait",
    )
    curve = alt.Detail(["network:N", "curve:N"])
    layers = [
        base.mark_line().encode(y=y, detail=curve),
        marks.error_bars(base, y),
        marks.points(base, y).encode(tooltip=tips),
    ]
    return marks.panels(layers, frame)


def finding(tables: Tables) -> str:
    """The longest wait, and where."""
    frame = rows(tables, "data_share", "train cells with scaling strong or weak")
    frame = frame[(frame["scaling"] != "compute") & frame["share"].notna()]
    if frame.empty:
        return ""
    worst = most(frame, "share")
    if 100 * frame["share_high"].max() < FLAT:
        return f"Workers wait for training data in less than {FLAT:.0f} % of any iteration: it costs nothing here"
    where = f"{worst['network']} from {worst['storage']}"
    return f"{where}: workers wait {100 * worst['share']:.0f} % of each iteration at {at_place(worst)}"
