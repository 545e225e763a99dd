"""Import of other programs' files, as raw records like those of a measured cell.

Trace files have no layer types. A layer's type is derived from its name. The rules know Caffe's names
(``inception_3a/relu_1x1``, ``bn2a_branch2a``, ``loss3/classifier``) and those of stallpoint's own convolutional
networks (``inception_3a.conv_1x1.conv``, ``layer1.0.bn2``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from stallpoint.errors import InputError
from stallpoint.inputs.all_reduce_logs import lines_of, read_log
from stallpoint.inputs.layer_trace import LAYER_TRACE, TracedIteration, TracedLayer, from_lines
from stallpoint.measure.machine.sensors import Reading, between
from stallpoint.measure.recorder import Recorder
from stallpoint.models import taskgraph
from stallpoint.records.parquet import write_cell
from stallpoint.records.seal import sha256
from stallpoint.records.tables import COLLECTIVES, GATHERS, ITERATIONS, LAYERS, RUNS, TABLES
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import preset_from
from stallpoint.study import bounds
from stallpoint.study.job_kind import run_row
from stallpoint.study.kinds import kind_of
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell

ROWS_AT_ONCE, ITERATIONS_AT_ONCE = 10_000, 100
"""Maximum numbers of log lines and of trace iterations that are in memory as Python objects."""
ALL_REDUCES: dict[str, Any] = {"operation": ALL_REDUCE, "warmup": False, "calls": 1}
"""Columns of `COLLECTIVES` with the same value in all imported rows."""
NOT_SHARDED: dict[str, Any] = dict.fromkeys(GATHERS)
"""Columns of `LAYERS` that are empty in imported rows, as traces have no all-gathers of weights."""
_Value = TypeVar("_Value")


def import_cell(cell: ImportedTrainCell | ImportedCollectivesCell, folder: Path) -> None:
    """Import a cell: write the folder of its records. Raise `InputError` naming the file that is wrong."""
    started = datetime.now(UTC)
    if isinstance(cell, ImportedTrainCell):
        recorders = _traces(cell)
    else:
        recorders = _layer_collectives(cell) if cell.format == LAYER_TRACE else _collectives(cell)
    tables = kind_of(cell).tables[1:]
    parts = [[recorder.arrow(table) for table in tables] for recorder in recorders]
    found = {table.name: pa.concat_tables(rows) for table, rows in zip(tables, zip(*parts, strict=True), strict=True)}
    for name, rows in found.items():
        try:
            bounds.check_columns(TABLES[name], rows)
        except bounds.ImpossibleValue as impossible:
            raise InputError(f"{', '.join(cell.files)}: {name}: {impossible}") from None
    source = "; ".join(f"{file} (SHA-256 {sha256(Path(file))})" for file in cell.files)
    write_cell(folder, {RUNS.name: [run_row(cell, started, source=source)], **found})


def _batches(values: Iterable[_Value], batch_length: int) -> Iterator[list[_Value]]:
    remaining_values = iter(values)
    while part := list(islice(remaining_values, batch_length)):
        yield part


# --- logs of all-reduces --------------------------------------------------------------------------


def _collectives(cell: ImportedCollectivesCell) -> Iterator[Recorder]:
    """Yield recorders with a row for each line of the log. Rank 0 has the log's times, which are means over ranks."""
    counts: Counter[int] = Counter()
    (file,) = cell.files
    for rows in _batches(read_log(lines_of(file), file, format=cell.format, ranks=cell.ranks), ROWS_AT_ONCE):
        sizes, seconds = [row.message_bytes for row in rows], [row.seconds for row in rows]
        recorder = Recorder(cell, rank=0)
        sample = _samples(sizes, counts)
        recorder.add(COLLECTIVES, message_bytes=sizes, sample=sample, seconds=seconds, **ALL_REDUCES)
        yield recorder


def _samples(sizes: Sequence[int], counts: Counter[int]) -> list[int]:
    """Return the sample number of each message: the number of earlier messages of its size. Updates `counts`."""
    found = []
    for size in sizes:
        found.append(counts[size])
        counts[size] += 1
    return found


# --- layer-wise traces ----------------------------------------------------------------------------


