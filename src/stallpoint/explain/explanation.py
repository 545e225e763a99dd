"""What is found out of files, as typed rows: text and JSON are renderings of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

from stallpoint.text import number

STALLS, SCALES, UNDECIDED, WITHHELD = "stalls", "scales", "undecided", "withheld"
MAX_LINES = 20
"""Lines of the text, so that it is read."""
_WIDTH = 118


@dataclass(frozen=True)
class Cause:
    """Why rates are what they are."""

    name: str
    """A key, such as ``between_nodes``."""
    words: str
    share: float | None = None
    """Part of the ideal rate that it takes at the largest count, where that is known."""
    evidence: str = ""


@dataclass(frozen=True)
class Finding:
    """An answer about one subject."""

    kind: str
    """What it is about: ``rates``, ``link``, ``transport``, ``script``, ``trace``."""
    subject: str
    headline: str
    """The answer in a few words."""
    verdict: str | None = None
    """``stalls``, ``scales``, ``undecided`` or ``withheld``; None where the question is another."""
    certainty: str = ""
    workers: dict[str, float] | None = None
    """``value``, ``low`` and ``high`` of the count at which it stalls, or up to which it scales."""
    causes: tuple[Cause, ...] = ()
    fits: str = ""
    beyond: str = ""
    ask: tuple[str, ...] = ()
    """What would decide what is not known: one number or command each."""
    notes: tuple[str, ...] = ()
    points: tuple[dict[str, float | None], ...] = field(default=(), repr=False)
    """``workers, rate, predicted, low, high`` for a chart."""

    @property
    def bad(self) -> bool:
        """Whether something is there to mend: it stalls, or a cause is named of a link or a script."""
        return self.verdict == STALLS or (self.verdict is None and bool(self.causes))

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the answer's parts, each with its label; the headline has none."""
        yield "", f"{self.subject}: {self.headline}." + (f"   {self.certainty}" if self.certainty else "")
        for cause in self.causes:
            yield "why", "; ".join(filter(None, (cause.words, cause.evidence)))
        parts = [("fits", self.fits), ("beyond", self.beyond), *(("next", ask) for ask in self.ask)]
        yield from ((label, text) for label, text in parts if text)
        yield from (("note", note) for note in self.notes)


@dataclass(frozen=True)
class Input:
    """A file, and what was recognised in it."""

    file: str
    recognised: tuple[str, ...]
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """All that was found."""

    inputs: Sequence[Input]
    answers: Sequence[Finding]

    def to_json(self) -> dict[str, Any]:
        """Return ``inputs`` and ``answers`` as JSON has them."""
        return {"inputs": [asdict(one) for one in self.inputs], "answers": [asdict(one) for one in self.answers]}

    def in_words(self) -> str:
        """Return the same for people, at most `MAX_LINES` lines: of many answers fewer parts, then headlines alone."""
        for detail in range(len(_SHORTER)):
            lines = [line for answer in self.answers for line in _written(answer, detail)]
            if len(lines) <= MAX_LINES:
                break
        if len(lines) > MAX_LINES:
            more = len(lines) - MAX_LINES + 1
            lines = [*lines[: MAX_LINES - 1], f"... and {more} more: --json has all {len(self.answers)} answers"]
        return "\n".join(lines) + "\n"


_SHORTER: tuple[frozenset[str], ...] = (
    frozenset(("why", "fits", "beyond", "next", "note")),
    frozenset(("why", "fits", "beyond", "next", "note")),
    frozenset(("why", "note", "next")),
    frozenset(("why", "note")),
    frozenset(),
)
"""Parts that are shown beside the headline: first all, then one line of each, and so on."""


def _written(answer: Finding, detail: int) -> Iterator[str]:
    (_, headline), *parts = answer.lines()
    yield from wrap(headline, _WIDTH, subsequent_indent="  ") if not detail else [headline]
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


def numbers(values: Iterable[float]) -> str:
    """Return rates one after the other: ``532 -> 710 -> 879``."""
    return " -> ".join(number(value) for value in values)
