"""Charts for journals: as wide as a column or a page, with text of 8 points. A caption replaces the title.

Lengths are points (1/72 inch). A chart with one or two panels is as wide as a column, other charts as a page. Panels
get the width that axes and legends leave. This width is found by drawing.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from stallpoint.report.charts import theme

COLUMN, PAGE = 3.3 * 72, 7.0 * 72
"""Widths of a column and of a page."""
MIN_PAGE_WIDTH = 600
"""Width on a screen above which a chart without panels is as wide as a page."""
MAX_IN_COLUMN = 2
"""Maximum number of panels, one below the other, of a chart as wide as a column."""
MIN_PANEL = 80.0
CHARACTER_WIDTH = 4.7
"""Mean width of a character of a panel's name, bold and of 8 points."""
PRINT_FACTORS = {"strokeWidth": 0.6, "size": 0.4}
"""Factors from a screen to paper for line widths and sizes of marks."""
LEGEND_COLUMNS = (0, 4, 3, 2, 1)
"""Columns of a legend, tried in this order; 0: all entries in a row."""
_SVG_ID = re.compile(r'((?:\bid="|\burl\(#)(?:clip|gradient_))(\d+)(?=["\')])')
_SVG_SIZE = re.compile(r'(<svg\b[^>]*?) width="([\d.]+)" height="([\d.]+)"')

Spec = dict[str, Any]


def svg(spec: Spec, version: str) -> str:
    """Return the chart of `spec` (Vega-Lite `version`, without theme) as SVG with its size in points."""
    target, columns_of_panels = _layout(spec)
    drawing = ""
    for columns in LEGEND_COLUMNS:
        drawing = number_ids(_draw_at_width(spec, version, target, columns_of_panels, columns))
        if _width(drawing) <= target + 1:
            return drawing
    return _shrink(drawing, target)


def number_ids(drawing: str, chart: str = "") -> str:
    """Return the SVG with clip paths and gradients renumbered from 1, after the name of the `chart`. Vega's own numbers
    depend on the charts drawn before."""
    numbers: dict[str, str] = {}
    return _SVG_ID.sub(lambda found: found[1] + numbers.setdefault(found[2], f"{chart}{len(numbers) + 1}"), drawing)


def in_points(drawing: str) -> str:
    """Return the SVG with its size in points; without a unit it would be in pixels, 96 to an inch."""
    return _SVG_SIZE.sub(r'\1 width="\2pt" height="\3pt"', drawing, count=1)


def _shrink(drawing: str, target: float) -> str:
    """Return the drawing scaled down to the width `target`, for example if its legend is wider than a column."""
    factor = target / _width(drawing)
    return _SVG_SIZE.sub(
        lambda found: f'{found[1]} width="{factor * float(found[2]):.1f}" height="{factor * float(found[3]):.1f}"',
        drawing,
        count=1,
    )


def _layout(spec: Spec) -> tuple[float, int]:
    """Return the total width (points) and the number of panels side by side. A chart with a menu has a page's width."""
    if spec.get("width", 0) > MIN_PAGE_WIDTH:
        return PAGE, 1
    panels = 1
    for facet in _facets(spec):
        if not facet["facet"].get("sort"):
            return PAGE, 1
        panels = max(panels, len(facet["facet"]["sort"]))
    if panels <= MAX_IN_COLUMN:
        return COLUMN, 1
    return PAGE, 2 if panels == 4 else 3


def _draw_at_width(spec: Spec, version: str, target: float, across: int, legend_columns: int) -> str:
    """Return the chart drawn as wide as `target`. The width of its panels is found in at most three trials."""
    import vl_convert as vlc

    config = theme.print_config(legend_columns=legend_columns)
    width = (target - 40 * across) / across
    drawing, last_width = "", 0.0
    for _ in range(3):
        drawing = vlc.vegalite_to_svg({**_resized_copy(spec, width, across), "config": config}, vl_version=version)
        excess = target - _width(drawing)
        if abs(excess) <= 1 or _width(drawing) == last_width or width + excess / across < MIN_PANEL:
            break
        last_width = _width(drawing)
        width += excess / across
    return drawing


def _width(drawing: str) -> float:
    found = _SVG_SIZE.search(drawing)
    if not found:
        raise ValueError("an SVG without width and height")
    return float(found[2])


def _facets(spec: Spec) -> Iterator[Spec]:
    """Yield each faceted chart: the chart itself, or parts of it."""
    if "facet" in spec:
        yield spec
    for part in (*spec.get("vconcat", ()), *spec.get("hconcat", ())):
        yield from _facets(part)


def _resized_copy(spec: Spec, width: float, across: int) -> Spec:
    """Return a copy with `across` panels side by side, each scaled to this `width` in proportion. Marks get thin."""
    copy: Spec = deepcopy(spec)
    for facet in _facets(copy):
        if "columns" in facet:
            facet["columns"] = across
        _wrap(facet["facet"], width)
        _resize(facet["spec"], width)
    if "facet" not in copy and "width" in copy:
        _resize(copy, width)
    _thin_marks(copy)
    return copy


def _resize(panel: Spec, width: float) -> None:
    old_width, height = panel.get("width"), panel.get("height")
    if isinstance(old_width, int | float) and isinstance(height, int | float):
        panel["height"] = round(max(height / old_width, 0.5) * width, 1)
    panel["width"] = round(width, 1)


def _wrap(facet: Spec, width: float) -> None:
    """Break the names of panels, in place, into lines that fit the panel's width."""
    names, header = facet.get("sort"), facet.get("header")
    if not isinstance(names, list) or not header:
        return
    max_length = max(int(width / CHARACTER_WIDTH), 8)
    lines = {name: [piece for line in name.split("\n") for piece in _lines(line, max_length)] for name in names}
    header["labelExpr"] = f"({json.dumps(lines)})[datum.value]"


def _lines(text: str, max_length: int) -> list[str]:
    """Return lines of at most `max_length` characters, if possible broken at the dots between parts of a name."""
    joined = text.replace(" ", "\N{NO-BREAK SPACE}").replace(
        "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}", "\N{NO-BREAK SPACE}· "
    )
    wrapped = textwrap.wrap(joined, max_length, break_on_hyphens=False, break_long_words=False)
    lines = [line.replace("\N{NO-BREAK SPACE}", " ").removesuffix(" ·") for line in wrapped]
    # A part that is longer than a line is broken at its spaces.
    return [piece for line in lines for piece in textwrap.wrap(line, max_length, break_on_hyphens=False)]


def _thin_marks(part: Any) -> None:
    """Make all marks in a part of a chart as thin as paper allows, in place."""
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _thin_marks(inner)
    mark = part.get("mark") if isinstance(part, dict) else None
    if isinstance(mark, dict):
        for name, factor in PRINT_FACTORS.items():
            if isinstance(mark.get(name), int | float):
                mark[name] = round(factor * mark[name], 2)
