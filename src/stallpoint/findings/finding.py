"""What was found, as typed rows: each made once from tables or files, then written by renderers that know no more.

A renderer asks a finding for its fields alone: whichever network, preset or file it is about stands in its words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

from stallpoint.base.stall import Verdict
from stallpoint.text import interval


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
    """What was found of one subject, how sure that is, and what would decide it."""

    kind: str
    """Which question it answers, in a word or two: verdict, largest loss, trust; of a file rates, link, trace."""
    subject: str
    """What it is about, as readers call it: ``alexnet on cpu, strong, B = 64, local``."""
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
    label: str = ""
    """What readers see before the words, where one is needed: ``beyond 4 nodes``."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Network, hardware and storage that it belongs to, for pages that filter by them."""
    to_mend: bool = False
    """Whether something is wrong whatever the verdict: a count that is slower than a smaller one."""
    points: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """``workers, rate, predicted, low, high`` for a chart; of several ranks' traces the cells of `Stragglers`."""

    @property
    def estimate(self) -> str:
        """``1.8 s (1.7–2.0)``; empty where there is no value."""
        if self.value is None:
            return ""
        return interval({"value": self.value, "low": self.low, "high": self.high}, 1.0, self.unit and f" {self.unit}")

    @property
    def bad(self) -> bool:
        """Whether something is there to mend: it stalls or dips, or a cause is named of what has no states."""
        return self.to_mend or self.verdict == Verdict.STALLS or (not self.verdict and bool(self.causes))

    @property
    def parts(self) -> Iterator[tuple[str, str]]:
        """Each part with its label: first the words with their subject, without one."""
        yield "", f"{self.subject}: {self.words}." + (f"   {self.evidence}" if self.evidence else "")
        for cause in self.causes:
            yield "why", "; ".join(filter(None, (cause.words, cause.evidence)))
        parts = [("fits", self.fits), ("beyond", self.beyond), *(("next", ask) for ask in self.ask)]
        yield from ((label, text) for label, text in parts if text)
        yield from (("note", note) for note in self.notes)


def in_markdown(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a line for each: its subject, its label where that says more than its kind, and its words."""
    for one in findings:
        about = ", ".join(filter(None, (one.subject, one.label if one.label != one.kind else "")))
        yield f"{about}: {one.words}" if about else one.words


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
    return "\n".join(lines) + "\n"


def _written(one: Finding, detail: int) -> Iterator[str]:
    (_, words), *parts = one.parts
    yield from wrap(words, _WIDTH, subsequent_indent="  ") if not detail else [words]
    seen: set[str] = set()
    for label, text in parts:
        first = label not in seen
        if (detail and not first) or label not in _SHORTER[detail]:
            continue
        seen.add(label)
        lead = f"  {label if first else '':<8}"
        max_lines = 1 if detail else None
        yield from wrap(
            text, _WIDTH, initial_indent=lead, subsequent_indent=" " * 10, max_lines=max_lines, placeholder=" ..."
        )
