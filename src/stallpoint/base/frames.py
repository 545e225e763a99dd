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
        """Take `tables`, and in `rows`, by the name of each table, the function that computes the table's rows."""
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
    wanted_types = {name: types[name] for name, type_ in rows.dtypes.items() if name in types and type_ != types[name]}
    columns_with_gaps = {name for name, wanted in wanted_types.items() if wanted == "int64" and rows[name].isna().any()}
    new_types = {name: "float64" if name in columns_with_gaps else wanted for name, wanted in wanted_types.items()}
    # Only columns of another type are converted, as `rows.astype` would copy all columns.
    converted_columns = rows[list(new_types)].astype(new_types)
    return rows.assign(**{name: converted_columns[name] for name in new_types})


Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Columns of a frame by name."""


def column_groups(frame: pd.DataFrame, column: str, names: Sequence[str]) -> Iterator[tuple[Any, Columns]]:
    """Yield each value of a column, rising, and the columns `names` of the rows that have this value.

    The columns are arrays: with thousands of values, data frames would take ten times as long.
    """
    group = frame.groupby(column, observed=True).ngroup().to_numpy()
    row_order = np.argsort(group, kind="stable")
    columns = {name: frame[name].to_numpy()[row_order] for name in names}
    group_ends = np.cumsum(np.bincount(group))
    group_begins = group_ends - np.bincount(group)
    values = frame[column].iloc[row_order[group_begins]]
    for value, first, last in zip(values, group_begins, group_ends, strict=True):
        yield value, {name: all_values[first:last] for name, all_values in columns.items()}


def refuse_wrong_rows(
    frame: pd.DataFrame, table: str, columns: Sequence[str], *, above_zero: bool = False, may_have_gaps: bool = False
) -> None:
    """Raise `InputError`, which names column and cell, if one of `columns` has a missing, infinite or negative value.

    With `above_zero`, 0 is also an error. With `may_have_gaps`, NaN is allowed: nothing was measured there.
    """
    for column in columns:
        values = frame[column].to_numpy(dtype=np.float64)
        is_too_low = values <= 0 if above_zero else values < 0
        is_wrong = is_too_low | np.isinf(values) | (np.isnan(values) & (not may_have_gaps))
        if is_wrong.any():
            first_row = int(is_wrong.argmax())
            cell = f" of cell {frame['cell'].iloc[first_row]}" if "cell" in frame else ""
            expectation = "finite and above 0" if above_zero else "finite and not below 0"
            raise InputError(
                f"{table}: {column} is {values[first_row]:g} in {int(is_wrong.sum())} row(s), first in one{cell}; "
                f"it should be {expectation}: measure the cell again or leave it out"
            )
