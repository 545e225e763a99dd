"""Sections and findings as texts: for the terminal, as Markdown, as JSON and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from textwrap import wrap
from typing import Any, get_type_hints

from stallpoint.base.section import Absence, Cause, Finding, Section, TextTable, first
from stallpoint.base.stall import Verdict
from stallpoint.text import for_terminal, plain

SCHEMA_VERSION = 1
"""Of `sections_to_json`: one more for each change that a reader of the last one would not understand."""


# --- terminal ---------------------------------------------------------------------------------------

MAX_LINES = 20
"""Lines for a terminal, so that they are read."""
_WIDTH = 118
_SHORTER: tuple[frozenset[str], ...] = (
    frozenset(("why", "fits", "beyond", "next", "note")),
    frozenset(("why", "fits", "beyond", "next", "note")),
    frozenset(("why", "note", "next")),
    frozenset(("why", "note")),
    frozenset(),
)
"""Parts that are shown beside the words: first all, then one line of each, and so on."""


def in_terminal(findings: Sequence[Finding]) -> str:
    """Return at most `MAX_LINES` lines. Many findings are shortened to their words; those that ask for a mend come
    first."""
    for detail in range(len(_SHORTER)):
        lines = [line for one in findings for line in _written(one, detail)]
        if len(lines) <= MAX_LINES:
            break
    if len(lines) > MAX_LINES:
        lines = [line for one in sorted(findings, key=lambda one: not one.bad) for line in _written(one, detail)]
        more = len(lines) - MAX_LINES + 1
        lines = [*lines[: MAX_LINES - 1], f"... and {more} more: --json has all {len(findings)} answers"]
    return for_terminal("\n".join(lines)) + "\n"


def headline(one: Finding) -> str:
    """Return the sentence, and what it rests on."""
    return f"{one.sentence}." + (f"   {one.evidence}" if one.evidence else "")


def _written(one: Finding, detail: int) -> Iterator[str]:
    words = headline(one)
    yield from wrap(words, _WIDTH, subsequent_indent="  ") if not detail else [words]
    seen: set[str] = set()
    for label, text in one.parts:
        new = label not in seen
        if (detail and not new) or label not in _SHORTER[detail]:
            continue
        seen.add(label)
        lead = f"  {label if new else '':<8}"
        max_lines = 1 if detail else None
        yield from wrap(
            text, _WIDTH, initial_indent=lead, subsequent_indent=" " * 10, max_lines=max_lines, placeholder=" ..."
        )


def summary(sections: Iterable[Section]) -> Iterator[str]:
    """Yield the lines that end a run in the terminal: what is read first, and why a curve does not gain."""
    for one in first(sections):
        yield for_terminal(one.sentence)
        if one.verdict in (Verdict.STALLS, Verdict.SCALES, Verdict.UNDECIDED) and one.causes:
            yield for_terminal(f"  why: {one.causes[0].words}")


# --- Markdown ---------------------------------------------------------------------------------------

MAX_FINDINGS = 12
"""Findings of a section on one page of text; `conclusions.json` has all."""


def in_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return a page with the findings of each section; tables and charts are the report's."""
    blocks = [f"# {plain(title)}"]
    for section in sections:
        if not section.findings and section.absence != Absence.FAILED:
            continue
        lines = [line for one in section.findings[:MAX_FINDINGS] for line in _item(one, parts=section.cards)]
        if (more := len(section.findings) - MAX_FINDINGS) > 0:
            lines.append(f"- {more} more: `conclusions.json`")
        text = [plain(section.text)] if section.cards or section.absence else []
        blocks += [f"## {plain(section.title)}", *text, *(["\n".join(lines)] if lines else [])]
    return "\n\n".join(blocks) + "\n"


