"""The chain of evidence: every chart of the registry, a section for each topic."""

from __future__ import annotations

from html import escape
from itertools import groupby

import pandas as pd

from stallpoint.records.tables import TIDY_TABLES
from stallpoint.report.charts import CHARTS, Chart, Tables
from stallpoint.report.charts.labels import FILTERS
from stallpoint.report.charts.render import Spec, finding, missing, spec
from stallpoint.report.html import Section, downloads, paragraph

MOST_ROWS = 4000
"""Rows of a chart on the page: it grows with the number of charts, not of rows."""


def evidence(tables: Tables) -> tuple[list[Section], dict[str, Spec]]:
    """A section for each topic, and the specs that the page's script draws into its empty places.

    Charts of nothing are named in one line at the end of the last section, a topic without any has no section.
    """
    specs: dict[str, Spec] = {}
    sections: list[Section] = []
    empty: list[str] = []
    for topic, charts in groupby(CHARTS.values(), lambda chart: chart.topic):
        figures = []
        for chart in charts:
            drawn, left_out = bounded(spec(chart.name, tables))
            if why := missing(drawn):
                empty.append(f"{chart.title} ({why})")
                continue
            specs[chart.name] = drawn
            figures.append(_figure(chart, finding(drawn), left_out))
        if figures:
            sections.append(Section("topic-" + topic.lower().replace(" ", "-"), topic, "\n".join(figures)))
    if empty:
        text = paragraph(f"Not drawn, for want of measurements: {'; '.join(empty)}.")
        sections.append(Section("not-drawn", "Charts not drawn", text))
    return sections, specs


def _figure(chart: Chart, said: str, left_out: int) -> str:
    """A place for the chart; its heading says what was found, where there is a finding."""
    name, title = chart.name, escape(chart.title)
    heading = f'<p class="kicker">{title}</p><h3>{escape(said)}</h3>' if said else f"<h3>{title}</h3>"
    more = (
        f" {left_out:,} panels are left out of this page, which would grow too large; figures/{name}.html and the "
        f"tables ({', '.join(f'{_folder(table)}/{table}.parquet' for table in chart.tables)}) hold them all."
        if left_out
        else ""
    )
    return (
        f'<figure id="{name}">{heading}<figcaption>{escape(chart.caption + more)}</figcaption>'
        f'<div class="chart" id="chart-{name}" data-title="{title}"></div>'
        f'<p class="others" hidden><button type="button" data-action="others" data-chart="{name}"></button></p>'
        f'<div class="pager" hidden><button type="button" data-action="page" data-chart="{name}" value="-1">Previous'
        f'</button> <output></output> <button type="button" data-action="page" data-chart="{name}" value="1">Next'
        f'</button></div><div class="data"><details data-chart="{name}"><summary>Data</summary><div class="wide"></div>'
        f"</details>{downloads(name, chart.title)}</div></figure>"
    )


def _folder(table: str) -> str:
    return "tables" if any(table == tidy.name for tidy in TIDY_TABLES) else "models"


def bounded(chart: Spec, most: int = MOST_ROWS) -> tuple[Spec, int]:
    """`chart` with whole panels of at most `most` rows together, and how many panels that leaves out.

    Panels are taken in turn from every network, hardware and storage, so that some of each stay.
    """
    rows = pd.DataFrame([row for rows in chart["datasets"].values() for row in rows])
    if len(rows) <= most or "panel" not in rows:
        return chart, 0
    owners = [name for name in FILTERS if name in rows]
    panels = rows.groupby("panel", sort=False).agg({**dict.fromkeys(owners, "first"), "panel": "size"})
    turn = panels.groupby(owners, dropna=False).cumcount() if owners else pd.Series(0, index=panels.index)
    in_turn = panels["panel"].loc[turn.sort_values(kind="stable").index].cumsum()
    kept = set(in_turn.index[in_turn <= most]) or {in_turn.index[0]}
    datasets = {key: [row for row in rows if row.get("panel") in kept] for key, rows in chart["datasets"].items()}
    return {**chart, "datasets": datasets}, len(panels) - len(kept)
