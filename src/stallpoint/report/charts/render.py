"""Files of charts: HTML that opens without network, SVG, PDF and PNG, each written atomically."""

from __future__ import annotations

import json
import textwrap
import traceback
import warnings
from collections.abc import Callable, Mapping
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
from altair.utils.schemapi import debug_mode

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.report.charts import ALL, CHARTS, NoData, Tables, journal
from stallpoint.report.charts.web_page import VEGA_LITE, page

# Altair warns if it cannot infer the type of a column, even if the encoding states the type.
warnings.filterwarnings("ignore", message="I don't know how to infer vegalite type")

Spec: TypeAlias = dict[str, Any]
"""A chart as Vega-Lite JSON."""


def spec(name: str, tables: Tables) -> Spec:
    """Return the chart `name` without title and theme, or a chart that says what is missing.

    The chart's description, which is the picture's alternative text, is its title and finding.
    """
    chart = ALL[name]
    drawing, found = draw_or_note(lambda: chart.draw(tables)), chart.finding(tables)
    caption = f"{chart.title}. {found}." if found else f"{chart.title}."
    return {**drawing, "description": caption, "usermeta": {**drawing.get("usermeta", {}), "finding": found}}


def draw_or_note(draw: Callable[[], alt.TopLevelMixin]) -> Spec:
    """Return the chart that `draw` makes; if there is nothing to draw, a chart that says what is missing."""
    with debug_mode(False):  # Altair's own checks take most of the time
        try:
            chart = draw()
        except NoData as reason:
            chart = note(f"Nothing to draw: {reason}.").properties(usermeta={"missing": str(reason)})
        return to_spec(chart)


def missing_reason(chart: Spec) -> str:
    """Return why there is nothing to draw; empty if the chart has data."""
    return str(chart.get("usermeta", {}).get("missing", ""))


def finding(chart: Spec) -> str:
    """Return the finding of a registered chart; empty if there is none."""
    return str(chart.get("usermeta", {}).get("finding", ""))


def leading_panels(chart: Spec) -> Spec:
    """Return the chart with its leading panels only (those of fastest curves), or with all panels if none leads."""
    rows = [row for rows in chart["datasets"].values() for row in rows]
    panels = {row["panel"] for row in rows if row.get("lead")}
    if not panels or "facet" not in chart or panels == {row.get("panel") for row in rows}:
        return chart  # concatenated charts keep all rows
    kept = {name: [row for row in rows if row.get("panel") in panels] for name, rows in chart["datasets"].items()}
    sorted_panels = [name for name in chart["facet"]["sort"] if name in panels]
    return {**chart, "datasets": kept, "facet": {**chart["facet"], "sort": sorted_panels}}


def to_spec(chart: alt.TopLevelMixin) -> Spec:
    """Return a chart as Vega-Lite."""
    # Altair refuses more than 5,000 rows by default, but a large study may need more.
    with alt.data_transformers.enable("default", max_rows=None):
        converted = chart.to_dict(validate=False)
    datasets = {name: list(map(_drop_missing, rows)) for name, rows in converted["datasets"].items()}
    return {**converted, "datasets": datasets}


def _drop_missing(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and value == value}


def note(text: str) -> alt.Chart:
    """Return a small chart that consists of a text."""
    lines = textwrap.wrap(text, 56)
    mark = alt.Chart(pd.DataFrame({"text": [" "]})).mark_text(style="note", align="left", baseline="top", lineHeight=18)
    chart: alt.Chart = mark.encode(text=alt.value(lines), x=alt.value(0), y=alt.value(0))
    return chart.properties(width=520, height=20 + 18 * len(lines), view=alt.ViewConfig(stroke=None))


FORMATS = ("html", "svg", "pdf", "png", "json")
"""Formats of a chart; the last is its Vega-Lite, which the report has too."""
DOTS_PER_INCH = 300


def render(name: str, tables: Tables, files: Mapping[str, Path]) -> None:
    """Write the chart `name` in all formats; `files` maps each format to its file."""
    chart = spec(name, tables)
    write(chart, finding(chart) or ALL[name].title, files)


def render_all(tables: Tables, folder: Path) -> None:
    """Write every chart of a study to `folder`, each from those `tables` that it needs.

    If a chart fails, the others are still written. The file ``NAME.error`` says why it failed.
    """
    for name, chart in CHARTS.items():
        chart_tables = {table: tables[table] for table in chart.tables if table in tables}
        try:
            render(name, chart_tables, {format: folder / f"{name}.{format}" for format in FORMATS})
        except (InputError, OSError):  # such as a full disk: no chart is at fault
            raise
        except Exception as error:
            message = f"error: chart {name} cannot be drawn: {type(error).__name__}: {error}\n"
            (folder / f"{name}.error").write_text(f"{traceback.format_exc()}{message}", encoding="utf-8")


def write(chart: Spec, title: str, files: Mapping[str, Path]) -> None:
    """Write a chart in all formats: web page, SVG, PDF, PNG and Vega-Lite. `files` has a path for each of `FORMATS`.

    The page has a title and all panels. It has the drawing libraries only if the chart has data. The pictures are laid
    out by `journal` and have only the panels of fastest curves. Equal charts are written as equal files, byte for byte.
    """
    import vl_convert as vlc

    picture = journal.svg(leading_panels(chart), VEGA_LITE)
    reason = missing_reason(chart)
    shown = f"<p>Nothing to draw: {escape(reason)}.</p>" if reason else chart
    content = {
        "html": page(title, [shown], legend_columns=0).encode(),
        "svg": journal.in_points(picture).encode(),
        "pdf": _sort_pdf_objects(vlc.svg_to_pdf(picture)),
        "png": vlc.svg_to_png(picture, scale=DOTS_PER_INCH / 72),
        "json": json.dumps(chart, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(),
    }
    for name in FORMATS:
        with atomic(files[name]) as scratch:
            scratch.write_bytes(content[name])


def _sort_pdf_objects(pdf: bytes) -> bytes:
    """Return a PDF with its objects in a fixed order. The converter's order changes from run to run."""
    import pikepdf

    written = BytesIO()
    with pikepdf.open(BytesIO(pdf)) as document:
        document.save(written, static_id=True)
    return written.getvalue()
