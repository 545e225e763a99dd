"""From a study's configuration to its cells: validate, multiply out, leave out what cannot run, say why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from stallpoint.archive.further import Archive, further
from stallpoint.cells import (
    Cell,
    CollectivesCell,
    ImportedCollectivesCell,
    ImportedTrainCell,
    SgemmCell,
    StorageCell,
    TrainCell,
)
from stallpoint.configuration import check, known
from stallpoint.errors import InputError
from stallpoint.kinds import KINDS
from stallpoint.networks import NETWORKS
from stallpoint.networks.inputs import Inputs, Tokens
from stallpoint.networks.own import own_network
from stallpoint.presets import Preset, preset_from, presets_of
from stallpoint.storage import FORMATS
from stallpoint.storage.tokens import Sequences, TokenSequences

BACKENDS = {"nccl-tests": "torch", "osu": "mpi"}
"""Backend that an imported log of all-reduces stands for, by its format, unless the study says otherwise."""

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
    archives: tuple[Archive, ...] = ()
    """Archives of other studies, whose cells are not among `cells`."""

    @property
    def recorded(self) -> Iterator[Cell]:
        """Every cell whose records the study has: its own, and those of archives."""
        yield from self.cells.values()
        for archive in self.archives:
            yield from archive.index.cells.values()

    @property
    def available(self) -> dict[str, int]:
        """Nodes that each hardware entry has, those of archives included."""
        entries = {name: entry["nodes"] for name, entry in self.config["hardware"].items()}
        return entries | {name: nodes for archive in self.archives for name, nodes in archive.index.hardware.items()}

    @property
    def presets(self) -> dict[str, Mapping[str, Any]]:
        """The study's own presets as they are defined, those of archives included."""
        others = {name: entry for archive in self.archives for name, entry in archive.index.presets.items()}
        return {**others, **self.config["presets"]}

    @property
    def shared_links(self) -> list[tuple[str, str]]:
        """Hardware and storage where data comes over the link that carries the gradients."""
        shared = [name for name, entry in self.config["storage"].items() if entry["shared_link"]]
        own = [(hardware, storage) for hardware in self.config["hardware"] for storage in shared]
        return [*own, *(pair for archive in self.archives for pair in archive.index.shared_links)]

    def of_kind(self, kind: str) -> list[Cell]:
        """The cells of one kind of job, in the order of the study."""
        return [cell for cell in self.cells.values() if cell.kind == kind]

    def values(self, axis: str) -> list[Any]:
        """Every value `axis` takes in any cell, sorted."""
        found = {getattr(cell, axis) for cell in self.cells.values() if axis in cell.axes}
        return sorted(found, key=lambda value: (str(type(value)), value))

    def plan(self) -> str:
        """What will be run and what is left out, for people: a few lines however large the study."""
        return "\n".join(
            [
                f"study {self.name}: {len(self.cells)} cells",
                *(self._counts() if self.cells else []),
                *self._archive_lines(),
                *self._left_out_lines(),
            ]
        )

    def _archive_lines(self) -> Iterator[str]:
        for archive in self.archives:
            index = archive.index
            yield f"  from {archive.path}: {len(index.cells)} cells, as hardware {', '.join(index.hardware)}"

    def _counts(self) -> Iterator[str]:
        counts = Counter((cell.kind, cell.hardware, cell.nodes) for cell in self.cells.values())
        first = max(len("collectives"), *(len(kind) for kind, _, _ in counts)) + 2
        second = max(len("hardware"), *(len(hardware) for _, hardware, _ in counts)) + 2
        yield f"  {'kind':<{first}}{'hardware':<{second}}{'nodes':>5}{'cells':>8}"
        for (kind, hardware, nodes), count in sorted(
            counts.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0])
        ):
            yield f"  {kind:<{first}}{hardware:<{second}}{nodes:>5}{count:>8}"

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
    imported = list(_imported_cells(config))
    for cell in (*_supporting_cells(config, list(train.values()), imported), *imported):
        cells[cell.path] = cell
    archives = further(config)
    if not cells and not archives:
        raise InputError("the study has no cell to run: matrix leaves out every combination, and nothing is imported")
    return Study(name=config["study"], config=config, cells=cells, left_out=tuple(left_out), archives=archives)


