"""Marks that several charts use: curves with intervals, an ideal line, and their panels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import altair as alt
import pandas as pd

from stallpoint.report.charts import theme
from stallpoint.report.charts.labels import compact_rows

LAYOUTS = {1: (1, 520, 300), 2: (2, 400, 250), 4: (2, 400, 200)}
"""Layout by number of panels: columns, and width and height of a panel; about as wide as a page."""
FEW_PANELS, MANY_PANELS = (3, 275, 210), (3, 275, 160)
"""Layouts for other numbers of panels: up to nine, and more."""

Axis = TypeVar("Axis", alt.X, alt.Y)
_IN_EXPRESSIONS = re.compile(r"\bdatum\.(\w+)")


BAND = 0.10
"""Relative error of predictions at the edge of the band around the diagonal."""
MIN_BARS = 5
"""The width of bars is computed for at least this many bars, so that few bars stay slim."""
DASH_SIZE = 250
"""Length of a line in a legend, which shows its dashes."""


def colour(frame: pd.DataFrame, field: str, title: str | None = None) -> alt.Color:
    """Return the encoding of `field` by its fixed colours. It has a legend if there are several values."""
    values = list(frame[field].unique())
    legend = alt.Legend(title=title, symbolOpacity=1) if len(values) > 1 else None
    return alt.Color(f"{field}:N", scale=theme.colours(field, values), legend=legend)


def preset_channels(frame: pd.DataFrame) -> tuple[alt.Color, alt.Shape]:
    """Return the encodings of ``series`` by the colour and shape of its preset (``sync``), with a legend if needed."""
    colours, shapes = theme.preset_scales(dict(zip(frame["series"], frame["sync"], strict=True)))
    legend = alt.Legend(title=None, symbolOpacity=1) if len(colours["domain"]) > 1 else None
    return alt.Color("series:N", scale=colours, legend=legend), alt.Shape("series:N", scale=shapes, legend=legend)


def dashes(
    dash_by_basis: Mapping[str, Sequence[int]] = theme.DASHES, title: str | None = None, colour: str | None = None
) -> alt.StrokeDash:
    """Return the encoding that shows a line's ``basis`` by dashes. In the legend, lines have the colour `colour`."""
    scale = alt.Scale(domain=list(dash_by_basis), range=list(dash_by_basis.values()))
    legend = alt.Legend(
        title=title, symbolType="stroke", symbolSize=DASH_SIZE, symbolStrokeColor=colour or alt.Undefined
    )
    return alt.StrokeDash("basis:N", scale=scale, legend=legend)


def limit(basis: str, y: alt.Y) -> alt.Chart:
    """Return a horizontal line in each panel, at the ``value`` of rows with the given `basis`."""
    chart: alt.Chart = rows_of(basis).mark_rule(style="zero", clip=True).encode(y=y)
    return chart


def tips(**titles: str) -> list[alt.Tooltip]:
    """Return a tooltip for each field; `titles` maps the name of a field to its title."""
    return [alt.Tooltip(field, title=title) for field, title in titles.items()]


def bars_x(field: str, title: str, *, is_falling: bool = False) -> alt.X:
    """Return an axis of bars, one for each value of `field`."""
    order: Literal["ascending", "descending"] = "descending" if is_falling else "ascending"
    return alt.X(f"{field}:O", title=title, sort=order, axis=alt.Axis(labelAngle=0))


def bar_width(frame: pd.DataFrame, field: str) -> float:
    """Return the width of bars as a part of their step. If bars are few, they stay slim."""
    max_bars = frame.groupby("panel")[field].nunique().max()
    return 0.9 * min(1.0, float(max_bars) / MIN_BARS)


def axis(channel: Axis, field: str) -> Axis:
    """Return a copy of an axis for another field."""
    copy: Axis = channel.copy()
    copy["shorthand"] = f"{field}:Q"
    return copy


def rows_of(basis: str) -> alt.Chart:
    """Return a chart of the rows with this ``basis``."""
    chart: alt.Chart = alt.Chart().transform_filter(f"datum.basis == '{basis}'")
    return chart


def line_at(value: float, channel: Literal["x", "y"]) -> alt.Chart:
    """Return a line across each panel, at a `value` of the axis `channel`."""
    rule: alt.Chart = alt.Chart().transform_aggregate(rows="count()").mark_rule(style="zero")
    return rule.encode(**{channel: alt.datum(value)})


