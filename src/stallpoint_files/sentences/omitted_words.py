"""Restoration of omitted words: the counted thing of a further count, and the unit of an amount."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stallpoint_files.sentences.pairing import in_order, sentences_in
from stallpoint_files.texts.amounts import AMOUNT, UNIT_ALONE, amounts_in, heading_of
from stallpoint_files.texts.counts import ANY_COUNT, VERB, WORD, WORD_OR_CHIP

_LAST = r"(?:,? (?:and|or|to|vs\.?) | ?(?:->|→|/) ?)"
_NEXT = rf"(?:{_LAST}|, )"
_LISTED = re.compile(
    rf"(?<![\w.:/,-])((?:\d{{1,6}}{_NEXT}){{0,20}}\d{{1,6}}{_LAST}\d{{1,6}}) ({WORD_OR_CHIP})\b", re.IGNORECASE
)
"""``8, 16 and 32 V100s``, ``from 8 to 16 GPUs``, ``2/4/8 GPUs``."""
_THOUSANDS = re.compile(rf"(?<![\w.,])(\d{{1,3}}(?:,\d{{3}}){{1,3}})(?= ?[x×]? ?{WORD_OR_CHIP}\b)", re.IGNORECASE)
NUMBER_OF = re.compile(rf"\bnumber of ({WORD})\b", re.IGNORECASE)
_BARE = re.compile(
    r"(\b(?:on|with|using|than|at|for|auf|mit|con|en) \d{1,6})"
    rf"(?=[:;,.)]*\s*$|\s+(?:and|but|it|I|we|{VERB})\b|[:;,.]\s)|((?:[,;]|\band|\bbut) \d{{1,6}})(?= {VERB}\b)",
    re.IGNORECASE,
)
"""Counts without a counted thing: ``7:50 on 2 and 7:40 on 4``, ``16 give 8.1k``."""
_NUMBER = r"\d+(?:[.,]\d+)*[kKM]?"
_ALONE = re.compile(
    r"(?<![\w.,$:#-])(?<!seed )(?<!run )(?<!rank )(?<![Ee]poch )(?<![Ee]pochs )(?<!step )(?<!size )(?<!batch )"
    rf"(?<!version ){_NUMBER}"
    r"(?=\s*(?:$|[()/|;→]|[.,:](?!\d)|(?:and|or|to|on|with|for|at|in|but|vs|versus|und|auf|mit|bei|con|y|en|only)\b))"
)
"""Numbers without a unit."""
_BATCH = re.compile(r"(?:batch\D{0,25}|\bepochs (?:is |are |[=:] ?)?)\d+", re.IGNORECASE)


def _each_with(numbers: str, word: str) -> str:
    """Return the numbers of a list, each followed by `word`."""
    *first, last = (f"{one} {word}" for one in re.findall(_NUMBER, numbers))
    return f"{', '.join(first)} to {last}"


def with_words(text: str) -> str:
    """Return a text in which each count has its counted thing, and each amount its unit."""
    text = _THOUSANDS.sub(lambda one: one[1].replace(",", ""), text)
    text = _LISTED.sub(lambda one: _each_with(one[1], one[2]), text)
    words = {one["of"].lower().rstrip("s") for one in ANY_COUNT.finditer(text) if one["of"]}
    words = words or {one[1].lower().rstrip("s") for one in NUMBER_OF.finditer(text)}
    if len(words) == 1 and not in_order([*ANY_COUNT.finditer(text)], amounts_in(text)):
        word, batches = words.pop(), [one.end() for one in _BATCH.finditer(text)]
        text = _BARE.sub(lambda one: one[0] if one.end() in batches else f"{one[0]} {word}s", text)
    return _with_units(text)


def _with_units(text: str) -> str:
    """Return a text in which numbers that are amounts get the only unit that occurs elsewhere in the text."""
    counts = list(ANY_COUNT.finditer(text))
    if not counts:
        return text
    amounts = amounts_in(text)
    written = ("unit", "time", "short", "share", "factor")
    units = {heading_of(one, text): next(filter(None, one.group(*written)), "") for one in amounts}
    units = units or {one[0].lower(): one[0] for one in UNIT_ALONE.finditer(text)}
    if not units and (said := re.search(r"speed-?up", text, re.IGNORECASE)):
        units = {said[0]: "x"}
    if len(amounts) >= len(counts) or len(units) != 1:
        return text
    (unit,) = units.values()
    plain = numbers_alone(text, [*counts, *AMOUNT.finditer(text)])
    if in_order(counts, [*amounts, *plain]):
        for one in reversed(plain):
            text = f"{text[: one.end()]} {unit}{text[one.end() :]}"
        return text
    parts = sentences_in(text)
    return "".join(_with_units(text[begin:end]) for begin, end in parts) if len(parts) > 1 else text


def numbers_alone(text: str, known: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Return the numbers without a unit that overlap neither the `known` matches nor a batch size."""
    taken = [*known, *_BATCH.finditer(text)]
    return [
        one
        for one in _ALONE.finditer(text)
        if not any(one.start() < other.end() and other.start() < one.end() for other in taken)
    ]
