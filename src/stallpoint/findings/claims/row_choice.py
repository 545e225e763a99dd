"""Which rows of a table a claim's ``where`` chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from stallpoint.findings.claims.facts import Facts, column_of
from stallpoint.findings.claims.language import COMPARISONS, ENDS, LIKE

_COMPARE: dict[str, Callable[[Any, Any], Any]] = dict(
    zip(COMPARISONS, (pd.Series.gt, pd.Series.ge, pd.Series.lt, pd.Series.le), strict=True)
)


def is_end(wanted: object) -> bool:
    """Whether a condition picks the largest or smallest, once all others are met."""
    return isinstance(wanted, str) and wanted in ENDS


def chosen(rows: pd.DataFrame, where: Mapping[str, Any], known: Facts) -> pd.DataFrame:
    """The rows that meet every condition; of those, the ones at the ends that are asked for."""
    for column, wanted in where.items():
        if not is_end(wanted):
            rows = rows[meets(column_of(rows, column, known), wanted)]
    for column, wanted in where.items():
        if is_end(wanted) and len(rows):
            at = column_of(rows, column, known)
            rows = rows[at == (at.max() if wanted == "largest" else at.min())]
    return rows


def meets(values: pd.Series[Any], wanted: Any) -> pd.Series[bool]:
    """Which values are as one condition wants them."""
    if not isinstance(wanted, Mapping):
        return values.isin(_listed(wanted))
    found = pd.Series(True, index=values.index)
    for key, value in wanted.items():
        found &= _compared(values, key, value)
    return found


def _compared(values: pd.Series[Any], key: str, value: Any) -> pd.Series[bool]:
    if key == "not":
        return ~meets(values, value)
    if key == LIKE:
        patterns = [pattern.lower() for pattern in _listed(value)]
        return values.map(lambda name: any(fnmatchcase(str(name).lower(), one) for one in patterns)).astype(bool)
    compared: pd.Series[bool] = _COMPARE[key](values, value)
    return compared


def _listed(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else [wanted]
