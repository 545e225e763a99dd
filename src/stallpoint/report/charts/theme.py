"""Theme of all charts: colours that colour-blind readers can distinguish, fonts, sizes.

Colours are fixed by meaning, so that a preset, layer type, cause or network looks the same in every chart. Their
contrast (WCAG 2.2, success criterion 1.4.11) is at least 3:1 on white and on dark pages. Lines and marks that are no
data ("ink") have named styles, which a dark page replaces (`config`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any
from zlib import crc32

import altair as alt

from stallpoint.base.section import Change
from stallpoint.networks import NETWORKS
from stallpoint.strategies.presets import PRESETS as KNOWN
from stallpoint.study.kinds import KINDS
from stallpoint.text import sort_key

BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#086ABB", "#E47500", "#0B9863", "#D86AAA", "#2A98E7", "#CA460C"
VIOLET, LILAC, RED, LIME, GREY, OLIVE = "#684BDB", "#8479FF", "#CC032E", "#67A153", "#5A6E71", "#696A36"
PALETTE = {
    "blue": BLUE, "orange": ORANGE, "green": GREEN, "pink": PINK, "sky": SKY, "vermilion": VERMILION, "violet": VIOLET,
    "lilac": LILAC, "red": RED, "lime": LIME, "grey": GREY, "olive": OLIVE,
}  # fmt: skip
"""Colours by names of presets and kinds of jobs."""
OTHER_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PINK, SKY, VIOLET, LIME, RED, LILAC)
"""Colours of things without a fixed colour (storages, node counts), in order."""

SHAPES = ("circle", "square", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""Shapes of points; the upward triangle is reserved for stalling points."""

PRESETS = {name: (PALETTE[known.look[0]], known.look[1]) for name, known in KNOWN.items()}
"""Colour and shape of each built-in preset; those of a study's own presets follow from the name (`preset`)."""
_FREE_PAIRS = sorted({(colour, shape) for colour in OTHER_COLOURS for shape in SHAPES} - set(PRESETS.values()))
"""Pairs of colour and shape that no built-in preset has."""

_NETWORKS = (BLUE, ORANGE, GREEN, PINK, VERMILION, SKY, VIOLET, LIME, RED, LILAC, OLIVE, GREY)
"""Colours of the registered networks, in their order."""

COLOURS: dict[str, dict[str, str]] = {
    "preset": {name: colour for name, (colour, _) in PRESETS.items()},
    "layer_type": {
        "convolution": BLUE,
        "fully-connected": VERMILION,
        "relu": SKY,
        "pooling": GREEN,
        "lrn": PINK,
        "batch-norm": ORANGE,
        "dropout": VIOLET,
        "concat": LIME,
        "add": RED,
        "loss": LILAC,
        "flatten": OLIVE,
        "other": GREY,
        # Layer types of transformers share the colour of their counterparts in convolutional networks.
        "attention": PINK,
        "embedding": GREEN,
        "layer-norm": ORANGE,
        "gelu": SKY,
        "softmax": LIME,
        "all": GREY,
        "reference": VIOLET,
    },
    "cause": {
        "communication": BLUE,
        "small matrices": VERMILION,
        "non-scaling layers": ORANGE,
        "shared hardware": VIOLET,
        "compute, undivided": OLIVE,
        "training data": GREEN,
        "model update": PINK,
        "straggling": SKY,
        "pipeline bubble": LIME,
    },
    "part": {
        "communication bandwidth": BLUE,
        "communication latency": LILAC,
        "communication, undivided": BLUE,
        "fully-connected layers": VERMILION,
        "other matrix layers": RED,
        "non-scaling layers": ORANGE,
        "co-running ranks": VIOLET,
        "communication thread": OLIVE,
        "compute, undivided": GREY,
        "data": GREEN,
        "host-to-device": LIME,
        "update": PINK,
        "straggling": SKY,
        "bubble": RED,
    },
    "paper time": {"communication": BLUE},
    "scenario": {"as measured": GREY},
    "network": dict(zip(NETWORKS, cycle(_NETWORKS))),
    "time": {"compute": VERMILION, "exposed communication": BLUE, "hidden communication": GREY},
    "task": {
        "data wait": GREEN,
        "host to device": LIME,
        "forward pass": ORANGE,
        "backward pass": VERMILION,
        "update": PINK,
        "all-reduce": BLUE,
    },
    "change": {
        Change.SLOWER: VERMILION,
        Change.LOWER: VERMILION,
        Change.FASTER: BLUE,
        Change.HIGHER: BLUE,
        Change.SAME: GREEN,
        Change.UNDECIDED: GREY,
    },
    "visit": {
        **{name: PALETTE[kind.colour] for name, kind in KINDS.items()},
        "another process": VERMILION,
        "steal": VIOLET,
        "quota": LIME,
        "throttled clock": RED,
        "slow machine": LILAC,
        "standstill": OLIVE,
    },
}
"""Fixed colours: kind -> value -> colour."""

