"""A comparison as a web page that opens from disk."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import altair as alt
import pandas as pd

from stallpoint.archive.comparison.changes import Comparison
from stallpoint.archive.comparison.comparison_words import (
    FAMILY_TITLES,
    finding,
    headings,
    names,
    percent,
    rules_in_words,
    summary,
    table,
    title,
    verdicts,
)
from stallpoint.base.frames import records
from stallpoint.base.statistics import SAME_WITHIN
from stallpoint.report.charts import marks, theme
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import grid, page

MAX_DOTS = 40
"""Maximum number of changes drawn per family; of more, the most significant are drawn."""
CHART_WIDTH = 560


def to_html(comparison: Comparison) -> str:
    """Return the page ``comparison.html``."""
    return page(title(comparison), _parts(comparison))


def _parts(comparison: Comparison) -> Iterable[str | Spec]:
    yield "".join(f"<p>{escape(sentence)}</p>" for sentence in summary(comparison))
    yield f'<p class="soft">{escape(rules_in_words(comparison))}</p>'
    families = [family for family in FAMILY_TITLES if len(comparison.of(family))]
    for family in families:
        yield family_chart(comparison, family)
    yield f"<h2>Verdicts</h2>{grid(('curve', 'old', 'new', ''), verdicts(comparison))}"
    for family in families:
        rows = table(comparison, family)
        yield f"<details><summary>{FAMILY_TITLES[family]}</summary>{grid(headings(comparison, family), rows)}</details>"
    settings = [list(row.values()) for row in comparison.settings]
    yield f"<h2>What else differs</h2>{grid(('hardware', 'what', 'old', 'new'), settings) if settings else 'Nothing.'}"


def family_chart(comparison: Comparison, family: str) -> Spec:
    """Return the chart of a family: a line for each change, with its ratio and interval. The title is the finding."""
    rows = comparison.of(family)
    frame = rows.assign(name=names(rows), shown=[percent(row) for row in records(rows)])
    frame = frame.nsmallest(MAX_DOTS, "p").sort_values("ratio", ascending=False)
    remark = f" (the {MAX_DOTS} least alike are drawn)" if len(rows) > MAX_DOTS else ""
    columns = ["name", "ratio", "ratio_low", "ratio_high", "change", "shown"]
    quantity = {"speedup": "speedup", "layer": "time beside the other layers"}.get(family, "time")
    chart = _ratio_chart(frame[columns], quantity)
    return {**to_spec(chart), "title": finding(comparison, family) + remark}


def _ratio_chart(frame: pd.DataFrame, measure: str) -> alt.TopLevelMixin:
    scale = alt.Scale(zero=False, nice=False, padding=8)
    x = alt.X("ratio:Q", title=f"{measure}, new over old", scale=scale, axis=alt.Axis(format=".3~g"))
    y = alt.Y("name:N", title=None, sort=list(frame["name"]), axis=alt.Axis(labelLimit=400, labelOverlap=False))
    colour = marks.colour(frame, "change")
    base = alt.Chart().encode(y=y, color=colour, tooltip=marks.tips(name=measure, shown="changed by", change="that is"))
    margin = pd.DataFrame({"low": [1 / (1 + SAME_WITHIN)], "high": [1 + SAME_WITHIN], "one": [1.0]})
    chart: alt.TopLevelMixin = alt.layer(
        alt.Chart(margin).mark_rect(opacity=0.12, color=theme.GREY).encode(x=marks.axis(x, "low"), x2="high:Q"),
        alt.Chart(margin).mark_rule(style="ideal").encode(x=marks.axis(x, "one")),
        base.mark_rule(strokeWidth=1.5).encode(x=marks.axis(x, "ratio_low"), x2="ratio_high:Q"),
        base.mark_point(filled=True, size=45, opacity=1).encode(x=x),
        data=frame,
    ).properties(width=CHART_WIDTH, height=alt.Step(16))
    return chart