def error_bars(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """Return vertical error bars from ``low`` to ``high``."""
    chart: alt.Chart = base.mark_rule(opacity=0.8).encode(y=axis(y, "low"), y2="high:Q")
    return chart


def band(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """Return the area between ``low`` and ``high``."""
    chart: alt.Chart = base.mark_area(opacity=0.16).encode(y=axis(y, "low"), y2="high:Q")
    return chart


def points(base: alt.Chart, y: alt.Y, shape: alt.Shape | None = None) -> alt.Chart:
    """Return filled points at ``value``. Their shapes are those of `shape`, or follow from the colours."""
    chart: alt.Chart = base.mark_point(filled=True, size=45, opacity=1).encode(y=y)
    colour = base["encoding"]["color"]
    if isinstance(colour, alt.Color) and len(colour["scale"]["domain"]) > 1:
        scale = theme.shapes(colour["shorthand"].split(":")[0], colour["scale"])
        shape = shape or alt.Shape(colour["shorthand"], scale=scale, legend=colour["legend"])
        return chart.encode(shape=shape)
    return chart.encode(shape=alt.value(shape["scale"]["range"][0])) if shape else chart


def hover(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """Return invisible points at ``value`` that carry tooltips: a line has only the tooltip of its first point."""
    chart: alt.Chart = base.mark_point(filled=True, size=150, opacity=0).encode(y=y)
    return chart


def ideal(x: alt.X, y: alt.Y) -> alt.Chart:
    """Return grey lines through the rows with basis ``ideal``: one for each ``start``."""
    chart: alt.Chart = rows_of("ideal").mark_line(style="ideal", clip=True).encode(x=x, y=y, detail="start:N")
    return chart


def ideal_rows(frame: pd.DataFrame, field: str, *, is_falling: bool = False) -> pd.DataFrame:
    """Return the rows of each panel's ideal line. It is proportional to `field`, or to 1 / `field` if `is_falling`."""
    drawn = frame[["panel", field]].drop_duplicates()
    if is_falling:
        starts = frame.groupby(["panel", "series"])[field].max().reset_index(name="start")
        lines = drawn.merge(starts[["panel", "start"]].drop_duplicates(), on="panel")
        lines = lines[lines[field] <= lines["start"]]
        return lines.assign(basis="ideal", value=lines["start"] / lines[field])
    starts = frame.groupby("panel")[field].min().reset_index(name="start")
    lines = drawn.merge(starts, on="panel")
    return lines.assign(basis="ideal", value=lines[field] / lines["start"])


def panels(layers: Sequence[alt.Chart], frame: pd.DataFrame, *, own_axes: Sequence[str] = ()) -> alt.FacetChart:
    """Return the layers in panels: one for each value of the column ``panel`` of `frame`, in order of appearance.

    Every panel has its own axis lines and titles, to be read by itself. Scales are shared, except on `own_axes`.
    """
    names = list(dict.fromkeys(frame["panel"]))
    columns, width, height = LAYOUTS.get(len(names), FEW_PANELS if len(names) <= 9 else MANY_PANELS)
    header = alt.Header(labelExpr="split(datum.value, '\\n')", labelAnchor="start")
    chart = alt.layer(*layers, data=compact_rows(frame, fields(layers, frame))).properties(width=width, height=height)
    facet: alt.FacetChart = chart.facet(
        facet=alt.Facet("panel:N", title=None, sort=names, header=header), columns=columns
    )
    facet = facet.resolve_axis(x="independent", y="independent")
    scales: dict[str, Any] = dict.fromkeys(own_axes, "independent")
    if "x" in scales:
        scales["xOffset"] = "independent"
    return facet.resolve_scale(**scales) if scales else facet


def fields(layers: Sequence[alt.Chart], frame: pd.DataFrame) -> set[str]:
    """Return the fields of `frame` that the layers encode, or name in their expressions."""
    found: set[str] = set()

    def look(part: Any) -> None:
        if isinstance(part, str):
            found.update(_IN_EXPRESSIONS.findall(part))
            return
        if isinstance(part, dict) and isinstance(part.get("field"), str):
            found.add(part["field"])
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            look(inner)

    for layer in layers:
        look(layer.to_dict(validate=False, context={"data": frame.head(1)}))
    return found