def _traces(cell: ImportedTrainCell) -> Iterator[Recorder]:
    """Yield recorders of all ranks; each rank has a trace file. Raise `InputError` if a file contradicts the study."""
    zero_readings = between(Reading(), Reading())
    for rank, file in enumerate(cell.files):
        start, count = 0.0, 0
        for iterations in _batches(from_lines(lines_of(file), file), ITERATIONS_AT_ONCE):
            recorder = Recorder(cell, rank)
            for index, iteration in enumerate(iterations, start=count):
                position = {"iteration": index, "warmup": index < cell.warmup}
                phases, layers = compose(cell, _drop_communication(iteration) if cell.isolated else iteration)
                recorder.add(ITERATIONS, **position, start=start, **phases, **zero_readings)
                recorder.add(LAYERS, **position, **layers, **NOT_SHARDED)
                start += phases["iteration_time"]
            if not count and not cell.isolated:
                _check_workers(cell, iterations[0], file)
            count += len(iterations)
            yield recorder
        if count != (expected := cell.warmup + cell.iterations):
            raise InputError(f"{file}: {count} iterations; its entry in the study says {expected} (iterations)")


def _drop_communication(iteration: TracedIteration) -> TracedIteration:
    return replace(iteration, layers=[replace(layer, communication=0.0) for layer in iteration.layers])


def _layer_collectives(cell: ImportedCollectivesCell) -> Iterator[Recorder]:
    """Yield recorders with a row for each layer's all-reduce in each iteration, timed on the rank that waited least."""
    counts: Counter[int] = Counter()
    traced_iterations = zip(*(from_lines(lines_of(file), file) for file in cell.files), strict=False)
    for iterations in _batches(enumerate(traced_iterations), ITERATIONS_AT_ONCE):
        recorder = Recorder(cell, rank=0)
        for index, ranks in iterations:
            layers_of_ranks = zip(*(of.layers for of in ranks), strict=False)
            communicating_layers = [layers for layers in layers_of_ranks if layers[0].communication]
            sizes = [layers[0].gradient_bytes for layers in communicating_layers]
            seconds = [min(layer.communication for layer in layers) for layers in communicating_layers]
            row = {**ALL_REDUCES, "warmup": index < cell.warmup}
            recorder.add(COLLECTIVES, message_bytes=sizes, sample=_samples(sizes, counts), seconds=seconds, **row)
        yield recorder


def _check_workers(cell: ImportedTrainCell, iteration: TracedIteration, file: str) -> None:
    """Raise `InputError` if layers communicate although the cell has one worker, or do not although it has several."""
    has_communication = any(layer.communication for layer in iteration.layers)
    if has_communication != (cell.ranks > 1):
        problem = "layers communicate" if has_communication else "no layer communicates"
        raise InputError(f"{file}: {problem}, but its entry in the study says {cell.ranks} worker(s)")


