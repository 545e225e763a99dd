"""External tables of rates: CSV files with columns ``series, workers, workers_per_node, samples_per_second``.

Columns ``batch_per_worker`` and ``compute_seconds`` (an iteration's computing without communication) are optional;
further columns are ignored. A row without a rate asks for a prediction; other empty cells are unknown values.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from stallpoint.errors import InputError
from stallpoint.text import NUMBER_PATTERN
from stallpoint_files.texts.numbers import MAX_RATE, MAX_WORKERS, MIN_RATE

REQUIRED = ("series", "workers", "workers_per_node", "samples_per_second")
COLUMNS = (*REQUIRED, "batch_per_worker", "compute_seconds")
_POSITIVE = f"a positive number ({MIN_RATE:g} to {MAX_RATE:g}) is expected"
_AT_ONCE = 50_000
"""Rows that are text at one time."""


def read_rates(path: Path) -> pd.DataFrame:
    """Return the table with the columns `COLUMNS`; `InputError` names a wrong line and what is expected there."""
    rates = pd.concat([_checked(path, text) for text in _parts(path)], ignore_index=True)
    if rates.empty:
        raise InputError(f"{path}: no rows; a header and one row for each measurement are expected")
    return rates


def _checked(path: Path, text: pd.DataFrame) -> pd.DataFrame:
    """Return a part of the table with its columns converted to numbers and checked."""
    text = text.reindex(columns=list(COLUMNS), fill_value="").dropna(how="all").fillna("")
    text = text.apply(lambda column: column.str.strip())
    text = text[(text != "").any(axis=1)]
    rates: pd.DataFrame = text.assign(**{name: _numbers(path, text[name]) for name in COLUMNS[1:]})
    workers = rates["workers"]
    _refuse(path, text["series"] == "", text["series"], "a name is expected")
    integer = (workers == workers.round()) & workers.between(1, MAX_WORKERS)
    _refuse(path, ~integer, text["workers"], f"a whole number from 1 on is expected, up to {MAX_WORKERS:,}")
    for name in COLUMNS[2:]:
        else_what = "to predict it" if name == "samples_per_second" else "if unknown"
        wrong = rates[name].notna() & ~rates[name].between(MIN_RATE, MAX_RATE)
        _refuse(path, wrong, text[name], f"{_POSITIVE}, or nothing {else_what}")
    return rates


def _parts(path: Path) -> Iterator[pd.DataFrame]:
    """Yield successive parts of the file as text columns, indexed by line number (the header is line 1)."""
    line = 2
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):  # a row is too long
            parts = pd.read_csv(
                path, dtype=str, index_col=False, skip_blank_lines=False, skipinitialspace=True, encoding="utf-8-sig",
                chunksize=_AT_ONCE,
            )  # fmt: skip
            for part in parts:
                named = part.rename(columns=str.strip)
                if missing := [name for name in REQUIRED if name not in named]:
                    raise InputError(f"{path}: no column {', '.join(missing)}; needed are {', '.join(REQUIRED)}")
                yield named.set_axis(pd.RangeIndex(line, line + len(named)))
                line += len(named)
    except FileNotFoundError:
        raise InputError(f"{path}: no such table") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV table ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _numbers(path: Path, text: pd.Series[str]) -> pd.Series[float]:
    """Return a column as finite numbers, NaN for empty cells."""
    written = ~text.str.lower().isin(["", "nan"])
    plain = text.str.fullmatch(NUMBER_PATTERN)
    values = text.where(plain, "nan").to_numpy(object).astype(np.float64)
    _refuse(path, written & ~np.isfinite(values), text, "a finite number is expected")
    return pd.Series(values, text.index)


def _refuse(path: Path, wrong: pd.Series[bool], text: pd.Series[str], expected: str) -> None:
    """Raise `InputError` for the first row that is `wrong`."""
    if wrong.any():
        line = int(wrong.index.to_numpy()[wrong.to_numpy().argmax()])
        more = f" (and {wrong.sum() - 1} more such rows)" if wrong.sum() > 1 else ""
        cell = str(text.loc[line])[:40] or "empty"
        raise InputError(f"{path}, line {line}: {text.name} is {cell}; {expected}{more}")
