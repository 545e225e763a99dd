"""Marks that several charts share: curves with intervals, an ideal line, and the panels they stand in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import altair as alt
import pandas as pd

from stallpoint.report.charts import theme
from stallpoint.report.charts.labels import compact

LAYOUTS = {1: (1, 520, 300), 2: (2, 400, 250), 4: (2, 400, 200)}
"""Number of panels: columns, and width and height of a panel; about as wide as a page."""
FEW, MANY = (3, 275, 210), (3, 275, 160)
"""The same for other numbers of panels, up to nine and beyond."""

Axis = TypeVar("Axis", alt.X, alt.Y)
_IN_EXPRESSIONS = re.compile(r"\bdatum\.(\w+)")


NEAR = 0.10
"""Predictions this close to the measurement are in the band around the diagonal."""
FEWEST_BARS = 5
"""Bars of a panel that holds fewer are as wide as if it held as many."""
DASH_SIZE = 250
"""Size of a line in a legend: long enough to show its dashes."""


def colour(frame: pd.DataFrame, field: str, title: str | None = None) -> alt.Color:
    """The fixed colours of `field` for the values present, with a legend where there are several."""
    values = list(frame[field].unique())
    legend = alt.Legend(title=title, symbolOpacity=1) if len(values) > 1 else None
    return alt.Color(f"{field}:N", scale=theme.colours(field, values), legend=legend)


def by_preset(frame: pd.DataFrame) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of each ``series`` of `frame`, those of its preset (``sync``), with a legend for several."""
    colours, shapes = theme.of_presets(dict(zip(frame["series"], frame["sync"], strict=True)))
    legend = alt.Legend(title=None, symbolOpacity=1) if len(colours["domain"]) > 1 else None
    return alt.Color("series:N", scale=colours, legend=legend), alt.Shape("series:N", scale=shapes, legend=legend)


def dashes(
    of: Mapping[str, Sequence[int]] = theme.DASHES, field: str = "basis", title: str | None = None
) -> alt.StrokeDash:
    """The dashes of lines by their `field`, with a legend."""
    scale = alt.Scale(domain=list(of), range=list(of.values()))
    return alt.StrokeDash(
        "basis:N", scale=scale, legend=alt.Legend(title=title, symbolType="stroke", symbolSize=DASH_SIZE)
    )


def limit(basis: str, y: alt.Y) -> alt.Chart:
    """The rows of a basis as lines across their panel."""
    chart: alt.Chart = only(basis).mark_rule(style="zero", clip=True).encode(y=y)
    return chart


def tips(**titles: str) -> list[alt.Tooltip]:
    """Tooltips: field name and the title shown for it."""
    return [alt.Tooltip(field, title=title) for field, title in titles.items()]


def bars_x(field: str, title: str, *, falling: bool = False) -> alt.X:
    """An axis of bars, one for each value of `field`."""
    order: Literal["ascending", "descending"] = "descending" if falling else "ascending"
    return alt.X(f"{field}:O", title=title, sort=order, axis=alt.Axis(labelAngle=0))


def bar_width(frame: pd.DataFrame, field: str) -> float:
    """Width of a bar as a part of its place; a few bars stay slim."""
    most = frame.groupby("panel")[field].nunique().max()
    return 0.9 * min(1.0, float(most) / FEWEST_BARS)


def at(channel: Axis, field: str) -> Axis:
    """The same axis, reading another field."""
    copy: Axis = channel.copy()
    copy["shorthand"] = f"{field}:Q"
    return copy


def only(basis: str) -> alt.Chart:
    """A chart of the rows with this ``basis``."""
    chart: alt.Chart = alt.Chart().transform_filter(f"datum.basis == '{basis}'")
    return chart


def line_at(value: float, channel: Literal["x", "y"]) -> alt.Chart:
    """One line in each panel, at a value of the horizontal or vertical axis."""
    once: alt.Chart = alt.Chart().transform_aggregate(rows="count()").mark_rule(style="zero")
    return once.encode(**{channel: alt.datum(value)})


