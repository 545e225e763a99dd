"""Shapes of charts: functions that draw curves, bars, dots or agreement from rows, axes and tooltips.

The column ``panel`` names a row's panel, and ``basis`` determines the row's style. An estimate is ``value`` with the
ends of its interval, ``low`` and ``high``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import altair as alt
import pandas as pd

from stallpoint.report.charts import axes, marks, theme

PRESET = "preset"
"""Value of `colour` with which each ``series`` has the colour and shape of its preset, ``sync``."""
Colour: TypeAlias = "str | alt.Color | Any"
"""A field with fixed colours, a colour with its scale, or one value for all."""


@dataclass(frozen=True)
class Line:
    """Style of a chart's rows with one `basis`."""

    basis: str
    dash: tuple[int, int] | None = None
    """Dash of the line; None for no line."""
    intervals: Literal["band", "bars", ""] = ""
    points: bool = False
    width: float | str = 0
    """Width of the line in pixels, or the field to which the width is proportional; 0 for the default."""
    opacity: float = 1
    hover: bool = True
    """Whether a line without points has tooltips."""
    hollow: bool = False
    """Whether a line without points has hollow points in the series' shapes."""
    legend: bool = True
    """Whether a legend explains the dashes, if there are several."""

    @property
    def rows(self) -> alt.Chart:
        """Return a chart of the rows to which this style applies."""
        return marks.rows_of(self.basis)


MEASURED = Line("measured", theme.SOLID, "bars", points=True)
PREDICTED = Line("predicted", theme.DASHED, "band")
MEASURED_AND_PREDICTED = (MEASURED, PREDICTED)


def curves(
    frame: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    tips: Mapping[str, str],
    lines: Sequence[Line] = MEASURED_AND_PREDICTED,
    *,
    colour: Colour = PRESET,
    details: Sequence[str] = (),
    behind: Sequence[alt.Chart] = (),
    overlay: Sequence[alt.Chart] = (),
    own_axes: Sequence[str] = (),
) -> alt.FacetChart:
    """Return curves with intervals in panels. The ideal line is drawn if `frame` has rows of it.

    `details` are fields that separate curves, besides the colour. The axes `own_axes` have a scale per panel.
    """
    layers, drawn = curve_layers(frame, x, y, tips, lines, colour=colour, details=details)
    return marks.panels([*behind, *layers, *overlay], drawn, own_axes=own_axes)


def curve_layers(
    frame: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    tips: Mapping[str, str],
    lines: Sequence[Line] = MEASURED_AND_PREDICTED,
    *,
    colour: Colour = PRESET,
    details: Sequence[str] = (),
) -> tuple[list[alt.Chart], pd.DataFrame]:
    """Return what `curves` draws in a single panel: the layers, and the rows with intervals cut at the axis.

    Layers, from the back: the ideal line, bands, lines, error bars, points.
    """
    is_curve = frame["basis"].isin([line.basis for line in lines])
    coloured, shape = _colour_channels(frame[is_curve], colour)
    detail_channel: dict[str, Any] = {"detail": [f"{field}:N" for field in details]} if details else {}
    base = {line.basis: line.rows.encode(x=x, color=coloured, **detail_channel) for line in lines}
    tooltips = marks.tips(**tips)
    layers = [marks.ideal(x, y)] if (frame["basis"] == "ideal").any() else []
    layers += [marks.band(base[line.basis], y) for line in lines if line.intervals == "band"]
    layers += [
        _line(line, base[line.basis], _dash(line, lines, colour)).encode(y=y) for line in lines if line.dash is not None
    ]
    layers += [
        marks.hover(base[line.basis], y).encode(tooltip=tooltips) for line in lines if line.hover and not line.points
    ]
    layers += [
        base[line.basis].mark_point(filled=False, size=40, opacity=1).encode(y=y, shape=shape)
        for line in lines
        if line.hollow
    ]
    layers += [marks.error_bars(base[line.basis], y) for line in lines if line.intervals == "bars"]
    layers += [marks.points(base[line.basis], y, shape).encode(tooltip=tooltips) for line in lines if line.points]
    return layers, axes.clip_intervals(frame, y, is_curve) if "low" in frame else frame


