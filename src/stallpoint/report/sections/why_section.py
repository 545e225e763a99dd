"""Evidence: every chart of the registry, by topic."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd

from stallpoint.base.section import FILTERS
from stallpoint.records.tables import TIDY_TABLES
from stallpoint.report.charts import TOPICS, Chart, Tables
from stallpoint.report.charts.labels import interleaved_order
from stallpoint.report.charts.render import Spec, finding, missing_reason, spec
from stallpoint.report.html import PagePart, downloads

MAX_CHART_ROWS = 4000
"""Maximum number of data rows of a chart on the page, which bounds the size of the page."""


GROUPS = {
    "What if": "What would help",
    "Accuracy of the DAG model": "How sure",
    "Scaling laws": "How sure",
    "How it was measured": "How sure",
}
"""Group of the menu of each topic that is not in the group Why."""


def evidence(tables: Tables, made_specs: Mapping[str, Spec]) -> tuple[list[PagePart], dict[str, Spec], list[str]]:
    """Return a page part for each topic with charts, the drawn charts' specs, and why other charts are not drawn.

    Topics without charts have no part. Charts among `made_specs` are used as they are, others drawn from `tables`.
    """
    specs: dict[str, Spec] = {}
    parts: list[PagePart] = []
    missing_charts: list[str] = []
    for topic, charts in TOPICS.items():
        figures = []
        for chart in charts:
            drawn, omitted = cut_rows(made_specs[chart.name] if chart.name in made_specs else spec(chart.name, tables))
            if why := missing_reason(drawn):
                missing_charts.append(f"{chart.title}: {why}")
                continue
            specs[chart.name] = drawn
            figures.append(_figure(chart, finding(drawn), omitted))
        if figures:
            name = "topic-" + topic.lower().replace(" ", "-")
            parts.append(PagePart(name, topic, GROUPS.get(topic, "Why"), "\n".join(figures)))
    return parts, specs, missing_charts


def _figure(chart: Chart, heading_text: str, omitted_panels: int) -> str:
    """Return the element of a chart. Its heading is the finding, or the title if there is no finding."""
    name, title = chart.name, escape(chart.title)
    heading = f'<p class="kicker">{title}</p><h3>{escape(heading_text)}</h3>' if heading_text else f"<h3>{title}</h3>"
    note = (
        f" {omitted_panels:,} panels are not on this page, which would grow too large; figures/{name}.html and the "
        f"tables ({', '.join(f'{_folder(table)}/{table}.parquet' for table in chart.tables)}) hold them all."
        if omitted_panels
        else ""
    )
    return (
        f'<figure id="{name}">{heading}<figcaption>{escape(chart.caption + note)}</figcaption>'
        f'<div class="chart" id="chart-{name}" data-title="{title}"></div>'
        f'<p class="others" hidden><button type="button" data-action="others" data-chart="{name}"></button></p>'
        f'<div class="pager" hidden><button type="button" data-action="page" data-chart="{name}" value="-1">Previous'
        f'</button> <output></output> <button type="button" data-action="page" data-chart="{name}" value="1">Next'
        f'</button></div><div class="data"><details data-chart="{name}"><summary>Data</summary><div class="wide"></div>'
        f"</details>{downloads(name)}</div></figure>"
    )


def _folder(table: str) -> str:
    return "tables" if any(table == tidy.name for tidy in TIDY_TABLES) else "models"


def cut_rows(chart: Spec, max_rows: int = MAX_CHART_ROWS) -> tuple[Spec, int]:
    """Return `chart` reduced to complete panels with at most `max_rows` rows in all, and the number of omitted panels.

    Panels are selected in turn from every network, hardware and storage, so that some of each are kept.
    """
    rows = pd.DataFrame([row for rows in chart["datasets"].values() for row in rows])
    if len(rows) <= max_rows or "panel" not in rows:
        return chart, 0
    owners = [name for name in FILTERS if name in rows]
    panels = rows.groupby("panel", sort=False).agg({**dict.fromkeys(owners, "first"), "panel": "size"})
    sizes = panels["panel"].loc[interleaved_order(panels)].cumsum()
    names = set(sizes.index[sizes <= max_rows]) or {sizes.index[0]}
    datasets = {key: [row for row in rows if row.get("panel") in names] for key, rows in chart["datasets"].items()}
    return {**chart, "datasets": datasets}, len(panels) - len(names)
