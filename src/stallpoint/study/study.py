"""A study, made from its configuration: its entries, and all cells that can run.

`catalogue` finds the entries that a study names, `matrix` makes training cells, and `plan_of` describes what will run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stallpoint.errors import InputError
from stallpoint.storage import FORMATS
from stallpoint.study.catalogue import Catalogue, entries_made_before, resolve, shape, staging
from stallpoint.study.cells import Cell
from stallpoint.study.configuration import check, list_folders
from stallpoint.study.convergence_cells import convergence_cells
from stallpoint.study.job_kind import RequestedCells
from stallpoint.study.kinds import KINDS
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.matrix import Exclusion, imported_cells, training_cells
from stallpoint.study.workers import nodes_and_workers

__all__ = ["Exclusion", "Study", "expand", "shape"]


@dataclass(frozen=True)
class Study:
    """A valid study: its configuration, its cells, and the excluded combinations."""

    name: str
    config: Mapping[str, Any]
    """The configuration with every default filled in."""
    cells: Mapping[str, Cell]
    """Cells by their paths below ``results/raw``."""
    excluded: tuple[Exclusion, ...]

    @property
    def available(self) -> dict[str, int]:
        """Number of nodes of each hardware entry."""
        return {name: entry["nodes"] for name, entry in self.config["hardware"].items()}

    @property
    def nested(self) -> frozenset[str]:
        """Hardware entries whose cells are divided into several jobs, one for each number of nodes."""
        return frozenset(name for name, entry in self.config["hardware"].items() if entry.get("nested"))

    @property
    def rated(self) -> dict[str, dict[str, float]]:
        """Hardware entry -> its ratings. Of a worker: ``flops``, FLOP/s. Of a node: ``link``, B/s; ``power``, W; and
        ``price`` for an hour."""
        units = {
            "flops": ("rated_tflops", 1e12), "link": ("rated_gbits", 1e9 / 8), "power": ("node_watts", 1.0),
            "price": ("price_per_node_hour", 1.0),
        }  # fmt: skip
        return {
            name: {rating: unit * entry[key] for rating, (key, unit) in units.items() if key in entry}
            for name, entry in self.config["hardware"].items()
        }

    @property
    def failures(self) -> dict[str, dict[str, float]]:
        """Settings under ``failures`` of the hardware entries that have them."""
        return {name: entry["failures"] for name, entry in self.config["hardware"].items() if "failures" in entry}

    @property
    def shared_links(self) -> list[tuple[str, str]]:
        """Pairs of a hardware and a storage entry for which data and gradients use the same link of a node."""
        shared_storages = [name for name, entry in self.config["storage"].items() if entry["shared_link"]]
        return [(hardware, storage) for hardware in self.config["hardware"] for storage in shared_storages]

    def entries_made_before(self, storage: str) -> list[str]:
        """Return the storage entries that must be ready before `storage`."""
        return entries_made_before(storage, self.config["storage"])

    def converted_from(self, storage: str) -> dict[str, Any] | None:
        """Return the entry from which `storage` is converted, with its name as ``name``; None without such an entry."""
        source = self.config["storage"][storage].get("convert_from")
        return {"name": source, **self.config["storage"][source]} if source else None

    def cells_of_kind(self, kind: str) -> list[Cell]:
        """Return the cells of one kind of job, in the order of the study."""
        return [cell for cell in self.cells.values() if cell.kind == kind]

    def values(self, axis: str) -> list[Any]:
        """Return the different values that the cells have on `axis`, sorted."""
        found = {getattr(cell, axis) for cell in self.cells.values() if axis in cell.axes}
        return sorted(found, key=lambda value: (str(type(value)), value))

    def plan(self) -> str:
        """Return a few lines: how many cells will run, and how many combinations are excluded."""
        return plan_of(self.name, self.cells, self.excluded)

    @property
    def reasons(self) -> list[str]:
        """Reasons for exclusions, each with its number of combinations and an example."""
        return reasons(self.excluded)


def expand(config: Mapping[str, Any], schema: Mapping[str, Any]) -> Study:
    """Return the study that `config` describes; `schema` is the JSON schema of studies.

    Raises `InputError`, which names the wrong entries.
    """
    config = check(config, schema)
    list_folders(config)
    catalogue = resolve(config)
    train, excluded = training_cells(config, catalogue)
    runs, no_runs = convergence_cells(config, catalogue)
    imported = list(imported_cells(catalogue))
    other_cells = supporting_cells(config, catalogue, train.values(), imported)
    cells: dict[str, Cell] = {**train, **{cell.path: cell for cell in (*other_cells, *runs, *imported)}}
    if not cells and not config["external_tables"]:
        raise InputError("the study has no cell to run: matrix excludes every combination, and nothing is imported")
    return Study(name=config["study"], config=config, cells=cells, excluded=(*excluded, *no_runs))


def supporting_cells(
    config: Mapping[str, Any], catalogue: Catalogue, train: Collection[TrainCell], imported: Iterable[Cell]
) -> Iterator[Cell]:
    """Yield the cells that support training, such as storage cells, of each kind whose section the study has."""
    request = RequestedCells(
        config=config,
        presets=catalogue.presets,
        own_networks=catalogue.own_networks,
        storage=catalogue.storage,
        folders={name for name, entry in catalogue.storage.items() if FORMATS[entry["format"]].in_folder},
        staging={name: staging(entry) for name, entry in catalogue.storage.items()},
        defaults=catalogue.defaults,
        training=list(train),
        timed=[cell for cell in train if not isinstance(cell, CommandCell)],
        imported=[cell for cell in imported if isinstance(cell, ImportedCollectivesCell)],
    )
    for repeat in range(1, config["repeats"] + 1):
        for kind in KINDS.values():
            if kind.called_for and kind.section in config:
                yield from kind.called_for(request, repeat)


# --- plan of a study, for a dry run -----------------------------------------------------------------


def plan_of(name: str, cells: Mapping[str, Cell], excluded: tuple[Exclusion, ...]) -> str:
    """Return a few lines: how many cells of the study will run, and how many combinations are excluded."""
    return "\n".join([f"study {name}: {len(cells)} cells", *_cell_counts(cells.values()), *_exclusion_lines(excluded)])


def _cell_counts(cells: Iterable[Cell]) -> Iterator[str]:
    counts = Counter((cell.kind, cell.hardware, cell.placement) for cell in cells)
    if not counts:
        return
    kind_width = max(len("collectives"), *(len(kind) for kind, _, _ in counts)) + 2
    hardware_width = max(len("hardware"), *(len(hardware) for _, hardware, _ in counts)) + 2
    nodes_width = max(len("nodes"), *(len(nodes_and_workers(at)) for _, _, at in counts))
    yield f"  {'kind':<{kind_width}}{'hardware':<{hardware_width}}{'nodes':>{nodes_width}}{'cells':>8}"
    for (kind, hardware, at), count in sorted(
        counts.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0])
    ):
        yield f"  {kind:<{kind_width}}{hardware:<{hardware_width}}{nodes_and_workers(at):>{nodes_width}}{count:>8}"


def reasons(excluded: tuple[Exclusion, ...]) -> list[str]:
    """Return the reasons for exclusions, each with its number of combinations and an example."""
    found: dict[str, list[Exclusion]] = {}
    for entry in excluded:
        found.setdefault(entry.reason, []).append(entry)
    return [f"{len(entries)} × {reason} (such as {_example_in_words(entries[0])})" for reason, entries in found.items()]


def _example_in_words(entry: Exclusion) -> str:
    per_node_axis = ["workers_per_node"] if entry.axes["workers_per_node"] > 1 else []
    named_axes = ("network", "hardware", "nodes", *per_node_axis, "batch", "scaling")
    return ", ".join(f"{axis} {entry.axes[axis]}" for axis in named_axes if axis in entry.axes)


def _exclusion_lines(excluded: tuple[Exclusion, ...]) -> Iterator[str]:
    if not excluded:
        return
    yield f"  excluded: {len(excluded)}"
    found_reasons = reasons(excluded)
    yield from (f"    {'':<{5 - len(reason.split()[0])}}{reason}" for reason in found_reasons[:12])
    if len(found_reasons) > 12:
        yield f"    and for {len(found_reasons) - 12} more reasons"
