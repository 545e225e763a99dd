"""What is found out of files, with what was recognised in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stallpoint.findings.finding import Finding, in_json, in_terminal


@dataclass(frozen=True)
class Input:
    """A file and its recognised content."""

    file: str
    recognised: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Findings of all files."""

    inputs: Sequence[Input]
    answers: Sequence[Finding]

    def to_json(self) -> dict[str, Any]:
        """Return ``inputs`` and ``answers`` as JSON has them."""
        return {"inputs": [asdict(one) for one in self.inputs], "answers": in_json(self.answers)}

    def in_words(self) -> str:
        """Return the answers for people."""
        return in_terminal(self.answers)
