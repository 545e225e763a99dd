"""Shapes of charts: functions that draw curves, bars, dots or agreement from rows, axes and tooltips.

The column ``panel`` names a row's panel, ``basis`` determines its style; an estimate is ``value`` with the ends of its
interval, ``low`` and ``high``.
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
    """Style of the rows of one `basis` among curves."""

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
        """Return a chart of the rows with the line's basis."""
        return marks.only(self.basis)


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
    detail: Sequence[str] = (),
    behind: Sequence[alt.Chart] = (),
    before: Sequence[alt.Chart] = (),
    own: Sequence[str] = (),
) -> alt.FacetChart:
    """Return curves with intervals in panels, and the ideal line if `frame` has rows for it.

    `detail` are fields other than the colour that separate curves, `own` the axes with a scale per panel.
    """
    layers, drawn = curves_in_one(frame, x, y, tips, lines, colour=colour, detail=detail)
    return marks.panels([*behind, *layers, *before], drawn, own=own)


def curves_in_one(
    frame: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    tips: Mapping[str, str],
    lines: Sequence[Line] = MEASURED_AND_PREDICTED,
    *,
    colour: Colour = PRESET,
    detail: Sequence[str] = (),
) -> tuple[list[alt.Chart], pd.DataFrame]:
    """Return the layers of `curves` in one panel, and the rows with intervals clipped to the axis.

    Layers, from the back: the ideal line, bands, lines, error bars, points.
    """
    in_lines = frame["basis"].isin([line.basis for line in lines])
    coloured, shape = _coloured(frame[in_lines], colour)
    apart: dict[str, Any] = {"detail": [f"{field}:N" for field in detail]} if detail else {}
    base = {line.basis: line.rows.encode(x=x, color=coloured, **apart) for line in lines}
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
    return layers, axes.clipped(frame, y, in_lines) if "low" in frame else frame


def over_workers(
    rows: pd.DataFrame, y: alt.Y, tips: Mapping[str, str], *, width: int, height: int
) -> alt.TopLevelMixin:
    """Return a chart of one curve, measured and predicted by ``workers``, and the ideal line through the first row."""
    ideal = rows.assign(basis="ideal", start=0, value=rows["value"].iloc[0] / rows["workers"].iloc[0] * rows["workers"])
    x = axes.counts_x(rows, "workers", "workers")
    lines = [line for line in MEASURED_AND_PREDICTED if (rows["basis"] == line.basis).any()]
    layers, frame = curves_in_one(pd.concat([rows, ideal]), x, y, tips, lines, colour=alt.value(theme.BLUE))
    return alt.layer(*layers, data=frame).properties(width=width, height=height)


def _coloured(frame: pd.DataFrame, colour: Colour) -> tuple[Any, alt.Shape | None]:
    if not isinstance(colour, str):
        return colour, None
    return marks.by_preset(frame) if colour == PRESET else (marks.colour(frame, colour), None)


def _line(line: Line, base: alt.Chart, dash: Any) -> alt.Chart:
    drawn: alt.Chart
    if isinstance(line.width, str):
        weight = alt.Scale(domain=[0, 1], range=[0.8, 7])
        drawn = base.mark_trail().encode(size=alt.Size(f"{line.width}:Q", scale=weight, legend=None))
    else:
        drawn = base.mark_line(clip=True, strokeWidth=line.width or alt.Undefined, opacity=line.opacity)
    return drawn if dash is None else drawn.encode(strokeDash=dash)


def _dash(line: Line, lines: Sequence[Line], colour: Colour) -> Any:
    """Return the dashes of a line; if dashes differ, with a legend in the common colour of lines, if any."""
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
    until: str = "",
    order: str = "",
    width: float = 0.9,
    hatch: str = "hatch",
    intervals: bool = False,
    before: Sequence[alt.Chart] = (),
    own: Sequence[str] = ("x", "y"),
) -> alt.FacetChart:
    """Return bars in panels, hatched (in a style of the theme) if predicted.

    `grouped` is the field whose values have bars side by side, followed by the values in order; other bars are stacked
    in the order of the field `order`, or reach from `y` to the field `until`.
    """
    coloured, _ = _coloured(frame, colour)
    base = alt.Chart().encode(x=x, y=y)
    if grouped:
        base = base.encode(xOffset=alt.XOffset(f"{grouped[0]}:N", sort=list(grouped[1:])))
    if until:
        base = base.encode(y2=f"{until}:Q")
    if order:
        base = base.encode(order=f"{order}:Q", detail=coloured["shorthand"])
    band = {"band": width}
    layers = [base.mark_bar(width=band).encode(color=coloured, tooltip=marks.tips(**tips))]
    if "basis" in frame:
        predicted = alt.when("datum.basis == 'predicted'").then(alt.value(1)).otherwise(alt.value(0))
        # Opacity hides other bars: with a filter, panels with their own axes would list the values of all panels.
        layers.append(base.mark_bar(style=hatch, width=band).encode(opacity=predicted, tooltip=marks.tips(**tips)))
    ends = [base.mark_rule(style="interval").encode(y=marks.at(y, "low"), y2="high:Q")] if intervals else []
    return marks.panels([*layers, *before, *ends], frame, own=own)


