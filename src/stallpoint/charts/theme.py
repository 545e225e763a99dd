"""One look for all charts: colours that stay apart for colour-blind readers, fonts, sizes.

Colours are fixed by meaning, so that one layer type, cause or network looks the same in every chart. They stay at
least 2:1 off both a white and a dark page. Lines and marks that are no data ("ink") have named styles instead, which
a dark page replaces (`config`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import altair as alt

BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
VIOLET, LILAC, RED, LIME, GREY, SAND = "#6622FF", "#6677FF", "#BB1133", "#99BB66", "#6E7781", "#CFC5A5"
OTHERS = (BLUE, VERMILION, GREEN, ORANGE, PINK, SKY, VIOLET, LIME, RED, LILAC)
"""For things without a fixed colour (series, storages), in this order."""

SHAPES = ("circle", "square", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""A point has a shape as well as a colour; the triangle that points up is the stalling point's."""

COLOURS: dict[str, dict[str, str]] = {
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
        "flatten": SAND,
        # What stands where in transformers has the colour of its like in convolutional networks.
        "attention": PINK,
        "embedding": GREEN,
        "layer-norm": ORANGE,
        "gelu": SKY,
        "softmax": LIME,
        "all": GREY,
        "reference": GREY,
    },
    "cause": {
        "communication": BLUE,
        "matrix shapes": VERMILION,
        "non-scaling layers": ORANGE,
        "interference": VIOLET,
        "compute, undivided": SAND,
        "training data": GREEN,
        "model update": PINK,
        "straggling": SKY,
    },
    "part": {
        "communication bandwidth": BLUE,
        "communication latency": LILAC,
        "communication, undivided": BLUE,
        "fully-connected layers": VERMILION,
        "other matrix layers": RED,
        "non-scaling layers": ORANGE,
        "co-running ranks": VIOLET,
        "communication thread": SAND,
        "compute, undivided": GREY,
        "data": GREEN,
        "host-to-device": LIME,
        "update": PINK,
        "straggling": SKY,
    },
    "paper time": {"communication": BLUE},
    "scenario": {"as measured": GREY},
    "network": {
        "alexnet": BLUE,
        "googlenet": ORANGE,
        "resnet50": GREEN,
        "vgg16": PINK,
        "vit-b-16": VERMILION,
        "gpt2-small": SKY,
    },
    "time": {"compute": VERMILION, "communication": BLUE, "exposed communication": SKY},
    "task": {"backward pass": VERMILION, "all-reduce": BLUE},
    "change": {
        "slower": VERMILION,
        "lower": VERMILION,
        "faster": BLUE,
        "higher": BLUE,
        "same": GREEN,
        "undecided": GREY,
    },
    "turn": {
        "train": BLUE,
        "intervention": SKY,
        "sgemm": ORANGE,
        "collectives": GREEN,
        "storage": PINK,
        "another process": VERMILION,
        "steal": VIOLET,
        "quota": LIME,
        "throttled clock": RED,
        "slow machine": LILAC,
    },
}
"""Fixed colours: what is coloured -> its value -> colour."""

SOLID, DASHED, DOTTED = [1, 0], [6, 4], [2, 3]
"""Measured lines are solid, predicted and fitted ones dashed, in every chart that has both."""

FONT = "Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
LIGHT = {"page": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "grid": "#e4e7eb", "ideal": "#9aa3ad"}
DARK = {"page": "#15171c", "ink": "#e6e9ee", "soft": "#a5adb8", "grid": "#30363f", "ideal": "#7d8793"}


def natural(text: str) -> list[str | int]:
    """Key that sorts ``B = 64`` before ``B = 256``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def colours(kind: str, values: Iterable[str]) -> alt.Scale:
    """The colour scale of `kind` for the values present, which a legend lists in the fixed order."""
    fixed = COLOURS.get(kind, {})
    present = set(values)
    known = [value for value in fixed if value in present]
    unknown = sorted(present - set(known), key=natural)
    free = [colour for colour in OTHERS if colour not in fixed.values()] + list(OTHERS)
    colour_of = {value: free[i % len(free)] for i, value in enumerate(unknown)}
    return alt.Scale(domain=known + unknown, range=[fixed.get(v) or colour_of[v] for v in known + unknown])


def shapes(colours: alt.Scale) -> alt.Scale:
    """A shape for each value of a colour scale: values of unlike colour that are drawn together have unlike shapes.

    It belongs to the colour, so that it is as fixed as that; neighbours in `OTHERS` never share one.
    """
    palette = (*OTHERS, GREY, SAND)
    shape_of = {colour: SHAPES[i % len(SHAPES)] for i, colour in enumerate(palette)}
    return alt.Scale(domain=colours["domain"], range=[shape_of[colour] for colour in colours["range"]])


def config(c: Mapping[str, str] = LIGHT, *, font: str = FONT) -> dict[str, Any]:
    """The Vega-Lite configuration of every chart: `c` are the colours of what is no data, such as `LIGHT`."""
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
            "published": {"color": c["soft"], "strokeWidth": 1.2, "strokeDash": DOTTED},
            "row": {"color": c["soft"], "fontSize": 11},
            "note": {"color": c["ink"], "fontSize": 13},
        },
    }  # fmt: skip


def print_config(*, legend_columns: int = 0) -> dict[str, Any]:
    """The configuration of charts on paper: lengths in points, text of 8, legends above one another."""
    c = config()
    text = {"labelFontSize": 8, "titleFontSize": 8, "labelColor": LIGHT["ink"]}
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
        "style": {**c["style"], **{name: {"color": LIGHT["ink"], "fontSize": 8} for name in ("note", "row")}},
    }  # fmt: skip
