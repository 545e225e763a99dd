"""Joining of wrapped lines, so that each sentence is on one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LONGEST = 4000
"""Maximum number of characters of a line that may be a sentence."""
_OF_PROSE = re.compile(
    r"\b(?:an?|the|is|are|was|were|has|have|on|with|and|of|to|for|in|it|we|I|takes?|took|at|from|by|but|than)\b"
)
"""Words that occur in sentences, but not in lines of logs and tables."""
_FEW_WORDS = 4
"""Minimum number of such words for a text to be prose."""
_OPEN_END = re.compile(r"\b(?:on|with|in|at|to|of|and|or|for|from|than|about|only|takes?|took|using|per|the|an?)$")
"""Words that do not end a sentence."""
_WRAPPED_FROM = 40
"""Minimum number of characters of a line that may continue in the next."""


_CHINESE = re.compile(r"[\u4e00-\u9fff]{4}")


def is_prose(lines: Sequence[str]) -> bool:
    """Return whether lines are mostly sentences: with words of sentences, or runs of Chinese characters."""
    words = sum(len(_OF_PROSE.findall(line)) + len(_CHINESE.findall(line)) for line in lines)
    return words >= _FEW_WORDS and words * 2 >= sum(bool(line.strip()) for line in lines)


def unwrapped(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; a wrapped sentence is one line, with the number of its first line."""
    number, text, before = 0, "", ""
    for place, line in enumerate(lines, start=1):
        if number and _continues(before, line) and len(text) + len(line) < LONGEST:
            text = f"{text} {line.strip()}"
        else:
            if number:
                yield number, text
            number, text = place, line
        before = line
    if number:
        yield number, text


def _continues(line: str, below: str) -> bool:
    """Return whether a sentence continues in the line below: that begins in lower case, or the line ends with a word
    that does not end sentences, or with a count whose word is below."""
    end, begin = line.rstrip(), below.lstrip()
    if len(end) < _WRAPPED_FROM or not (end[-1].isalnum() or end[-1] in ",)%*`"):
        return False
    wrapped = re.match(r"[a-z][a-z'’]*(?![\w=:(\[.])", begin) or (
        re.match(r"\w", begin) and (_OPEN_END.search(end) or (end[-1].isdigit() and begin.startswith("GPU")))
    )
    # Lines of a log begin with the same word.
    return bool(wrapped and end.split()[0] != begin.split()[0] and len(_OF_PROSE.findall(end)) > 1)
