"""Charts to files: HTML that opens without network, SVG, PDF and PNG, each written whole or not at all."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
import vl_convert as vlc

from stallpoint.charts import ALL, NoData, Tables, publication, theme
from stallpoint.parquet import atomic

Spec: TypeAlias = dict[str, Any]
"""A chart as Vega-Lite JSON."""

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite that Altair writes, as vl-convert names it."""


def spec(name: str, tables: Tables) -> Spec:
    """The chart `name` without title and theme, or a text in its place that says what is missing."""
    try:
        chart = ALL[name].draw(tables)
    except NoData as reason:
        chart = note(f"Nothing to draw: {reason}.")
    return to_spec(chart)


def to_spec(chart: alt.TopLevelMixin) -> Spec:
    """A chart as Vega-Lite."""
    # Altair refuses more than 5,000 rows as a rule; rows here are aggregates, whose number the study sets.
    with alt.data_transformers.enable("default", max_rows=None):
        return chart.to_dict()


def note(text: str) -> alt.Chart:
    """A small chart that is nothing but text."""
    lines = textwrap.wrap(text, 70)
    mark = alt.Chart(pd.DataFrame({"text": [" "]})).mark_text(style="note", align="left", baseline="top", lineHeight=18)
    chart: alt.Chart = mark.encode(text=alt.value(lines), x=alt.value(0), y=alt.value(0))
    return chart.properties(width=520, height=20 + 18 * len(lines), view=alt.ViewConfig(stroke=None))


FORMATS = ("html", "svg", "pdf", "png")
"""What a chart is written as."""
DOTS_PER_INCH = 300


def render(name: str, tables: Tables, files: Mapping[str, Path]) -> None:
    """Write the chart `name` to the `files`, by format."""
    write(spec(name, tables), ALL[name].title, files)


def write(chart: Spec, title: str, files: Mapping[str, Path]) -> None:
    """Write a chart as a web page with its title (libraries embedded) and, as `publication` draws it, as SVG, PDF, PNG.

    `files` holds a path for each of `FORMATS`. Two runs with equal charts write equal files, byte for byte.
    """
    themed = {**chart, "title": title, "config": theme.config()}
    drawn = publication.svg(chart, VEGA_LITE)
    content = {
        "html": vlc.vegalite_to_html(themed, vl_version=VEGA_LITE, bundle=True).encode(),
        "svg": publication.in_points(drawn).encode(),
        "pdf": vlc.svg_to_pdf(drawn),
        "png": vlc.svg_to_png(drawn, scale=DOTS_PER_INCH / 72),
    }
    for name in FORMATS:
        with atomic(files[name]) as scratch:
            scratch.write_bytes(content[name])
