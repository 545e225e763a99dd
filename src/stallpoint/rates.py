"""Tables of rates measured elsewhere: CSV files ``series, workers, workers_per_node, samples_per_second``.

``batch_per_worker`` and ``compute_seconds`` (an iteration's computing alone, without communication) are optional;
further columns are not read. A row without a rate asks for a prediction; without workers per node, a batch or a compute
time these are unknown.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from stallpoint.errors import InputError

REQUIRED = ("series", "workers", "workers_per_node", "samples_per_second")
COLUMNS = (*REQUIRED, "batch_per_worker", "compute_seconds")
_POSITIVE = "a positive number is expected"


def read_rates(path: Path) -> pd.DataFrame:
    """The table with the columns `COLUMNS`; `InputError` names the line and what would be right there."""
    text = _read(path)
    if missing := [name for name in REQUIRED if name not in text]:
        raise InputError(f"{path}: no column {', '.join(missing)}; needed are {', '.join(REQUIRED)}")
    text = text.reindex(columns=list(COLUMNS), fill_value="").dropna(how="all").fillna("")
    text = text.apply(lambda column: column.str.strip())
    text = text[(text != "").any(axis=1)]
    if text.empty:
        raise InputError(f"{path}: no rows; a header and one row for each measurement are expected")
    rates: pd.DataFrame = text.assign(**{name: _numbers(path, text[name]) for name in COLUMNS[1:]})
    whole = rates["workers"] == rates["workers"].round()
    _refuse(path, text["series"] == "", text["series"], "a name is expected")
    _refuse(path, ~(whole & (rates["workers"] >= 1)), text["workers"], "a whole number from 1 on is expected")
    _refuse(path, rates["workers_per_node"] <= 0, text["workers_per_node"], f"{_POSITIVE}, or nothing if unknown")
    _refuse(path, rates["batch_per_worker"] <= 0, text["batch_per_worker"], f"{_POSITIVE}, or nothing if unknown")
    _refuse(path, rates["compute_seconds"] <= 0, text["compute_seconds"], f"{_POSITIVE}, or nothing if unknown")
    _refuse(
        path, rates["samples_per_second"] <= 0, text["samples_per_second"], f"{_POSITIVE}, or nothing to predict it"
    )
    return rates.reset_index(drop=True)


def _read(path: Path) -> pd.DataFrame:
    """The file as text; the index is that of its lines, the header being line 1."""
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):  # more fields than columns
            table = pd.read_csv(
                path, dtype=str, index_col=False, skip_blank_lines=False, skipinitialspace=True, encoding="utf-8-sig"
            )
    except FileNotFoundError:
        raise InputError(f"{path}: no such table") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV table ({error})") from None
    table.index = pd.RangeIndex(2, len(table) + 2)
    return table.rename(columns=str.strip)


def _numbers(path: Path, text: pd.Series[str]) -> pd.Series[float]:
    """A column as finite numbers; not a number where nothing is written."""
    values = pd.to_numeric(text.replace({"": "nan"}), errors="coerce").astype(np.float64)
    written = ~text.str.lower().isin(["", "nan"])
    _refuse(path, written & ~np.isfinite(values), text, "a finite number is expected")
    return values


def _refuse(path: Path, wrong: pd.Series[bool], text: pd.Series[str], expected: str) -> None:
    """Raise for the first row of which `wrong` holds."""
    if wrong.any():
        line = int(wrong.index.to_numpy()[wrong.to_numpy().argmax()])
        more = f" (and {wrong.sum() - 1} more such rows)" if wrong.sum() > 1 else ""
        raise InputError(f"{path}, line {line}: {text.name} is {text.loc[line] or 'empty'}; {expected}{more}")
