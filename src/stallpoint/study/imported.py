"""Cells of imported measurements: runs and all-reduces whose files are named by hardware entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from stallpoint.errors import InputError
from stallpoint.inputs.all_reduce_logs import FORMATS
from stallpoint.inputs.layer_trace import LAYER_TRACE
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import NONE, Preset, preset_from, to_values
from stallpoint.study.catalogue import Catalogue
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import as_list
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell, ImportedTrainCell

_COMMON = tuple(one.name for one in fields(Cell))


def imported_cells(catalogue: Catalogue) -> Iterator[Cell]:
    """Yield the imported cells of all hardware; equal axes make another repeat."""
    repeats: Counter[str] = Counter()
    for cell in _first_repeats(catalogue):
        repeats[cell.path] += 1
        yield replace(cell, repeat=repeats[cell.path])


def _first_repeats(catalogue: Catalogue) -> Iterator[Cell]:
    for hardware, entry in catalogue.hardware.items():
        traced = [
            _train_cell(catalogue, hardware, trace, f"hardware.{hardware}.traces[{index}]")
            for index, trace in enumerate(entry.get("traces", []))
        ]
        for cell in traced:
            yield cell
            if cell.ranks > 1:
                yield from _collectives_of(cell, entry.get("collectives", []))
                yield from _computed_in(cell, traced)
        for index, log in enumerate(entry.get("collectives", [])):
            yield _collectives_cell(catalogue, hardware, log, f"hardware.{hardware}.collectives[{index}]")


def _collectives_cell(
    catalogue: Catalogue, hardware: str, log: Mapping[str, Any], where: str
) -> ImportedCollectivesCell:
    common = catalogue.common(hardware, nodes=log["nodes"], repeat=1, visits=1, **_workers(log))
    if log["nodes"] * common["workers_per_node"] == 1:
        raise InputError(f"{where}: one worker has nothing to all-reduce")
    return ImportedCollectivesCell(
        files=[log["file"]],
        format=log["format"],
        backend=log.get("backend", FORMATS[log["format"]].backend),
        reduction=log["reduction"],
        **common,
    )


def _collectives_of(cell: ImportedTrainCell, logs: Sequence[Mapping[str, Any]]) -> Iterator[Cell]:
    """Yield the all-reduces of a traced run, unless a log timed them on as many workers."""
    preset = preset_from(cell.preset)
    if ALL_REDUCE not in preset.operations or any(
        (log["nodes"], log.get("workers_per_node", cell.workers_per_node)) == cell.placement for log in logs
    ):
        return
    common = {name: getattr(cell, name) for name in _COMMON}
    yield ImportedCollectivesCell(
        files=cell.files,
        format=LAYER_TRACE,
        backend=preset.communicator,
        reduction=preset.scheme,
        warmup=cell.warmup,
        **common,
    )


def _computed_in(cell: ImportedTrainCell, traced: Sequence[ImportedTrainCell]) -> Iterator[Cell]:
    """Yield the computing of each traced worker of a run as an isolated worker, which predictions rest on.

    Nothing if a run on fewer workers, which disturb each other less, has as many samples.
    """
    equal = (one for one in traced if (one.network, one.worker_batch) == (cell.network, cell.worker_batch))
    if min(one.ranks for one in equal) < cell.ranks:
        return
    for file in cell.files:
        yield replace(
            cell, nodes=1, workers_per_node=1, scaling="compute", batch=cell.worker_batch,
            sync=NONE, preset=to_values(Preset()), files=[file], iteration_time=None, isolated=True,
        )  # fmt: skip


def _workers(entry: Mapping[str, Any]) -> dict[str, int]:
    """Return the workers on each node: those of the entry, else of its hardware."""
    return {"workers_per_node": entry["workers_per_node"]} if "workers_per_node" in entry else {}


def _train_cell(catalogue: Catalogue, hardware: str, trace: Mapping[str, Any], where: str) -> ImportedTrainCell:
    compute, batch = trace["scaling"] == "compute", trace["batch"]
    workers = {"workers_per_node": 1} if compute else _workers(trace)
    common = catalogue.common(hardware, nodes=1 if compute else trace["nodes"], repeat=1, visits=1, **workers)
    ranks = common["nodes"] * common["workers_per_node"]
    if trace["scaling"] == "strong" and batch % ranks:
        raise InputError(f"{where}: batch {batch} is not divisible by {ranks} workers")
    if trace["prefetch"] and "read" not in trace:
        raise InputError(
            f"{where}: missing read: with prefetch > 0 the files say how long the worker waited for its mini-batch, "
            "not how long reading it from the storage took, s"
        )
    if len(as_list(trace["files"])) > ranks:
        raise InputError(f"{where}.files: {len(trace['files'])} files, one for each rank, but {ranks} worker(s)")
    if trace["warmup"] >= trace["iterations"]:
        raise InputError(f"{where}: warmup: {trace['warmup']} leaves none of the {trace['iterations']} iterations")
    preset = Preset() if compute else catalogue.presets[trace["sync"]]
    if preset.grouping != "layer":
        raise InputError(
            f"{where}.sync: the files say how long each layer communicates, and {trace['sync']} groups layers"
        )
    return ImportedTrainCell(
        **{axis: trace[axis] for axis in ("network", "batch", "storage", "scaling", "prefetch")},
        sync=NONE if compute else trace["sync"],
        preset=to_values(preset),
        own_network=None,
        worker_batch=batch // ranks if trace["scaling"] == "strong" else batch,
        iterations=trace["iterations"] - trace["warmup"],
        warmup=trace["warmup"],
        readers=1,
        storage_path="",
        storage_format="",
        files=as_list(trace["files"]),
        read=trace.get("read"),
        host_to_device=trace["host_to_device"],
        update=trace["update"],
        iteration_time=trace.get("iteration_time"),
        **common,
    )
