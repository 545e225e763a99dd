"""Share of an iteration spent waiting for training data, by storage (Keuper & Pfreundt, Fig. 13)."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import NoData, Tables, axes, marks
from stallpoint.charts.frames import arrange, compact, estimate, rows
from stallpoint.numerals import number


def draw(tables: Tables) -> alt.FacetChart:
    """A curve for each storage over the nodes."""
    cells = "train cells with scaling strong or weak"
    frame = rows(tables, "data_share", cells)
    frame = estimate(frame[frame["scaling"] != "compute"], "share", "%", scale=100)
    if frame.empty:
        raise NoData(f"no {cells}")
    frame = arrange(frame.assign(name=frame["storage"], storage=""), single=True).assign(basis="measured")
    frame["storage"] = frame["name"]
    wait = [f"{number(seconds)} s" for seconds in frame["data_wait"]]
    frame = compact(
        frame.assign(wait=wait),
        ["panel", "storage", "nodes", "worker_batch", "basis", "value", "low", "high", "shown", "wait"],
    )
    x = axes.nodes_x(frame)
    top = min(100.0, max(frame["high"].max() * 1.05, 1.0))
    y = alt.Y("value:Q", title="data wait [% of iteration]", scale=alt.Scale(domain=[0, top]))
    base = marks.only("measured").encode(x=x, color=marks.colour(frame, "storage"))
    tips = marks.tips(
        storage="storage", nodes="nodes", worker_batch="b [samples]", shown="share (90 % interval)", wait="wait"
    )
    layers = [base.mark_line().encode(y=y), marks.error_bars(base, y), marks.points(base, y).encode(tooltip=tips)]
    return marks.panels(layers, frame)
