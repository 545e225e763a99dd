"""The cells that training calls for: matrix products, all-reduces and reading, each alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from stallpoint.cells import (
    Cell,
    CollectivesCell,
    CopiesCell,
    ImportedCollectivesCell,
    SgemmCell,
    StorageCell,
    TrainCell,
)
from stallpoint.study.catalogue import Catalogue, as_list


def supporting_cells(
    config: Mapping[str, Any], catalogue: Catalogue, train: Collection[TrainCell], imported: Iterable[Cell]
) -> Iterator[Cell]:
    """What the training cells call for: sgemm, collectives (but those `imported`), storage and copies cells."""
    trained = dict.fromkeys((cell.network, cell.hardware) for cell in train)
    reduced = sorted(_reductions(train, catalogue) - _reduced_elsewhere(imported))
    read = sorted({(cell.storage, cell.hardware, cell.nodes) for cell in train})
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
            for hardware, nodes, backend, reduction in reduced:
                yield CollectivesCell(
                    backend=backend,
                    reduction=reduction,
                    message_bytes=_message_sizes(config["collectives"]),
                    samples=config["collectives"]["samples"],
                    **catalogue.common(hardware, nodes=nodes, repeat=repeat, **_visits(config["collectives"])),
                )
        if "storage_reads" in config:
            for storage, hardware, nodes in read:
                yield StorageCell(
                    storage=storage,
                    storage_path=catalogue.storage[storage]["path"],
                    storage_format=catalogue.storage[storage]["format"],
                    samples=config["storage_reads"]["samples"],
                    **catalogue.common(
                        hardware, nodes=nodes, workers_per_node=1, repeat=repeat, **_visits(config["storage_reads"])
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


def _visits(section: Mapping[str, Any]) -> dict[str, int]:
    """How often the cells of a section are visited, where it says so."""
    return {"visits": section["visits"]} if "visits" in section else {}


def _reductions(train: Iterable[TrainCell], catalogue: Catalogue) -> set[tuple[str, int, str, str]]:
    """Hardware, nodes, backend and reduction scheme of the training cells that communicate."""
    found = {(cell.hardware, cell.nodes, cell.sync) for cell in train if cell.ranks > 1}
    used = ((hardware, nodes, catalogue.presets[sync]) for hardware, nodes, sync in found)
    return {
        (hardware, nodes, preset.communicator, preset.scheme) for hardware, nodes, preset in used if preset.communicates
    }


def _reduced_elsewhere(imported: Iterable[Cell]) -> set[tuple[str, int, str, str]]:
    return {
        (cell.hardware, cell.nodes, cell.backend, cell.reduction)
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
