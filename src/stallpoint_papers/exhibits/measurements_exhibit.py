"""Inputs of the DAG model, and the trace of one iteration of AlexNet, theirs and ours (Shi et al., Tables V and VI)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from stallpoint.base.measured import PLACELESS_AXES
from stallpoint.inputs.layer_trace import TracedLayer, from_text
from stallpoint.records.origins import in_words
from stallpoint.records.tables import SERIES
from stallpoint.report.typeset import Typeset
from stallpoint_papers.exhibits import Made, Material, Missing
from stallpoint_papers.exhibits.study_material import SHI_NETWORKS, communicates, lacking, rows

SYMBOLS = "shi-2018-exhibits"
CELLS = "train cells on two workers or more that communicate"
KEY = [column.name for column in SERIES]
POINT = [*KEY, "nodes", "ranks"]
NAMES = {
    "worker_batch": "b", "bandwidth_io": "B_io", "read_from": "read", "data_bytes": "D", "predicted_data": "t_io",
    "copy": "t_h2d", "predicted_forward": "t_f", "predicted_backward": "t_b", "predicted_communication": "t_c",
}  # fmt: skip
UNITS = {
    "worker_batch": "samples", "bandwidth_io": "B/s", "data_bytes": "B",
    "predicted_data": "s", "copy": "s", "predicted_forward": "s", "predicted_backward": "s",
    "predicted_communication": "s",
}  # fmt: skip
MEANING = (
    "B_io: bandwidth at which the storage is read, all nodes together, a cache's where it says so; "
    "D: bytes of a worker's mini-batch as stored; "
    "t_io: reading and decoding it; t_h2d: copying it to the device, measured itself, so that no B_pcie is needed; "
    "t_f, t_b, t_c: forward, backward and all-reduce of all layers (each layer's in Table VI). Published: Shi et al. "
    "(2018), Table V, which says how each is measured and gives no values."
)


def notation(material: Material) -> Made:
    """Return Table I: each symbol with our table and columns."""
    published = material.published[SYMBOLS]["notation"]
    shown = pd.DataFrame([{**row, "columns": ", ".join(row["columns"])} for row in published["rows"]])
    notes = (f"Published: symbols of Shi et al. (2018), {published['source']}; meanings are in our words.",)
    caption = "Notation, and the tables and columns that hold its values."
    return Made(Typeset(shown, caption, "tab:shi-2018-table-1", {}, {"says": "meaning"}, notes))


def inputs(material: Material) -> Made:
    """Return Table V: a row for each curve, at the fewest workers that communicate."""
    frame = rows(material, "predictions", SHI_NETWORKS, CELLS)
    frame = frame[(frame["ranks"] > 1) & ~frame["extrapolated"].astype(bool) & communicates(frame)]
    if frame.empty:
        raise Missing(f"no {CELLS} of {' or '.join(SHI_NETWORKS)}")
    first = frame.sort_values(POINT, kind="stable").drop_duplicates(KEY)
    first = first.merge(_storage(material), on=["storage", "hardware", "nodes"], how="left")
    first = first.merge(_copies(material), on=POINT, how="left")
    first["data_bytes"] = first["sample_bytes"] * first["worker_batch"]
    columns = ["network", "hardware", "storage", "scaling", "sync", "prefetch", "nodes", "ranks", "worker_batch"]
    values = ["bandwidth_io", "read_from", "data_bytes", *(n for n in NAMES if n.startswith("predicted")), "copy"]
    shown = first[[*columns, *values]]
    caption = "Measurements that the DAG model predicts from."
    return Made(
        Typeset(shown, caption, "tab:shi-2018-table-5", UNITS, NAMES, (MEANING,)),
        lacking(frame, SHI_NETWORKS, CELLS),
    )


def _storage(material: Material) -> pd.DataFrame:
    """Return bandwidth and source of one reader's shuffled reads from the coldest source, and bytes of a sample."""
    rates = material.tables["storage_rates"]
    rates = rates[(rates["order"] == "shuffled") & (rates["readers"] == 1)].sort_values("resident", kind="stable")
    rates = rates.drop_duplicates(["storage", "hardware", "nodes"])
    size = rates["bytes_per_second"] / rates["samples_per_second"]
    came = [in_words(row["origin"], row["server_cache"]) for row in rates.to_dict("records")]
    return rates[["storage", "hardware", "nodes"]].assign(
        bandwidth_io=rates["bytes_per_second"], read_from=came, sample_bytes=size
    )


def _copies(material: Material) -> pd.DataFrame:
    parts = material.tables["critical_path"]
    parts = parts[(parts["part"] == "host-to-device") & (parts["basis"] == "measured")]
    return parts[POINT].assign(copy=parts["seconds"])


# --- Table VI: trace ------------------------------------------------------------------------------

FILE = "shi-2018-table-vi"
PUBLISHED, OURS = "published", "ours"
TIMES = ("forward", "backward", "comm.")
RUN = [*PLACELESS_AXES, "nodes", "ranks"]


def trace(material: Material) -> Made:
    """Return Table VI: layers in forward order, matched by name; times in µs, sizes in bytes."""
    run, point = _run(rows(material, "layer_times", ["alexnet"], CELLS))
    (theirs,) = from_text(material.published[FILE], f"{FILE}.txt")
    waits = material.tables["predictions"].merge(point, on=RUN)["measured_data"]
    wait = waits.iloc[0] if len(waits) else math.nan
    data = {f"{OURS} {name}": math.nan for name in TIMES} | {f"{OURS} forward": 1e6 * float(wait), f"{OURS} size": 0}
    ours = {str(row["layer"]): _ours(row) for row in run.to_dict("records")}
    published = {layer.name: _published(layer) for layer in theirs.layers}
    published_data = {f"{PUBLISHED} forward": 1e6 * theirs.data_wait, f"{PUBLISHED} size": 0}
    lines = [{"name": "data", **published_data, **data}]
    lines += [{"name": name, **published.get(name, {}), **ours.get(name, {})} for name in _layer_order(published, ours)]
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
    """Return layers and placement of the run most like the paper's: two workers, weak scaling, overlapping."""
    for wanted in (frame["ranks"] > 1, frame.groupby(RUN)["all_reduce_start"].transform("count") > 0):
        frame = frame[wanted.loc[frame.index]] if wanted.loc[frame.index].any() else frame
    points = frame[RUN].drop_duplicates().assign(
        two=lambda p: p["ranks"] != 2, strong=lambda p: p["scaling"] != "weak", naive=lambda p: p["sync"] == "naive",
        ahead=lambda p: p["prefetch"] == 0,
    )  # fmt: skip
    point = points.sort_values(["two", "strong", "naive", "ahead", *RUN], kind="stable").head(1)[RUN]
    return frame.merge(point, on=RUN).sort_values("layer_index"), point


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


def _layer_order(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """Yield every layer once, in our order; layers of the paper only come before the next common layer."""
    remaining = list(theirs)
    for name in ours:
        if name in remaining:
            yield from remaining[: remaining.index(name)]
            remaining = remaining[remaining.index(name) + 1 :]
        yield name
    yield from remaining
