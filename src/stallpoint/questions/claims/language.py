"""Definition of a claim: a sentence, the quantity that decides it, and the condition (docs/claims.md).

Names are checked when a claim is made, so that a misspelt column is refused before anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stallpoint.errors import InputError
from stallpoint.records.tables import (
    CONVERGENCE_RUNS,
    EXTRAPOLATED_TABLES,
    FLAG,
    INSTRUMENTATION,
    INT,
    MODEL_TABLES,
    NETWORK_LAYERS,
    REAL,
    SERIES,
    Column,
    Table,
)
from stallpoint.study.configuration import known

JUDGED_TABLES: dict[str, Table] = {
    table.name: table
    for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES, INSTRUMENTATION, CONVERGENCE_RUNS, NETWORK_LAYERS)
}
"""Tables in which a quantity can be a column."""
FACTS: dict[str, tuple[str, ...]] = {
    "hardware": ("device",),
    "storage": ("format", "shared_link"),
    "sync": ("start", "reduction", "grouping", "gradient_bits", "top_k", "hook"),
}
"""Facts that stand behind a column's values: ``hardware.device`` in a table with the column hardware."""
CURVE = "curve"
"""Abbreviation in ``for_each`` of the columns that are constant along a scaling curve."""
ALL_ROWS = "all"
"""Value of ``for_each`` for one number of all rows."""
ENDS = ("largest", "smallest")
"""Conditions on a column that choose the rows of its largest or smallest value, after all other conditions."""
COMPARISONS = ("above", "at_least", "below", "at_most")
LIKE_CONDITION = "like"
"""Condition by a pattern, in which ``*`` matches anything: ``*k80*``; case does not matter."""
RESAMPLED_REDUCTIONS = ("median", "mean")
"""Reductions for rows without intervals: the rows are resampled."""

Entry: TypeAlias = Mapping[str, Any]
"""An entry of a file of claims, from YAML."""
Where: TypeAlias = Entry


@dataclass(frozen=True)
class Selection:
    """Rows of a table and the reduction of one of their columns."""

    table: str
    column: str
    where: Where
    aggregate: str
    absolute: bool
    censored_at: str | None
    """Column with the limit of the search for the quantity: a value at the limit is a lower bound."""
    spread: float | None
    """Assumed relative error of numbers published without an interval."""

    @property
    def definition(self) -> Column:
        """Return the definition of the column."""
        return next(column for column in JUDGED_TABLES[self.table].columns if column.name == self.column)

    @property
    def relative(self) -> bool:
        """Return whether the column is a ratio to another row of the same table."""
        return self.definition.relative

    @property
    def has_interval(self) -> bool:
        """Return whether the table holds the column's interval."""
        return f"{self.column}_low" in _names(self.table)

    @property
    def exact(self) -> bool:
        """Return whether the column is a count or a size, and so has no uncertainty."""
        return bool(self.definition.type == INT)


@dataclass(frozen=True)
class Quantity:
    """A number with its interval, for each combination of values of the columns `for_each`."""

    name: str
    selection: Selection
    relation: str
    """over (ratio), minus (difference) or empty: one selection."""
    other: Selection | None
    for_each: tuple[str, ...]
    percent: bool
    """Shown in %."""

    @property
    def unit(self) -> str:
        """Return the unit of the number; empty for ratios and counts."""
        return "" if self.relation == "over" else self.selection.definition.unit or ""


@dataclass(frozen=True)
class Condition:
    """The interval in which the number must lie. Each end may belong to it or not."""

    text: str
    low: float = -math.inf
    high: float = math.inf
    low_belongs: bool = True
    high_belongs: bool = True


@dataclass(frozen=True)
class Claim:
    """A claim. If no table can decide it, `quantity` and `condition` are None, and `missing` says what it needs."""

    paper: str
    id: str
    sentence: str
    source: str
    reading: str
    """Interpretation that makes a vague sentence testable; empty if the sentence is precise."""
    quantity: Quantity | None
    condition: Condition | None
    chart: str
    missing: str
    quantifier: str = "all"
    """Whether the claim is about ``all`` of its combinations or ``any``."""


