"""Rows of a table from JSON, YAML or Python objects, in the shapes in which scripts store and print results.

An object is a row: single, in a list, one on each line, or by count (``{"8": {"rate": 100}, ...}``); nested objects
belong to the row. Numbers by count may stand below a quantity at any level (``{"img/s": {"8": 100}}``). A list of
numbers holds repeats; several lists of equal length are columns. Any of these may be grouped by names of series.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.texts.headings import COUNTS, TIMES, ColumnKind, kind_of

Row: TypeAlias = dict[str, object]
_LONGEST_YAML, _LONGEST_PYTHON, _LONGEST_LINE = 1_000_000, 100_000, 2_000
_COUNTED_KEY = r"[\"']?(?:[a-z]{1,10}[ _=-]?)?\d{1,7}(?:[ _-]?[a-z]{1,8})?[\"']?: "
_YAML = re.compile(
    r"^[ \t]*+- (?:\w[\w .-]*+: .*\n[ \t]++\w[\w .-]*+: |\{\w)|"
    rf"^[ \t]*+[\w.-][\w. -]*+:[ \t]*+\n[ \t]++{_COUNTED_KEY}",
    re.MULTILINE,
)
_OF = r"gpus?|nodes?|workers?|ranks?"
_COUNTED = re.compile(
    rf"(?:(?:n|num|nb)?[\W_]?(?P<of>{_OF}|procs?|world_size|np|n)[\W_]*)?(?P<count>\d{{1,7}})[ _x-]*(?P<of_>{_OF})?",
    re.IGNORECASE,
)
"""Keys such as ``8``, ``8gpus``, ``n_gpus=2`` and ``nodes_2``."""
_PAIR = re.compile(r"[,;\s]+(?=[\w./-]{1,60}=)")
_AMOUNTS = (ColumnKind.RATE, *TIMES, ColumnKind.SPEEDUP, ColumnKind.EFFICIENCY, ColumnKind.MFU, ColumnKind.FLOPS)
_VALUES, _UNITS = ("value", "mean", "median"), ("unit", "units")
_IDENTIFYING = ("series", "workers", "gpus", "nodes", "ranks")
"""Headings of columns that identify a row."""
_DEPTH = 8


def objects(document: Document) -> list[tuple[int, Row]]:
    """Return the rows of the text with their lines; empty if most of the text is something else."""
    parsed = _parsed(document)
    with suppress(ValueError):
        if parsed is not None and (rows := _joined([_with_named_value(row) for row in _rows(parsed, {}, "", 0)])):
            return [(1, row) for row in rows]
    lines = [(number, line) for number, line in enumerate(document.raw_lines, start=1) if line.strip()]
    found = [(number, row) for number, line in lines for row in _records(line)]
    return found if len({number for number, _ in found}) * 2 > len(lines) else []


def _parsed(document: Document) -> object:
    """Return the object in a text of JSON, YAML or Python, None for other texts; `InputError` if too deep."""
    text = document.text
    try:
        if text.lstrip()[:1] in ("[", "{"):
            with suppress(ValueError):
                return json.loads(text)
        elif len(text) < _LONGEST_YAML and _YAML.search(text):
            import yaml  # a late import: few texts are YAML. The C loader is not used, as it has no depth limit

            with suppress(yaml.YAMLError):
                return yaml.safe_load(text)
        return _python(text)
    except ValueError:
        return None
    except RecursionError:
        raise InputError(f"{document.path}: lists or objects that lie too deep in each other") from None


def _python(text: str) -> object:
    """Return the dictionaries and lists in a Python text, by the names to which they are assigned; None without any.

    A comment that names a quantity replaces an uninformative name: ``results = {1: 402.0, ...}  # images/s``.
    """
    if len(text) > _LONGEST_PYTHON or not re.search(r"[\[{]", text):
        return None
    lines = text.strip().splitlines()
    with warnings.catch_warnings(action="ignore"), suppress(SyntaxError, MemoryError):
        found: dict[str, object] = {}
        unnamed: list[object] = []
        for one in ast.parse("\n".join(lines)).body:
            value = one.value if isinstance(one, ast.Assign | ast.AnnAssign | ast.Expr) else None
            value = value.args[0] if isinstance(value, ast.Call) and value.args else value  # DataFrame({...})
            if not isinstance(value, ast.Dict | ast.List):
                continue
            target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
            name = target.id if isinstance(target, ast.Name) else ""
            comment = lines[(value.end_lineno or 1) - 1].rpartition("#")[2].strip()
            name = comment if not kind_of(name) and kind_of(comment) in _AMOUNTS else name
            with suppress(ValueError):
                literal = ast.literal_eval(value)
                if name:
                    found[name] = literal
                else:
                    unnamed.append(literal)
        return found or (unnamed[0] if len(unnamed) == 1 else unnamed or None)
    return None


def _records(line: str) -> Iterator[Row]:
    """Yield the rows of a line with an object, also after other words, or with ``key=value`` pairs.

    A count before the object, as in ``8 gpus: {...}``, becomes one of its cells.
    """
    if len(line) > _LONGEST_LINE:
        return
    begin, end = line.find("{"), line.rfind("}")
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        if 0 <= begin < end:
            text = line[begin : end + 1]
            one = json.loads(text) if text[1:].lstrip()[:1] == '"' else ast.literal_eval(text)
            count = _COUNTED.fullmatch(line[:begin].strip(" :=-"))
            above: Row = {_counted_heading(count): count["count"]} if count else {}
            yield from _rows_of_object(above | one) if isinstance(one, dict) else ()
            return
    pairs = [one.partition("=")[::2] for one in _PAIR.split(line.strip())]
    if len(pairs) > 1 and all(key and value for key, value in pairs) and "|" not in pairs[0][0]:
        yield dict(pairs)


def _rows_of_object(one: Mapping[str, object]) -> list[Row]:
    """Return the rows of an object with a count, one for each repeat; empty if the object itself is not a row."""
    row = _flattened(one)
    if len(row) < 2 or not _has_count(row):
        return []
    repeats = {head: cell for head, cell in row.items() if isinstance(cell, list)}
    size = max(map(len, repeats.values()), default=0)
    if not size:
        return [row]
    plain = {head: cell for head, cell in row.items() if head not in repeats}
    return [
        plain | {head: str(cell[place]) for head, cell in repeats.items() if place < len(cell)} for place in range(size)
    ]


def _flattened(one: Mapping[str, object], above: str = "") -> Row:
    """Return the cells of an object and its nested objects as one row; empty if nested objects are rows themselves.

    An uninformative name is appended to that of its object: ``throughput mean``.
    """
    row: Row = {}
    for key, cell in one.items():
        name = str(key) if not above or (kind_of(str(key)) and str(key) not in row) else f"{above} {key}"
        parts: Row = {name: cell}
        if isinstance(cell, dict):
            value = next((cell[key] for key in _VALUES if key in cell), None)
            unit = next((cell[key] for key in _UNITS if key in cell), None)
            parts = {name: f"{value} {unit}"} if value is not None and unit else _flattened(cell, str(key))
            if not parts and cell:
                return {}
        elif isinstance(cell, list) and any(isinstance(part, dict | list) for part in cell):
            return {}
        elif isinstance(cell, bool) and kind_of(name) != ColumnKind.SETTING:
            continue
        if set(parts) & set(row) or _COUNTED.fullmatch(name):
            return {}
        row |= parts
    return row


def _rows(found: object, above: Row, what: str, depth: int) -> Iterator[Row]:
    """Yield the rows in a parsed part; `above` are cells from outer levels, `what` is the quantity of an outer key."""
    if depth > _DEPTH:
        raise ValueError("too deep for a table")
    found = _from_pandas(found)
    if isinstance(found, list):
        if what and all(isinstance(one, list | tuple) and len(one) == 2 for one in found):
            for count, one in found:
                yield from _rows_of_count(one, above | {"workers": str(count)}, what)
            return
        for one in found:
            if not isinstance(one, dict):
                raise ValueError("a list of other things than rows")
            yield from _rows(one, above, what, depth + 1)
        return
    if not isinstance(found, dict):
        return
    found = _with_text_keys(found)
    keys = {key: _COUNTED.fullmatch(key) for key in found}
    if len(found) > 1 and all(keys.values()):
        for key, match in keys.items():
            if match:
                yield from _rows_of_count(found[key], above | {_counted_heading(match): match["count"]}, what)
        return
    columns = {key: one for key, one in found.items() if isinstance(one, list) and len(one) > 1}
    if any(kind_of(key) in COUNTS for key in columns):
        inside = (part for part in found.values() if isinstance(part, dict))
        columns |= {str(key): one for part in inside for key, one in part.items() if isinstance(one, list)}
    scalars = not any(isinstance(cell, dict | list) for one in columns.values() for cell in one)
    if len(columns) > 1 and scalars and len(set(map(len, columns.values()))) == 1 and not _has_count(above | found):
        yield from (
            above | dict(zip(columns, map(str, cells), strict=True)) for cells in zip(*columns.values(), strict=True)
        )
        return
    if rows := _rows_of_object(above | found):
        yield from rows
        return
    above = above | {key: one for key, one in found.items() if isinstance(one, str | int | float)}
    parts = {key: one for key, one in found.items() if isinstance(one, dict | list)}
    if not parts and _has_count(above):
        yield above
    for key, one in parts.items():
        series: Row = {}
        if len(parts) > 1 and not kind_of(key):
            series["series"] = f"{above['series']} {key}" if "series" in above else key
        yield from _rows(one, above | series, key if kind_of(key) in _AMOUNTS else what, depth + 1)


def _from_pandas(found: object) -> object:
    """Return a list of row objects for a table in one of pandas' three orientations; other objects unchanged."""
    if isinstance(found, dict):
        index = next(
            (list(one) for key, one in found.items() if isinstance(one, dict) and kind_of(str(key)) in COUNTS), []
        )
        if index and all(isinstance(one, dict) and list(one) == index for one in found.values()):
            return [{key: one[place] for key, one in found.items()} for place in index]
        heads, rows = found.get("columns"), found.get("data")
    else:
        heads, rows = (found[0], found[1:]) if isinstance(found, list) and len(found) > 2 else (None, None)
    if not isinstance(heads, list) or not isinstance(rows, list) or not all(isinstance(one, str) for one in heads):
        return found
    return [dict(zip(heads, one, strict=False)) for one in rows if isinstance(one, list)]


