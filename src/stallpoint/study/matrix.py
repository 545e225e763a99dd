"""The training cells of a study: blocks multiplied out, minus what is excluded or cannot run, plus what is included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count, product, takewhile
from typing import Any

from stallpoint.errors import InputError
from stallpoint.networks import NETWORKS
from stallpoint.strategies.families.averaging_family import AveragingOptions
from stallpoint.strategies.presets import NONE, PRESETS, Preset, preset_from, to_values
from stallpoint.strategies.strategy import RequestedTraining
from stallpoint.study.catalogue import SCRIPTS_OWN, Catalogue
from stallpoint.study.conditions import Row, condition
from stallpoint.study.interventions import NO_COMMUNICATION, possible
from stallpoint.study.job_kind import as_list
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.intervention_kind import InterventionCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.storages import staging

AXES = ("network", "hardware", "nodes", "workers_per_node", "batch", "storage", "scaling", "sync", "prefetch")
_NUMBERS = ("nodes", "workers_per_node", "batch", "prefetch", "worker_batch", "ranks")
COLUMNS = {**dict.fromkeys(AXES, str), **dict.fromkeys(_NUMBERS, float)}
"""Columns of conditions, names or numbers."""
MAX_QUOTED = 80
"""Characters of a wrong condition that a message repeats."""
_NO_STORAGE = {"path": "", "format": "", "stage": False}
SETTINGS = ("iterations", "warmup", "repeats", "interventions", "readers")


@dataclass(frozen=True)
class Excluded:
    """An excluded combination of the matrix, and why."""

    axes: Mapping[str, Any]
    reason: str


def training_cells(
    config: Mapping[str, Any], catalogue: Catalogue
) -> tuple[dict[str, TrainCell], tuple[Excluded, ...]]:
    """Return the training cells of ``matrix`` and ``include`` by path, and the excluded combinations of both."""
    train: dict[str, TrainCell] = {}
    excluded: list[Excluded] = []
    for combination in _without_excluded(_combinations(config, catalogue), config, excluded):
        if reason := impossible(combination, catalogue):
            excluded.append(Excluded(combination, reason))
            continue
        for cell in _with_interventions(combination, config, catalogue):
            train.setdefault(cell.path, cell)
    for entry in config["include"]:
        combination = {**{name: config[name] for name in SETTINGS}, **full(entry, catalogue)}
        if reason := impossible(combination, catalogue):
            excluded.append(Excluded(combination, reason))
            continue
        cells = list(_with_interventions(combination, config, catalogue))
        for path in takewhile(train.__contains__, _repeats(cells[0])):
            del train[path]
        train |= {cell.path: cell for cell in cells}
    return train, tuple(excluded)


def _combinations(config: Mapping[str, Any], catalogue: Catalogue) -> Iterator[dict[str, Any]]:
    """Yield every combination of the matrix."""
    for block in config["matrix"]:
        settings = {name: block.get(name, config[name]) for name in SETTINGS}
        axes = [axis for axis in AXES if axis in block]
        for values in product(*(as_list(block[axis]) for axis in axes)):
            yield {**full(dict(zip(axes, values, strict=True)), catalogue), **settings}


def full(axes: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return `axes` with defaults: the hardware's workers on a node, and a command's own data."""
    per_node = catalogue.hardware[axes["hardware"]]["workers_per_node"]
    return {"workers_per_node": per_node, "storage": SCRIPTS_OWN, **axes}


def _ranks(combination: Mapping[str, Any]) -> int:
    return int(combination["nodes"] * combination["workers_per_node"])


def _worker_batch(combination: Mapping[str, Any], ranks: int) -> int:
    """Return b, the mini-batch of each of the `ranks` workers."""
    batch: int = combination["batch"]
    return batch if combination["scaling"] == "weak" else batch // ranks


def _without_excluded(
    combinations: Iterable[dict[str, Any]], config: Mapping[str, Any], excluded: list[Excluded]
) -> Iterator[dict[str, Any]]:
    """Yield the combinations that meet none of the conditions under ``exclude``."""
    conditions = {text: _condition(index, text) for index, text in enumerate(config["exclude"])}
    for combination in combinations:
        row = _row(combination) if conditions else {}
        if met := next((text for text, meets in conditions.items() if meets(row)), ""):
            excluded.append(Excluded(combination, f"excluded: {met}"))
        else:
            yield combination


def _condition(index: int, text: str) -> Callable[[Row], bool]:
    try:
        return condition(text, COLUMNS)
    except InputError as error:
        raise InputError(f"exclude[{index}]: {text[:MAX_QUOTED]!r}: {error}") from None


def _row(combination: Mapping[str, Any]) -> Row:
    """Return the columns of conditions: the axes, all workers, and one worker's mini-batch."""
    ranks = _ranks(combination)
    axes = {axis: combination[axis] for axis in AXES}
    return {**axes, "ranks": ranks, "worker_batch": _worker_batch(combination, ranks)}