def claim_from(entry: Entry, paper: str, where: str, charts: Collection[str] = ()) -> Claim:
    """Return the claim of an entry that matches the schema; raise `InputError`, which begins with `where`.

    `charts` are the charts that a claim may name. If there are none, any name is valid.
    """
    where = f"{where} ({entry['id']})"
    if ("missing" in entry) == ("quantity" in entry) or ("quantity" in entry) != ("condition" in entry):
        raise InputError(f"{where}: needs quantity and condition, or missing, which says why no table can tell")
    chart = entry.get("chart", "")
    if chart and charts:
        known(chart, list(charts), f"{where}.chart", "chart")
    if not chart and "quantity" in entry:
        raise InputError(f"{where}: missing chart, the one that shows the quantity; known: {', '.join(charts)}")
    percent = "quantity" in entry and entry["quantity"]["percent"]
    return Claim(
        paper=paper,
        **{name: entry[name] for name in ("id", "sentence", "source", "quantifier")},
        **{name: entry.get(name, "") for name in ("reading", "chart", "missing")},
        quantity=_quantity(entry["quantity"], f"{where}.quantity") if "quantity" in entry else None,
        condition=_condition(entry["condition"], f"{where}.condition", percent) if "condition" in entry else None,
    )


def _quantity(entry: Entry, where: str) -> Quantity:
    relations = [name for name in ("over", "minus") if name in entry]
    if len(relations) > 1:
        raise InputError(f"{where}: over and minus exclude each other")
    first = _selection(entry, where)
    for_each = _for_each(entry["for_each"], first.table, f"{where}.for_each")
    other = None
    for relation in relations:
        changes = entry[relation]
        inherited_entries = {key: entry[key] for key in ("table", "column", "aggregate", "absolute")}
        if "table" not in changes and "column" not in changes:
            inherited_entries |= {key: entry[key] for key in ("censored_at", "spread") if key in entry}
        shared_where = {} if "table" in changes else entry["where"]
        merged_entry = {**inherited_entries, **changes, "where": {**shared_where, **changes.get("where", {})}}
        other = _selection(merged_entry, f"{where}.{relation}")
        if other == first:
            raise InputError(f"{where}.{relation}: is the same selection; needs another table, column or where")
        for column in for_each:
            known(column, _columns_with_facts(other.table), f"{where}.for_each", f"column of {other.table}")
        for column in changes.get("where", {}):
            if column.split(".")[0] in for_each:
                raise InputError(f"{where}.{relation}.where.{column}: cannot differ, for_each keeps it the same")
    relation = relations[0] if relations else ""
    return Quantity(
        name=entry.get("name", _name(first, relation, other)),
        selection=first,
        relation=relation,
        other=other,
        for_each=for_each,
        percent=entry["percent"],
    )


def _selection(entry: Entry, where: str) -> Selection:
    known(entry["table"], list(JUDGED_TABLES), f"{where}.table", "table")
    table = entry["table"]
    numbers = [column.name for column in JUDGED_TABLES[table].columns if column.type in (INT, REAL, FLAG)]
    known(entry["column"], numbers, f"{where}.column", f"number in {table}")
    if "censored_at" in entry:
        known(entry["censored_at"], numbers, f"{where}.censored_at", f"number in {table}")
    for column, wanted in entry["where"].items():
        known(column, _columns_with_facts(table), f"{where}.where", f"column of {table}")
        _check_wanted(column, wanted, table, f"{where}.where.{column}")
    optional_entries: dict[str, Any] = {name: entry.get(name) for name in ("censored_at", "spread")}
    required_entries = {name: entry[name] for name in ("table", "column", "where", "aggregate", "absolute")}
    selection = Selection(**required_entries, **optional_entries)
    has_known_ends = selection.has_interval or selection.exact
    if selection.spread and has_known_ends:
        raise InputError(f"{where}.spread: {selection.column} has an interval of its own, or is exact")
    if not has_known_ends and not selection.spread and selection.aggregate not in RESAMPLED_REDUCTIONS:
        raise InputError(
            f"{where}.aggregate: {selection.column} has no interval of its own, so only the median or mean of its rows "
            f"can be judged, not {selection.aggregate}"
        )
    return selection


def _for_each(entry: Any, table: str, where: str) -> tuple[str, ...]:
    if entry == ALL_ROWS:
        return ()
    if not entry:
        raise InputError(f"{where}: an empty list; name a column at least, or {ALL_ROWS} for one number of all rows")
    given = [entry] if isinstance(entry, str) else entry
    columns = [name for one in given for name in ([column.name for column in SERIES] if one == CURVE else [one])]
    for column in columns:
        known(column, [*_columns_with_facts(table), CURVE], where, f"column of {table}")
    return tuple(columns)


