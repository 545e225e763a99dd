"""Charts as journals print them: one or two columns wide, text of 8 points, no title (the caption stands below).

Lengths are points (1/72 inch). A chart with one or two panels is as wide as a column, others as a page; panels are
given the width that is left beside axes and legends, which is found by drawing.
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
WIDE = 600
"""A chart without panels that is wider than this on a screen is as wide as a page on paper."""
MOST_IN_COLUMN = 2
"""Panels that are drawn in a column, one below the other."""
LEAST_PANEL = 80.0
CHARACTER = 4.7
"""Width of a character of a panel's name, bold and of 8 points, on average."""
THINNER = {"strokeWidth": 0.6, "size": 0.4}
"""Marks that a screen shows with this width of line or area, as a part of it on paper."""
LEGEND_COLUMNS = (0, 4, 3, 2, 1)
"""Entries of a legend beside each other, tried in this order; 0: all of them."""
_NUMBERED = re.compile(r'((?:\bid="|\burl\(#)(?:clip|gradient_))(\d+)(?=["\')])')
_SIZE = re.compile(r'(<svg\b[^>]*?) width="([\d.]+)" height="([\d.]+)"')

Spec = dict[str, Any]


def svg(spec: Spec, version: str) -> str:
    """The chart of `spec` (Vega-Lite `version`, without theme) as SVG with its size in points."""
    target, across = _place(spec)
    drawn = ""
    for columns in LEGEND_COLUMNS:
        drawn = _numbered(_fitted(spec, version, target, across, columns))
        if _width(drawn) <= target + 1:
            return drawn
    return _shrunk(drawn, target)


def _numbered(drawn: str) -> str:
    """The SVG with its clip paths and gradients numbered from 1: Vega counts on through all charts of a process."""
    numbers: dict[str, str] = {}
    return _NUMBERED.sub(lambda found: found[1] + numbers.setdefault(found[2], str(len(numbers) + 1)), drawn)


def in_points(drawn: str) -> str:
    """The SVG with its size as points; without unit it would be read as pixels, of which an inch has 96."""
    return _SIZE.sub(r'\1 width="\2pt" height="\3pt"', drawn, count=1)


def _shrunk(drawn: str, target: float) -> str:
    """The whole drawing at a smaller scale: a legend that is wider than a column by itself, say."""
    factor = target / _width(drawn)
    return _SIZE.sub(
        lambda found: f'{found[1]} width="{factor * float(found[2]):.1f}" height="{factor * float(found[3]):.1f}"',
        drawn,
        count=1,
    )


def _place(spec: Spec) -> tuple[float, int]:
    """Width of the whole and number of panels beside each other. A panel chosen by a menu has a page for itself."""
    if spec.get("width", 0) > WIDE:
        return PAGE, 1
    panels = 1
    for facet in _facets(spec):
        if not facet["facet"].get("sort"):
            return PAGE, 1
        panels = max(panels, len(facet["facet"]["sort"]))
    if panels <= MOST_IN_COLUMN:
        return COLUMN, 1
    return PAGE, 2 if panels == 4 else 3


def _fitted(spec: Spec, version: str, target: float, across: int, legend_columns: int) -> str:
    """Drawn up to three times: the total width is the panels' and what does not depend on them."""
    import vl_convert as vlc

    config = theme.print_config(legend_columns=legend_columns)
    width = (target - 40 * across) / across
    drawn, before = "", 0.0
    for _ in range(3):
        drawn = vlc.vegalite_to_svg({**_sized(spec, width, across), "config": config}, vl_version=version)
        off = target - _width(drawn)
        if abs(off) <= 1 or _width(drawn) == before or width + off / across < LEAST_PANEL:
            break
        before = _width(drawn)
        width += off / across
    return drawn


def _width(drawn: str) -> float:
    found = _SIZE.search(drawn)
    if not found:
        raise ValueError("an SVG without width and height")
    return float(found[2])


def _facets(spec: Spec) -> Iterator[Spec]:
    """The faceted charts in a chart, itself or parts of it."""
    if "facet" in spec:
        yield spec
    for part in (*spec.get("vconcat", ()), *spec.get("hconcat", ())):
        yield from _facets(part)


def _sized(spec: Spec, width: float, across: int) -> Spec:
    """A copy with panels of this width, `across` of them beside each other; heights in proportion, marks thinner."""
    copy: Spec = deepcopy(spec)
    for facet in _facets(copy):
        if "columns" in facet:
            facet["columns"] = across
        _wrap(facet["facet"], width)
        _resize(facet["spec"], width)
    if "facet" not in copy and "width" in copy:
        _resize(copy, width)
    _thin(copy)
    return copy


def _resize(panel: Spec, width: float) -> None:
    before, height = panel.get("width"), panel.get("height")
    if isinstance(before, int | float) and isinstance(height, int | float):
        panel["height"] = round(max(height / before, 0.5) * width, 1)
    panel["width"] = round(width, 1)


def _wrap(facet: Spec, width: float) -> None:
    """Names of panels in lines that are no longer than the panel is wide."""
    names, header = facet.get("sort"), facet.get("header")
    if not isinstance(names, list) or not header:
        return
    most = max(int(width / CHARACTER), 8)
    lines = {name: [piece for line in name.split("\n") for piece in _lines(line, most)] for name in names}
    header["labelExpr"] = f"({json.dumps(lines)})[datum.value]"


def _lines(text: str, most: int) -> list[str]:
    """Lines of at most `most` characters, broken at the dots between the parts of a name where that is possible."""
    closed = text.replace(" ", "\N{NO-BREAK SPACE}").replace(
        "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}", "\N{NO-BREAK SPACE}· "
    )
    wrapped = textwrap.wrap(closed, most, break_on_hyphens=False, break_long_words=False)
    whole = [line.replace("\N{NO-BREAK SPACE}", " ").removesuffix(" ·") for line in wrapped]
    # A part that is too long by itself is broken at its spaces.
    return [piece for line in whole for piece in textwrap.wrap(line, most, break_on_hyphens=False)]


def _thin(part: Any) -> None:
    """Lines and points of all marks, and of constants in their place, as thin as paper allows."""
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _thin(inner)
    mark = part.get("mark") if isinstance(part, dict) else None
    if isinstance(mark, dict):
        for name, factor in THINNER.items():
            if isinstance(mark.get(name), int | float):
                mark[name] = round(factor * mark[name], 2)
