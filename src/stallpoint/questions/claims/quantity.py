"""The numbers of a claim: chosen rows of the model tables, reduced to one number with an interval.

Intervals of rows are reduced end by end (median of the lower ends, median of the upper ends). A ratio or difference of
two numbers takes the most distant ends. Both enclose the result's interval, so that a verdict errs towards *not
distinguishable*. Rows without intervals are resampled (bootstrap), or the claim states their relative error (`spread`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.statistics import Reals, estimate, generator, resampled
from stallpoint.questions.claims.facts import Facts, choose_rows, column_of, is_end
from stallpoint.questions.claims.language import Quantity, Selection
from stallpoint.questions.claims.missing import why_no_other_row, why_no_rows, why_no_value

AGGREGATES: dict[str, Callable[..., Any]] = {
    "median": np.median, "mean": np.mean, "min": np.min, "max": np.max, "sum": np.sum,
}  # fmt: skip
_MEASURED_OR_PREDICTED = {"measured", "predicted"}


@dataclass(frozen=True)
class Number:
    """The value of a quantity in one combination, with the ends of its interval.

    The ends are NaN if the interval is unknown. If cells are `missing` from the study, the value is NaN, too.
    """

    labels: Mapping[str, object]
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    censored: bool = False
    """Whether the limit of the search was reached, so that the value is a lower bound."""
    rows: pd.Index[Any] = field(default_factory=lambda: pd.RangeIndex(0))
    basis: str = ""
    missing: str = ""
    self_comparison: str = ""
    """Why the number compares cells with themselves, if it does; else empty."""


@dataclass(frozen=True)
class Evidence:
    """Evidence on claims: tables by name, and facts about the entries that tables name."""

    tables: Mapping[str, pd.DataFrame]
    facts: Facts = field(default_factory=dict)


def numbers(quantity: Quantity, evidence: Evidence) -> list[Number]:
    """Return the number of each combination of `for_each`. Without combinations, return one number without labels."""
    selection, table = quantity.selection, evidence.tables[quantity.selection.table]
    combinations = _combinations(quantity, evidence)
    if combinations.empty:
        return [Number({}, missing=why_no_rows(selection, table, {}, evidence.facts))]
    selections = [_SelectedRows(side, quantity.for_each, evidence) for side in (selection, quantity.other) if side]
    labels = combinations.to_dict("records") if quantity.for_each else [{}]
    return [_number(quantity, {str(name): label for name, label in of.items()}, selections) for of in labels]


def _combinations(quantity: Quantity, evidence: Evidence) -> pd.DataFrame:
    """Return the combinations of `for_each` columns in rows that meet the conditions on them and on their facts."""
    conditions = {
        column: wanted
        for column, wanted in quantity.selection.where.items()
        if not is_end(wanted) and column.split(".")[0] in quantity.for_each
    }
    rows = choose_rows(evidence.tables[quantity.selection.table], conditions, evidence.facts)
    return _columns(rows, quantity.for_each, evidence.facts).drop_duplicates() if quantity.for_each else rows


def _columns(rows: pd.DataFrame, names: Sequence[str], known: Facts) -> pd.DataFrame:
    return pd.DataFrame({name: column_of(rows, name, known) for name in names}, index=rows.index)


class _SelectedRows:
    """The rows that one selection of a quantity chooses, by combination."""

    def __init__(self, selection: Selection, for_each: Sequence[str], evidence: Evidence) -> None:
        self._selection, self._evidence = selection, evidence
        self._ends = {column: wanted for column, wanted in selection.where.items() if is_end(wanted)}
        others = {column: wanted for column, wanted in selection.where.items() if column not in self._ends}
        rows = choose_rows(evidence.tables[selection.table], others, evidence.facts)
        keys = _columns(rows, for_each, evidence.facts).itertuples(index=False, name=None) if for_each else ()
        self._places: dict[tuple[Any, ...], list[int]] = {} if for_each else {(): list(range(len(rows)))}
        for place, key in enumerate(keys):
            self._places.setdefault(key, []).append(place)
        self._rows = rows

    def number(self, labels: dict[str, object]) -> Number:
        """Return the number of one combination."""
        selection, evidence = self._selection, self._evidence
        rows = self._rows.iloc[self._places.get(tuple(labels.values()), [])]
        rows = choose_rows(rows, self._ends, evidence.facts)
        if rows.empty:
            missing = why_no_rows(selection, evidence.tables[selection.table], labels, evidence.facts)
            return Number(labels, missing=missing)
        known = rows[rows[selection.column].notna()]
        if known.empty:
            return Number(labels, missing=why_no_value(selection, rows))
        self_comparison = ""
        if selection.relative:
            others = known[~_is_own_reference(selection, known)]
            self_comparison = "" if len(others) else why_no_other_row(selection, known)
            known = others if len(others) else known
        value, low, high = _estimate(selection, known, labels)
        return Number(
            labels,
            value=value,
            low=low,
            high=high,
            censored=_is_censored(selection, known),
            rows=known.index,
            basis=_basis(selection, known),
            self_comparison=self_comparison,
        )

    def end(self, column: str, labels: Mapping[str, object]) -> Any:
        """Return the extreme value of a column in one combination. A condition selects the largest or smallest."""
        rows = self._rows.iloc[self._places.get(tuple(labels.values()), [])]
        return column_of(choose_rows(rows, self._ends, self._evidence.facts), column, self._evidence.facts).iloc[0]


def _is_own_reference(selection: Selection, rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which rows of a relative column are their own reference: the ratio of a cell to itself is always 1."""
    names = (selection.column, f"{selection.column}_low", f"{selection.column}_high")
    return (rows[[name for name in names if name in rows]] == 1).all(axis=1)


