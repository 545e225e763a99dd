"""Pairing of a sentence's amounts with its counts: the amount after a count, or before it if amounts come first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stallpoint_files.texts.amounts import AMOUNT, heading_of, is_expected

Found = re.Match[str]
"""A count or an amount in a text."""
_THE_SAME = re.compile(
    r"\b(?:about|almost|nearly|roughly|is|are|still|takes?|exactly) the same\b"
    r"(?! (?:batch|model|data|config|setting|code))|"
    r"\bno (?:\w+ )?differences?\b",
    re.IGNORECASE,
)
"""Words by which one amount belongs to all counts of a line."""
_PAIRED = re.compile(r"(?:CA|AC)+|C+A+|A+C+")
"""Unambiguous orders of counts (C) and equally many amounts (A)."""
_OTHER_COUNT = re.compile(r"\b(?:on|with|using) \d")
"""A possible count of an unknown thing: ``on 2 serer``."""
_OF_OTHERS = (
    r"(?P<count>\d{1,6}) (?!steps?\b|iter|epochs?\b|(?:mini-?)?batch|samples?\b|images?\b|frames?\b|tokens?\b|"
    r"layers?\b|times?\b|runs?\b)(?P<of>[a-z]{3,20})\b"
)
_UNKNOWN = re.compile(rf"\b(?:on|with|using|across) {_OF_OTHERS}", re.IGNORECASE)
OTHER_AHEAD = re.compile(rf"\W*(?P<on>(?:on|with|using|across) )?{_OF_OTHERS}(?(on)|(?=\s*[-:=,|(→]))", re.IGNORECASE)
"""A count of unknown things at the beginning of a line: ``4 frobnicators: 510 img/s``."""
_END = re.compile(r"(?<!vs)(?<!e\.g)[.!?]\)? +(?=[A-Z])|; +")


def sentences_in(text: str) -> list[tuple[int, int]]:
    """Return the begin and end of each sentence of a text."""
    return list(pairwise(dict.fromkeys([0, *(one.end() for one in _END.finditer(text)), len(text)])))


def in_order(counts: Sequence[Found], amounts: Sequence[Found]) -> bool:
    """Return whether the order of counts and equally many amounts shows which belongs to which; successive amounts with
    an unknown count between them do not."""
    found = [*((one.start(), "C") for one in counts), *((one.start(), "A") for one in amounts)]
    order = "".join(kind for _, kind in sorted(found, key=lambda one: one[0]))
    if len(order) <= 2 or len(counts) != len(amounts):
        return False
    rising = sorted(amounts, key=lambda one: one.start())
    between = [one.string[one.end() : other.start()] for one, other in pairwise(rising)]
    if "AA" in order and any(map(_OTHER_COUNT.search, between)):
        return False
    blocks = re.findall(r"C+A+" if order[0] == "C" else r"A+C+", order)
    balanced = "".join(blocks) == order and all(block.count("C") * 2 == len(block) for block in blocks)
    return balanced or _PAIRED.fullmatch(order) is not None


def with_unknown(counts: Sequence[Found], amounts: Sequence[Found], text: str) -> Sequence[Found]:
    """Return the counts, with counts of unknown things (``on 2 frobnicators``) if only then each amount, all of one
    kind, has its own count."""
    taken = [*counts, *amounts]
    others = [
        one
        for one in _UNKNOWN.finditer(text)
        if not any(one.start("count") < known.end() and known.start() < one.end() for known in taken)
    ]
    every = sorted([*counts, *others], key=lambda one: one.start())
    alike = others and len(every) == len(amounts) and len({heading_of(one, text) for one in amounts}) == 1
    return every if alike and in_order(every, amounts) else counts


def pairs(counts: Sequence[Found], amounts: Sequence[Found], text: str, around: str) -> Iterator[tuple[Found, Found]]:
    """Yield each count with its amounts: over the complete text if the order is unambiguous, else within each sentence;
    if a sentence has amounts but no count, only within sentences of unambiguous order."""
    parts = [
        [[one for one in found if begin <= one.start() < end] for found in (counts, amounts)]
        for begin, end in sentences_in(text)
    ]
    hoped = [one.start() for one in AMOUNT.finditer(text) if is_expected(one, text)]
    if hoped:  # counts of sentences with only expected amounts have no amounts in other sentences
        spans = [span for span, (_, said) in zip(sentences_in(text), parts, strict=True) if not said]
        alone = [span for span in spans if any(span[0] <= place < span[1] for place in hoped)]
        counts = [one for one in counts if not any(begin <= one.start() < end for begin, end in alone)]
        if not counts:
            return
    paired = [(of, said) for of, said in parts if of and said]
    if any(said and not of for of, said in parts):
        paired = [part for part in paired if in_order(*part)]
    if in_order(counts, amounts) or not paired:
        paired = [(list(counts), list(amounts))]
    for part in paired:
        yield from _pairs_in(*part, text, around)


def _pairs_in(
    counts: Sequence[Found], amounts: Sequence[Found], text: str, around: str
) -> Iterator[tuple[Found, Found]]:
    """Yield each count of a sentence with the amounts that follow it, one of each unit, or the amount before it."""
    if in_order(counts, amounts):
        yield from zip(counts, amounts, strict=True)
        return
    alike = _THE_SAME.search(text)
    if alike and len(amounts) == 1 and len(counts) > 1 and counts[-1].end() <= alike.start() < amounts[0].start():
        yield from ((count, amounts[0]) for count in counts)
        return
    if counts[0].start() < amounts[0].start():
        ends = [*(one.start() for one in counts[1:]), amounts[-1].end()]
        for count, end in zip(counts, ends, strict=True):
            units: dict[str, list[Found]] = {}
            for amount in amounts:
                if count.end() <= amount.start() <= end:
                    units.setdefault(heading_of(amount, text, around), []).append(amount)
            # Adjacent amounts of one unit are columns without their headings.
            alone = (
                of[0] for of in units.values() if len(of) == 1 or text[of[0].end() : of[1].start()].strip(" \t|,;")
            )
            yield from ((count, amount) for amount in alone)
        return
    ends = [*(one.start() for one in amounts[1:]), counts[-1].end()]
    for amount, end in zip(amounts, ends, strict=True):
        begin = amount.end()
        for count in counts:
            between = count.string[begin : count.start()]
            if _END.search(text, amount.end(), count.start()):
                break  # the counts of a later sentence have an amount of their own, or none
            if begin <= count.start() <= end and (begin == amount.end() or not re.search(r"\d", between)):
                yield count, amount
                begin = count.end()
