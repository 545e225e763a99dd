"""Findings of one question as a table of texts, written alike by ``details.md`` and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stallpoint.text import interval

Columns: TypeAlias = Mapping[str, str | Callable[[Any], str]]
"""Heads of columns, and what stands below each: the field of that name, or what a function returns for a row."""


@dataclass(frozen=True)
class Listing:
    """A question, and a row for each answer."""

    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    about: Sequence[Mapping[str, Any]] = ()
    """Network, hardware and storage of each row."""
    file: str = "conclusions.json"
    """File with all of its numbers."""

    @classmethod
    def of(cls, title: str, text: str, rows: Sequence[Mapping[str, Any]], columns: Columns) -> Listing:
        """Return the listing of `rows` with these columns."""
        return cls(title, text, *in_columns(rows, columns), rows)

    @property
    def markdown(self) -> Iterator[str]:
        """Return blocks of a page: the title, the text and the table; nothing without rows."""
        if self.rows:
            yield f"## {self.title}"
            yield self.text
            yield markdown_table(self.head, self.rows)


def in_columns(rows: Iterable[Mapping[str, Any]], columns: Columns) -> tuple[list[str], list[list[str]]]:
    """Return the head and the texts of a table."""
    texts = [[str(row[of]) if isinstance(of, str) else of(row) for of in columns.values()] for row in rows]
    return list(columns), texts


def interval_of(name: str, scale: float = 1.0, unit: str = "", unknown: str = "not known") -> Callable[[Any], str]:
    """Return a column of the estimates `name` with their intervals, and `unknown` where there is none."""
    return lambda row: interval(row[name], scale, unit) if row[name] else unknown


def listed_below(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the blocks of a page: the title and a list; nothing without lines."""
    if found := list(lines):
        yield f"## {title}"
        yield "\n".join(f"- {line}" for line in found)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