def describe_traced(network: str, files: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns of `NETWORK_LAYERS` for a network known only from traces; raise `InputError` if traces differ.

    Traces have the bytes of gradients only: the columns of parameters, multiply-adds and activations are empty.
    """
    first, *others = ([(layer.name, layer.gradient_bytes) for layer in _first_layers(file)] for file in files)
    for file, layers in zip(files[1:], others, strict=True):
        if layers != first:
            raise InputError(
                f"{file}: its layers are not those of {files[0]}, but both are traces of a network {network}; give "
                "different networks different names"
            )
    empty_columns = dict.fromkeys(("parameters", "multiply_adds", "activation_bytes", "outputs"), [None] * len(first))
    return {
        "network": [network] * len(first),
        **_layer_labels([TracedLayer(name, 0.0, gradient_bytes=size) for name, size in first]),
        **empty_columns,
    }


def _first_layers(file: str) -> Sequence[TracedLayer]:
    return next(from_lines(lines_of(file), file)).layers


def compose(cell: ImportedTrainCell, iteration: TracedIteration) -> tuple[dict[str, float], dict[str, list[Any]]]:
    """Return one traced iteration: columns of `ITERATIONS`, and columns of `LAYERS` as lists (an entry for each layer).

    A trace has durations of tasks but no starts. The tasks are therefore taken as consecutive. The DAG model determines
    when all-reduces start (Shi et al., eq. (2) or (4)). If the study gives a measured iteration time, the exposed
    communication is the part of this time that the other tasks leave.
    """
    layers = iteration.layers
    forward, backward, communication = (
        np.array([getattr(layer, name) for layer in layers]) for name in ("forward", "backward", "communication")
    )
    buckets = [taskgraph.MessageTimes((layer,), communication[layer]) for layer in reversed(range(len(layers)))]
    costs = taskgraph.Costs(0.0, 0.0, [0.0], backward, buckets, 0.0)
    tasks = taskgraph.iteration_tasks(costs, preset_from(cell.preset), prefetch=False, iterations=1)
    schedule = taskgraph.schedule(tasks)
    names = [f"{one.name} of 0" for one in reversed(buckets)]
    start, end = (np.array([at[name] for name in names]) for at in (schedule.start, schedule.end))
    phases = {
        "data_wait": iteration.data_wait,
        "host_to_device": cell.host_to_device,
        "forward": float(forward.sum()),
        "backward": float(backward.sum()),
        "exposed_communication": float(end[0] - backward.sum()),
        "update": cell.update,
    }
    if cell.iteration_time is not None:
        exposed_time = cell.iteration_time - sum(phases.values()) + phases["exposed_communication"]
        phases["exposed_communication"] = float(np.clip(exposed_time, 0.0, communication.sum()))
    backward_start = phases["data_wait"] + phases["host_to_device"] + phases["forward"]
    ready_times = backward_start + np.cumsum(backward[::-1])[::-1]
    return {
        **phases,
        "iteration_time": max(sum(phases.values()), cell.iteration_time or 0.0),
        "read": iteration.data_wait if cell.read is None else cell.read,
        "decode": 0.0,
        "communication": float(communication.sum()),
        "loss": float("nan"),
    }, {
        **_layer_labels(layers),
        "forward": forward.tolist(),
        "backward": backward.tolist(),
        "gradient_ready": _values_of_layers(layers, "gradient_bytes", ready_times),
        "all_reduce_start": _values_of_layers(layers, "communication", backward_start + start),
        "all_reduce_end": _values_of_layers(layers, "communication", backward_start + end),
        **_buckets(layers),
    }


def _layer_labels(layers: Sequence[TracedLayer]) -> dict[str, list[Any]]:
    return {
        "layer_index": list(range(len(layers))),
        "layer": [layer.name for layer in layers],
        "layer_type": [layer_type(layer.name, layer.gradient_bytes) for layer in layers],
        "gradient_bytes": [layer.gradient_bytes for layer in layers],
    }


def _buckets(layers: Sequence[TracedLayer]) -> dict[str, list[int]]:
    """Return the columns of buckets. Each layer that communicates has its own bucket, numbered from the last layer."""
    communicating_layers = [index for index in reversed(range(len(layers))) if layers[index].communication]
    bucket_of = {layer: message for message, layer in enumerate(communicating_layers)}
    return {
        "bucket": [bucket_of.get(index, -1) for index in range(len(layers))],
        "bucket_bytes": [layer.gradient_bytes if index in bucket_of else 0 for index, layer in enumerate(layers)],
    }


def _values_of_layers(layers: Sequence[TracedLayer], attribute: str, values: Any) -> list[float | None]:
    """Return `values`, which has one value for each layer, with None for layers whose `attribute` is zero."""
    return [float(value) if getattr(layer, attribute) else None for layer, value in zip(layers, values, strict=True)]


# --- layer types by name --------------------------------------------------------------------------

_TYPE_PATTERNS = tuple(
    (re.compile(pattern), layer_type)
    for pattern, layer_type in (
        (r"relu", "relu"),
        (r"^drop|dropout", "dropout"),
        (r"(^|_)(bn|scale)|batch_?norm", "batch-norm"),
        (r"^(fc|ip)\d*(_|$)|^(fc|linear|classifier|inner_?product)", "fully-connected"),
        (r"conv|proj|branch|reduce|^\d+x\d+", "convolution"),
        (r"^pool|pool$", "pooling"),
        (r"norm|^lrn", "lrn"),
        (r"flatten", "flatten"),
        (r"concat|^output$|^join$", "concat"),
        (r"^add$|eltwise|^res\d+[a-z]\d*$", "add"),
        (r"loss|softmax|^prob$", "loss"),
    )
)
_WITH_PARAMETERS = ("convolution", "fully-connected")
_MAY_HAVE_PARAMETERS = (*_WITH_PARAMETERS, "batch-norm")
"""Types that may have parameters; Caffe holds those of a batch normalisation in a separate scale layer."""
OTHER_TYPE = "other"


def layer_type(name: str, gradient_bytes: int) -> str:
    """Return the type of a layer, by the last part of its `name` that implies a type; ``other`` if no part does."""
    for part in reversed(re.split(r"[/.]", name.lower())):
        for pattern, found in _TYPE_PATTERNS:
            is_possible = found in _MAY_HAVE_PARAMETERS if gradient_bytes else found not in _WITH_PARAMETERS
            if is_possible and pattern.search(part):
                return found
    return OTHER_TYPE
