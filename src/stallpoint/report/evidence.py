"""The chain of evidence: every chart of the registry, a section for each topic."""

from __future__ import annotations

from html import escape
from itertools import groupby

from stallpoint.charts import CHARTS, Chart
from stallpoint.report.html import Section


def evidence() -> list[Section]:
    """A section for each topic; the page's script draws the charts into the empty places."""
    return [
        Section(topic.lower().replace(" ", "-"), topic, "\n".join(map(_figure, charts)))
        for topic, charts in groupby(CHARTS.values(), lambda chart: chart.topic)
    ]


def _figure(chart: Chart) -> str:
    return (
        f'<figure id="{chart.name}"><h3>{escape(chart.title)}</h3>'
        f"<figcaption>{escape(chart.caption)}</figcaption>"
        f'<div class="chart" id="chart-{chart.name}"></div></figure>'
    )
