"""The trace of one iteration of AlexNet (Shi et al., Table VI), theirs and ours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from stallpoint.inputs.layer_trace import TracedLayer, from_text
from stallpoint.models.base.measured import PLACELESS
from stallpoint.report.exhibits import Made, Material
from stallpoint.report.exhibits.study_material import rows
from stallpoint.report.typeset import Typeset

FILE = "shi-2018-table-vi"
CELLS = "train cells on two workers or more that communicate"
PUBLISHED, OURS = "published", "ours"
TIMES = ("forward", "backward", "comm.")
POINT = [*PLACELESS, "nodes", "ranks"]


def table(material: Material) -> Made:
    """Return layers in forward order, matched by name; microseconds and bytes as in the files."""
    run, point = _run(rows(material, "layer_times", ["alexnet"], CELLS))
    (theirs,) = from_text(material.published[FILE], f"{FILE}.txt")
    waits = material.tables["predictions"].merge(point, on=POINT)["measured_data"]
    wait = waits.iloc[0] if len(waits) else math.nan
    data = {f"{OURS} {name}": math.nan for name in TIMES} | {f"{OURS} forward": 1e6 * float(wait), f"{OURS} size": 0}
    ours = {str(row["layer"]): _ours(row) for row in run.to_dict("records")}
    published = {layer.name: _published(layer) for layer in theirs.layers}
    published_data = {f"{PUBLISHED} forward": 1e6 * theirs.data_wait, f"{PUBLISHED} size": 0}
    lines = [{"name": "data", **published_data, **data}]
    lines += [{"name": name, **published.get(name, {}), **ours.get(name, {})} for name in _order(published, ours)]
    columns = [f"{source} {name}" for name in (*TIMES, "size") for source in (PUBLISHED, OURS)]
    shown = pd.DataFrame(lines)[["name", *columns]]
    units = {column: "B" if column.endswith("size") else "µs" for column in columns}
    first = point.iloc[0]
    which = (
        f"{first['storage']}, {first['scaling']} scaling, {first['sync']}, prefetch {first['prefetch']}, batch "
        f"{first['batch']}, {int(run['ranks'].iloc[0])} workers on {first['hardware']}"
    )
    notes = (
        "Published: Shi et al. (2018), Table VI, AlexNet on two K80 GPUs, b = 1024. Ours: means of rank 0; comm. is "
        f"from start to end of the layer's all-reduce. {which}.",
    )
    caption = "Layer-wise times of one iteration of AlexNet."
    shown = shown.astype({column: "Int64" for column in columns if column.endswith("size")})
    communication = shown.loc[shown["name"] != "data", f"{OURS} comm."]
    missing = () if (communication > 0).any() else (f"no {CELLS} of alexnet: {OURS} comm. is empty",)
    return Made(Typeset(shown, caption, "tab:shi-2018-table-6", units, {}, notes), missing, shown=which)


def _run(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return layers of the run nearest to theirs: one that communicates, on two workers, weak before strong,
    overlapping before naive."""
    for wanted in (frame["ranks"] > 1, frame.groupby(POINT)["all_reduce_start"].transform("count") > 0):
        frame = frame[wanted.loc[frame.index]] if wanted.loc[frame.index].any() else frame
    points = frame[POINT].drop_duplicates().assign(
        two=lambda p: p["ranks"] != 2, strong=lambda p: p["scaling"] != "weak", naive=lambda p: p["sync"] == "naive",
        ahead=lambda p: p["prefetch"] == 0,
    )  # fmt: skip
    point = points.sort_values(["two", "strong", "naive", "ahead", *POINT], kind="stable").head(1)[POINT]
    return frame.merge(point, on=POINT).sort_values("layer_index"), point


def _ours(row: dict[Any, Any]) -> dict[str, float]:
    seconds = (
        row["forward"], row["backward"],
        row["all_reduce_end"] - row["all_reduce_start"] if row["gradient_bytes"] else 0.0,
    )  # fmt: skip
    times = {f"{OURS} {name}": 1e6 * float(value) for name, value in zip(TIMES, seconds, strict=True)}
    return times | {f"{OURS} size": int(row["gradient_bytes"])}


def _published(layer: TracedLayer) -> dict[str, float]:
    seconds = (layer.forward, layer.backward, layer.communication)
    times = {f"{PUBLISHED} {name}": 1e6 * value for name, value in zip(TIMES, seconds, strict=True)}
    return times | {f"{PUBLISHED} size": layer.gradient_bytes}


def _order(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """Return every layer once: ours in their order, each after the paper's own ones before it."""
    remaining = list(theirs)
    for name in ours:
        if name in remaining:
            yield from remaining[: remaining.index(name)]
            remaining = remaining[remaining.index(name) + 1 :]
        yield name
    yield from remaining