SOLID, DASHED, DOTTED = (1, 0), (6, 4), (2, 3)
DASHES = {"measured": SOLID, "predicted": DASHED}
"""Measured lines are solid, predicted and fitted ones dashed, in every chart that has both."""

FONT = "Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
LIGHT_THEME = {"page": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "grid": "#e4e7eb", "ideal": "#868f99"}
DARK_THEME = {"page": "#15171c", "ink": "#e6e9ee", "soft": "#a5adb8", "grid": "#30363f", "ideal": "#8a94a0"}


def preset(name: str) -> tuple[str, str]:
    """Return colour and shape of a preset, the same in every chart and study."""
    return PRESETS.get(name) or _FREE_PAIRS[crc32(name.encode()) % len(_FREE_PAIRS)]


def colours(kind: str, values: Iterable[str]) -> alt.Scale:
    """Return the colour scale of `kind`, for the values that occur, in the fixed order."""
    fixed = COLOURS.get(kind, {})
    present = set(values)
    known = [value for value in fixed if value in present]
    unknown = sorted(present - set(known), key=sort_key)
    free = [colour for colour in OTHER_COLOURS if colour not in fixed.values()] + list(OTHER_COLOURS)
    colour_of = {value: free[i % len(free)] for i, value in enumerate(unknown)}
    if kind == "preset":
        colour_of = {name: preset(name)[0] for name in unknown}
    return alt.Scale(domain=known + unknown, range=[fixed.get(v) or colour_of[v] for v in known + unknown])


def shapes(kind: str, colours: alt.Scale) -> alt.Scale:
    """Return a shape for each value of the colour scale `colours`.

    The shape follows from the preset, or else from the colour, so that it is as fixed as the colour. Neighbours in
    `OTHER_COLOURS` have different shapes.
    """
    palette = (*OTHER_COLOURS, GREY, OLIVE)
    shape_of = {colour: SHAPES[i % len(SHAPES)] for i, colour in enumerate(palette)}
    found = [shape_of[colour] for colour in colours["range"]]
    if kind == "preset":
        found = [preset(name)[1] for name in colours["domain"]]
    return alt.Scale(domain=colours["domain"], range=found)


def preset_scales(series: Mapping[str, str]) -> tuple[alt.Scale, alt.Scale]:
    """Return the scales of colour and shape for `series`, which maps the name of each series to its preset.

    The first series of a preset has the preset's shape. Further series of the preset get unused shapes.
    """
    names = sorted(series, key=lambda name: (list({**PRESETS, series[name]: ""}).index(series[name]), sort_key(name)))
    used = {preset(name)[1] for name in series.values()}
    free = [shape for shape in SHAPES if shape not in used] or list(SHAPES)
    shape_of: dict[str, str] = {}
    presets: list[str] = []
    for name in names:
        repeat = series[name] in presets
        shape_of[name] = free[(len(shape_of) - len(set(presets))) % len(free)] if repeat else preset(series[name])[1]
        presets.append(series[name])
    colour_of = [preset(series[name])[0] for name in names]
    return alt.Scale(domain=names, range=colour_of), alt.Scale(domain=names, range=[shape_of[name] for name in names])


def _stripes(page: str, count: int = 5) -> dict[str, Any]:
    """Return vertical stripes in the page's colour. Drawn over a bar, they mark it as a prediction."""
    stops = [
        {"offset": round((stripe + at) / count, 4), "color": colour}
        for stripe in range(count)
        for at, colour in ((0, "transparent"), (0.7, "transparent"), (0.7, page), (1, page))
    ]
    return {"gradient": "linear", "x1": 0, "y1": 0, "x2": 1, "y2": 0, "stops": stops}