def _with_text_keys(found: Mapping[object, object]) -> Row:
    """Return an object with text keys; keys that are tuples, such as ``('ddp', 4)``, become nested levels."""
    apart: dict[str, Row] = {}
    for key, one in found.items():
        if not isinstance(key, tuple) or len(key) < 2:
            return {str(key): one for key, one in found.items()}
        apart.setdefault(" ".join(map(str, key[:-1])), {})[str(key[-1])] = one
    return {**apart}


def _has_count(row: Row) -> bool:
    """Return whether a row's cells include a count."""
    return any(kind_of(head) in COUNTS and str(cell)[:1].isdigit() for head, cell in row.items())


def _rows_of_count(value: object, above: Row, what: str) -> Iterator[Row]:
    """Yield the rows of one count from an object, or from a number or repeats of the quantity `what`."""
    if isinstance(value, dict):
        yield from _rows(value, above, what, _DEPTH - 1)
        return
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict | list):
            raise ValueError("a count with more than values")
        yield {**above, what or "value": str(one)}


def _counted_heading(match: re.Match[str]) -> str:
    of = (match["of"] or match["of_"] or "workers").lower().rstrip("s") + "s"
    return of if kind_of(of) else "workers"


def _with_named_value(row: Row) -> Row:
    """Return a row whose ``value`` gets its quantity's name from another cell, such as ``metric: step_time_s``."""
    name = next((str(cell) for cell in row.values() if isinstance(cell, str) and kind_of(cell) in _AMOUNTS), "")
    if "value" not in row or not name:
        return row
    return {name if head == "value" else head: cell for head, cell in row.items() if cell != name}


def _joined(rows: list[Row]) -> list[Row]:
    """Join rows of one count that separate objects hold: ``{"img/s": {"8": ...}, "loss": {"8": ...}}``."""
    joined: dict[tuple[object, ...], Row] = {}
    for place, row in enumerate(rows):
        at = tuple(row.get(head) for head in _IDENTIFYING)
        if set(joined.get(at, ())) & set(row) - {*_IDENTIFYING}:  # this row repeats a measurement
            at = (*at, place)
        joined[at] = joined.get(at, {}) | row
    return [row for row in joined.values() if len(row) > 1]
