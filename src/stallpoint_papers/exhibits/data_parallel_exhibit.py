"""Data-parallel SGD: a mini-batch, the workers that share it, and their update (Keuper & Pfreundt, Fig. 2)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise, product
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.report.charts import theme
from stallpoint.text import number
from stallpoint_papers.exhibits import Made, Material, Missing
from stallpoint_papers.exhibits.study_material import KEUPER_NETWORKS, rows

CELLS = "train cells with scaling: strong on two workers or more"
DRAWN = 4
"""Maximum number of workers drawn, unless the study has only larger counts."""
COLUMNS = ("mini-batch", "samples", "gradient", "sum", "update")
COLOURS = {"data": theme.GREY, "compute": theme.ORANGE, "communication": theme.SKY}
KINDS = dict(zip(COLUMNS, ("data", "data", "compute", "communication", "compute"), strict=True))
WIDTH, ROW = 640, 52


def figure(material: Material) -> Made:
    """Return Fig. 2: boxes from the mini-batch to the update, with measured times of an iteration of the study."""
    frame = rows(material, "predictions", KEUPER_NETWORKS, CELLS, keep={"scaling": "strong"})
    frame = frame[(frame["ranks"] > 1) & frame["measured_iteration"].notna()]
    if frame.empty:
        raise Missing(f"no {CELLS} of {' or '.join(KEUPER_NETWORKS)}")
    few = frame[frame["ranks"] <= DRAWN]
    workers = few["ranks"].max() if len(few) else frame["ranks"].min()
    order = ["network", "hardware", "storage", "sync", "prefetch", "global_batch", "nodes"]
    one = frame[frame["ranks"] == workers].sort_values(order, kind="stable").iloc[0]
    shown = f"{one['network']} on {one['hardware']}, sync: {one['sync']}, {workers} workers"
    return Made(_drawn(pd.DataFrame(_boxes(one))), shown=shown)


def _boxes(one: pd.Series[Any]) -> Iterator[dict[str, Any]]:
    """Yield each box with its column, rows and two lines of text."""
    workers = int(one["ranks"])
    computing = _seconds(one["measured_forward"] + one["measured_backward"])
    of_all = {
        "mini-batch": ("mini-batch", f"B = {one['global_batch']}"),
        "sum": ("sum", f"{_seconds(one['measured_exposed_communication'])} exposed"),
        "update": ("update", _seconds(one["measured_update"])),
    }
    of_each = {"samples": ("worker {}", f"b = {one['worker_batch']}"), "gradient": ("gradient", computing)}
    for column, (above, below) in of_all.items():
        yield _box(column, 0, workers, above, below)
    for worker, (column, (above, below)) in product(range(workers), of_each.items()):
        yield _box(column, worker, worker + 1, above.format(worker + 1), below)


def _box(column: str, first: int, end: int, above: str, below: str) -> dict[str, Any]:
    x = COLUMNS.index(column) + 0.1
    return {
        "column": column, "kind": KINDS[column], "left": x, "right": x + 0.8, "centre": x + 0.4,
        "top": first + 0.1, "bottom": end - 0.1, "middle": (first + end) / 2, "above": above, "below": below,
    }  # fmt: skip


def _height(box: Mapping[Hashable, Any]) -> float:
    return float(box["bottom"] - box["top"])


def _seconds(value: float) -> str:
    return f"{number(1e3 * value)} ms"


def _drawn(boxes: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    many = boxes["bottom"].max() + 0.1
    x = alt.Scale(domain=[0, len(COLUMNS)], nice=False)
    y = alt.Scale(domain=[many, 0], nice=False)
    columns = [boxes[boxes["column"] == column] for column in COLUMNS]
    arrows = pd.DataFrame([
        # One of the two boxes is as high as a worker's row, except from the sum to the update.
        {"from": before["right"], "to": after["left"], "at": min((before, after), key=_height)["middle"]}
        for left, right in pairwise(columns)
        for before, after in product(left.to_dict("records"), right.to_dict("records"))
        if before["top"] < after["bottom"] and after["top"] < before["bottom"]
    ])  # fmt: skip
    position = {"x": alt.X("centre:Q", scale=x, axis=None), "y": alt.Y("middle:Q", scale=y, axis=None)}
    kinds = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    rectangles = alt.Chart(boxes).mark_bar(opacity=0.45, stroke="white").encode(
        x=alt.X("left:Q", scale=x, axis=None), x2="right:Q", y=alt.Y("top:Q", scale=y, axis=None), y2="bottom:Q",
        color=alt.Color("kind:N", scale=kinds, legend=alt.Legend(title=None, symbolType="square")),
        tooltip=[alt.Tooltip("above:N"), alt.Tooltip("below:N")],
    )  # fmt: skip
    lines = alt.Chart(arrows).mark_rule(color=theme.GREY).encode(
        x=alt.X("from:Q", scale=x, axis=None), x2="to:Q", y=alt.Y("at:Q", scale=y, axis=None)
    )  # fmt: skip
    heads = alt.Chart(arrows).mark_point(shape="triangle-right", filled=True, size=40, color=theme.GREY).encode(
        x=alt.X("to:Q", scale=x, axis=None), y=alt.Y("at:Q", scale=y, axis=None)
    )  # fmt: skip
    text = alt.Chart(boxes)
    names = text.mark_text(fontSize=11, dy=-7, color="black").encode(text="above:N", **position)
    values = text.mark_text(fontSize=10, dy=8, color="black").encode(text="below:N", **position)
    return alt.layer(rectangles, lines, heads, names, values, width=WIDTH, height=ROW * many)
