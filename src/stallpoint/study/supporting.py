"""The cells that training calls for: matrix products, all-reduces and reading, each alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from stallpoint.storage import FORMATS
from stallpoint.strategies.presets import ALL_REDUCE, OPERATIONS
from stallpoint.study.catalogue import Catalogue, as_list
from stallpoint.study.cells import (
    Cell,
    CollectivesCell,
    CommandCell,
    CopiesCell,
    ImportedCollectivesCell,
    SgemmCell,
    StorageCell,
    TrainCell,
)
from stallpoint.study.storages import staging


def supporting_cells(
    config: Mapping[str, Any], catalogue: Catalogue, train: Collection[TrainCell], imported: Iterable[Cell]
) -> Iterator[Cell]:
    """What the training cells call for: sgemm, collectives (but those `imported`), storage and copies cells."""
    timed = [cell for cell in train if not isinstance(cell, CommandCell)]
    trained = dict.fromkeys((cell.network, cell.hardware) for cell in timed)
    elsewhere = _reduced_elsewhere(imported)
    reduced = sorted((of, sent) for of, sent in _sent(config, train, catalogue).items() if of not in elsewhere)
    read = sorted(_read(config, catalogue, train))
    for repeat in range(1, config["repeats"] + 1):
        if "sgemm" in config:
            for network, hardware in trained:
                if network not in config["sgemm"].get("networks", [network]):
                    continue
                yield SgemmCell(
                    network=network,
                    batches=sorted(as_list(config["sgemm"]["batches"])),
                    samples=config["sgemm"]["samples"],
                    own_network=catalogue.own_networks.get(network),
                    **catalogue.common(
                        hardware, nodes=1, workers_per_node=1, repeat=repeat, **_visits(config["sgemm"])
                    ),
                )
        if "collectives" in config:
            for (hardware, nodes, workers, backend, reduction), operations in reduced:
                yield CollectivesCell(
                    backend=backend,
                    reduction=reduction,
                    message_bytes=_message_sizes(config["collectives"]),
                    samples=config["collectives"]["samples"],
                    operations=None if operations == [ALL_REDUCE] else operations,
                    **catalogue.common(
                        hardware, nodes=nodes, workers_per_node=workers, repeat=repeat, **_visits(config["collectives"])
                    ),
                )
        if "storage_reads" in config:
            section = config["storage_reads"]
            for storage, hardware, nodes, workers in read:
                memory = catalogue.storage[storage].get("server_memory_gb")
                yield StorageCell(
                    storage=storage,
                    storage_path=catalogue.storage[storage]["path"],
                    storage_format=catalogue.storage[storage]["format"],
                    **{name: section[name] for name in ("samples", "readers", "drop_caches")},
                    checkpoint_bytes=section.get("checkpoint_bytes"),
                    server_memory=None if memory is None else memory * 1e9,
                    **staging(catalogue.storage[storage]),
                    **catalogue.common(
                        hardware, nodes=nodes, workers_per_node=workers, repeat=repeat, **_visits(section)
                    ),
                )
        if "copies" in config:
            for hardware in dict.fromkeys(cell.hardware for cell in train):
                yield CopiesCell(
                    samples=config["copies"]["samples"],
                    **catalogue.common(
                        hardware, nodes=1, workers_per_node=1, repeat=repeat, **_visits(config["copies"])
                    ),
                )


def _read(
    config: Mapping[str, Any], catalogue: Catalogue, train: Collection[TrainCell]
) -> set[tuple[str, str, int, int]]:
    """Storage, hardware, nodes and workers on each of what is read alone: what cells train from, and what none does."""
    also = as_list(config.get("storage_reads", {}).get("also", []))
    places = {(cell.hardware, cell.nodes, cell.workers_per_node, cell.storages) for cell in train}
    read = {(storage, *place) for *place, trained in places for storage in (*trained, *also)}
    return {one for one in read if FORMATS[catalogue.storage[one[0]]["format"]].in_folder}


def _visits(section: Mapping[str, Any]) -> dict[str, int]:
    """How often the cells of a section are visited, where it says so."""
    return {"visits": section["visits"]} if "visits" in section else {}


_Scheme = tuple[str, int, int, str, str]
"""Hardware, nodes, workers per node, backend and reduction scheme."""


def _sent(config: Mapping[str, Any], train: Iterable[TrainCell], catalogue: Catalogue) -> dict[_Scheme, list[str]]:
    """The operations that training cells call for by their schemes, all-reduces and what the study asks for included.

    Where weights are sharded inside nodes, messages go inside a node, and between single workers of several.
    """
    cells = {((cell.hardware, cell.nodes, cell.workers_per_node), cell.sync) for cell in train if cell.ranks > 1}
    found: dict[_Scheme, set[str]] = {}
    for (hardware, nodes, workers), sync in cells:
        preset = catalogue.presets[sync]
        if not preset.communicates:
            continue
        scheme = preset.communicator, preset.scheme
        places = {(nodes, workers): set(preset.operations)}
        if preset.sharding == "node":
            places = {(1, workers): set(preset.operations), (nodes, 1): {ALL_REDUCE}, (nodes, workers): set()}
        for place, operations in places.items():
            if place != (1, 1):
                found.setdefault((hardware, *place, *scheme), set()).update(operations)
    also = {ALL_REDUCE, *as_list(config["collectives"].get("operations", []))} if "collectives" in config else set()
    return {of: [name for name in OPERATIONS if name in operations | also] for of, operations in found.items()}


def _reduced_elsewhere(imported: Iterable[Cell]) -> set[_Scheme]:
    return {
        (cell.hardware, cell.nodes, cell.workers_per_node, cell.backend, cell.reduction)
        for cell in imported
        if isinstance(cell, ImportedCollectivesCell)
    }


def _message_sizes(collectives: Mapping[str, int]) -> list[int]:
    """Message sizes in bytes, growing by 4 from the smallest; the largest is always among them."""
    sizes = []
    size = collectives["smallest"]
    while size < collectives["largest"]:
        sizes.append(size)
        size *= 4
    return [*sizes, collectives["largest"]]