def _check_names(config: Mapping[str, Any]) -> None:
    """Networks, hardware, storage entries and presets that are named must exist."""
    choices = {
        "network": ("network", [*NETWORKS, *config["networks"]]),
        "hardware": ("hardware", list(config["hardware"])),
        "storage": ("storage", list(config["storage"])),
        "sync": ("preset", list(presets_of(config["presets"]))),
    }
    for section in ("matrix", "include"):
        for index, block in enumerate(config[section]):
            for axis, (what, names) in choices.items():
                for name in _as_list(block[axis]):
                    known(name, names, f"{section}[{index}].{axis}", what)
            for name in _as_list(block["hardware"]):
                if "traces" in config["hardware"][name]:
                    raise InputError(
                        f"{section}[{index}].hardware: {name} is imported, its runs are those under "
                        f"hardware.{name}.traces; what is measured needs a hardware entry of its own"
                    )
    for name, entry in config["hardware"].items():
        if entry["precision"] == "tf32" and entry["device"] != "cuda":
            raise InputError(f"hardware.{name}.precision: tf32 is of CUDA devices; a CPU has float32 and bf16")
    for index, block in enumerate(config["what_if"]):
        for name in _as_list(block.get("sync", [])):
            known(name, choices["sync"][1], f"what_if[{index}].sync", "preset")
    formats: dict[str, tuple[str, str]] = {}
    for name, entry in config["storage"].items():
        other, used = formats.setdefault(entry["path"], (name, entry["format"]))
        if used != entry["format"]:
            raise InputError(f"storage.{name}.path: {entry['path']} already holds the {used} images of storage.{other}")
        _check_sequences(name, entry)
    for name, entry in config["networks"].items():
        if name in NETWORKS:
            raise InputError(f"networks.{name}: is a network of stallpoint already; give yours another name")
        own_network(name, entry)


def _check_sequences(name: str, entry: Mapping[str, Any]) -> None:
    """Only a text that is to be generated has a shape of its own."""
    for key in ("sequence_length", "vocabulary"):
        if key in entry and not (entry["format"] == "tokens" and "generate" in entry):
            raise InputError(f"storage.{name}.{key}: only says how to generate a storage of format tokens")


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


def _takes(network: str, config: Mapping[str, Any]) -> Inputs:
    """What the network takes, of the registry or the study's own."""
    own = config["networks"]
    return own_network(network, own[network]).takes if network in own else NETWORKS[network].takes


def sequences(entry: Mapping[str, Any]) -> Sequences:
    """The shape of the text that a storage entry asks to be generated."""
    return Sequences(**{key: entry[key] for key in ("sequence_length", "vocabulary") if key in entry})


def _unfit(network: str, storage: str, config: Mapping[str, Any]) -> str | None:
    """Why the network cannot be fed from the storage; None when it can, as far as can be known before."""
    takes, entry = _takes(network, config), config["storage"][storage]
    held = FORMATS[entry["format"]]
    if takes.kind != held.kind:
        return f"network {network} takes {takes.kind}, but storage {storage} holds {held.kind}"
    if isinstance(takes, Tokens) and issubclass(held, TokenSequences) and "generate" in entry:
        text = sequences(entry)
        if text.sequence_length < takes.length or text.vocabulary > takes.vocabulary:
            return f"network {network} takes {takes}, but storage {storage} holds {text}"
    return None


