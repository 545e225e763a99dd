"""Data frames that have the columns and types of a table, even without rows; checks of the values in records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from typing_extensions import override

from stallpoint.base.section import TableRow
from stallpoint.errors import InputError
from stallpoint.records.tables import FLAG, INT, REAL, TEXT, Table

_TYPES = {TEXT: "str", INT: "int64", REAL: "float64", FLAG: "bool"}

Rows: TypeAlias = pd.DataFrame | Iterable[dict[str, object]]


class Tables(Mapping[str, pd.DataFrame]):
    """Mapping of table names to data frames, each computed on first access."""

    def __init__(self, tables: Iterable[Table], rows: Mapping[str, Callable[[], Rows]]) -> None:
        """Keep the functions that compute the rows of `tables`; `rows` has them by name of the table."""
        self._rows = {table.name: rows[table.name] for table in tables}
        self._tables = {table.name: table for table in tables}
        self._frames: dict[str, pd.DataFrame] = {}

    @override
    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._frames:
            self._frames[name] = frame(self._tables[name], self._rows[name]())
        return self._frames[name]

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._tables

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    @override
    def __len__(self) -> int:
        return len(self._tables)


def frame(table: Table, rows: Rows) -> pd.DataFrame:
    """Return `rows` as a data frame with the columns of `table`, in the order and the types of the table."""
    return typed(table, pd.DataFrame(rows, columns=table.names))


def records(frame: pd.DataFrame) -> list[TableRow]:
    """Return a mapping from column to value for each row of a frame."""
    return [TableRow((str(name), value) for name, value in row.items()) for row in frame.to_dict("records")]


def typed(table: Table, rows: pd.DataFrame) -> pd.DataFrame:
    """Convert `rows` to the types of `table`.

    Without this, empty columns have no type, and pandas groups categorical columns differently. Integers with missing
    values become floats.
    """
    types = {column.name: _TYPES[column.type] for column in table.columns if column.type in _TYPES}
    others = {name: types[name] for name, now in rows.dtypes.items() if name in types and now != types[name]}
    lacking = {name for name, wanted in others.items() if wanted == "int64" and rows[name].isna().any()}
    found = {name: "float64" if name in lacking else wanted for name, wanted in others.items()}
    # Only columns of another type are converted, as `rows.astype` would copy all columns.
    converted = rows[list(found)].astype(found)
    return rows.assign(**{name: converted[name] for name in found})


Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Columns of a frame by name."""


def column_groups(frame: pd.DataFrame, by: str, names: Sequence[str]) -> Iterator[tuple[Any, Columns]]:
    """Yield each value of the column `by`, rising, and the columns `names` of the rows that have this value.

    The columns are arrays: with thousands of values, data frames would take ten times as long.
    """
    group = frame.groupby(by, observed=True).ngroup().to_numpy()
    order = np.argsort(group, kind="stable")
    columns = {name: frame[name].to_numpy()[order] for name in names}
    ends = np.cumsum(np.bincount(group))
    begins = ends - np.bincount(group)
    values = frame[by].iloc[order[begins]]
    for value, first, last in zip(values, begins, ends, strict=True):
        yield value, {name: of[first:last] for name, of in columns.items()}


def refuse(
    frame: pd.DataFrame, table: str, columns: Sequence[str], *, above_zero: bool = False, may_lack: bool = False
) -> None:
    """Raise `InputError`, which names column and cell, if one of `columns` has a missing, infinite or negative value.

    With `above_zero`, 0 is also an error. With `may_lack`, NaN is none: it means that nothing was measured.
    """
    for column in columns:
        values = frame[column].to_numpy(dtype=np.float64)
        low = values <= 0 if above_zero else values < 0
        wrong = low | np.isinf(values) | (np.isnan(values) & (not may_lack))
        if wrong.any():
            first = int(wrong.argmax())
            cell = f" of cell {frame['cell'].iloc[first]}" if "cell" in frame else ""
            wanted = "finite and above 0" if above_zero else "finite and not below 0"
            raise InputError(
                f"{table}: {column} is {values[first]:g} in {int(wrong.sum())} row(s), first in one{cell}; "
                f"it should be {wanted}: measure the cell again or leave it out"
            )
