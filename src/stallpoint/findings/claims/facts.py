"""What the names in a study stand for: the device of a hardware entry, the format of a storage, the kind of a preset.

Claims can so ask for ``hardware.device: cuda`` or ``sync.start: layer-ready``, whatever a study calls its entries.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from stallpoint.findings.claims.language import FACTS
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell
from stallpoint.study.kinds.storage_kind import StorageCell
from stallpoint.study.kinds.train_kind import TrainCell

Facts = dict[str, dict[Any, Any]]
"""``hardware.device`` -> hardware -> device, and so on; facts of a storage are of pairs (hardware, storage)."""


def facts(runs: pd.DataFrame, shared_links: Collection[tuple[str, str]] = ()) -> Facts:
    """The facts of every entry that a cell of the table ``runs`` used.

    `shared_links` are the pairs (hardware, storage) whose reads share the gradients' link.
    """
    found: Facts = {f"{column}.{fact}": {} for column, names in FACTS.items() for fact in names}
    for cell in map(cell_from_json, runs["settings"]):
        found["hardware.device"][cell.hardware] = cell.device
        if isinstance(cell, TrainCell):
            for fact in FACTS["sync"] if cell.scaling != "compute" else ():  # which have nothing to synchronise
                found[f"sync.{fact}"][cell.sync] = cell.preset[fact]
        if isinstance(cell, TrainCell | StorageCell) and not isinstance(cell, ImportedTrainCell):
            pair = (cell.hardware, cell.storage)
            found["storage.format"][pair] = cell.storage_format
            found["storage.shared_link"][pair] = pair in shared_links
    return found


def column_of(frame: pd.DataFrame, name: str, known: Facts) -> pd.Series[Any]:
    """A column of the table, or a fact of one; entries of which nothing is known have an empty text."""
    if name in frame.columns:
        return frame[name]
    of_entry = known.get(name, {})
    column = name.split(".")[0]
    entries = zip(frame["hardware"], frame[column], strict=True) if column == "storage" else frame[column]
    return pd.Series([of_entry.get(entry, "") for entry in entries], index=frame.index, dtype=object)