def impossible(combination: Mapping[str, Any], catalogue: Catalogue) -> str | None:
    """Return why a combination cannot run; None if it can."""
    if unfit := catalogue.unfit.get((combination["network"], combination["storage"])):
        return unfit
    hardware = catalogue.hardware[combination["hardware"]]
    batch, ranks = combination["batch"], _ranks(combination)
    if combination["scaling"] != "compute":
        for axis, what in (("nodes", "nodes"), ("workers_per_node", "workers on a node")):
            if combination[axis] > hardware[axis]:
                return f"{combination[axis]} {what}, but hardware {combination['hardware']} has {hardware[axis]}"
    if combination["scaling"] != "weak":
        if batch < ranks:
            return f"b < 1: batch {batch} on {ranks} workers"
        if batch % ranks:
            return f"batch {batch} is not divisible by {ranks} workers"
    own = _worker_batch(combination, ranks)
    if combination["scaling"] != "compute" and (why := _preset_impossible(combination, catalogue, own)):
        return why
    network = NETWORKS.get(combination["network"])
    if network and own < network.smallest_batch:
        return f"b = {own}, but network {network.name} trains on {network.smallest_batch} samples at least"
    return None


def _preset_impossible(combination: Mapping[str, Any], catalogue: Catalogue, own: int) -> str | None:
    """Return why its preset cannot train a combination with `own` samples of each worker."""
    name = combination["sync"]
    preset = catalogue.presets[name]
    if own % preset.accumulate:
        return f"b = {own} is not divisible by the {preset.accumulate} parts of preset {name} (accumulate)"
    network, placement = combination["network"], (combination["nodes"], combination["workers_per_node"])
    asked = RequestedTraining(
        name, placement, own, network, NETWORKS.get(network), command=network in catalogue.commands
    )
    return preset.strategy.impossible(asked) or None


def _with_interventions(
    combination: Mapping[str, Any], config: Mapping[str, Any], catalogue: Catalogue
) -> Iterator[TrainCell]:
    """Yield the cells of a combination, and then those of the interventions on them."""
    cells = list(_cells(combination, config, catalogue))
    yield from cells
    for cell in cells if combination["network"] not in catalogue.commands else ():
        yield from intervention_cells(cell, combination["interventions"])


def _cells(combination: Mapping[str, Any], config: Mapping[str, Any], catalogue: Catalogue) -> Iterator[TrainCell]:
    """One cell for each repeat. Compute cells have one worker, preset none, and batch = b."""
    storage = catalogue.storage.get(combination["storage"], _NO_STORAGE)
    compute = combination["scaling"] == "compute"
    if not compute:
        _check_rounds(combination, catalogue)
    placement = {axis: 1 if compute else combination[axis] for axis in ("nodes", "workers_per_node")}
    common = catalogue.common(combination["hardware"], **placement)
    worker_batch = _worker_batch(combination, _ranks(combination))
    preset = to_values(Preset() if compute else catalogue.presets[combination["sync"]])
    command = catalogue.commands.get(combination["network"])
    kind = partial(CommandCell, **command) if command else TrainCell
    for repeat in range(1, combination["repeats"] + 1):
        yield kind(
            network=combination["network"],
            batch=worker_batch if compute else combination["batch"],
            storage=combination["storage"],
            scaling=combination["scaling"],
            sync=NONE if compute else combination["sync"],
            prefetch=combination["prefetch"],
            repeat=repeat,
            worker_batch=worker_batch,
            iterations=combination["iterations"],
            warmup=combination["warmup"],
            readers=combination["readers"],
            storage_path=storage["path"],
            storage_format=storage["format"],
            preset=preset,
            own_network=catalogue.own_networks.get(combination["network"]),
            **staging(storage),
            **common,
        )


def _check_rounds(combination: Mapping[str, Any], catalogue: Catalogue) -> None:
    """Raise `InputError` if the iterations of a visit are no multiple of the preset's period."""
    sync, iterations = combination["sync"], combination["iterations"]
    preset = catalogue.presets[sync]
    if isinstance(preset.own, AveragingOptions) and preset.own.synchronous_steps:
        raise InputError(
            f"sync: preset {sync} changes in the course of training, so that it has no throughput of its own: measure "
            "one without synchronous_steps, and train to a target (convergence) with this one"
        )
    if iterations % preset.own.rounds:
        raise InputError(
            f"iterations: {iterations}, but preset {sync} does the same again after {preset.own.rounds} iterations; a "
            "multiple of that is needed for its mean"
        )


def _repeats(cell: TrainCell) -> Iterator[str]:
    """Yield paths of the cell's repeats, without end."""
    folder = cell.path.rsplit("/", 1)[0]
    return (f"{folder}/repeat~{repeat}" for repeat in count(1))


def intervention_cells(cell: TrainCell, wanted: Iterable[str]) -> Iterator[TrainCell]:
    """Return the `wanted` interventions that are possible on `cell`.

    Training without communication is an ordinary cell, shared by equal presets.
    """
    if cell.scaling == "compute":
        return
    for name in wanted:
        if not possible(name, preset_from(cell.preset), cell.ranks):
            continue
        if name == NO_COMMUNICATION:
            yield replace(cell, sync=NONE, preset=to_values(PRESETS[NONE].preset))
        else:
            same = {one.name: getattr(cell, one.name) for one in fields(cell)}
            yield InterventionCell(**same, intervention=name)
