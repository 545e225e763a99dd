"""Rows as data frames with exactly the columns of a table, in their types even when there are no rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pandas as pd

from stallpoint.records.tables import FLAG, INT, REAL, TEXT, Table

_TYPES = {TEXT: "str", INT: "int64", REAL: "float64", FLAG: "bool"}

Rows: TypeAlias = pd.DataFrame | Sequence[dict[str, object]]


class Tables(Mapping[str, pd.DataFrame]):
    """Tables by name, each made of its `rows` when it is first read."""

    def __init__(self, tables: Iterable[Table], rows: Mapping[str, Callable[[], Rows]]) -> None:
        """Every one of `tables` has its `rows`."""
        self._rows = {table.name: rows[table.name] for table in tables}
        self._tables = {table.name: table for table in tables}
        self._frames: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._frames:
            self._frames[name] = frame(self._tables[name], self._rows[name]())
        return self._frames[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def frame(table: Table, rows: Rows) -> pd.DataFrame:
    """`rows` with the columns of `table`, in its order and types."""
    return of_types(table, pd.DataFrame(rows, columns=table.names))


def of_types(table: Table, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` in the types of `table`: empty columns have none, categorical ones would group otherwise.

    Whole numbers of which some are not known (a counter that a node does not have) are real ones.
    """
    types = {column.name: _TYPES[column.type] for column in table.columns if column.type in _TYPES}
    others = {name: types[name] for name, now in rows.dtypes.items() if name in types and now != types[name]}
    lacking = {name for name, wanted in others.items() if wanted == "int64" and rows[name].isna().any()}
    return rows.astype({name: "float64" if name in lacking else wanted for name, wanted in others.items()})
