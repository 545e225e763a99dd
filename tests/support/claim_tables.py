"""Rows of model tables for claims; and tables that give a claim a wanted verdict, written from the claim itself.

Of a claim the planter knows its language alone (`questions.claims.language`): each side of the quantity becomes rows
that meet its conditions, with numbers that come out in or out of the claim's condition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pandas as pd

from stallpoint.base.frames import frame
from stallpoint.questions.claims.facts import Facts, is_end, meets
from stallpoint.questions.claims.judge import FAILS, HOLDS, UNCLEAR
from stallpoint.questions.claims.language import Claim, Condition, Quantity, Selection
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.records.tables import TABLES

Interval: TypeAlias = tuple[float, float, float]
"""Value, lower and upper end."""
Rows: TypeAlias = dict[str, list[dict[str, Any]]]

EMPTY = {"large_string": "", "int64": 0, "double": math.nan, "bool": False}
SMALLEST, LARGEST = 2**39, 2**40
"""Numbers where a claim asks for an end; nothing planted is censored by them."""
UNIT = 10**6
"""What a ratio is to: large, so that whole numbers can make any ratio."""
RESAMPLED = 8
"""Rows of a column without an interval, of which rows are drawn again."""
MARGIN = 0.05
"""How far from the limit of the condition, as a part of it, or of 1 where it is 0."""


def row(table: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table; columns that are not given are empty."""
    unknown = set(given) - {column.name for column in TABLES[table].columns}
    assert not unknown, f"{table} has no {unknown}"
    return {column.name: EMPTY[str(column.type)] for column in TABLES[table].columns} | dict(given)


def evidence(rows: Mapping[str, list[dict[str, Any]]], facts: Facts | None = None) -> Evidence:
    """Tables of the given rows."""
    frames = {name: frame(TABLES[name], [row(name, one) for one in given]) for name, given in rows.items()}
    return Evidence(frames, facts or {})


# --- planting ---------------------------------------------------------------------------------------


def targets(condition: Condition, verdict: str) -> list[Interval]:
    """Numbers with the wanted verdict (holds, does not hold, not distinguishable): one beside each end there is."""
    ends = [(end, side) for end, side in ((condition.low, 1), (condition.high, -1)) if math.isfinite(end)]
    return [_beside(end, side * MARGIN * (abs(end) or 1), verdict) for end, side in ends]


def _beside(end: float, inwards: float, verdict: str) -> Interval:
    inside, outside = end + inwards, end - inwards
    if verdict == UNCLEAR:
        return end, min(inside, outside), max(inside, outside)
    value = {HOLDS: inside, FAILS: outside}[verdict]
    return value, value, value


def sides(quantity: Quantity) -> list[Selection]:
    """The selections that the quantity is made of."""
    return [quantity.selection, *([quantity.other] if quantity.other else [])]


def is_exact(quantity: Quantity) -> bool:
    """Whether all its numbers are whole: they lie in the condition or out of it, and are never not distinguishable."""
    return all(selection.exact for selection in sides(quantity))


def conditions(quantity: Quantity) -> Iterator[tuple[str, Any]]:
    """Each condition on a column of some side that a row can fail; ends pick a row whatever there is."""
    for selection in sides(quantity):
        yield from ((column, wanted) for column, wanted in selection.where.items() if not is_end(wanted))


def planted(
    claim: Claim, target: Interval, failing: tuple[str, Any] | None = None, labels: Mapping[str, Any] | None = None
) -> Evidence:
    """Tables from which the quantity of `claim` comes out as `target`, for the combination of these `labels`.

    None of their rows meets the condition `failing`.
    """
    quantity = claim.quantity
    assert quantity is not None
    rows: Rows = {}
    facts: Facts = {}
    for selection, number in zip(sides(quantity), _numbers(quantity, target), strict=False):
        values = list(_values(selection, number))
        there = rows.setdefault(selection.table, [])
        if selection is quantity.other and _same_rows(quantity):
            _beside_each_other(there, values)
        else:
            met = _labels(selection, failing, _known(quantity) | dict(labels or {}), facts)
            there += [met | one for one in values]
    return evidence(rows, facts)


def together(first: Evidence, second: Evidence) -> Evidence:
    """The rows and facts of both, planted for one claim."""
    tables = {name: pd.concat([rows, second.tables[name]]) for name, rows in first.tables.items()}
    return Evidence(tables, {name: known | second.facts[name] for name, known in first.facts.items()})


