"""Heat map of ranks by pipeline stage or phase: how much longer than the mean each rank takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.report.charts import marks, theme
from stallpoint.report.charts.render import Spec, to_spec

WIDTH, CELL = 640, 24
_EVEN_COLOUR = "#d7dcdd"
"""Colour of a rank that takes the mean."""
_MIN_REACH = 5.0
"""Minimum end of the colour scale, % of an iteration, so that even ranks look even."""


def draw(cells: Sequence[Mapping[str, Any]]) -> Spec:
    """Return the chart of `Stragglers.cells`."""
    rows = pd.DataFrame(list(cells)).assign(shown=lambda of: of["longer"].map("{:+.1f} %".format))
    reach = max(_MIN_REACH, float(rows["longer"].abs().max()))
    scale = alt.Scale(domain=[-reach, 0, reach], range=[theme.BLUE, _EVEN_COLOUR, theme.VERMILION], interpolate="lab")
    columns = rows["column"].nunique()
    by_stage = bool(rows["row"].str.startswith("stage").any())
    x = alt.X("column:O", title="rank within its stage" if by_stage else "rank",
              axis=alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False))  # fmt: skip
    y = alt.Y("row:N", title=None, sort=list(dict.fromkeys(rows["row"])), axis=alt.Axis(ticks=False, domain=False))
    title = "longer than the mean [% of an iteration]"
    legend = alt.Legend(title=title, orient="bottom", gradientLength=240, titleLimit=400)
    chart = (
        alt.Chart(rows)
        .mark_rect()
        .encode(
            x=x, y=y, color=alt.Color("longer:Q", scale=scale, legend=legend),
            tooltip=marks.tips(rank="rank", row="where", shown="longer than the mean"),
        )
        .properties(width=alt.Step(CELL) if columns * CELL <= WIDTH else WIDTH, height=alt.Step(CELL))
    )  # fmt: skip
    return {**to_spec(chart), "title": "Which rank takes longer than others, and where"}
