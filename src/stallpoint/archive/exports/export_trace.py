"""A measured run as layer-wise traces, and a study that imports them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from stallpoint.archive.exports.exported_records import TrainRecords, train_records
from stallpoint.inputs.layer_trace import TracedIteration, TracedLayer, to_text
from stallpoint.records.atomic import atomic
from stallpoint.strategies.presets import preset_from

_COLUMNS = ["layer", "forward", "backward", "communication", "gradient_bytes"]
"""Columns of `TracedLayer`, in order."""


def export_trace(records: Path, folder: Path) -> None:
    """Write the run in the folder `records` to `folder`: ``rank0.txt``, ``rank1.txt``, ... and ``study.yaml``.

    A file holds every iteration after the warm-up (the published files hold 100: set ``iterations``). The study holds
    what the layout lacks, so that it can be run unchanged, or its entry copied to another one.
    """
    run = train_records(records)
    kept = TrainRecords(run.cell, _kept(run.iterations), _kept(run.layers), run.nodes)
    files = {f"rank{rank}.txt": to_text(_iterations(kept, rank)) for rank in sorted(kept.iterations["rank"].unique())}
    with atomic(folder) as scratch:
        scratch.mkdir()
        for name, text in files.items():
            (scratch / name).write_text(text, encoding="utf-8")
        study = _study(kept, [str(folder / name) for name in files])
        (scratch / "study.yaml").write_text(study, encoding="utf-8")


def _kept(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[~frame["warmup"]]


def _iterations(run: TrainRecords, rank: int) -> list[TracedIteration]:
    of_rank, layers = (frame[frame["rank"] == rank] for frame in (run.iterations, run.layers))
    layers = layers.assign(communication=_communication(layers))
    ordered = layers.sort_values("layer_index")[[*_COLUMNS, "iteration"]]
    rows = {iteration: group[_COLUMNS] for iteration, group in ordered.groupby("iteration")}
    return [
        TracedIteration(float(wait), [TracedLayer(*values) for values in rows[iteration].itertuples(index=False)])
        for iteration, wait in zip(of_rank["iteration"], of_rank["data_wait"], strict=True)
    ]


def _communication(layers: pd.DataFrame) -> pd.Series[float]:
    """Return the time of each layer's all-reduce, s; layers in one bucket share its time by their bytes."""
    bucket_bytes = layers.groupby(["rank", "iteration", "bucket"])["gradient_bytes"].transform("sum")
    share = layers["gradient_bytes"] / bucket_bytes
    return ((layers["all_reduce_end"] - layers["all_reduce_start"]) * share).fillna(0.0)


def _study(run: TrainRecords, files: list[str]) -> str:
    """Return a study with this run only, imported from `files`."""
    cell, iterations = run.cell, run.iterations
    trace: dict[str, Any] = {
        "files": files,
        **{axis: getattr(cell, axis) for axis in cell.axes if axis not in ("hardware", "repeat")},
        "iterations": int(iterations["iteration"].nunique()),
        "iteration_time": _seconds(iterations["iteration_time"]),
        "host_to_device": _seconds(iterations["host_to_device"]),
        "update": _seconds(iterations["update"]),
    }
    if cell.prefetch:
        trace["read"] = _seconds((iterations["read"] + iterations["decode"]) / cell.readers)
    # A file has a time for each layer, even if layers share a message.
    trace["sync"] = "wfbp" if preset_from(cell.preset).overlaps else "naive"
    if cell.scaling == "compute":
        del trace["sync"]
    facts = {name: getattr(cell, name) for name in ("device", "nodes", "workers_per_node", "threads_per_worker")}
    lines = [
        f"# {cell.path}, as a study of its own. Paths start where Snakemake does.",
        f"study: {cell.hardware}-imported",
        "hardware:",
        f"  {cell.hardware}:",
        *(f"    {name}: {value}" for name, value in facts.items()),
        "    traces:",
        f"      - {json.dumps(trace)}",
    ]
    return "\n".join([*lines, ""])


def _seconds(values: pd.Series[float]) -> float:
    return float(f"{values.median():.6g}")