def _item(one: Finding, *, parts: bool) -> Iterator[str]:
    yield f"- **{plain(one.sentence)}.** {plain(one.evidence)}".rstrip() if parts else f"- {plain(one.sentence)}"
    for label, text in one.parts if parts else ():
        yield f"  - {label}: {plain(text)}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# --- JSON -------------------------------------------------------------------------------------------


def in_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return objects with the fields of `Finding`; numbers that JSON does not have are null."""
    return [plain_json(asdict(one)) for one in findings]


def plain_json(value: Any) -> Any:
    """Return a value as JSON has it: numbers that are not finite are null."""
    if isinstance(value, dict):
        return {name: plain_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sections_to_json(sections: Iterable[Section]) -> dict[str, Any]:
    """Return the sections as an object; docs/schemas/conclusions.schema.json describes it."""
    return {"version": SCHEMA_VERSION, "sections": [plain_json(asdict(one)) for one in sections]}


def sections_from_json(found: Any) -> list[Section]:
    """Return the sections of such an object; `ValueError` says what of it is otherwise."""
    if not isinstance(found, dict) or found.get("version") != SCHEMA_VERSION:
        version = found.get("version") if isinstance(found, dict) else None
        raise ValueError(f"sections of version {version if isinstance(version, int) else 'none'}, not {SCHEMA_VERSION}")
    return [_section(one) for one in _typed(found.get("sections"), list, "sections")]


def _section(found: Any) -> Section:
    parts = _fields(Section, found)
    absence = parts["absence"]
    return Section(**{
        **parts,
        "findings": tuple(_finding(one) for one in _typed(parts["findings"], list, "findings")),
        "grids": tuple(_grid(one) for one in _typed(parts["grids"], list, "grids")),
        "absence": Absence(absence) if absence else None,
    })  # fmt: skip


def _finding(found: Any) -> Finding:
    parts = _fields(Finding, found)
    points = tuple(_typed(one, dict, "points") for one in _typed(parts["points"], list, "points"))
    if any(not (value is None or isinstance(value, int | float)) for one in points for value in one.values()):
        raise ValueError("points that are no numbers")
    return Finding(**{
        **parts,
        "causes": tuple(Cause(**_fields(Cause, one)) for one in _typed(parts["causes"], list, "causes")),
        "ask": _texts(parts["ask"]),
        "notes": _texts(parts["notes"]),
        "about": _by_name(parts["about"]),
        "points": points,
    })  # fmt: skip


def _grid(found: Any) -> TextTable:
    parts = _fields(TextTable, found)
    rows = tuple(_texts(row) for row in _typed(parts["rows"], list, "rows"))
    head = _texts(parts["head"])
    if any(len(row) != len(head) for row in rows):
        raise ValueError("rows that are not as long as their head")
    about = tuple(map(_by_name, _typed(parts["about"], list, "about")))
    return TextTable(**{**parts, "head": head, "rows": rows, "about": about})


_PLAIN = {str: (str,), bool: (bool,), float | None: (float, int, type(None))}
"""Types of JSON of the fields that are no containers."""


def _fields(of: type[Any], found: Any) -> dict[str, Any]:
    """Return the fields of a class, of which those that are no containers are of their types."""
    values, hints = _typed(found, dict, of.__name__), get_type_hints(of)
    for name in (field.name for field in fields(of)):
        if name not in values or not isinstance(values[name], _PLAIN.get(hints[name], (object,))):
            raise ValueError(f"{name} of a {of.__name__} is missing or of another type")
    return {field.name: values[field.name] for field in fields(of)}


def _typed(found: Any, wanted: type[Any], name: str) -> Any:
    if not isinstance(found, wanted):
        raise ValueError(f"{name} is no {wanted.__name__}")
    return found


def _texts(found: Any) -> tuple[str, ...]:
    return tuple(_typed(one, str, "a text") for one in _typed(found, list, "texts"))


def _by_name(found: Any) -> Mapping[str, str]:
    return {name: _typed(value, str, name) for name, value in _typed(found, dict, "about").items()}
