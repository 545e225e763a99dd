"""Web page of answers to files: words, and for rates a chart of the curve with its prediction."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import pandas as pd

from stallpoint.base.section import Finding
from stallpoint.base.section_texts import headline
from stallpoint.report.charts import axes, shapes
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import page
from stallpoint_files import rank_chart
from stallpoint_files.answering import Explanation

WIDTH, HEIGHT = 640, 260
MAX_CHARTS = 24
"""Maximum number of curves drawn, at 0.1 s and a screen each; further answers have only words."""


def to_html(found: Explanation) -> str:
    """Return a self-contained page, which opens from disk and loads nothing."""
    return page("At how many workers does training stop getting faster, and why?", _page_parts(found))


def _page_parts(found: Explanation) -> Iterator[str | Spec]:
    detailed = {detail.kind for detail in found.details.values()}
    curves = 0
    for answer in found.answers:
        if answer.kind in detailed:
            continue  # its details below include it
        yield f"<h2>{escape(headline(answer))}</h2>"
        yield "".join(
            f"<p><span class='soft'>{escape(label)}</span> {escape(text)}</p>" for label, text in answer.parts
        )
        if answer.points and "longer" in answer.points[0]:
            yield rank_chart.draw(answer.points)
        elif len(answer.points) > 1 and (curves := curves + 1) <= MAX_CHARTS:
            yield _curve(answer)
            yield "<p class='soft'>The grey line is ideal: in proportion to workers.</p>"
    if (more := curves - MAX_CHARTS) > 0:
        yield f"<p class='soft'>{more} more curves are not drawn: --json has the points of all.</p>"
    for detail in found.details.values():
        yield from detail.parts()
    read = "".join(f"<li>{escape(one.file)}: {escape(', '.join(one.recognised))}</li>" for one in found.inputs)
    yield f"<h2>Files</h2><ul>{read}</ul>"


def _curve(answer: Finding) -> Spec:
    columns = ["workers", "rate", "predicted", "low", "high"]
    points = pd.DataFrame(list(answer.points)).reindex(columns=columns).astype(float)
    basis = points["rate"].notna().map({True: "measured", False: "predicted"})
    rows = points.assign(basis=basis, value=points["rate"].fillna(points["predicted"]))
    unit = answer.about.get("unit", "min")
    return {**rates_chart(rows, f"rate [{unit}]", unit), "description": headline(answer)}


def rates_chart(rows: pd.DataFrame, title: str, tip: str) -> Spec:
    """Return the chart of ``value`` over ``workers``; the prediction continues from the last measured rate."""
    rows = rows.assign(**{end: rows[end].fillna(rows["value"]) for end in ("low", "high")})
    last = rows[rows["basis"] == "measured"].tail(1).assign(basis="predicted")
    rows = pd.concat([rows, last]).sort_values("workers", kind="stable")
    tips = {"workers": "workers", "basis": "basis", "value": tip}
    return to_spec(shapes.over_workers(rows, axes.log10_y(axes.span(rows), title), tips, width=WIDTH, height=HEIGHT))
