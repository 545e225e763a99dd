"""Compute against communication time by nodes (Keuper & Pfreundt, Fig. 3)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, shapes
from stallpoint.report.charts.labels import (
    AXES,
    arrange,
    largest_row,
    leading_first,
    placement_in_words,
    rows,
    smallest_row,
)
from stallpoint.strategies.presets import NONE
from stallpoint.text import number

CELLS = "train cells with scaling strong or weak on two workers or more"
COMPUTE = ("forward", "backward", "update")
HIDDEN, EXPOSED = "hidden communication", "exposed communication"
KINDS = ("compute", "communication")
CROSSES = "▲"
"""Marks the first number of workers at which communication takes longer than compute."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw bars of compute next to bars of communication, hidden and exposed stacked, for each number of workers."""
    frame = leading_first(arrange(_times(tables), single=True), tables)
    counted = axes.workers(frame)
    x = marks.bars_x("ranks", counted)
    y = alt.Y("value:Q", title="time in one iteration [s]", axis=alt.Axis(format="~g"))
    tips = {"time": "time", "ranks": counted, "basis": "basis", "shown": "time"}
    crossing = alt.Chart().mark_text(style="row", dy=-9).encode(x=x, y=marks.at(y, "top"), text="crosses:N")
    return shapes.bars(frame, x, y, "time", tips, grouped=("kind", *KINDS), order="order", before=[crossing])


def _times(tables: Tables) -> pd.DataFrame:
    """Return a row for each kind of time of a point, measured, else predicted; and the crossing."""
    frame = rows(tables, "predictions", CELLS)
    frame = frame[(frame["scaling"] != "compute") & (frame["sync"] != NONE)]
    was = frame["measured_iteration"].notna()
    basis = was.map({True: "measured", False: "predicted"})
    of = {name: frame[f"measured_{name}"].where(was, frame[f"predicted_{name}"])
          for name in (*COMPUTE, "communication", "exposed_communication")}  # fmt: skip
    compute = sum((of[name] for name in COMPUTE), pd.Series(0.0, index=frame.index))
    exposed = of["exposed_communication"].clip(upper=of["communication"])
    if not (of["communication"] > 0).any():
        raise NoData(f"no {CELLS}")
    above = of["communication"] > compute
    curve = [frame[axis] for axis in AXES]
    first = frame["ranks"].where(above).groupby(curve).transform("min")
    crosses = (frame["ranks"] == first).map({True: CROSSES, False: ""})
    none, unsaid = pd.Series(0.0, index=frame.index), pd.Series("", index=frame.index)
    stacks = (
        ("compute", KINDS[0], none, compute, unsaid),
        (EXPOSED, KINDS[1], none, exposed, unsaid),
        (HIDDEN, KINDS[1], exposed, of["communication"], crosses),
    )
    parts = [
        frame.assign(time=name, kind=kind, basis=basis, order=i, top=high, value=high - low, crosses=said)
        for i, (name, kind, low, high, said) in enumerate(stacks)
    ]
    times = pd.concat(parts)
    times = times[times["value"].notna() & ((times["value"] > 0) | (times["crosses"] != ""))]
    return times.assign(shown=[f"{number(seconds)} s" for seconds in times["value"]])


def finding(tables: Tables) -> str:
    """Return where communication takes longer than compute, on the fastest curves; or that it never does."""
    frame = leading_first(_times(tables), tables).query("lead")
    crossing = frame[frame["crosses"] != ""]
    if crossing.empty:
        return f"Communication stays below compute up to {placement_in_words(largest_row(frame, 'ranks'))}"
    first = smallest_row(crossing, "ranks")
    predicted = " (predicted)" if first["basis"] == "predicted" else ""
    return f"{first['network']}: communication takes longer than compute from {placement_in_words(first)} on{predicted}"
