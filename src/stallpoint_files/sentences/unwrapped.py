"""Lines of a text in which sentences are not wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LONGEST = 4000
"""Characters of a line that may be a sentence."""
_OF_PROSE = re.compile(
    r"\b(?:an?|the|is|are|was|were|has|have|on|with|and|of|to|for|in|it|we|I|takes?|took|at|from|by|but|than)\b"
)
"""Words that sentences have, and lines of logs and tables have not."""
_FEW_WORDS = 4
"""Words of sentences below which a text may be anything."""
_OPEN_END = re.compile(r"\b(?:on|with|in|at|to|of|and|or|for|from|than|about|only|takes?|took|using|per|the|an?)$")
"""Words that a sentence does not end with."""
_WRAPPED_FROM = 40
"""Characters of a line from which on it may go on in the next."""


_CHINESE = re.compile(r"[\u4e00-\u9fff]{4}")


def is_prose(lines: Sequence[str]) -> bool:
    """Return whether lines are sentences for the most part: words of sentences, or runs of Chinese."""
    words = sum(len(_OF_PROSE.findall(line)) + len(_CHINESE.findall(line)) for line in lines)
    return words >= _FEW_WORDS and words * 2 >= sum(bool(line.strip()) for line in lines)


def unwrapped(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; a sentence that was wrapped is one line, with the number of its first."""
    number, text, before = 0, "", ""
    for place, line in enumerate(lines, start=1):
        if number and _goes_on(before, line) and len(text) + len(line) < LONGEST:
            text = f"{text} {line.strip()}"
        else:
            if number:
                yield number, text
            number, text = place, line
        before = line
    if number:
        yield number, text


def _goes_on(line: str, below: str) -> bool:
    """Return whether the sentence in a line goes on in the one below: with a small letter, after a word that ends no
    sentence, or between a count and its word."""
    end, begin = line.rstrip(), below.lstrip()
    if len(end) < _WRAPPED_FROM or not (end[-1].isalnum() or end[-1] in ",)%*`"):
        return False
    wrapped = re.match(r"[a-z][a-z'’]*(?![\w=:(\[.])", begin) or (
        re.match(r"\w", begin) and (_OPEN_END.search(end) or (end[-1].isdigit() and begin.startswith("GPU")))
    )
    # Lines of logs begin alike.
    return bool(wrapped and end.split()[0] != begin.split()[0] and len(_OF_PROSE.findall(end)) > 1)
