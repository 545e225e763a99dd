"""The numbers of a claim: rows of the model tables, chosen, put together, with their interval.

Rows of a column with an interval are put together end by end (the median of the lower ends, that of the upper ends),
and ratios and differences of two numbers take the farthest of their ends. Both are enclosures: never narrower than the
interval of what is computed, so that a verdict errs towards *not distinguishable*. Of a column without an interval
the rows themselves are drawn again (bootstrap).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.claims.conditions import chosen, is_end
from stallpoint.claims.facts import Facts, column_of
from stallpoint.claims.language import Quantity, Selection
from stallpoint.claims.missing import no_rows, no_value
from stallpoint.models.statistics import Reals, bootstrap, estimate, generator

AGGREGATES: dict[str, Callable[..., Any]] = {
    "median": np.median, "mean": np.mean, "min": np.min, "max": np.max, "sum": np.sum,
}  # fmt: skip
_MEASURED_OR_PREDICTED = {"measured", "predicted"}


@dataclass(frozen=True)
class Number:
    """The quantity for one combination; value and ends are not a number where `missing` says what is missing.

    Ends alone are not a number where the interval is not known.
    """

    labels: Mapping[str, Any]
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    rows: int = 0
    basis: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Study:
    """What claims are judged by: tables by name, and the facts behind the names in them."""

    tables: Mapping[str, pd.DataFrame]
    facts: Facts = field(default_factory=dict)


def numbers(quantity: Quantity, study: Study) -> list[Number]:
    """The quantity for each combination of its `for_each` that the study has; one without labels where there is none."""
    selection, own = quantity.selection, _conditions_on(quantity)
    rows = study.tables[selection.table]
    candidates = chosen(rows, own, study.facts)
    if candidates.empty:
        return [Number({}, missing=no_rows(selection, rows, own, study.facts))]
    labels = pd.DataFrame({name: column_of(candidates, name, study.facts) for name in quantity.for_each})
    combinations = labels.drop_duplicates().to_dict("records") if quantity.for_each else [{}]
    return [_number(quantity, {str(k): v for k, v in labels.items()}, study) for labels in combinations]


def _conditions_on(quantity: Quantity) -> dict[str, Any]:
    """The conditions that say which combinations there are: those on `for_each` columns and on facts of them."""
    return {
        column: wanted
        for column, wanted in quantity.selection.where.items()
        if not is_end(wanted) and column.split(".")[0] in quantity.for_each
    }


def _number(quantity: Quantity, labels: dict[str, Any], study: Study) -> Number:
    first = _selected(quantity.selection, labels, study)
    if quantity.other is None or first.missing:
        return first
    second = _selected(quantity.other, labels, study)
    if second.missing:
        return Number(labels, missing=second.missing)
    combine = _ratio if quantity.relation == "over" else _difference
    value, low, high = combine((first.value, first.low, first.high), (second.value, second.low, second.high))
    basis = " and ".join(sorted(({*first.basis.split(" and "), *second.basis.split(" and ")}) - {""}))
    return Number(labels, value, low, high, first.rows + second.rows, basis)


def _selected(selection: Selection, labels: dict[str, Any], study: Study) -> Number:
    """One number of the rows that meet the conditions in one combination."""
    table = study.tables[selection.table]
    where = {**{name: value for name, value in selection.where.items() if name not in labels}, **labels}
    rows = chosen(table, where, study.facts)
    if rows.empty:
        return Number(labels, missing=no_rows(selection, table, {**labels, **where}, study.facts))
    known = rows[rows[selection.column].notna()]
    if known.empty:
        return Number(labels, missing=no_value(selection, rows, where))
    value, low, high = _estimate(selection, known, labels)
    return Number(labels, value, low, high, len(known), _basis(selection, known))


def _estimate(selection: Selection, rows: pd.DataFrame, labels: Mapping[str, Any]) -> tuple[float, float, float]:
    """Value and interval of the rows' column, put together."""
    values = rows[selection.column].to_numpy(dtype=np.float64)
    aggregate = AGGREGATES[selection.aggregate]
    if selection.has_interval:
        ends = (rows[f"{selection.column}_{end}"].to_numpy(dtype=np.float64) for end in ("low", "high"))
        lows, highs = _censored(selection, rows, *ends)
        if selection.absolute:
            values, lows, highs = np.abs(values), _nearest(lows, highs), np.maximum(np.abs(lows), np.abs(highs))
        value, low, high = (float(aggregate(side)) for side in (values, lows, highs))
        return value, low, high
    values = np.abs(values) if selection.absolute else values
    if selection.exact:
        value = float(aggregate(values))
        return value, value, value
    if len(values) == 1:
        return float(values[0]), math.nan, math.nan
    random = generator(0, "claims", selection.table, selection.column, *labels.items())
    return estimate(bootstrap(values, np.zeros(len(values)), random, aggregate))


def _censored(selection: Selection, rows: pd.DataFrame, lows: Reals, highs: Reals) -> tuple[Reals, Reals]:
    """Ends that reach the column up to which was looked: the lower one is no more than that, the upper one unbounded."""
    if selection.censored_at is None:
        return lows, highs
    limit = rows[selection.censored_at].to_numpy(dtype=np.float64)
    return np.minimum(lows, limit), np.where(highs >= limit, np.inf, highs)


def _nearest(lows: Reals, highs: Reals) -> Reals:
    """How near to 0 each interval comes."""
    return np.maximum(np.maximum(lows, -highs), 0.0)


def _ratio(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    """Value and enclosing interval of first / second; unbounded where the second may be 0."""
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    value = _divided(a, b)
    if any(map(math.isnan, (a_low, a_high, b_low, b_high))):
        return value, math.nan, math.nan
    if b_low < 0 <= b_high or b_low <= 0 < b_high and a_low < 0 or b_low == b_high == 0:
        return value, -math.inf, math.inf
    if b_low == 0:  # and nothing is below 0
        return value, _divided(a_low, b_high, 0.0), math.inf
    lows = [_divided(x, y, 0.0) for x, y in product((a_low, a_high), (b_low, b_high))]
    highs = [_divided(x, y, math.inf) for x, y in product((a_low, a_high), (b_low, b_high))]
    return value, min(lows), max(highs)


def _divided(a: float, b: float, unknown: float = math.nan) -> float:
    """a / b; `unknown` where both are unbounded."""
    if math.isinf(a) and math.isinf(b):
        return unknown
    return a / b if b else (math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a))


def _difference(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    """Value and enclosing interval of first - second."""
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    low = -math.inf if math.isinf(b_high) else a_low - b_high
    high = math.inf if math.isinf(a_high) else a_high - b_low
    return (math.nan if math.isinf(a) and math.isinf(b) else a - b), low, high


def _basis(selection: Selection, rows: pd.DataFrame) -> str:
    """Whether the rows were measured or predicted, where the table says so."""
    for basis in ("measured", "predicted"):
        if selection.column.startswith(f"{basis}_"):
            return basis
    if selection.table == "what_if":
        return "predicted"
    if "basis" not in rows.columns or selection.column == "crossing_nodes":  # which has a basis of its own
        return ""
    found = set(rows["basis"])
    return " and ".join(sorted(found)) if found <= _MEASURED_OR_PREDICTED else ""
