"""Sections of a report. Each answers a question by findings and by tables of texts.

The terminal, Markdown, pages, slides and JSON show the same words of a finding. Code that renders a section reads only
its fields; a finding's words name the network, preset or file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import Estimate
from stallpoint.text import interval

Point: TypeAlias = Mapping[str, float | None]
"""Values of one point of a chart: ``workers, rate, predicted, low, high``; for traces of several ranks, a row of
`Stragglers`."""

GROUPS = ("Answer", "Why", "What would help", "How sure", "Papers", "Data")
"""Groups of sections, in the order of a page."""
MACHINE = "machine"
"""Kind of a finding that describes the machine."""
WARNING, NOTE = "warning", "note"
"""Verdicts of findings that qualify others."""


class Change(StrEnum):
    """Change of a quantity between two studies or two logs."""

    SLOWER = "slower"
    FASTER = "faster"
    LOWER = "lower"
    """Change of a speedup, as is `HIGHER`."""
    HIGHER = "higher"
    SAME = "same"
    UNDECIDED = "undecided"


class TableRow(dict[str, Any]):
    """A row of a table: a mapping from column to value."""

    def estimate(self, name: str) -> Estimate | None:
        """Return the value and interval of the column `name`; None if unknown. An unbounded end is infinite."""
        if math.isnan(value := self[name]):
            return None
        return Estimate(*(float(end) for end in (value, self[f"{name}_low"], self[f"{name}_high"])))


@dataclass(frozen=True)
class Cause:
    """A cause of the result that a finding states, such as a slow link."""

    name: str
    """A key, such as ``between_nodes``."""
    words: str
    share: float | None = None
    """Part of the ideal rate, or of an iteration, that is lost to the cause; None if unknown."""
    evidence: str = ""


@dataclass(frozen=True)
class Finding:
    """A statement about one subject, how certain it is, and measurements that would make it certain."""

    kind: str
    """The question that is answered, in a word or two: rates, time to target, trust; for files link or trace."""
    subject: str
    """The subject in readers' words: ``alexnet on cpu, strong scaling, mini-batch 64, local``."""
    words: str
    """A sentence without its full stop."""
    verdict: str = ""
    """The state in a word, where the question has states; a `Verdict` for a curve."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of the 90 % interval; None for an unbounded end of a known value."""
    unit: str = ""
    causes: tuple[Cause, ...] = ()
    evidence: str = ""
    """Basis of the finding: measured or predicted, rows of a table or file, and their certainty."""
    fits: str = ""
    """Numbers that show the finding."""
    beyond: str = ""
    """Prediction beyond what was measured, or why there is none."""
    ask: tuple[str, ...] = ()
    """Cells, files, numbers or commands that would decide what is not known."""
    notes: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    """Network, hardware and storage, by which pages filter; for an answer also its card's title, and the mini-batch if
    the card is about one."""
    to_mend: bool = False
    """Whether something is to be mended whatever the verdict, such as a count that is slower than a smaller one."""
    first: bool = False
    """Whether the finding is shown first: at the end of a run in the terminal, on the first screen of a page."""
    points: tuple[Point, ...] = field(default=(), repr=False)

    @property
    def estimate(self) -> str:
        """The value with its interval, ``1.8 s (1.7–2.0)``; empty if there is no value."""
        if self.value is None:
            return ""
        low, high = (end if end is not None else float("nan") for end in (self.low, self.high))
        return interval(Estimate(self.value, low, high), 1.0, self.unit and f" {self.unit}")

    @property
    def is_bad(self) -> bool:
        """Whether the finding asks for action: a stall, a dip, or a named cause."""
        return self.to_mend or self.verdict == Verdict.STALLS or (not self.verdict and bool(self.causes))

    @property
    def qualifies(self) -> bool:
        """Whether the finding is no answer but limits answers: a warning, a note, or a finding about the machine."""
        return self.kind == MACHINE or self.verdict in (WARNING, NOTE)

    @property
    def sentence(self) -> str:
        """The subject, if there is one, and the words of the finding."""
        return f"{self.subject}: {self.words}" if self.subject else self.words

    @property
    def parts(self) -> Iterator[tuple[str, str]]:
        """Pairs of label and text: the details that are shown below the words of the finding."""
        for cause in self.causes:
            yield "why", "; ".join(filter(None, (cause.words, cause.evidence)))
        parts = [("fits", self.fits), ("beyond", self.beyond), *(("next", ask) for ask in self.ask)]
        yield from ((label, text) for label, text in parts if text)
        yield from (("note", note) for note in self.notes)


class Absence(StrEnum):
    """Reason why a section has nothing to show; the text of the section explains it."""

    NOT_MEASURED = "not measured"
    NONE_FOUND = "none found"
    FAILED = "failed"
    NOT_INSTALLED = "not installed"


RowType = TypeVar("RowType", bound=TableRow)
Columns: TypeAlias = Mapping[str, str | Callable[[RowType], str]]
"""Heads of columns, and for each the name of a field, or a function of a row that returns the cell's text."""


@dataclass(frozen=True)
class TextTable:
    """A table of texts: a row for each answer."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    text: str = ""
    about: tuple[Mapping[str, str], ...] = ()
    """Network, hardware and storage of each row."""
    file: str = ""
    """File with the numbers of all rows, below the study's results."""
    code: str = ""
    """Lines for a study's configuration that belong to the table."""
    folded: bool = False
    """Whether a page shows the table only on demand."""

    @classmethod
    def of(
        cls, columns: Columns[RowType], rows: Sequence[RowType], title: str = "", text: str = "", *, file: str = ""
    ) -> TextTable:
        """Return a table with a row of texts for each of `rows`; `columns` says how to get the texts from a row."""
        texts = (tuple(str(row[at]) if isinstance(at, str) else at(row) for at in columns.values()) for row in rows)
        return cls(tuple(columns), tuple(texts), title, text, tuple(map(about, rows)), file)


FILTERS = ("network", "hardware", "storage")
"""Axes by which readers filter a page."""


def about(row: Mapping[str, object]) -> dict[str, str]:
    """Return the network, hardware and storage of a row (`FILTERS`), as far as the row has them."""
    return {name: str(row[name]) for name in FILTERS if row.get(name)}


def interval_of(name: str, scale: float = 1.0, unit: str = "", unknown: str = "not known") -> Callable[[TableRow], str]:
    """Return a function for `TextTable.of`: from a row it makes the text of value `name` and interval, or `unknown`."""
    return lambda row: interval(found, scale, unit) if (found := row.estimate(name)) else unknown


@dataclass(frozen=True)
class Section:
    """The answer to one question: findings and tables, or the reason why there are none."""

    name: str
    """The question, which is also the anchor on a page."""
    title: str
    group: str
    """One of `GROUPS`."""
    text: str = ""
    findings: tuple[Finding, ...] = ()
    grids: tuple[TextTable, ...] = ()
    absence: Absence | None = None
    cards: bool = False
    """Whether each finding has a card and a slide of its own, with its curve."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a group that is not in `GROUPS`."""
        if self.group not in GROUPS:
            raise ValueError(f"section {self.name}: group {self.group} is none of {', '.join(GROUPS)}")


def first(sections: Iterable[Section]) -> Iterator[Finding]:
    """Yield those findings of all sections that are to be shown first (`Finding.first`)."""
    return (one for section in sections for one in section.findings if one.first)