def dots(
    frame: pd.DataFrame,
    x: alt.X,
    field: str,
    by: str,
    tips: Mapping[str, str],
    *,
    title: str,
    height: int,
    width: int,
    behind: Sequence[alt.Chart] = (),
    sure: str = "",
) -> alt.FacetChart:
    """Return a chart with rows by `field`, the largest on top, and a point with interval for each value of `by`.

    `title` is the title of the legend, `height` the height of a row, `width` the maximum width of a row's name. Points
    are hollow where the field `sure` is false.
    """
    order = list(frame.groupby(field, sort=False)["value"].max().sort_values(ascending=False, kind="stable").index)
    colour = marks.colour(frame, by, title)
    shape = alt.Shape(f"{by}:N", scale=theme.shapes(by, colour["scale"]), legend=colour["legend"])
    base = alt.Chart().encode(
        y=alt.Y(f"{field}:N", title=None, sort=order, axis=alt.Axis(labelLimit=width, grid=True)),
        yOffset=alt.YOffset(f"{by}:N", sort=list(colour["scale"]["domain"])),
        color=colour,
    )
    points = base.mark_point(size=50, opacity=1, filled=not sure).encode(x=x, shape=shape, tooltip=marks.tips(**tips))
    if sure:
        filled = alt.when(f"datum.{sure}").then(alt.value(1)).otherwise(alt.value(0))
        fill = alt.Fill(f"{by}:N", scale=colour["scale"], legend=colour["legend"])
        points = points.encode(fill=fill, fillOpacity=filled)
    intervals = base.mark_rule(strokeWidth=1.6).encode(x=marks.at(x, "low"), x2="high:Q")
    chart = marks.panels([*behind, intervals, points], axes.clipped(frame, x))
    chart.spec.height = max(120, height * len(order))
    return chart


def agreement(
    frame: pd.DataFrame, what: str, unit: str, tips: Mapping[str, str], *, colour: str = ""
) -> alt.FacetChart:
    """Return a chart with a point for each row, measured to the right and predicted upwards, with both intervals.

    The diagonal has a band of `marks.CLOSE`; points far from it are named by the field ``named``.
    """
    scale, axis = axes.log10(frame[["predicted", "measured"]].to_numpy().ravel())
    x = alt.X("measured:Q", title=f"measured{what} [{unit}]", scale=scale, axis=axis)
    y = alt.Y("predicted:Q", title=f"predicted{what} [{unit}]", scale=scale, axis=axis)
    least, most = scale["domain"]
    # The band is straight on logarithmic axes, and cut at their ends.
    ends = pd.DataFrame({"measured": [least, most], "predicted": [least, most], "basis": "ideal"})
    ends = ends.assign(near_low=ends["predicted"] * (1 - marks.CLOSE), near_high=ends["predicted"] * (1 + marks.CLOSE))
    drawn = pd.concat([frame.assign(basis="measured"), frame[["panel"]].drop_duplicates().merge(ends, how="cross")])
    diagonal, base = marks.only("ideal"), marks.only("measured")
    names = base.mark_text(style="row", align="left", dx=8, dy=8).encode(x=x, y=y, text="named:N")
    point = base.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, tooltip=marks.tips(**tips))
    if colour:
        coloured = marks.colour(frame, colour)
        shapes = alt.Scale(domain=coloured["scale"]["domain"])
        base = base.encode(color=coloured)
        point = point.encode(color=coloured, shape=alt.Shape(f"{colour}:N", scale=shapes, legend=coloured["legend"]))
    interval = base.mark_rule(clip=True, opacity=0.5)
    across = interval.encode(x=marks.at(x, "measured_low"), x2="measured_high:Q", y=y)
    upwards = interval.encode(x=x, y=marks.at(y, "predicted_low"), y2="predicted_high:Q")
    layers = [
        diagonal.mark_area(style="near", clip=True).encode(x=x, y=marks.at(y, "near_low"), y2="near_high:Q"),
        diagonal.mark_line(style="ideal").encode(x=x, y=y),
        *([across] if "measured_low" in frame else []),
        upwards,
        point,
        *([names] if "named" in frame else []),
    ]
    return marks.panels(layers, drawn)