def over_workers(
    rows: pd.DataFrame, y: alt.Y, tips: Mapping[str, str], *, width: int, height: int
) -> alt.TopLevelMixin:
    """Return a chart of a single curve over ``workers``, measured and predicted, and of its ideal line."""
    ideal = rows.assign(basis="ideal", start=0, value=rows["value"].iloc[0] / rows["workers"].iloc[0] * rows["workers"])
    x = axes.counts_x(rows, "workers", "workers")
    lines = [line for line in MEASURED_AND_PREDICTED if (rows["basis"] == line.basis).any()]
    layers, frame = curve_layers(pd.concat([rows, ideal]), x, y, tips, lines, colour=alt.value(theme.BLUE))
    return alt.layer(*layers, data=frame).properties(width=width, height=height)


def _colour_channels(frame: pd.DataFrame, colour: Colour) -> tuple[Any, alt.Shape | None]:
    if not isinstance(colour, str):
        return colour, None
    return marks.preset_channels(frame) if colour == PRESET else (marks.colour(frame, colour), None)


def _line(line: Line, base: alt.Chart, dash: Any) -> alt.Chart:
    drawn: alt.Chart
    if isinstance(line.width, str):
        weight = alt.Scale(domain=[0, 1], range=[0.8, 7])
        drawn = base.mark_trail().encode(size=alt.Size(f"{line.width}:Q", scale=weight, legend=None))
    else:
        drawn = base.mark_line(clip=True, strokeWidth=line.width or alt.Undefined, opacity=line.opacity)
    return drawn if dash is None else drawn.encode(strokeDash=dash)


def _dash(line: Line, lines: Sequence[Line], colour: Colour) -> Any:
    """Return the dashes of a line: a constant, or an encoding with legend if lines differ in dashes."""
    dashes = {one.basis: one.dash for one in lines if one.dash is not None}
    if len(set(dashes.values())) > 1 and line.legend:
        return marks.dashes(dashes, colour=colour["value"] if isinstance(colour, dict) else None)
    return None if line.dash == theme.SOLID else alt.value(line.dash)


def bars(
    frame: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    colour: Colour,
    tips: Mapping[str, str],
    *,
    grouped: Sequence[str] = (),
    end: str = "",
    order: str = "",
    width: float = 0.9,
    hatch: str = "hatch",
    intervals: bool = False,
    overlay: Sequence[alt.Chart] = (),
    own_axes: Sequence[str] = ("x", "y"),
) -> alt.FacetChart:
    """Return bars in panels. Predicted bars are hatched in the style `hatch` of the theme.

    `grouped` is the name of a field, followed by its values in the order in which their bars are side by side. With
    `order`, bars are stacked in the order of this field. With `end`, bars reach from `y` to this field.
    """
    coloured, _ = _colour_channels(frame, colour)
    base = alt.Chart().encode(x=x, y=y)
    if grouped:
        base = base.encode(xOffset=alt.XOffset(f"{grouped[0]}:N", sort=list(grouped[1:])))
    if end:
        base = base.encode(y2=f"{end}:Q")
    if order:
        base = base.encode(order=f"{order}:Q", detail=coloured["shorthand"])
    band = {"band": width}
    layers = [base.mark_bar(width=band).encode(color=coloured, tooltip=marks.tips(**tips))]
    if "basis" in frame:
        predicted = alt.when("datum.basis == 'predicted'").then(alt.value(1)).otherwise(alt.value(0))
        # Opacity hides other bars. With a filter, panels with their own axes would list the values of all panels.
        layers.append(base.mark_bar(style=hatch, width=band).encode(opacity=predicted, tooltip=marks.tips(**tips)))
    ends = [base.mark_rule(style="interval").encode(y=marks.axis(y, "low"), y2="high:Q")] if intervals else []
    return marks.panels([*layers, *overlay, *ends], frame, own_axes=own_axes)