def config(c: Mapping[str, str] = LIGHT_THEME, *, font: str = FONT) -> dict[str, Any]:
    """Return the Vega-Lite configuration of charts; `c` maps names, as in `LIGHT_THEME`, to colours of frames and text.

    If ``page`` is transparent, ``paper`` is the colour behind it.
    """
    text = {"labelColor": c["soft"], "titleColor": c["ink"], "labelFontSize": 11, "titleFontSize": 12}
    return {
        "font": font,
        "background": c["page"],
        "padding": 8,
        "view": {"stroke": c["grid"]},
        "title": {"anchor": "start", "color": c["ink"], "fontSize": 15, "offset": 12},
        "axis": {
            **text, "titleFontWeight": "normal", "gridColor": c["grid"], "domainColor": c["soft"],
            "tickColor": c["soft"], "labelOverlap": "greedy", "labelSeparation": 4, "titlePadding": 6,
        },
        "header": {"labelColor": c["ink"], "labelFontSize": 12, "labelFontWeight": "bold", "labelPadding": 6},
        "legend": {
            **text, "orient": "top", "direction": "horizontal", "labelLimit": 0, "titleFontWeight": "normal",
            "titleOrient": "left", "symbolStrokeWidth": 2, "symbolSize": 90, "symbolStrokeColor": c["soft"],
            "columnPadding": 14, "layout": {"top": {"margin": 20, "anchor": "start"}},
        },
        "facet": {"spacing": 24},
        "line": {"strokeWidth": 2},
        "rule": {"strokeWidth": 1.2},
        "style": {
            "ideal": {"color": c["ideal"], "strokeWidth": 1.5},
            "near": {"color": c["ideal"], "opacity": 0.22},
            "piece": {"stroke": c["page"], "strokeWidth": 0.6},
            "mark": {"color": c["ink"]},
            "zero": {"color": c["soft"], "strokeWidth": 1},
            "interval": {"color": c["ink"], "strokeWidth": 1.2},
            "hatch": {"color": _stripes(c.get("paper", c["page"]))},
            "narrow-hatch": {"color": _stripes(c.get("paper", c["page"]), 2)},
            "written": {"color": c["ink"], "fontSize": 10, "fontWeight": "bold"},
            "halo": {
                "color": c["ink"], "stroke": c.get("paper", c["page"]), "strokeWidth": 3, "strokeJoin": "round",
                "fontSize": 10, "fontWeight": "bold",
            },
            "published": {"color": c["soft"], "strokeWidth": 1.2, "strokeDash": DOTTED},
            "row": {"color": c["soft"], "fontSize": 11},
            "note": {"color": c["ink"], "fontSize": 13},
        },
    }  # fmt: skip


def print_config(*, legend_columns: int = 0) -> dict[str, Any]:
    """Return the configuration of charts on paper: lengths in points, text of 8 points, stacked legends."""
    c = config()
    text = {"labelFontSize": 8, "titleFontSize": 8, "labelColor": LIGHT_THEME["ink"]}
    return {
        **c,
        "padding": 2,
        "axis": {**c["axis"], **text, "labelSeparation": 3, "titlePadding": 4, "tickSize": 3, "domainWidth": 0.6},
        "header": {**c["header"], "labelFontSize": 8, "labelPadding": 4},
        "legend": {
            **c["legend"], **text, "columns": legend_columns, "symbolSize": 40, "symbolStrokeWidth": 1.2,
            "columnPadding": 8, "rowPadding": 1, "titlePadding": 4, "offset": 6,
            "layout": {"top": {"direction": "vertical", "margin": 3, "anchor": "start"}},
        },
        "facet": {"spacing": 12},
        "concat": {"spacing": 12},
        "line": {"strokeWidth": 1.2},
        "rule": {"strokeWidth": 0.8},
        "style": {**c["style"], **{name: {"color": LIGHT_THEME["ink"], "fontSize": 8} for name in ("note", "row")}},
    }  # fmt: skip
