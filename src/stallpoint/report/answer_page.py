"""A web page of answers to files: the words, and for rates the curve with its prediction."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import altair as alt
import pandas as pd

from stallpoint.explain.explanation import Explanation
from stallpoint.findings.finding import Finding
from stallpoint.report.charts import theme
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.own_page import page

WIDTH, HEIGHT = 640, 260


def to_html(found: Explanation) -> str:
    """Return the page, which opens from disk and loads nothing."""
    return page("At how many workers does training stop getting faster, and why?", _parts(found))


def _parts(found: Explanation) -> Iterator[str | Spec]:
    for answer in found.answers:
        (_, headline), *rest = answer.parts
        yield f"<h2>{escape(headline)}</h2>"
        yield "".join(f"<p><span class='soft'>{escape(label)}</span> {escape(text)}</p>" for label, text in rest)
        if len(answer.points) > 1:
            yield _curve(answer)
    read = "".join(f"<li>{escape(one.file)}: {escape(', '.join(one.recognised))}</li>" for one in found.inputs)
    yield f"<h2>Files</h2><ul>{read}</ul>"


def _curve(answer: Finding) -> Spec:
    columns = ["workers", "rate", "predicted", "low", "high"]
    table = pd.DataFrame(list(answer.points)).reindex(columns=columns).astype(float)
    first = table.dropna(subset="rate").iloc[0]
    table["ideal"] = first["rate"] / first["workers"] * table["workers"]
    scale = alt.Scale(type="log", base=2)
    x = alt.X("workers:Q", title="workers", scale=scale)
    base = alt.Chart(table).properties(width=WIDTH, height=HEIGHT, title="Rate against workers; dashed: ideal")
    title = "rate"
    measured = base.mark_line(point=True, color=theme.BLUE).encode(x, alt.Y("rate:Q", title=title, scale=scale))
    ideal = base.mark_line(strokeDash=[4, 4], color=theme.GREY).encode(x, alt.Y("ideal:Q", title=title, scale=scale))
    bars = base.mark_rule(color=theme.VERMILION).encode(x, alt.Y("low:Q", title=title), alt.Y2("high:Q"))
    points = base.mark_point(color=theme.VERMILION, filled=True).encode(
        x, alt.Y("predicted:Q", title=title, scale=scale)
    )
    return to_spec(alt.layer(ideal, measured, bars, points))
