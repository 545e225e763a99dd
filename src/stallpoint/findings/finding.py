"""What was found, as typed rows: each made once from tables or files, then written by renderers that know no more.

A renderer asks a finding for its fields alone: whichever network, preset or file it is about stands in its words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stallpoint.text import interval


@dataclass(frozen=True)
class Finding:
    """What was found of one subject, how sure that is, and what would decide it."""

    kind: str
    """Which question it answers, in a word or two: verdict, largest loss, would help, trust."""
    subject: str
    """What it is about, as readers call it: ``alexnet on cpu, strong, B = 64, local``."""
    words: str
    """A sentence without its full stop."""
    verdict: str = ""
    """The state in a word, where the question has states: stalls, scales, undecided, withheld."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of the 90 % interval; an end of a known value that is None is unbounded."""
    unit: str = ""
    evidence: str = ""
    """What it rests on: measured or predicted, by which rows of which table or file."""
    ask: str = ""
    """What would decide it, where it is undecided: a cell, a file, a count of visits."""
    label: str = ""
    """What readers see before the words, where one is needed: ``beyond 4 nodes``."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Network, hardware and storage that it belongs to, for pages that filter by them."""

    @property
    def estimate(self) -> str:
        """``1.8 s (1.7–2.0)``; empty where there is no value."""
        if self.value is None:
            return ""
        return interval({"value": self.value, "low": self.low, "high": self.high}, 1.0, self.unit and f" {self.unit}")


def in_markdown(findings: Iterable[Finding]) -> Iterator[str]:
    """A line for each: its subject, its label where that says more than its kind, and its words."""
    for one in findings:
        about = ", ".join(filter(None, (one.subject, one.label if one.label != one.kind else "")))
        yield f"{about}: {one.words}" if about else one.words


def in_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Objects with the fields of `Finding`; numbers that JSON does not have are null."""
    return [{name: _known(value) for name, value in asdict(one).items()} for one in findings]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
