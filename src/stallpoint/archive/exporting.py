"""Exports of a training cell's raw records: layer-wise traces, with a study that imports them, and a task graph.

The task graph shows two iterations in the order of the cell's preset, for Graphviz (Shi et al. 2018, Fig. 1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stallpoint.errors import InputError
from stallpoint.inputs.layer_trace import TracedIteration, TracedLayer, to_text
from stallpoint.models.taskgraph import Costs, Kind, MessageTimes, Task, iteration_tasks, schedule
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read
from stallpoint.records.tables import ENVIRONMENTS, ITERATIONS, LAYERS, RUNS
from stallpoint.strategies.families.data_parallel_family import DataParallel
from stallpoint.strategies.presets import preset_from
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.train_kind import TrainCell

_COLUMNS = ["layer", "forward", "backward", "communication", "gradient_bytes"]
"""Columns of `TracedLayer`, in order."""


def export_trace(records: Path, folder: Path) -> None:
    """Write the cell in the folder `records` as layer-wise traces to `folder`: ``rank0.txt``, ``rank1.txt``, ...

    A trace has every iteration after the warm-up; published traces have 100 iterations. The file ``study.yaml`` is a
    study that imports the traces and adds what they lack. It runs unchanged. Its entry also works in another study.
    """
    run = train_records(records)
    trace = TrainRecords(run.cell, _without_warmup(run.iterations), _without_warmup(run.layers), run.nodes)
    files = {f"rank{rank}.txt": to_text(_iterations(trace, rank)) for rank in sorted(trace.iterations["rank"].unique())}
    with atomic(folder) as scratch:
        scratch.mkdir()
        for name, text in files.items():
            (scratch / name).write_text(text, encoding="utf-8")
        study = _study(trace, [str(folder / name) for name in files])
        (scratch / "study.yaml").write_text(study, encoding="utf-8")


def _without_warmup(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[~frame["warmup"]]


def _iterations(run: TrainRecords, rank: int) -> list[TracedIteration]:
    of_rank, layers = (frame[frame["rank"] == rank] for frame in (run.iterations, run.layers))
    layers = layers.assign(communication=_communication(layers))
    ordered_layers = layers.sort_values("layer_index")[[*_COLUMNS, "iteration"]]
    rows = {iteration: group[_COLUMNS] for iteration, group in ordered_layers.groupby("iteration")}
    return [
        TracedIteration(float(wait), [TracedLayer(*values) for values in rows[iteration].itertuples(index=False)])
        for iteration, wait in zip(of_rank["iteration"], of_rank["data_wait"], strict=True)
    ]


def _communication(layers: pd.DataFrame) -> pd.Series[float]:
    """Return the time of each layer's all-reduce, s. Layers of one bucket share its time by their bytes."""
    bucket_bytes = layers.groupby(["rank", "iteration", "bucket"])["gradient_bytes"].transform("sum")
    share = layers["gradient_bytes"] / bucket_bytes
    return ((layers["all_reduce_end"] - layers["all_reduce_start"]) * share).fillna(0.0)


def _study(run: TrainRecords, files: list[str]) -> str:
    """Return a study with this cell only, imported from the traces `files`."""
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
    # A trace has a communication time for each layer. Both presets send each layer by itself.
    trace["sync"] = "wfbp" if preset_from(cell.preset).overlaps else "naive"
    if cell.scaling == "compute":
        del trace["sync"]
    settings = {name: getattr(cell, name) for name in ("device", "nodes", "workers_per_node", "threads_per_worker")}
    lines = [
        f"# {cell.path}, as a study of its own. Paths start where Snakemake does.",
        f"study: {cell.hardware}-imported",
        "hardware:",
        f"  {cell.hardware}:",
        *(f"    {name}: {value}" for name, value in settings.items()),
        "    traces:",
        f"      - {json.dumps(trace)}",
    ]
    return "\n".join([*lines, ""])


def _seconds(values: pd.Series[float]) -> float:
    return float(f"{values.median():.6g}")


# --- records of a cell ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainRecords:
    """Records of a training cell."""

    cell: TrainCell
    iterations: pd.DataFrame
    layers: pd.DataFrame
    nodes: dict[int, str]
    """Name of each rank's node; empty where unknown."""


def train_records(folder: Path) -> TrainRecords:
    """Return the records of a training cell from its folder; raise `InputError` if it failed or is of another kind."""
    (run,) = read(RUNS, folder / f"{RUNS.name}.parquet").to_pylist()
    if run["status"] == "failed":
        raise InputError(f"{folder}: nothing to export, the cell could not run: {run['reason']}")
    cell = cell_from_json(run["settings"])
    if not isinstance(cell, TrainCell):
        raise InputError(f"{folder}: nothing to export, {cell.kind} cells have no iterations")
    iterations, layers = (read(table, folder / f"{table.name}.parquet").to_pandas() for table in (ITERATIONS, LAYERS))
    return TrainRecords(cell, _contiguous(iterations), layers, _nodes(folder / f"{ENVIRONMENTS.name}.parquet"))


