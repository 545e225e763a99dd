"""From a study's configuration to its cells: validate, multiply out, leave out what cannot run, say why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from stallpoint.cells import KINDS, Cell, CollectivesCell, SgemmCell, StorageCell, TrainCell
from stallpoint.configuration import check, known
from stallpoint.errors import InputError
from stallpoint.networks import NETWORKS
from stallpoint.presets import Preset, preset_from, presets_of

AXES = ("network", "hardware", "nodes", "batch", "storage", "scaling", "sync", "prefetch")
SETTINGS = ("iterations", "warmup", "repeats")


@dataclass(frozen=True)
class LeftOut:
    """A combination of the matrix that is not run, and why."""

    axes: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class Study:
    """A valid study: its cells by path, and the combinations left out."""

    name: str
    config: Mapping[str, Any]
    """The configuration with every default filled in."""
    cells: Mapping[str, Cell]
    """Path below ``results/raw`` -> cell."""
    left_out: tuple[LeftOut, ...]

    def of_kind(self, kind: str) -> list[Cell]:
        """The cells of one kind of job, in the order of the study."""
        return [cell for cell in self.cells.values() if cell.kind == kind]

    def values(self, axis: str) -> list[Any]:
        """Every value `axis` takes in any cell, sorted."""
        found = {getattr(cell, axis) for cell in self.cells.values() if axis in cell.axes}
        return sorted(found, key=lambda value: (str(type(value)), value))

    def plan(self) -> str:
        """What will be run and what is left out, for people: a few lines however large the study."""
        return "\n".join([f"study {self.name}: {len(self.cells)} cells", *self._counts(), *self._left_out_lines()])

    def _counts(self) -> Iterator[str]:
        counts = Counter((cell.kind, cell.hardware, cell.nodes) for cell in self.cells.values())
        width = max(len("hardware"), *(len(hardware) for _, hardware, _ in counts)) + 2
        yield f"  {'kind':<13}{'hardware':<{width}}{'nodes':>5}{'cells':>8}"
        for (kind, hardware, nodes), count in sorted(
            counts.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0])
        ):
            yield f"  {kind:<13}{hardware:<{width}}{nodes:>5}{count:>8}"

    def _left_out_lines(self) -> Iterator[str]:
        if not self.left_out:
            return
        yield f"  left out: {len(self.left_out)}"
        reasons: dict[str, list[LeftOut]] = {}
        for entry in self.left_out:
            reasons.setdefault(entry.reason, []).append(entry)
        for reason, entries in list(reasons.items())[:12]:
            example = ", ".join(
                f"{axis} {entries[0].axes[axis]}" for axis in ("network", "hardware", "nodes", "batch", "scaling")
            )
            yield f"    {len(entries):>5} × {reason} (such as {example})"
        if len(reasons) > 12:
            yield f"    and for {len(reasons) - 12} more reasons"


def expand(config: Mapping[str, Any], schema: Mapping[str, Any]) -> Study:
    """The study that `config` describes.

    `schema` is the JSON schema of a study. Raises `InputError` naming the entry that is wrong.
    """
    config = check(config, schema)
    _check_names(config)
    left_out: list[LeftOut] = []
    train: dict[str, TrainCell] = {}
    for combination in _without_excluded(list(_combinations(config)), config, left_out):
        _add(combination, config, train, left_out)
    for entry in config["include"]:
        combination = {**_settings(config), **entry}
        for path in _paths_without_repeat(combination, config, train):
            del train[path]
        _add(combination, config, train, left_out)
    cells: dict[str, Cell] = dict(train)
    for cell in _supporting_cells(config, list(train.values())):
        cells[cell.path] = cell
    if not cells:
        raise InputError("the study has no cell to run: every combination of matrix is left out")
    return Study(name=config["study"], config=config, cells=cells, left_out=tuple(left_out))


def _check_names(config: Mapping[str, Any]) -> None:
    """Networks, hardware, storage entries and presets that are named must exist."""
    choices = {
        "network": ("network", list(NETWORKS)),
        "hardware": ("hardware", list(config["hardware"])),
        "storage": ("storage", list(config["storage"])),
        "sync": ("preset", list(presets_of(config["presets"]))),
    }
    for section in ("matrix", "include"):
        for index, block in enumerate(config[section]):
            for axis, (what, names) in choices.items():
                for name in _as_list(block[axis]):
                    known(name, names, f"{section}[{index}].{axis}", what)
    for index, block in enumerate(config["what_if"]):
        for name in _as_list(block.get("sync", [])):
            known(name, choices["sync"][1], f"what_if[{index}].sync", "preset")
    formats: dict[str, tuple[str, str]] = {}
    for name, entry in config["storage"].items():
        other, used = formats.setdefault(entry["path"], (name, entry["format"]))
        if used != entry["format"]:
            raise InputError(f"storage.{name}.path: {entry['path']} already holds the {used} images of storage.{other}")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in SETTINGS}


def _combinations(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every block of the matrix, multiplied out."""
    for block in config["matrix"]:
        settings = {name: block.get(name, config[name]) for name in SETTINGS}
        for values in product(*(_as_list(block[axis]) for axis in AXES)):
            yield {**dict(zip(AXES, values, strict=True)), **settings}


