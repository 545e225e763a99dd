"""Charts to files: HTML that opens without network, SVG, PDF and PNG, each written whole or not at all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
import pikepdf
import vl_convert as vlc

from stallpoint.charts import ALL, NoData, Tables, publication, theme
from stallpoint.charts.findings import finding
from stallpoint.charts.web_page import VEGA_LITE, message
from stallpoint.charts.web_page import page as whole_page
from stallpoint.parquet import atomic

Spec: TypeAlias = dict[str, Any]
"""A chart as Vega-Lite JSON."""


def spec(name: str, tables: Tables) -> Spec:
    """The chart `name` without title and theme, or a text in its place that says what is missing."""
    return drawn(lambda: ALL[name].draw(tables))


def drawn(draw: Callable[[], alt.TopLevelMixin]) -> Spec:
    """What `draw` returns, or a text in its place that says what is missing."""
    try:
        chart = draw()
    except NoData as reason:
        chart = note(f"Nothing to draw: {reason}.")
    return to_spec(chart)


def to_spec(chart: alt.TopLevelMixin) -> Spec:
    """A chart as Vega-Lite."""
    # Altair refuses more than 5,000 rows as a rule; rows here are aggregates, whose number the study sets.
    with alt.data_transformers.enable("default", max_rows=None):
        whole = chart.to_dict()
    datasets = {name: list(map(_known, rows)) for name, rows in whole["datasets"].items()}
    return {**whole, "datasets": datasets}


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """What a row holds: JSON has no NaN, and what is missing need not be said."""
    return {name: value for name, value in row.items() if value is not None and value == value}


def note(text: str) -> alt.Chart:
    """A small chart that is nothing but text."""
    lines = textwrap.wrap(text, 56)
    mark = alt.Chart(pd.DataFrame({"text": [" "]})).mark_text(style="note", align="left", baseline="top", lineHeight=18)
    chart: alt.Chart = mark.encode(text=alt.value(lines), x=alt.value(0), y=alt.value(0))
    return chart.properties(width=520, height=20 + 18 * len(lines), view=alt.ViewConfig(stroke=None))


FORMATS = ("html", "svg", "pdf", "png")
"""What a chart is written as."""
DOTS_PER_INCH = 300


def render(name: str, tables: Tables, files: Mapping[str, Path]) -> None:
    """Write the chart `name` to the `files`, by format; where nothing is there to draw, they say so."""
    chart = ALL[name]
    try:
        drawn = to_spec(chart.draw(tables))
    except NoData as reason:
        write(spec(name, tables), chart.title, files, page=message(chart.title, f"Nothing to draw: {reason}."))
    else:
        found = finding(name, tables) or chart.title
        write({**drawn, "description": found}, found, files)


def write(chart: Spec, title: str, files: Mapping[str, Path], page: str = "") -> None:
    """Write a chart as a web page with its title (libraries embedded) and, as `publication` draws it, as SVG, PDF, PNG.

    `page` is written in place of that page. `files` holds a path for each of `FORMATS`. Two runs with equal charts
    write equal files, byte for byte.
    """
    themed = {**chart, "title": title, "config": theme.config()}
    printed = publication.svg(chart, VEGA_LITE)
    content = {
        "html": (page or whole_page(themed, title)).encode(),
        "svg": publication.in_points(printed).encode(),
        "pdf": _in_order(vlc.svg_to_pdf(printed)),
        "png": vlc.svg_to_png(printed, scale=DOTS_PER_INCH / 72),
    }
    for name in FORMATS:
        with atomic(files[name]) as scratch:
            scratch.write_bytes(content[name])


def _in_order(pdf: bytes) -> bytes:
    """The same PDF with its objects in an order of their own: that of the converter changes from run to run."""
    written = BytesIO()
    with pikepdf.open(BytesIO(pdf)) as document:
        document.save(written, static_id=True)
    return written.getvalue()