def _impossible(combination: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Why a combination cannot run; None when it can."""
    if unfit := _unfit(combination["network"], combination["storage"], config):
        return unfit
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
            own_network=config["networks"].get(combination["network"]),
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


def _supporting_cells(config: Mapping[str, Any], train: list[TrainCell], imported: list[Cell]) -> Iterator[Cell]:
    """The sgemm, collectives and storage jobs that the training cells call for, but for collectives `imported`."""
    known_collectives = {
        (cell.hardware, cell.nodes, cell.backend, cell.reduction)
        for cell in imported
        if isinstance(cell, ImportedCollectivesCell)
    }
    for repeat in range(1, config["repeats"] + 1):
        if "sgemm" in config:
            for network, hardware in dict.fromkeys((cell.network, cell.hardware) for cell in train):
                yield SgemmCell(
                    network=network,
                    batches=sorted(_as_list(config["sgemm"]["batches"])),
                    samples=config["sgemm"]["samples"],
                    own_network=config["networks"].get(network),
                    **_common(config, hardware, nodes=1, workers_per_node=1, repeat=repeat),
                )
        if "collectives" in config:
            for hardware, nodes, backend, reduction in sorted(set(_reductions(train)) - known_collectives):
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


def _imported_cells(config: Mapping[str, Any]) -> Iterator[Cell]:
    """The runs and all-reduces that hardware entries name files for; the same axes again are another repeat."""
    repeats: Counter[str] = Counter()
    for hardware, entry in config["hardware"].items():
        for index, trace in enumerate(entry.get("traces", [])):
            cell = _imported_train_cell(config, hardware, trace, f"hardware.{hardware}.traces[{index}]")
            repeats[cell.path] += 1
            yield replace(cell, repeat=repeats[cell.path])
        for index, log in enumerate(entry.get("collectives", [])):
            common = _common(config, hardware, nodes=log["nodes"], repeat=1, visits=1)
            if log["nodes"] * common["workers_per_node"] == 1:
                raise InputError(f"hardware.{hardware}.collectives[{index}]: one worker has nothing to all-reduce")
            logged = ImportedCollectivesCell(
                files=[log["file"]],
                format=log["format"],
                backend=log.get("backend", BACKENDS[log["format"]]),
                reduction=log["reduction"],
                **common,
            )
            repeats[logged.path] += 1
            yield replace(logged, repeat=repeats[logged.path])


def _imported_train_cell(
    config: Mapping[str, Any], hardware: str, trace: Mapping[str, Any], where: str
) -> ImportedTrainCell:
    """The cell of one entry of ``traces``, which stands at `where`; as the first repeat."""
    compute, batch = trace["scaling"] == "compute", trace["batch"]
    workers = {"workers_per_node": 1} if compute else {}
    common = _common(config, hardware, nodes=1 if compute else trace["nodes"], repeat=1, visits=1, **workers)
    ranks = common["nodes"] * common["workers_per_node"]
    if trace["scaling"] == "strong" and batch % ranks:
        raise InputError(f"{where}: batch {batch} is not divisible by {ranks} workers")
    if trace["prefetch"] and "read" not in trace:
        raise InputError(
            f"{where}: missing read: with prefetch > 0 the files say how long the worker waited for its mini-batch, "
            "not how long reading it from the storage took, s"
        )
    if len(_as_list(trace["files"])) > ranks:
        raise InputError(f"{where}.files: {len(trace['files'])} files, one for each rank, but {ranks} worker(s)")
    if trace["warmup"] >= trace["iterations"]:
        raise InputError(f"{where}: of {trace['iterations']} iterations, warmup {trace['warmup']} leaves none")
    presets = presets_of(config["presets"])
    known(trace["sync"], list(presets), f"{where}.sync", "preset")
    preset = Preset() if compute else presets[trace["sync"]]
    if preset.grouping != "layer":
        raise InputError(
            f"{where}.sync: the files say how long each layer communicates, and {trace['sync']} puts layers together"
        )
    return ImportedTrainCell(
        **{axis: trace[axis] for axis in ("network", "batch", "storage", "scaling", "prefetch")},
        sync="none" if compute else trace["sync"],
        preset=asdict(preset),
        own_network=None,
        worker_batch=batch // ranks if trace["scaling"] == "strong" else batch,
        iterations=trace["iterations"] - trace["warmup"],
        warmup=trace["warmup"],
        readers=1,
        storage_path="",
        storage_format="",
        files=_as_list(trace["files"]),
        read=trace.get("read"),
        host_to_device=trace["host_to_device"],
        update=trace["update"],
        **common,
    )


def _common(config: Mapping[str, Any], hardware: str, **fixed: int) -> dict[str, Any]:
    entry = config["hardware"][hardware]
    return {
        "hardware": hardware,
        "device": entry["device"],
        "threads_per_worker": entry["threads_per_worker"],
        "workers_per_node": entry["workers_per_node"],
        "seed": config["seed"],
        "precision": entry["precision"],
        "anonymise": config["anonymise"],
        "visits": config["visits"],
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
