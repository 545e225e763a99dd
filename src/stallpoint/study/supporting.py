"""Cells that training calls for: matrix products, all-reduces, reading and copies, each measured in isolation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from stallpoint.storage import FORMATS
from stallpoint.study.catalogue import Catalogue
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import Asked
from stallpoint.study.kinds import KINDS
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.imported_kinds import ImportedCollectivesCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.storages import staging


def supporting_cells(
    config: Mapping[str, Any], catalogue: Catalogue, train: Collection[TrainCell], imported: Iterable[Cell]
) -> Iterator[Cell]:
    """Yield the cells of each kind whose section the study has, but all-reduces that were `imported`."""
    asked = Asked(
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
                yield from kind.called_for(asked, repeat)
