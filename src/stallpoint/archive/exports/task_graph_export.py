"""The task graph of a run's iteration, as its preset orders the tasks, for Graphviz (Shi et al. 2018, Fig. 1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from stallpoint.archive.exports.exported_records import TrainRecords, train_records
from stallpoint.errors import InputError
from stallpoint.models.taskgraph import Costs, Kind, MessageTimes, Task, iteration_tasks, schedule
from stallpoint.records.atomic import atomic
from stallpoint.strategies.families.data_parallel_family import DataParallel
from stallpoint.strategies.presets import preset_from

COLOURS = {Kind.INPUT: "lightblue", Kind.COMPUTE: "orange", Kind.MESSAGE: "lightblue"}
"""Computing and communicating tasks, as the paper has them."""


def export_task_graph(records: Path, target: Path) -> None:
    """Write the graph of two iterations of the run in the folder `records` to the DOT file `target`."""
    run = train_records(records)
    layers = run.layers.drop_duplicates("layer_index").sort_values("layer_index")["layer"]
    text = "\n".join(_lines(run.cell.path, tasks(run), layers))
    with atomic(target) as scratch:
        scratch.write_text(f"{text}\n", encoding="utf-8")


def tasks(run: TrainRecords) -> list[Task]:
    """Return the tasks with the mean times of the run; `InputError` for a step that is no data-parallel one."""
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
    """Return the all-reduces in the order of sending."""
    rows = layers[layers["bucket"] >= 0]
    rows = rows.assign(seconds=rows["all_reduce_end"] - rows["all_reduce_start"])
    return [
        MessageTimes(tuple(sorted(set(of["layer_index"]))), float(of["seconds"].mean()))
        for _, of in rows.groupby("bucket")
    ]


def _lines(name: str, tasks: Sequence[Task], layers: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the file; dashed edges are the order of tasks that share a stream."""
    times = schedule(tasks)
    yield f"digraph {json.dumps(name)} {{"
    yield f"  // layers: {', '.join(f'{number} {layer}' for number, layer in enumerate(layers, 1))}"
    yield "  rankdir=LR; node [shape=box, style=filled];"
    last: dict[str, str] = {}
    for task in tasks:
        start, end = (1e3 * float(of[task.name]) for of in (times.start, times.end))
        label = f"{task.name}\n{start:.6g} to {end:.6g} ms"
        yield f"  {json.dumps(task.name)} [label={json.dumps(label)}, fillcolor={COLOURS[task.kind]}];"
        for before in task.after:
            yield f"  {json.dumps(before)} -> {json.dumps(task.name)};"
        if (earlier := last.get(task.stream)) and earlier not in task.after:
            yield f"  {json.dumps(earlier)} -> {json.dumps(task.name)} [style=dashed];"
        last[task.stream] = task.name
    yield "}"
