"""Checks of a cell's values, read from an agenda, a record or another study's archive."""

from __future__ import annotations

import math
import re
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from stallpoint.errors import InputError
from stallpoint.study.cells import Cell

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names of entries; axes are parts of paths."""
LONGEST = 200
"""Characters of a name: a file system takes 255."""
FROM_ZERO = ("prefetch", "seed", "warmup")
"""Integers that may be 0; all others are at least 1."""


def check_value(cell: type[Cell], name: str, value: Any) -> None:
    """Raise `InputError` unless `value` is valid for the field `name` of a cell of this class."""
    wanted = _types(cell)[name]
    if not _is(value, wanted):
        raise InputError(f"{name} of a {cell.kind} cell is {_short(value)}; {_words(wanted)} is expected")
    if name in cell.axes and isinstance(value, str) and not (NAME.fullmatch(value) and len(value) <= LONGEST):
        raise InputError(
            f"{name} of a {cell.kind} cell is {_short(value)}; {LONGEST} letters, digits and . _ - at most"
        )
    if wanted is int and value < (0 if name in FROM_ZERO else 1):
        raise InputError(
            f"{name} of a {cell.kind} cell is {value}; at least {0 if name in FROM_ZERO else 1} is expected"
        )


def _types(cell: type[Cell]) -> dict[str, Any]:
    if cell not in _KNOWN:
        _KNOWN[cell] = get_type_hints(cell)
    return _KNOWN[cell]


_KNOWN: dict[type[Cell], dict[str, Any]] = {}


def _is(value: Any, wanted: Any) -> bool:
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return any(_is(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(_is(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)


def _words(wanted: Any) -> str:
    if get_origin(wanted) in (Union, UnionType):
        return " or ".join(map(_words, get_args(wanted)))
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    return words.get(wanted, "a list" if get_origin(wanted) is list else "a mapping")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