def error_bars(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """Vertical intervals from ``low`` to ``high``."""
    chart: alt.Chart = base.mark_rule(opacity=0.8).encode(y=at(y, "low"), y2="high:Q")
    return chart


def band(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """An area from ``low`` to ``high``."""
    chart: alt.Chart = base.mark_area(opacity=0.16).encode(y=at(y, "low"), y2="high:Q")
    return chart


def points(base: alt.Chart, y: alt.Y, shape: alt.Shape | None = None) -> alt.Chart:
    """Filled points at ``value``; where colours tell series apart, shapes (those given, or theirs) do as well."""
    chart: alt.Chart = base.mark_point(filled=True, size=45, opacity=1).encode(y=y)
    colour = base["encoding"]["color"]
    if isinstance(colour, alt.Color) and len(colour["scale"]["domain"]) > 1:
        scale = theme.shapes(colour["shorthand"].split(":")[0], colour["scale"])
        shape = shape or alt.Shape(colour["shorthand"], scale=scale, legend=colour["legend"])
        return chart.encode(shape=shape)
    return chart.encode(shape=alt.value(shape["scale"]["range"][0])) if shape else chart


def hover(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """Unseen points at ``value``, for tooltips: a line has but one, that of its first point."""
    chart: alt.Chart = base.mark_point(filled=True, size=150, opacity=0).encode(y=y)
    return chart


def ideal(x: alt.X, y: alt.Y) -> alt.Chart:
    """The rows with basis ``ideal`` as a grey line for each ``start``."""
    chart: alt.Chart = only("ideal").mark_line(style="ideal", clip=True).encode(x=x, y=y, detail="start:N")
    return chart


def ideal_rows(frame: pd.DataFrame, field: str, *, falling: bool = False) -> pd.DataFrame:
    """Rows of the ideal line in each panel: in proportion to `field`, or to its inverse when it is `falling`."""
    drawn = frame[["panel", field]].drop_duplicates()
    if falling:
        starts = frame.groupby(["panel", "series"])[field].max().reset_index(name="start")
        lines = drawn.merge(starts[["panel", "start"]].drop_duplicates(), on="panel")
        lines = lines[lines[field] <= lines["start"]]
        return lines.assign(basis="ideal", value=lines["start"] / lines[field])
    starts = frame.groupby("panel")[field].min().reset_index(name="start")
    lines = drawn.merge(starts, on="panel")
    return lines.assign(basis="ideal", value=lines[field] / lines["start"])


def panels(layers: Sequence[alt.Chart], frame: pd.DataFrame, *, own: Sequence[str] = ()) -> alt.FacetChart:
    """The layers, drawn from `frame`, once for each value of its column ``panel``, in order of appearance.

    Every panel has its own axis lines and titles, so that each can be read alone; scales are shared but those of the
    axes in `own`.
    """
    names = list(dict.fromkeys(frame["panel"]))
    columns, width, height = LAYOUTS.get(len(names), FEW if len(names) <= 9 else MANY)
    header = alt.Header(labelExpr="split(datum.value, '\\n')", labelAnchor="start")
    chart = alt.layer(*layers, data=compact(frame, fields(layers, frame))).properties(width=width, height=height)
    facet: alt.FacetChart = chart.facet(
        facet=alt.Facet("panel:N", title=None, sort=names, header=header), columns=columns
    )
    facet = facet.resolve_axis(x="independent", y="independent")
    chosen: dict[str, Any] = dict.fromkeys(own, "independent")
    if "x" in chosen:
        chosen["xOffset"] = "independent"
    return facet.resolve_scale(**chosen) if chosen else facet


def fields(layers: Sequence[alt.Chart], frame: pd.DataFrame) -> set[str]:
    """The fields of `frame` that layers are drawn from, and those that their expressions name."""
    found: set[str] = set()

    def look(part: Any) -> None:
        if isinstance(part, str):
            found.update(_IN_EXPRESSIONS.findall(part))
            return
        if isinstance(part, dict) and isinstance(part.get("field"), str):
            found.add(part["field"])
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            look(inner)

    look(alt.layer(*layers, data=frame.head(1)).to_dict(validate=False))
    return found