def dots(
    frame: pd.DataFrame,
    x: alt.X,
    field: str,
    group: str,
    tips: Mapping[str, str],
    *,
    title: str,
    height: int,
    width: int,
    behind: Sequence[alt.Chart] = (),
    column: str = "",
) -> alt.FacetChart:
    """Return a chart with a row for each value of `field`, the largest on top, and a point for each value of `group`.

    `title` is the title of the legend, `height` the height of a row, `width` the maximum width of a row's name. Points
    are hollow where the field `column` is false.
    """
    order = list(frame.groupby(field, sort=False)["value"].max().sort_values(ascending=False, kind="stable").index)
    colour = marks.colour(frame, group, title)
    shape = alt.Shape(f"{group}:N", scale=theme.shapes(group, colour["scale"]), legend=colour["legend"])
    base = alt.Chart().encode(
        y=alt.Y(f"{field}:N", title=None, sort=order, axis=alt.Axis(labelLimit=width, grid=True)),
        yOffset=alt.YOffset(f"{group}:N", sort=list(colour["scale"]["domain"])),
        color=colour,
    )
    points = base.mark_point(size=50, opacity=1, filled=not column).encode(x=x, shape=shape, tooltip=marks.tips(**tips))
    if column:
        filled = alt.when(f"datum.{column}").then(alt.value(1)).otherwise(alt.value(0))
        fill = alt.Fill(f"{group}:N", scale=colour["scale"], legend=colour["legend"])
        points = points.encode(fill=fill, fillOpacity=filled)
    intervals = base.mark_rule(strokeWidth=1.6).encode(x=marks.axis(x, "low"), x2="high:Q")
    chart = marks.panels([*behind, intervals, points], axes.clip_intervals(frame, x))
    chart.spec.height = max(120, height * len(order))
    return chart


def agreement(
    frame: pd.DataFrame, quantity: str, unit: str, tips: Mapping[str, str], *, colour: str = ""
) -> alt.FacetChart:
    """Return a chart with a point for each row: the measured value to the right, the predicted value upwards.

    The band around the diagonal is `marks.BAND` wide. Points far from the diagonal have a name in the field ``named``.
    """
    scale, axis = axes.log10(frame[["predicted", "measured"]].to_numpy().ravel())
    x = alt.X("measured:Q", title=f"measured{quantity} [{unit}]", scale=scale, axis=axis)
    y = alt.Y("predicted:Q", title=f"predicted{quantity} [{unit}]", scale=scale, axis=axis)
    least, most = scale["domain"]
    # On logarithmic axes the band is straight, so that two ends suffice.
    ends = pd.DataFrame({"measured": [least, most], "predicted": [least, most], "basis": "ideal"})
    ends = ends.assign(near_low=ends["predicted"] * (1 - marks.BAND), near_high=ends["predicted"] * (1 + marks.BAND))
    table = pd.concat([frame.assign(basis="measured"), frame[["panel"]].drop_duplicates().merge(ends, how="cross")])
    diagonal, base = marks.rows_of("ideal"), marks.rows_of("measured")
    names = base.mark_text(style="row", align="left", dx=8, dy=8).encode(x=x, y=y, text="named:N")
    point = base.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, tooltip=marks.tips(**tips))
    if colour:
        channel = marks.colour(frame, colour)
        shapes = alt.Scale(domain=channel["scale"]["domain"])
        base = base.encode(color=channel)
        point = point.encode(color=channel, shape=alt.Shape(f"{colour}:N", scale=shapes, legend=channel["legend"]))
    interval = base.mark_rule(clip=True, opacity=0.5)
    measured_interval = interval.encode(x=marks.axis(x, "measured_low"), x2="measured_high:Q", y=y)
    predicted_interval = interval.encode(x=x, y=marks.axis(y, "predicted_low"), y2="predicted_high:Q")
    layers = [
        diagonal.mark_area(style="near", clip=True).encode(x=x, y=marks.axis(y, "near_low"), y2="near_high:Q"),
        diagonal.mark_line(style="ideal").encode(x=x, y=y),
        *([measured_interval] if "measured_low" in frame else []),
        predicted_interval,
        point,
        *([names] if "named" in frame else []),
    ]
    return marks.panels(layers, table)