def _number(quantity: Quantity, labels: dict[str, object], selections: Sequence[_SelectedRows]) -> Number:
    """Return the number of one combination from one selection or two."""
    found = [side.number(labels) for side in selections]
    missing = next((number.missing for number in found if number.missing), "")
    if missing:
        return Number(labels, missing=missing)
    if all(number.self_comparison for number in found):
        return Number(labels, missing=found[0].self_comparison)
    if quantity.other is None:
        return found[0]
    first, second = found
    if equal := _equal_axes(quantity, labels, selections, first.rows.equals(second.rows)):
        return Number(labels, missing=f"needs two different {', '.join(equal)}")
    combine_numbers = ratio if quantity.relation == "over" else difference
    value, low, high = combine_numbers((first.value, first.low, first.high), (second.value, second.low, second.high))
    return Number(
        labels,
        value=math.nan if first.censored or second.censored else value,
        low=low,
        high=high,
        rows=first.rows.append(second.rows),
        basis=" and ".join(sorted({*first.basis.split(" and "), *second.basis.split(" and ")} - {""})),
    )


def _equal_axes(
    quantity: Quantity, labels: Mapping[str, object], selections: Sequence[_SelectedRows], same_rows: bool
) -> list[str]:
    """Return columns that should differ between two selections but agree, so that cells are compared with themselves.

    With `same_rows`, all columns with different conditions agree. Otherwise, columns with equal extreme values agree.
    """
    first, other = quantity.selection, quantity.other
    if other is None or (first.table, first.column) != (other.table, other.column):
        return []
    differing = [column for column, wanted in other.where.items() if first.where.get(column) != wanted]
    if same_rows:
        return differing
    ends = [column for column in differing if is_end(first.where.get(column)) and is_end(other.where[column])]
    return [column for column in ends if selections[0].end(column, labels) == selections[1].end(column, labels)]