def _check_wanted(column: str, wanted: Any, table: str, where: str) -> None:
    """Check that a condition fits its column: comparisons, largest and smallest need numbers, patterns need names."""
    definition = next((c for c in JUDGED_TABLES[table].columns if c.name == column), None)
    is_number = definition is not None and definition.type in (INT, REAL)
    is_flag = definition is not None and definition.type == FLAG
    if [] in (list(wanted.values()) if isinstance(wanted, Mapping) else [wanted]):
        raise InputError(f"{where}: an empty list; name a value at least")
    if isinstance(wanted, Mapping):
        if not wanted:
            raise InputError(f"{where}: needs a comparison: not, {LIKE_CONDITION} or {', '.join(COMPARISONS)}")
        for key, value in wanted.items():
            known(key, ["not", LIKE_CONDITION, *COMPARISONS], where, "comparison")
            _check_compared(key, value, is_number, column, where)
        return
    for value in wanted if isinstance(wanted, list) else [wanted]:
        if is_number and not _is_number(value) and wanted not in ENDS:
            raise InputError(
                f"{where}: {value!r} should be a number, a list of them, a comparison, or largest or smallest"
            )
        if not is_number and not is_flag and definition is not None and (not isinstance(value, str) or value in ENDS):
            raise InputError(f"{where}: {value!r} should be a name, a list of them, not: or {LIKE_CONDITION}:")


def _check_compared(key: str, value: Any, is_number: bool, column: str, where: str) -> None:
    values = value if isinstance(value, list) else [value]
    if key in COMPARISONS and not (is_number and _is_number(value)):
        raise InputError(f"{where}.{key}: compares numbers, not {column} with {value!r}")
    if key == LIKE_CONDITION and (is_number or not all(isinstance(one, str) for one in values)):
        raise InputError(f"{where}.{key}: compares names, not {column} with {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(table: str) -> list[str]:
    return JUDGED_TABLES[table].names


def _columns_with_facts(table: str) -> list[str]:
    """Return the columns of `table`, and the facts that are known of them."""
    names = _names(table)
    return names + [f"{column}.{fact}" for column, facts in FACTS.items() if column in names for fact in facts]


def _name(first: Selection, relation: str, other: Selection | None) -> str:
    """Return the name of a quantity in words, for a claim that does not name it."""
    text = _words_of(first)
    if other is None:
        return text
    if (first.table, first.column) != (other.table, other.column):
        return f"{text} {relation} {_words_of(other)}"
    difference = {key: value for key, value in other.where.items() if first.where.get(key) != value}
    return f"{text} {relation} that where {where_in_words(difference)}"


def _words_of(selection: Selection) -> str:
    aggregate = "" if selection.aggregate == "median" and selection.has_interval else f"{selection.aggregate} of "
    column = f"|{selection.column}|" if selection.absolute else selection.column
    where = f" where {where_in_words(selection.where)}" if selection.where else ""
    return f"{aggregate}{column} ({selection.table}){where}"


def where_in_words(where: Where) -> str:
    """Return conditions in words: ``network alexnet, nodes above 32, layer_type not all``."""
    return ", ".join(f"{column} {wanted_in_words(wanted)}" for column, wanted in where.items())


def wanted_in_words(wanted: Any) -> str:
    """Return the condition on one column in words."""
    if isinstance(wanted, Mapping):
        return " and ".join(f"{key.replace('_', ' ')} {wanted_in_words(value)}" for key, value in wanted.items())
    if isinstance(wanted, bool):
        return "true" if wanted else "false"
    return " or ".join(map(str, wanted)) if isinstance(wanted, list) else str(wanted)


def _condition(entry: Entry, where: str, percent: bool) -> Condition:
    kinds = [name for name in entry if name != "within"]
    choices = f"{', '.join((*COMPARISONS, 'between'))}, or near with within"
    if len(kinds) != 1 or ("within" in entry) != (kinds == ["near"]):
        raise InputError(f"{where}: needs one of {choices}; it has {', '.join(entry) or 'none'}")
    kind, value = kinds[0], entry[kinds[0]]
    if kind == "between":
        return _between(value, where, percent)
    if kind == "near":
        tolerance = float(entry["within"].rstrip("% ")) / 100
        ends = sorted([value * (1 - tolerance), value * (1 + tolerance)])
        return Condition(f"within {entry['within']} of {_plain_number(value, percent)}", *ends)
    text = f"{kind.replace('_', ' ')} {_plain_number(value, percent)}"
    has_end = kind in ("at_least", "at_most")
    if kind in ("above", "at_least"):
        return Condition(text, low=value, low_belongs=has_end)
    return Condition(text, high=value, high_belongs=has_end)


def _between(ends: Sequence[float], where: str, percent: bool) -> Condition:
    low, high = ends
    if not low < high:
        raise InputError(f"{where}.between: {_plain_number(low)} is not less than {_plain_number(high)}")
    return Condition(f"between {_plain_number(low, percent)} and {_plain_number(high, percent)}", low, high)


def _plain_number(value: float, percent: bool = False) -> str:
    return f"{100 * value:,.10g} %" if percent else f"{value:,.10g}"
