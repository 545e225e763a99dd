"""Sections: answers to questions as findings and tables of texts, which is all that renderers know.

Terminal, Markdown, page, slides and JSON write the same words for the same finding. A renderer asks a finding for its
fields alone: whichever network, preset or file it is about stands in its words.
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
"""``workers, rate, predicted, low, high`` for a chart; of several ranks' traces the cells of `Stragglers`."""

GROUPS = ("Answer", "Why", "What would help", "How sure", "Papers", "Data")
"""Groups of sections, in the order of a page."""
MACHINE = "machine"
"""Kind of a finding that says what was measured on."""
WARNING, NOTE = "warning", "note"
"""Verdicts of findings that qualify others."""


class Change(StrEnum):
    """What is said of a quantity that two studies, or two logs, both measured."""

    SLOWER = "slower"
    FASTER = "faster"
    LOWER = "lower"
    """Of a speedup, as is `HIGHER`."""
    HIGHER = "higher"
    SAME = "same"
    UNDECIDED = "undecided"


class TableRow(dict[str, Any]):
    """A row of a table by column."""

    def estimate(self, name: str) -> Estimate | None:
        """Return a quantity with the ends of its interval, of which unbounded ones are infinite; None if unknown."""
        if math.isnan(value := self[name]):
            return None
        return Estimate(*(float(end) for end in (value, self[f"{name}_low"], self[f"{name}_high"])))


@dataclass(frozen=True)
class Cause:
    """Why something is as it was found."""

    name: str
    """A key, such as ``between_nodes``."""
    words: str
    share: float | None = None
    """Part of the ideal rate, or of an iteration, that it takes, where that is known."""
    evidence: str = ""


@dataclass(frozen=True)
class Finding:
    """A statement about one subject, its certainty, and what would decide it."""

    kind: str
    """Which question it answers, in a word or two: rates, time to target, trust; of a file link, trace."""
    subject: str
    """What it is about, as readers call it: ``alexnet on cpu, strong scaling, mini-batch 64, local``."""
    words: str
    """A sentence without its full stop."""
    verdict: str = ""
    """The state in a word, where the question has states: of a curve a `Verdict`."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of the 90 % interval; an end of a known value that is None is unbounded."""
    unit: str = ""
    causes: tuple[Cause, ...] = ()
    evidence: str = ""
    """What it rests on: measured or predicted, by which rows of which table or file, and how sure that is."""
    fits: str = ""
    """Numbers that it is seen in."""
    beyond: str = ""
    """What is predicted where nothing was measured, or why nothing is."""
    ask: tuple[str, ...] = ()
    """What would decide what is not known: a cell, a file, a number, a command each."""
    notes: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    """Network, hardware and storage that it belongs to, for pages that filter by them; of an answer the title of its
    card, and B where the card is about one."""
    to_mend: bool = False
    """Whether something is wrong whatever the verdict: a count that is slower than a smaller one."""
    first: bool = False
    """Whether it belongs to what is read first: the end of a run in the terminal, the first screen of a page."""
    points: tuple[Point, ...] = field(default=(), repr=False)

    @property
    def estimate(self) -> str:
        """``1.8 s (1.7–2.0)``; empty where there is no value."""
        if self.value is None:
            return ""
        low, high = (end if end is not None else float("nan") for end in (self.low, self.high))
        return interval(Estimate(self.value, low, high), 1.0, self.unit and f" {self.unit}")

    @property
    def bad(self) -> bool:
        """Whether the finding asks for action: a stall, a dip, or a named cause."""
        return self.to_mend or self.verdict == Verdict.STALLS or (not self.verdict and bool(self.causes))

    @property
    def qualifies(self) -> bool:
        """Whether the finding qualifies answers and is none itself."""
        return self.kind == MACHINE or self.verdict in (WARNING, NOTE)

    @property
    def sentence(self) -> str:
        """The words, with their subject where there is one."""
        return f"{self.subject}: {self.words}" if self.subject else self.words

    @property
    def parts(self) -> Iterator[tuple[str, str]]:
        """Labelled details below the words."""
        for cause in self.causes:
            yield "why", "; ".join(filter(None, (cause.words, cause.evidence)))
        parts = [("fits", self.fits), ("beyond", self.beyond), *(("next", ask) for ask in self.ask)]
        yield from ((label, text) for label, text in parts if text)
        yield from (("note", note) for note in self.notes)


class Absence(StrEnum):
    """Why a section has nothing to show; its text says it in a sentence."""

    NOT_MEASURED = "not measured"
    NONE_FOUND = "none found"
    FAILED = "failed"
    NOT_INSTALLED = "not installed"


R = TypeVar("R", bound=TableRow)
Columns: TypeAlias = Mapping[str, str | Callable[[R], str]]
"""Heads of columns, and what stands below each: the field of that name, or what a function returns for a row."""


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
    """Lines for a study that belong to it."""
    folded: bool = False
    """Whether a page shows it on demand."""

    @classmethod
    def of(
        cls, columns: Columns[R], rows: Sequence[R], title: str = "", text: str = "", *, file: str = ""
    ) -> TextTable:
        """Return the table of `rows` with these columns."""
        texts = (tuple(str(row[at]) if isinstance(at, str) else at(row) for at in columns.values()) for row in rows)
        return cls(tuple(columns), tuple(texts), title, text, tuple(map(about, rows)), file)


FILTERS = ("network", "hardware", "storage")
"""Axes by which readers choose what a page shows."""


def about(row: Mapping[str, object]) -> dict[str, str]:
    """Return the network, hardware and storage of a row, as far as it has them."""
    return {name: str(row[name]) for name in FILTERS if row.get(name)}


def interval_of(name: str, scale: float = 1.0, unit: str = "", unknown: str = "not known") -> Callable[[TableRow], str]:
    """Return a column of the estimates `name` with their intervals, and `unknown` where there is none."""
    return lambda row: interval(found, scale, unit) if (found := row.estimate(name)) else unknown


@dataclass(frozen=True)
class Section:
    """What a question says."""

    name: str
    """Its question, and its anchor on a page."""
    title: str
    group: str
    """Of `GROUPS`."""
    text: str = ""
    findings: tuple[Finding, ...] = ()
    grids: tuple[TextTable, ...] = ()
    absence: Absence | None = None
    cards: bool = False
    """Whether each finding is an answer with a card and a slide of its own, on which its curve is drawn."""

    def __post_init__(self) -> None:
        """Refuse a group that no page has."""
        if self.group not in GROUPS:
            raise ValueError(f"section {self.name}: group {self.group} is none of {', '.join(GROUPS)}")


def first(sections: Iterable[Section]) -> Iterator[Finding]:
    """Yield the findings of all sections that are read first."""
    return (one for section in sections for one in section.findings if one.first)