def another(quantity: Quantity) -> dict[str, Any]:
    """Labels of another combination than the one that is planted; none where the conditions leave but one."""
    fixed = {column.split(".")[0] for selection in sides(quantity) for column in selection.where}
    free = next((name for name in quantity.for_each if name not in fixed), None)
    types = {column.name: column.type for column in TABLES[quantity.selection.table].columns}
    return {free: "another" if "string" in str(types[free]) else 1} if free else {}


def one_side(claim: Claim, target: Interval) -> Evidence:
    """The same with the first side of the quantity alone."""
    assert claim.quantity is not None
    first = planted(replace(claim, quantity=replace(claim.quantity, relation="", other=None)), target)
    empty = evidence({side.table: [] for side in sides(claim.quantity)})
    return Evidence({**empty.tables, **first.tables}, first.facts)


def _known(quantity: Quantity) -> dict[str, float]:
    """Labels that are real numbers: left empty, no two rows have the same."""
    types = {column.name: str(column.type) for column in TABLES[quantity.selection.table].columns}
    return {name: 0.0 for name in quantity.for_each if types.get(name) == "double"}


def _same_rows(quantity: Quantity) -> bool:
    first, other = quantity.selection, quantity.other
    return other is not None and (first.table, first.where) == (other.table, other.where)


def _beside_each_other(rows: list[dict[str, Any]], values: list[dict[str, Any]]) -> None:
    for one, more in zip(rows, values, strict=True):
        one |= {column: value for column, value in more.items() if column not in one}


def _numbers(quantity: Quantity, target: Interval) -> list[Interval]:
    """What each side must be."""
    if quantity.relation == "over":
        value, low, high = (UNIT * end for end in target)
        return [(value, low, high), (UNIT, UNIT, UNIT)]
    if quantity.relation == "minus":
        value, low, high = (1 + end for end in target)
        return [(value, low, high), (1, 1, 1)]
    return [target]


def _values(selection: Selection, number: Interval) -> Iterator[dict[str, Any]]:
    """The columns of numbers, of each row that it takes."""
    value, low, high = number
    name = selection.column
    limit = {selection.censored_at: LARGEST} if selection.censored_at else {}
    if selection.exact:
        yield {name: round(value), **limit}
    elif selection.has_interval:
        yield {name: value, f"{name}_low": low, f"{name}_high": high, **limit}
    else:
        yield from ({name: end, **limit} for end in (low, high) * (RESAMPLED // 2))


def _labels(
    selection: Selection, failing: tuple[str, Any] | None, given: Mapping[str, Any], facts: Facts
) -> dict[str, Any]:
    """Columns that meet the selection's conditions, all but `failing`; what it asks of entries goes to `facts`."""
    met = {column: _one(wanted, (column, wanted) != failing) for column, wanted in selection.where.items()}
    asked = {name: value for name, value in met.items() if "." in name}
    labels = {name: value for name, value in met.items() if "." not in name} | dict(given)
    for name, value in asked.items():
        labels.setdefault(name.split(".")[0], "with")
        labels[name.split(".")[0]] += f" {name.split('.')[1]} {value}"
    for name, value in asked.items():
        entry = labels[name.split(".")[0]]
        facts.setdefault(name, {})[(labels.get("hardware", ""), entry) if "storage" in name else entry] = value
    return labels


def _one(wanted: Any, meeting: bool) -> Any:
    """A value that meets a condition, or one that does not."""
    if is_end(wanted):
        return LARGEST if wanted == "largest" else SMALLEST
    return next(value for value in _candidates(wanted) if bool(meets(pd.Series([value]), wanted).iloc[0]) == meeting)


def _candidates(wanted: Any) -> list[Any]:
    named = list(_named(wanted))
    if any(isinstance(value, bool) for value in named):
        return [True, False]
    if any(isinstance(value, str) for value in named):
        return [*(value.replace("*", "") for value in named), "another"]
    return [*named, *(value + step for value in named for step in (1, -1))]


def _named(wanted: Any) -> Iterator[Any]:
    """The values that a condition names."""
    if isinstance(wanted, Mapping):
        wanted = list(wanted.values())
    if not isinstance(wanted, list):
        yield wanted
        return
    for one in wanted:
        yield from _named(one)
