"""Conditions of a study on its combinations: columns, comparisons and boolean words, and nothing else.

``network == 'alexnet' and nodes > 8``, ``hardware in ['k80', 'v100'] or not sync == 'naive'``, ``1 < nodes <= 4``. The
syntax is this subset of Python's; nothing is run as Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from stallpoint.errors import InputError

Column: TypeAlias = str | float
Row: TypeAlias = Mapping[str, Column]

MAX_LENGTH = 1000
"""Characters of a condition."""
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUAL: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_AMONG: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_WANTED = "wanted is a comparison of columns with values, such as nodes > 8 and network == 'alexnet'"


def condition(text: str, columns: Mapping[str, type]) -> Callable[[Row], bool]:
    """Return the function that decides whether a row meets the condition `text`.

    `columns` are the names of columns with their types, names (`str`) or numbers (`float`). An `InputError` names the
    error and the correct form.
    """
    if len(text) > MAX_LENGTH:
        raise InputError(f"a condition of {len(text):,} characters; at most {MAX_LENGTH:,}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(f"not a condition; {_WANTED}") from None
    return _boolean(tree, columns)


def _boolean(node: ast.expr, columns: Mapping[str, type]) -> Callable[[Row], bool]:
    if isinstance(node, ast.BoolOp):
        parts = [_boolean(part, columns) for part in node.values]
        joined = all if isinstance(node.op, ast.And) else any
        return lambda row: joined(part(row) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        negated = _boolean(node.operand, columns)
        return lambda row: not negated(row)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        pairs = [_compared(*one, columns) for one in zip(sides[:-1], node.ops, sides[1:], strict=True)]
        return lambda row: all(pair(row) for pair in pairs)
    raise InputError(f"{_shortened(node)} is neither true nor false; {_WANTED}")


def _compared(lhs: ast.expr, by: ast.cmpop, rhs: ast.expr, columns: Mapping[str, type]) -> Callable[[Row], bool]:
    first, kind = _side(lhs, columns)
    if type(by) in _AMONG:
        return _among(first, kind, _AMONG[type(by)], rhs)
    compare = {**_ORDER, **_EQUAL}.get(type(by))
    second, other = _side(rhs, columns)
    if compare is None:
        raise InputError(f"{_shortened(lhs)} and {_shortened(rhs)} are compared by an unknown operator; {_WANTED}")
    if kind is not other:
        raise InputError(
            f"{_shortened(lhs)} is {_KINDS[kind]}, {_shortened(rhs)} is {_KINDS[other]}: they are never equal"
        )
    if kind is str and type(by) in _ORDER:
        raise InputError(f"{_shortened(lhs)} is a name: it can be == or != another, or in a list of names")
    return lambda row: compare(first(row), second(row))


def _among(
    first: Callable[[Row], Column], kind: type, compare: Callable[[Any, Any], bool], right: ast.expr
) -> Callable[[Row], bool]:
    if not isinstance(right, ast.List | ast.Tuple | ast.Set):
        raise InputError(f"{_shortened(right)} is no list of values, such as ['alexnet', 'googlenet'] or [1, 2]")
    values = []
    for one in right.elts:
        value, of = _side(one, {})
        if of is not kind:
            raise InputError(f"{_shortened(one)} is {_KINDS[of]}, which is compared with {_KINDS[kind]}")
        values.append(value({}))
    return lambda row: compare(first(row), values)


_KINDS = {str: "a name", float: "a number"}


def _side(node: ast.expr, columns: Mapping[str, type]) -> tuple[Callable[[Row], Column], type]:
    """Return the function for a side of a comparison in a row, and its type, name or number."""
    if isinstance(node, ast.Name):
        if node.id not in columns:
            raise InputError(f"no column {node.id}; columns are {', '.join(columns)}")
        name = node.id
        return lambda row: row[name], columns[name]
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, str) and sign == 1:
            return lambda row: value, str
        if isinstance(value, int | float) and not isinstance(value, bool):
            return lambda row: sign * value, float
    raise InputError(f"{_shortened(node)} is neither a column nor a value; {_WANTED}")


def _shortened(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."