def _estimate(selection: Selection, rows: pd.DataFrame, labels: Mapping[str, object]) -> tuple[float, float, float]:
    """Return the value of the selected column and its interval, reduced over the rows."""
    values = rows[selection.column].to_numpy(dtype=np.float64)
    aggregate = AGGREGATES[selection.aggregate]
    if selection.has_interval:
        ends = (rows[f"{selection.column}_{end}"].to_numpy(dtype=np.float64) for end in ("low", "high"))
        values, lows, highs = _censored_ends(selection, rows, values, *ends)
        if selection.absolute:
            values, lows, highs = np.abs(values), _nearest(lows, highs), np.maximum(np.abs(lows), np.abs(highs))
        value, low, high = (float(aggregate(side)) for side in (values, lows, highs))
        return value, low, high
    values = np.abs(values) if selection.absolute else values
    if selection.exact or selection.spread:
        value = float(aggregate(values))
        deviation = (selection.spread or 0.0) * abs(value)
        return value, value - deviation, value + deviation
    random = generator(0, "claims", selection.table, selection.column, *labels.items())
    return estimate(resampled(values, random, aggregate))


def _censored_ends(
    selection: Selection, rows: pd.DataFrame, values: Reals, lower_ends: Reals, upper_ends: Reals
) -> tuple[Reals, Reals, Reals]:
    """Return values and ends of intervals, cut at the limit of the search. Upper ends at the limit become infinite."""
    if selection.censored_at is None:
        return values, lower_ends, upper_ends
    limit = rows[selection.censored_at].to_numpy(dtype=np.float64)
    return np.minimum(values, limit), np.minimum(lower_ends, limit), np.where(upper_ends >= limit, np.inf, upper_ends)


def _is_censored(selection: Selection, rows: pd.DataFrame) -> bool:
    """Return whether the number is only a lower bound, as the search for the quantity reached its limit."""
    if selection.censored_at is None:
        return False
    values = rows[selection.column].to_numpy(dtype=np.float64)
    unbounded_values = np.where(values >= rows[selection.censored_at].to_numpy(dtype=np.float64), np.inf, values)
    return bool(np.isinf(AGGREGATES[selection.aggregate](unbounded_values)))


def _nearest(lower_ends: Reals, upper_ends: Reals) -> Reals:
    return np.maximum(np.maximum(lower_ends, -upper_ends), 0.0)


def ratio(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return first / second and an interval that encloses it, which is unbounded if the second may be 0."""
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    value = _divided(a, b)
    if any(map(math.isnan, (a_low, a_high, b_low, b_high))):
        return value, math.nan, math.nan
    if b_low == 0 < b_high and a_low >= 0:
        return value, _divided(a_low, b_high, 0.0), math.inf
    if b_low <= 0 <= b_high:
        return value, -math.inf, math.inf
    lower_ends = [_divided(x, y, 0.0) for x, y in product((a_low, a_high), (b_low, b_high))]
    upper_ends = [_divided(x, y, math.inf) for x, y in product((a_low, a_high), (b_low, b_high))]
    return value, min(lower_ends), max(upper_ends)


def _divided(a: float, b: float, unknown: float = math.nan) -> float:
    """Return a / b, or `unknown` if both are infinite."""
    if math.isinf(a) and math.isinf(b):
        return unknown
    return a / b if b else (math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a))


def difference(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return first - second and an interval that encloses it."""
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    low = -math.inf if math.isinf(b_high) else a_low - b_high
    high = math.inf if math.isinf(a_high) else a_high - b_low
    return (math.nan if math.isinf(a) and math.isinf(b) else a - b), low, high


def _basis(selection: Selection, rows: pd.DataFrame) -> str:
    """Return whether the rows are ``measured`` or ``predicted``; empty if the table does not say."""
    for basis in ("measured", "predicted"):
        if selection.column.startswith(f"{basis}_"):
            return basis
    if selection.table == "what_if":
        return "predicted"
    if "basis" not in rows.columns or selection.column == "crossing_ranks":  # here ``basis`` is about the stall
        return ""
    found = set(rows["basis"])
    return " and ".join(sorted(found)) if found <= _MEASURED_OR_PREDICTED else ""
