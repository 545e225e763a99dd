"""Sections and findings as text for the terminal, as Markdown, and as JSON, from which they are read again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from stallpoint.base.section import Absence, Finding, Section, first
from stallpoint.base.stall import Verdict
from stallpoint.text import for_terminal, quote

SCHEMA_VERSION = 1
"""Version of `sections_to_json`, raised by each change that readers of the last version cannot understand."""


# --- sections in the terminal ---------------------------------------------------------------------------------------

MAX_LINES = 20
"""Lines that a reader of a terminal will read."""
_WIDTH = 118
_DETAILS_BY_LEVEL: tuple[frozenset[str], ...] = (
    frozenset(("why", "fits", "beyond", "next", "note")),
    frozenset(("why", "fits", "beyond", "next", "note")),
    frozenset(("why", "note", "next")),
    frozenset(("why", "note")),
    frozenset(),
)
"""Labels of the details shown below a finding's words, from all to none: the first set within `MAX_LINES` is used."""


def in_terminal(findings: Sequence[Finding]) -> str:
    """Return findings in at most `MAX_LINES` lines. If they are too many, details go first, then the least urgent."""
    for level in range(len(_DETAILS_BY_LEVEL)):
        lines = [line for one in findings for line in _item_lines(one, level)]
        if len(lines) <= MAX_LINES:
            break
    if len(lines) > MAX_LINES:
        lines = [line for one in sorted(findings, key=lambda one: not one.is_bad) for line in _item_lines(one, level)]
        remaining_lines = len(lines) - MAX_LINES + 1
        lines = [*lines[: MAX_LINES - 1], f"... and {remaining_lines} more: --json has all {len(findings)} answers"]
    return for_terminal("\n".join(lines)) + "\n"


def headline(finding: Finding) -> str:
    """Return the sentence of a finding, and the evidence for it."""
    return f"{finding.sentence}." + (f"   {finding.evidence}" if finding.evidence else "")


def _item_lines(finding: Finding, level: int) -> Iterator[str]:
    words = headline(finding)
    yield from wrap(words, _WIDTH, subsequent_indent="  ") if not level else [words]
    seen_labels: set[str] = set()
    for label, text in finding.parts:
        is_new_label = label not in seen_labels
        if (level and not is_new_label) or label not in _DETAILS_BY_LEVEL[level]:
            continue
        seen_labels.add(label)
        indent = f"  {label if is_new_label else '':<8}"
        max_lines = 1 if level else None
        yield from wrap(
            text, _WIDTH, initial_indent=indent, subsequent_indent=" " * 10, max_lines=max_lines, placeholder=" ..."
        )


def summary(sections: Iterable[Section]) -> Iterator[str]:
    """Yield the last lines of a run in the terminal: the most important findings, and a cause for each curve."""
    for finding in first(sections):
        yield for_terminal(finding.sentence)
        if finding.verdict in (Verdict.STALLS, Verdict.SCALES, Verdict.UNDECIDED) and finding.causes:
            yield for_terminal(f"  why: {finding.causes[0].words}")


# --- sections in Markdown ---------------------------------------------------------------------------------------

MAX_FINDINGS = 12
"""Findings of a section on one page of text; `conclusions.json` has all."""


def in_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return a Markdown page with the findings of each section, without tables and charts."""
    blocks = [f"# {quote(title)}"]
    for section in sections:
        if not section.findings and section.absence != Absence.FAILED:
            continue
        lines = [line for one in section.findings[:MAX_FINDINGS] for line in _markdown_item(one, parts=section.cards)]
        if (remaining_findings := len(section.findings) - MAX_FINDINGS) > 0:
            lines.append(f"- {remaining_findings} more: `conclusions.json`")
        text = [quote(section.text)] if section.cards or section.absence else []
        blocks += [f"## {quote(section.title)}", *text, *(["\n".join(lines)] if lines else [])]
    return "\n\n".join(blocks) + "\n"


def _markdown_item(one: Finding, *, parts: bool) -> Iterator[str]:
    yield (f"- **{quote(one.sentence)}.** {quote(one.evidence)}".rstrip() if parts else f"- {quote(one.sentence)}")
    for label, text in one.parts if parts else ():
        yield f"  - {label}: {quote(text)}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with the columns `head`."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# --- sections in JSON -------------------------------------------------------------------------------------------


def in_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the findings as JSON objects with the fields of `Finding`; infinite numbers and NaN become null."""
    return [plain_json(asdict(finding)) for finding in findings]


def plain_json(value: Any) -> Any:
    """Return a value that JSON can hold: infinite numbers and NaN become None."""
    if isinstance(value, dict):
        return {name: plain_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sections_to_json(sections: Iterable[Section]) -> dict[str, Any]:
    """Return the sections as a JSON object, which docs/schemas/conclusions.schema.json describes."""
    return {"version": SCHEMA_VERSION, "sections": [plain_json(asdict(section)) for section in sections]}


def sections_from_json(content: Any) -> list[Section]:
    """Return the sections in a JSON object from `sections_to_json`; `ValueError` names a part that is invalid."""
    from msgspec import ValidationError, convert  # msgspec is imported late: few answers read sections from JSON

    if not isinstance(content, dict) or content.get("version") != SCHEMA_VERSION:
        version = content.get("version") if isinstance(content, dict) else None
        raise ValueError(f"sections of version {version if isinstance(version, int) else 'none'}, not {SCHEMA_VERSION}")
    try:
        sections: list[Section] = convert(content.get("sections"), list[Section])
    except ValidationError as error:
        raise ValueError(f"sections: {error}") from None
    if any(len(row) != len(grid.head) for section in sections for grid in section.grids for row in grid.rows):
        raise ValueError("rows that are not as long as their head")
    return sections
