"""Pieces of HTML shared by sections; texts are escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from stallpoint.findings.listing import Listing
from stallpoint.report.charts.labels import FILTERS

MAX_ROWS = 500
"""Rows of a table on the page: it grows with the number of charts, not of rows."""


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor (an ``id``), its title, which the menu lists too, and its HTML."""

    id: str
    title: str
    html: str


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def belongs_to(what: Mapping[str, Any]) -> str:
    """Return the attributes of an element about one network, hardware or storage, as far as `what` names them.

    The page shows it while they are chosen.
    """
    return "".join(f' data-{name}="{escape(str(what[name]))}"' for name in FILTERS if what.get(name))


def axes_of_cell(path: str) -> dict[str, str]:
    """Return the axes in the path of a cell."""
    return dict(part.split("~", 1) for part in path.split("/") if "~" in part)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    about: Iterable[Mapping[str, Any]] = (),
    *,
    file: str = "conclusions.json",
) -> str:
    """Return a table whose first column names the rows (narrow pages repeat the head in each cell).

    `about` is the network, hardware and storage of each row (see `belongs_to`). Of many rows the first `MAX_ROWS` are
    shown; `file` has them all.
    """
    named = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    lines = [
        _row(head, row, belongs_to(what))
        for row, what in zip(rows[:MAX_ROWS], list(about)[:MAX_ROWS] or [{}] * len(rows), strict=False)
    ]
    more = f"The first {MAX_ROWS} of {len(rows):,} rows; {file} has all." if len(rows) > MAX_ROWS else ""
    body = f"<table><thead><tr>{named}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide">{body}</div>' + (f'<p class="soft">{more}</p>' if more else "")


def _row(head: Sequence[str], row: Sequence[str], mark: str) -> str:
    first, *others = row
    named = zip(head[1:], others, strict=True)
    cells = "".join(f'<td data-head="{escape(name)}">{escape(text)}</td>' for name, text in named)
    return f'<tr{mark}><th scope="row">{escape(first)}</th>{cells}</tr>'


def listing(one: Listing) -> str:
    """Return the text and the table, where there are any."""
    rows = table(one.head, one.rows, one.about, file=one.file) if one.rows else ""
    return (paragraph(one.text) if one.text else "") + rows


def downloads(chart: str, title: str) -> str:
    """Return buttons that save a chart's data and picture."""
    formats = {"csv": "data", "svg": "picture", "png": "picture"}
    buttons = "".join(
        f'<button type="button" data-action="download" data-chart="{escape(chart)}" value="{kind}" '
        f'aria-label="{escape(title)}: save {what} as {kind.upper()}">{kind.upper()}</button>'
        for kind, what in formats.items()
    )
    return f'<span class="tools">{buttons}</span>'
