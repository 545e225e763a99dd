"""Pieces of HTML that several sections are made of; texts are escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from stallpoint.charts.frames import number
from stallpoint.conclusions.numbers import Estimate


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor (an ``id``), its title, which the contents list too, and its HTML."""

    id: str
    title: str
    html: str


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the rows (narrow pages repeat the head in each cell)."""
    lines = [f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in head)}</tr>"]
    for first, *others in rows:
        named = zip(head[1:], others, strict=True)
        cells = "".join(f'<td data-head="{escape(name)}">{escape(text)}</td>' for name, text in named)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def interval(estimate: Estimate | None, scale: float = 1.0, unit: str = "") -> str:
    """``1.83 [1.71, 1.95]``; an end that is None is unbounded."""
    if estimate is None:
        return "not known"
    value, low, high = (
        "∞" if estimate[name] is None else number(float(estimate[name] or 0) * scale)
        for name in ("value", "low", "high")
    )
    return f"{value}{unit} [{low}, {high}]"
