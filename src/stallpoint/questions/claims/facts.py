"""Facts about the entries that tables name, and the rows that a claim's ``where`` chooses.

A fact is the device of a hardware, the format of a storage, or the kind of a preset. Claims can ask for
``hardware.device: cuda`` or ``sync.start: layer-ready``, by whatever name a study calls its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from stallpoint.questions.claims.language import COMPARISONS, ENDS, FACTS, LIKE_CONDITION
from stallpoint.strategies.presets import default_of
from stallpoint.study.job_kind import as_list
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell
from stallpoint.study.kinds.storage_kind import StorageCell
from stallpoint.study.kinds.train_kind import TrainCell

Facts = dict[str, dict[Any, Any]]
"""Facts by name and entry: ``hardware.device`` -> hardware -> device; facts of a storage by (hardware, storage)."""


def facts(runs: pd.DataFrame, shared_links: Collection[tuple[str, str]] = ()) -> Facts:
    """Return the facts of every entry that cells in the table ``runs`` used.

    `shared_links` are pairs of hardware and storage: reads and gradients share a link there.
    """
    found: Facts = {f"{column}.{fact}": {} for column, names in FACTS.items() for fact in names}
    for cell in map(cell_from_json, runs["settings"]):
        found["hardware.device"][cell.hardware] = cell.device
        if isinstance(cell, TrainCell):
            for fact in FACTS["sync"] if cell.scaling != "compute" else ():  # compute cells do not synchronise
                found[f"sync.{fact}"][cell.sync] = cell.preset.get(fact, default_of(fact))
        if isinstance(cell, TrainCell | StorageCell) and not isinstance(cell, ImportedTrainCell):
            pair = (cell.hardware, cell.storage)
            found["storage.format"][pair] = cell.storage_format
            found["storage.shared_link"][pair] = pair in shared_links
    return found


def column_of(frame: pd.DataFrame, name: str, known: Facts) -> pd.Series[Any]:
    """Return the column `name` or, if `name` is a fact, the fact for each row. Unknown facts are empty texts."""
    if name in frame.columns:
        return frame[name]
    fact_of = known.get(name, {})
    column = name.split(".")[0]
    entries = zip(frame["hardware"], frame[column], strict=True) if column == "storage" else frame[column]
    return pd.Series([fact_of.get(entry, "") for entry in entries], index=frame.index, dtype=object)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = dict(
    zip(COMPARISONS, (pd.Series.gt, pd.Series.ge, pd.Series.lt, pd.Series.le), strict=True)
)


def is_end(condition: object) -> bool:
    """Return whether a condition selects the largest or smallest value: it then applies after all others."""
    return isinstance(condition, str) and condition in ENDS


def choose_rows(rows: pd.DataFrame, where: Mapping[str, object], known: Facts) -> pd.DataFrame:
    """Return the rows that meet every condition. Conditions on the largest or smallest value are applied last."""
    for column, wanted in where.items():
        if not is_end(wanted):
            rows = rows[meets_condition(column_of(rows, column, known), wanted)]
    for column, wanted in where.items():
        if is_end(wanted) and len(rows):
            values = column_of(rows, column, known)
            rows = rows[values == (values.max() if wanted == "largest" else values.min())]
    return rows


def meets_condition(values: pd.Series[Any], condition: Any) -> pd.Series[bool]:
    """Return for each value whether it meets the condition."""
    if not isinstance(condition, Mapping):
        return values.isin(as_list(condition))
    found = pd.Series(True, index=values.index)
    for key, value in condition.items():
        found &= _compared(values, key, value)
    return found


def _compared(values: pd.Series[Any], key: str, value: Any) -> pd.Series[bool]:
    if key == "not":
        return ~meets_condition(values, value)
    if key == LIKE_CONDITION:
        patterns = [pattern.lower() for pattern in as_list(value)]
        return values.map(lambda name: any(fnmatchcase(str(name).lower(), one) for one in patterns)).astype(bool)
    compared: pd.Series[bool] = _COMPARE[key](values, value)
    return compared
