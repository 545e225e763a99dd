"""The training cells of a study: blocks multiplied out, minus what is excluded or cannot run, plus what is included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count, product, takewhile
from typing import Any

from stallpoint.cells import TrainCell
from stallpoint.errors import InputError
from stallpoint.presets import NONE, Preset
from stallpoint.study.catalogue import Catalogue, as_list
from stallpoint.study.interventions import intervention_cells

AXES = ("network", "hardware", "nodes", "batch", "storage", "scaling", "sync", "prefetch")
SETTINGS = ("iterations", "warmup", "repeats", "interventions")


@dataclass(frozen=True)
class LeftOut:
    """A combination of the matrix that is not run, and why."""

    axes: Mapping[str, Any]
    reason: str


def training_cells(config: Mapping[str, Any], catalogue: Catalogue) -> tuple[dict[str, TrainCell], tuple[LeftOut, ...]]:
    """The training cells of ``matrix`` and ``include`` by their paths, and what is left out of both."""
    train: dict[str, TrainCell] = {}
    left_out: list[LeftOut] = []
    for combination in _without_excluded(list(_combinations(config)), config, catalogue, left_out):
        if reason := _impossible(combination, catalogue):
            left_out.append(LeftOut(combination, reason))
            continue
        for cell in _with_interventions(combination, config, catalogue):
            train.setdefault(cell.path, cell)
    for entry in config["include"]:
        combination = {**{name: config[name] for name in SETTINGS}, **entry}
        if reason := _impossible(combination, catalogue):
            left_out.append(LeftOut(combination, reason))
            continue
        cells = list(_with_interventions(combination, config, catalogue))
        for path in takewhile(train.__contains__, _repeats(cells[0])):
            del train[path]
        train |= {cell.path: cell for cell in cells}
    return train, tuple(left_out)


def _combinations(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every block of the matrix, multiplied out."""
    for block in config["matrix"]:
        settings = {name: block.get(name, config[name]) for name in SETTINGS}
        for values in product(*(as_list(block[axis]) for axis in AXES)):
            yield {**dict(zip(AXES, values, strict=True)), **settings}


def _ranks(combination: Mapping[str, Any], catalogue: Catalogue) -> int:
    return int(combination["nodes"] * catalogue.hardware[combination["hardware"]]["workers_per_node"])


def _without_excluded(
    combinations: list[dict[str, Any]], config: Mapping[str, Any], catalogue: Catalogue, left_out: list[LeftOut]
) -> Iterable[dict[str, Any]]:
    """The combinations that meet none of the conditions under ``exclude``."""
    if not config["exclude"]:
        return combinations
    import pandas as pd  # only here: planning starts faster without it

    frame = pd.DataFrame(combinations)
    frame["ranks"] = [_ranks(combination, catalogue) for combination in combinations]
    frame["worker_batch"] = frame["batch"].where(frame["scaling"] == "weak", frame["batch"] // frame["ranks"])
    excluded: dict[int, str] = {}
    for index, condition in enumerate(config["exclude"]):
        try:
            rows = frame.query(condition).index
        except Exception as error:  # whatever the expression makes pandas raise, the user wrote it
            columns = ", ".join([*AXES, "worker_batch", "ranks"])
            raise InputError(f"exclude[{index}]: {condition!r}: {error}; columns are {columns}") from None
        for row in rows:
            excluded.setdefault(int(row), condition)
    left_out.extend(LeftOut(combinations[row], f"excluded: {condition}") for row, condition in excluded.items())
    return [combination for row, combination in enumerate(combinations) if row not in excluded]


def _impossible(combination: Mapping[str, Any], catalogue: Catalogue) -> str | None:
    """Why a combination cannot run; None when it can."""
    if unfit := catalogue.unfit.get((combination["network"], combination["storage"])):
        return unfit
    available = catalogue.hardware[combination["hardware"]]["nodes"]
    nodes, batch, ranks = combination["nodes"], combination["batch"], _ranks(combination, catalogue)
    if combination["scaling"] != "compute" and nodes > available:
        return f"{nodes} nodes, but hardware {combination['hardware']} has {available}"
    if combination["scaling"] != "weak":
        if batch < ranks:
            return f"b < 1: batch {batch} on {ranks} workers"
        if batch % ranks:
            return f"batch {batch} is not divisible by {ranks} workers"
    return None


def _with_interventions(
    combination: Mapping[str, Any], config: Mapping[str, Any], catalogue: Catalogue
) -> Iterator[TrainCell]:
    """The cells of a combination, and then those of the interventions on them."""
    cells = list(_cells(combination, config, catalogue))
    yield from cells
    for cell in cells:
        yield from intervention_cells(cell, combination["interventions"])


def _cells(combination: Mapping[str, Any], config: Mapping[str, Any], catalogue: Catalogue) -> Iterator[TrainCell]:
    """One cell for each repeat. Compute cells stand alone: one worker, nothing to synchronise, batch = b."""
    storage = catalogue.storage[combination["storage"]]
    compute = combination["scaling"] == "compute"
    alone_or_together = {"nodes": 1, "workers_per_node": 1} if compute else {"nodes": combination["nodes"]}
    common = catalogue.common(combination["hardware"], **alone_or_together)
    worker_batch = combination["batch"]
    if combination["scaling"] != "weak":
        worker_batch //= _ranks(combination, catalogue)
    preset = asdict(Preset() if compute else catalogue.presets[combination["sync"]])
    for repeat in range(1, combination["repeats"] + 1):
        yield TrainCell(
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
            readers=config["readers"],
            storage_path=storage["path"],
            storage_format=storage["format"],
            preset=preset,
            own_network=catalogue.own_networks.get(combination["network"]),
            **common,
        )


def _repeats(cell: TrainCell) -> Iterator[str]:
    """Paths of the cell's repeats, from the first on without end."""
    folder = cell.path.rsplit("/", 1)[0]
    return (f"{folder}/repeat~{repeat}" for repeat in count(1))
