"""Findings of one question as a table of texts, written alike by ``details.md`` and the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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

    @property
    def markdown(self) -> Iterator[str]:
        """Return blocks of a page: the title, the text and the table; nothing without rows."""
        if self.rows:
            yield f"## {self.title}"
            yield self.text
            yield markdown_table(self.head, self.rows)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
