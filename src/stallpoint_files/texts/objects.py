"""Rows of a table in JSON or YAML, in the shapes in which scripts keep results.

A list of objects, alone, as the only list of an object or one on each line; objects by count
(``{"8": {"rate": 100}, ...}``); numbers by count below a quantity (``{"img/s": {"8": 100, ...}}``); columns of equal
length; and any of these by the names of series.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.texts.headings import kind_of

Row: TypeAlias = dict[str, object]
_LONGEST_YAML = 1_000_000
_YAML = re.compile(
    r"^[ \t]*+- (?:\w[\w .-]*+: .*\n[ \t]++\w[\w .-]*+: |\{\w)|"
    r"^[ \t]*+[\w.-][\w. -]*+:[ \t]*+\n[ \t]++[\"']?\d{1,7}[\"']?: ",
    re.MULTILINE,
)
_COUNTED = re.compile(
    r"(?:(?P<of>gpus?|nodes?|workers?|ranks?|procs?|np|n)\W*)?(?P<count>\d{1,7})"
    r"[ _x-]*(?P<of_>gpus?|nodes?|workers?|ranks?)?",
    re.IGNORECASE,
)
"""Keys such as ``8``, ``8gpus`` and ``nodes=2``."""
_PLACE = ("series", "workers", "gpus", "nodes", "ranks")
"""Headings of what tells one row from another."""
_DEPTH = 6


def objects(document: Document) -> list[tuple[int, Row]]:
    """Return the rows of the text with their lines; none where it holds none, or other things beside them."""
    parsed = _parsed(document)
    try:
        if parsed is not None and (rows := _by_count(list(_rows(parsed, {}, "", 0)))):
            return [(1, row) for row in rows]
        lines = enumerate(document.raw_lines, start=1)
        found = [(line, json.loads(text)) for line, text in lines if text.strip()]
    except ValueError:
        return []
    flat = [(line, one) for line, one in found if isinstance(one, dict) and len(one) > 1 and _flat(one)]
    return flat if len(flat) == len(found) else []


def _parsed(document: Document) -> object:
    """Return what a text in JSON or YAML holds; None where it is neither. `InputError` where it is too deep."""
    text = document.text
    try:
        if text.lstrip()[:1] in ("[", "{"):
            return json.loads(text)
        if len(text) < _LONGEST_YAML and _YAML.search(text):
            import yaml  # needed by few texts; its own loader, as libyaml's has no end of depth

            with suppress(yaml.YAMLError):
                return yaml.safe_load(text)
    except ValueError:
        pass
    except RecursionError:
        raise InputError(f"{document.path}: lists or objects that lie too deep in each other") from None
    return None


def _flat(one: Mapping[object, object]) -> bool:
    return not any(isinstance(cell, dict | list) for cell in one.values())


def _rows(found: object, above: Row, name: str, depth: int) -> Iterator[Row]:
    """Yield the rows in a part of what was parsed; `above` is what is known of them, `name` the key of the part."""
    if depth > _DEPTH:
        raise ValueError("too deep for a table")
    if isinstance(found, list):
        if not all(isinstance(one, dict) and _flat(one) for one in found):
            raise ValueError("a list of other things than rows")
        yield from ({**above, **_named(one)} for one in found)
        return
    if not isinstance(found, dict):
        return
    keys = {key: _COUNTED.fullmatch(str(key)) for key in found}
    if len(found) > 1 and all(keys.values()):
        for key, match in keys.items():
            if match:
                yield from _of_count(found[key], above | {_heading(match): match["count"]}, name)
        return
    columns = {str(key): one for key, one in found.items() if isinstance(one, list) and len(one) > 1}
    scalars = not any(isinstance(cell, dict | list) for one in columns.values() for cell in one)
    if len(columns) > 1 and scalars and len(set(map(len, columns.values()))) == 1:
        yield from (
            above | dict(zip(columns, map(str, cells), strict=True)) for cells in zip(*columns.values(), strict=True)
        )
        return
    parts = {str(key): one for key, one in found.items() if isinstance(one, dict | list)}
    for key, one in parts.items():
        series = {"series": key} if len(parts) > 1 and not kind_of(key) else {}
        yield from _rows(one, above | series, key, depth + 1)


def _of_count(value: object, above: Row, name: str) -> Iterator[Row]:
    """Yield the rows of one count: an object, or a number or repeats of the quantity that the key above names."""
    if isinstance(value, dict):
        if not _flat(value):
            raise ValueError("a count with more than values")
        yield {**above, **_named(value)}
        return
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, int | float | str):
            raise ValueError("a count with more than values")
        yield {**above, name if kind_of(name) else "value": str(one)}


def _heading(match: re.Match[str]) -> str:
    of = (match["of"] or match["of_"] or "workers").lower().rstrip("s") + "s"
    return of if kind_of(of) else "workers"


def _named(one: Mapping[object, object]) -> Row:
    return {str(key): cell for key, cell in one.items()}


def _by_count(rows: list[Row]) -> list[Row]:
    """Join rows whose quantities are apart: ``{"img/s": {"8": ...}, "loss": {"8": ...}}``."""
    joined: dict[tuple[object, ...], Row] = {}
    for place, row in enumerate(rows):
        at = tuple(row.get(head) for head in _PLACE)
        if set(joined.get(at, ())) & set(row) - {*_PLACE}:  # a repeat
            at = (*at, place)
        joined[at] = joined.get(at, {}) | row
    return [row for row in joined.values() if len(row) > 1]