def _contiguous(iterations: pd.DataFrame) -> pd.DataFrame:
    """Return iterations with starts on one time axis, as if each visit began where the last one ended."""
    ends = (iterations["start"] + iterations["iteration_time"]).groupby(iterations["visit"]).max()
    visit_starts = (ends.cumsum() - ends).to_dict()
    return iterations.assign(start=iterations["start"] + iterations["visit"].map(visit_starts))


def _nodes(file: Path) -> dict[int, str]:
    rows: list[dict[str, Any]] = read(ENVIRONMENTS, file).to_pylist() if file.exists() else []
    return {row["rank"]: row["node"] for row in rows}


def all_reduces(layers: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each all-reduce: rank, iteration, start, end, bytes, layers; `layers` are rows of `LAYERS`."""
    rows = layers[layers["bucket"] >= 0]
    message_rows = rows.groupby(["rank", "iteration", "bucket", "all_reduce_start", "all_reduce_end"], as_index=False)
    return message_rows.agg(
        gradient_bytes=("gradient_bytes", "sum"), bucket_bytes=("bucket_bytes", "sum"), layers=("layer", " ".join)
    )


# --- task graph -----------------------------------------------------------------------------------

COLOURS = {Kind.INPUT: "lightblue", Kind.COMPUTE: "orange", Kind.MESSAGE: "lightblue"}
"""Colours of computing and communicating tasks, as in the paper."""


def export_task_graph(records: Path, target: Path) -> None:
    """Write the task graph of the cell in the folder `records` to the DOT file `target`: tasks of two iterations."""
    run = train_records(records)
    layers = run.layers.drop_duplicates("layer_index").sort_values("layer_index")["layer"]
    text = "\n".join(_lines(run.cell.path, tasks(run), layers))
    with atomic(target) as scratch:
        scratch.write_text(f"{text}\n", encoding="utf-8")


def tasks(run: TrainRecords) -> list[Task]:
    """Return the tasks with the cell's mean times; raise `InputError` unless the cell's preset is data-parallel."""
    preset = preset_from(run.cell.preset)
    if type(preset.strategy) is not DataParallel:
        raise InputError(f"{run.cell.path}: a task graph is written of synchronous data-parallel steps alone")
    iterations, layers = (frame[~frame["warmup"]] for frame in (run.iterations, run.layers))
    buckets = _buckets(layers)
    costs = [_costs(run, own, layers[layers["rank"] == rank], buckets) for rank, own in iterations.groupby("rank")]
    return iteration_tasks(costs[0] if len(costs) == 1 else costs, preset, prefetch=run.cell.prefetch > 0)


def _costs(run: TrainRecords, iterations: pd.DataFrame, layers: pd.DataFrame, buckets: Sequence[MessageTimes]) -> Costs:
    times = layers.groupby("layer_index")[["forward", "backward"]].mean()
    read = (
        (iterations["read"] + iterations["decode"]) / run.cell.readers if run.cell.prefetch else iterations["data_wait"]
    )
    return Costs(
        float(read.mean()), float(iterations["host_to_device"].mean()), times["forward"].tolist(),
        times["backward"].tolist(), buckets, float(iterations["update"].mean()),
    )  # fmt: skip


def _buckets(layers: pd.DataFrame) -> list[MessageTimes]:
    """Return the all-reduces in the order of sending: the layers of each, and its mean time in seconds."""
    rows = layers[layers["bucket"] >= 0]
    rows = rows.assign(seconds=rows["all_reduce_end"] - rows["all_reduce_start"])
    return [
        MessageTimes(tuple(sorted(set(of["layer_index"]))), float(of["seconds"].mean()))
        for _, of in rows.groupby("bucket")
    ]


def _lines(name: str, tasks: Sequence[Task], layers: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the DOT file. A dashed edge joins successive tasks of a stream if no dependence does."""
    times = schedule(tasks)
    yield f"digraph {json.dumps(name)} {{"
    yield f"  // layers: {', '.join(f'{number} {layer}' for number, layer in enumerate(layers, 1))}"
    yield "  rankdir=LR; node [shape=box, style=filled];"
    last_of_stream: dict[str, str] = {}
    for task in tasks:
        start, end = (1e3 * float(of[task.name]) for of in (times.start, times.end))
        label = f"{task.name}\n{start:.6g} to {end:.6g} ms"
        yield f"  {json.dumps(task.name)} [label={json.dumps(label)}, fillcolor={COLOURS[task.kind]}];"
        for before in task.after:
            yield f"  {json.dumps(before)} -> {json.dumps(task.name)};"
        if (earlier := last_of_stream.get(task.stream)) and earlier not in task.after:
            yield f"  {json.dumps(earlier)} -> {json.dumps(task.name)} [style=dashed];"
        last_of_stream[task.stream] = task.name
    yield "}"