def _ranks(combination: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    return int(combination["nodes"] * config["hardware"][combination["hardware"]]["workers_per_node"])


def _without_excluded(
    combinations: list[dict[str, Any]], config: Mapping[str, Any], left_out: list[LeftOut]
) -> Iterable[dict[str, Any]]:
    """The combinations that meet none of the conditions under ``exclude``."""
    if not config["exclude"]:
        return combinations
    import pandas as pd  # only here: planning starts faster without it

    frame = pd.DataFrame(combinations)
    frame["ranks"] = [_ranks(combination, config) for combination in combinations]
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


def _impossible(combination: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Why a combination cannot run; None when it can."""
    hardware = config["hardware"][combination["hardware"]]
    nodes, batch, ranks = combination["nodes"], combination["batch"], _ranks(combination, config)
    if combination["scaling"] != "compute" and nodes > hardware["nodes"]:
        return f"{nodes} nodes, but hardware {combination['hardware']} has {hardware['nodes']}"
    if combination["scaling"] != "weak":
        if batch < ranks:
            return f"b < 1: batch {batch} on {ranks} workers"
        if batch % ranks:
            return f"batch {batch} is not divisible by {ranks} workers"
    return None


def _train_cells(combination: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[TrainCell]:
    """One cell for each repeat. Compute cells stand alone: one worker, nothing to synchronise, batch = b."""
    storage = config["storage"][combination["storage"]]
    compute = combination["scaling"] == "compute"
    alone_or_together = {"nodes": 1, "workers_per_node": 1} if compute else {"nodes": combination["nodes"]}
    worker_batch = combination["batch"]
    if combination["scaling"] != "weak":
        worker_batch //= _ranks(combination, config)
    preset = asdict(Preset() if compute else presets_of(config["presets"])[combination["sync"]])
    for repeat in range(1, combination["repeats"] + 1):
        yield TrainCell(
            network=combination["network"],
            batch=worker_batch if compute else combination["batch"],
            storage=combination["storage"],
            scaling=combination["scaling"],
            sync="none" if compute else combination["sync"],
            prefetch=combination["prefetch"],
            worker_batch=worker_batch,
            iterations=combination["iterations"],
            warmup=combination["warmup"],
            readers=config["readers"],
            storage_path=storage["path"],
            storage_format=storage["format"],
            preset=preset,
            **_common(config, combination["hardware"], repeat=repeat, **alone_or_together),
        )


def _add(
    combination: Mapping[str, Any], config: Mapping[str, Any], train: dict[str, TrainCell], left_out: list[LeftOut]
) -> None:
    reason = _impossible(combination, config)
    if reason:
        left_out.append(LeftOut(combination, reason))
        return
    for cell in _train_cells(combination, config):
        train.setdefault(cell.path, cell)


def _paths_without_repeat(
    combination: Mapping[str, Any], config: Mapping[str, Any], train: Mapping[str, TrainCell]
) -> list[str]:
    """The cells already there with the same axes as `combination`, whatever their repeat."""
    if _impossible(combination, config):
        return []
    wanted = replace(next(_train_cells({**combination, "repeats": 1}, config)), repeat=0)
    folder = wanted.path.rsplit("/", 1)[0] + "/"
    return [path for path in train if path.startswith(folder)]


def _supporting_cells(config: Mapping[str, Any], train: list[TrainCell]) -> Iterator[Cell]:
    """The sgemm, collectives and storage jobs that the training cells call for."""
    for repeat in range(1, config["repeats"] + 1):
        if "sgemm" in config:
            for network, hardware in dict.fromkeys((cell.network, cell.hardware) for cell in train):
                yield SgemmCell(
                    network=network,
                    batches=sorted(_as_list(config["sgemm"]["batches"])),
                    samples=config["sgemm"]["samples"],
                    **_common(config, hardware, nodes=1, workers_per_node=1, repeat=repeat),
                )
        if "collectives" in config:
            for hardware, nodes, backend, reduction in sorted(set(_reductions(train))):
                yield CollectivesCell(
                    backend=backend,
                    reduction=reduction,
                    message_bytes=_message_sizes(config["collectives"]),
                    samples=config["collectives"]["samples"],
                    **_common(config, hardware, nodes=nodes, repeat=repeat),
                )
        if "storage_reads" in config:
            readings = dict.fromkeys((cell.storage, cell.hardware, cell.nodes) for cell in train)
            for storage, hardware, nodes in sorted(readings):
                yield StorageCell(
                    storage=storage,
                    storage_path=config["storage"][storage]["path"],
                    storage_format=config["storage"][storage]["format"],
                    samples=config["storage_reads"]["samples"],
                    **_common(config, hardware, nodes=nodes, workers_per_node=1, repeat=repeat),
                )


def _reductions(train: Iterable[TrainCell]) -> Iterator[tuple[str, int, str, str]]:
    """Hardware, nodes, backend and reduction scheme of every training cell that communicates."""
    for cell in train:
        if cell.ranks > 1:
            preset = preset_from(cell.preset)
            yield cell.hardware, cell.nodes, preset.communicator, preset.reduction


def _common(config: Mapping[str, Any], hardware: str, **fixed: int) -> dict[str, Any]:
    entry = config["hardware"][hardware]
    return {
        "hardware": hardware,
        "device": entry["device"],
        "threads_per_worker": entry["threads_per_worker"],
        "workers_per_node": entry["workers_per_node"],
        "seed": config["seed"],
        "anonymise": config["anonymise"],
        **fixed,
    }


def _message_sizes(collectives: Mapping[str, int]) -> list[int]:
    """Message sizes in bytes, growing by 4 from the smallest; the largest is always among them."""
    sizes = []
    size = collectives["smallest"]
    while size < collectives["largest"]:
        sizes.append(size)
        size *= 4
    return [*sizes, collectives["largest"]]
