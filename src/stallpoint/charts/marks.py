"""Marks that several charts share: curves with intervals, an ideal line, and the panels they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import altair as alt
import pandas as pd

from stallpoint.charts import axes, theme

LAYOUTS = {1: (1, 520, 300), 2: (2, 400, 250), 4: (2, 400, 200)}
"""Number of panels: columns, and width and height of a panel; about as wide as a page."""
FEW, MANY = (3, 275, 210), (3, 275, 160)
"""The same for other numbers of panels, up to nine and beyond."""

Axis = TypeVar("Axis", alt.X, alt.Y)


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


def dashes(calculated: str = "predicted", *, legend: bool = True) -> alt.StrokeDash:
    """Solid for measured, dashed for predicted (or `calculated` in another way)."""
    scale = alt.Scale(domain=["measured", calculated], range=[theme.SOLID, theme.DASHED])
    shown = alt.Legend(title=None, symbolType="stroke", symbolSize=DASH_SIZE) if legend else None
    return alt.StrokeDash("basis:N", scale=scale, legend=shown)


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


ROW = 14
"""Height of a row of `named_rows`, in pixels."""


def named_rows(frame: pd.DataFrame, field: str, order: Sequence[str]) -> tuple[pd.DataFrame, alt.Y, int]:
    """`frame` with a ``row`` for each value of `field` (in this order) and node count; its axis and the panels' height.

    The first row of a value bears its name.
    """
    first = frame["nodes"] == frame.groupby(["panel", field])["nodes"].transform("min")
    names = [f"{name}, " if leads else "" for name, leads in zip(frame[field], first, strict=True)]
    place = frame[field].map(list(order).index)
    texts = zip(place, frame["nodes"], names, strict=True)
    frame = frame.assign(row=[f"{at}|{nodes}|{name}n = {nodes}" for at, nodes, name in texts])
    rows = frame.assign(place=place).sort_values(["place", "nodes"])["row"].drop_duplicates()
    axis = alt.Axis(labelLimit=0, labelOverlap=False, labelExpr="split(datum.label, '|')[2]")
    return frame, alt.Y("row:N", title=None, sort=list(rows), axis=axis), ROW * int(frame.groupby("panel").size().max())


def interval_rows(base: alt.Chart, x: alt.X, colour: alt.Color, neutral: float) -> list[alt.Chart]:
    """A point with its interval from ``low`` to ``high``: filled where it was measured, hollow where predicted.

    A line stands at `neutral`, where nothing is lost or gained.
    """
    point = base.encode(x=x)
    measured = point.transform_filter("datum.basis == 'measured'")
    predicted = point.transform_filter("datum.basis == 'predicted'")
    outline = alt.Stroke(colour["shorthand"], scale=colour["scale"], legend=None)
    nothing = alt.Chart().transform_aggregate(rows="count()").mark_rule(style="ideal").encode(x=alt.datum(neutral))
    return [
        nothing,
        base.mark_rule(strokeWidth=1.5).encode(x=at(x, "low"), x2="high:Q", color=colour),
        measured.mark_point(filled=True, size=60, opacity=1).encode(color=colour),
        predicted.mark_point(filled=True, size=60, opacity=1, strokeWidth=1.5).encode(
            stroke=outline, fill=alt.value("white")
        ),
    ]  # fmt: skip


def stacked(base: alt.Chart, y: alt.Y, colour: alt.Color, width: float) -> list[alt.Chart]:
    """Stacked bars in the order of the column ``order``: filled where measured, pale and dashed where predicted."""
    bars = base.encode(y=y, order="order:Q")
    measured = bars.transform_filter("datum.basis == 'measured' && isValid(datum.order)")
    predicted = bars.transform_filter("datum.basis == 'predicted' && isValid(datum.order)")
    outline = alt.Stroke(colour["shorthand"], scale=colour["scale"], legend=colour["legend"])
    band = alt.RelativeBandSize(band=width)
    return [
        measured.mark_bar(width=band).encode(color=colour),
        predicted.mark_bar(width=band, fillOpacity=0.3, strokeDash=[4, 3], strokeWidth=1.5).encode(
            color=colour, stroke=outline
        ),
    ]  # fmt: skip


def share_labels(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """The column ``label`` in the middle of each part of a stacked bar."""
    middle: alt.Y = y.copy()
    middle["stack"], middle["bandPosition"] = "zero", 0.5
    labels = base.transform_filter("isValid(datum.order)").encode(
        y=middle, order="order:Q", text="label:N", detail="part:N"
    )
    chart: alt.Chart = labels.mark_text(style="share", fontSize=10)
    return chart


def at(channel: Axis, field: str) -> Axis:
    """The same axis, reading another field."""
    copy: Axis = channel.copy()
    copy["shorthand"] = f"{field}:Q"
    return copy


def only(basis: str) -> alt.Chart:
    """A chart of the rows with this ``basis``."""
    chart: alt.Chart = alt.Chart().transform_filter(f"datum.basis == '{basis}'")
    return chart


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


def agreement(frame: pd.DataFrame, what: str, unit: str) -> tuple[alt.X, alt.Y, pd.DataFrame]:
    """Axes of `what` as measured and as predicted, with one scale, and the rows with a diagonal in each panel."""
    scale, axis = axes.log10(frame[["predicted", "measured"]].to_numpy().ravel())
    x = alt.X("measured:Q", title=f"measured{what} [{unit}]", scale=scale, axis=axis)
    y = alt.Y("predicted:Q", title=f"predicted{what} [{unit}]", scale=scale, axis=axis)
    ends = pd.DataFrame({"measured": scale["domain"], "predicted": scale["domain"], "basis": "ideal"})
    return x, y, pd.concat([frame, frame[["panel"]].drop_duplicates().merge(ends, how="cross")])


def compared(frame: pd.DataFrame, x: alt.X, y: alt.Y, tips: Sequence[alt.Tooltip]) -> list[alt.Chart]:
    """On the axes of `agreement`: the diagonal, both intervals, and a point in the colour and shape of its network."""
    of_network = colour(frame, "network")
    base = only("measured").encode(color=of_network)
    shape = alt.Shape("network:N", scale=alt.Scale(domain=of_network["scale"]["domain"]), legend=of_network["legend"])
    return [
        only("ideal").mark_line(style="ideal").encode(x=x, y=y),
        base.mark_rule(clip=True, opacity=0.5).encode(x=at(x, "measured_low"), x2="measured_high:Q", y=y),
        base.mark_rule(clip=True, opacity=0.5).encode(x=x, y=at(y, "predicted_low"), y2="predicted_high:Q"),
        base.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, shape=shape, tooltip=tips),
    ]


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


def panels(
    layers: Sequence[alt.Chart], frame: pd.DataFrame, *, independent_x: bool = False, height: int | None = None
) -> alt.FacetChart:
    """The layers, drawn from `frame`, once for each value of its column ``panel``, in order of appearance.

    Every panel has its own axis lines and titles, so that each can be read alone; scales are shared.
    """
    names = list(dict.fromkeys(frame["panel"]))
    columns, width, usual = LAYOUTS.get(len(names), FEW if len(names) <= 9 else MANY)
    header = alt.Header(labelExpr="split(datum.value, '\\n')", labelAnchor="start")
    chart = alt.layer(*layers, data=frame).properties(width=width, height=height or usual)
    facet: alt.FacetChart = chart.facet(
        facet=alt.Facet("panel:N", sort=names, title=None, header=header), columns=columns
    )
    facet = facet.resolve_axis(x="independent", y="independent")
    if independent_x:
        facet = facet.resolve_scale(x="independent")
    return facet
