"""Charts to files: HTML that opens without network, SVG and PNG, each written whole or not at all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
import vl_convert as vlc

from stallpoint.charts import ALL, NoData, Tables, theme
from stallpoint.charts.web_page import VEGA_LITE, page
from stallpoint.parquet import atomic

Spec: TypeAlias = dict[str, Any]
"""A chart as Vega-Lite JSON."""

PNG_SCALE = 2


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
        specification = chart.to_dict()
    datasets = {name: list(map(_known, rows)) for name, rows in specification["datasets"].items()}
    return {**specification, "datasets": datasets}


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """What a row holds: JSON has no NaN, and what is missing need not be said."""
    return {name: value for name, value in row.items() if value is not None and value == value}


def note(text: str) -> alt.Chart:
    """A small chart that is nothing but text."""
    lines = textwrap.wrap(text, 56)
    mark = alt.Chart(pd.DataFrame({"text": [" "]})).mark_text(style="note", align="left", baseline="top", lineHeight=18)
    chart: alt.Chart = mark.encode(text=alt.value(lines), x=alt.value(0), y=alt.value(0))
    return chart.properties(width=520, height=20 + 18 * len(lines), view=alt.ViewConfig(stroke=None))


def render(name: str, tables: Tables, html: Path, svg: Path, png: Path) -> None:
    """Write the chart `name` as HTML (libraries embedded), SVG, and PNG at twice the size.

    Two runs from equal tables write the same SVG, byte for byte.
    """
    themed = {**spec(name, tables), "title": ALL[name].title, "config": theme.config()}
    with atomic(html) as scratch:
        scratch.write_text(page(themed, ALL[name].title), encoding="utf-8")
    with atomic(svg) as scratch:
        scratch.write_text(vlc.vegalite_to_svg(themed, vl_version=VEGA_LITE), encoding="utf-8")
    with atomic(png) as scratch:
        scratch.write_bytes(vlc.vegalite_to_png(themed, vl_version=VEGA_LITE, scale=PNG_SCALE))
