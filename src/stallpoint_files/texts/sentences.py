"""Rates in lines and sentences: ``8 GPUs (2 nodes): 1200 img/s``, ``2 nodes -> ~40 s/step``, ``1 node takes 20 min``.

Each count belongs to the amount that follows it, or where amounts come first to the one before. Lines that name other
chips, models, strategies or precisions than the rest are series of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from stallpoint.inputs.documents import Document
from stallpoint_files.texts.headings import CHIP
from stallpoint_files.texts.languages import in_english
from stallpoint_files.texts.numbers import DIGITS, UNITS, unit_in

_OF = r"(?:gpus?|workers?|ranks?|nodes?|processes|devices|accelerators|cards?)"
NODES = r"(?:nodes?|hosts?|servers?|machines?|boxes|box)"
COUNTED = re.compile(
    rf"\W*(?:on )?(?P<count>\d+) ?[x×]? ?(?P<of>{_OF})\W*|\W*(?P<of_>{_OF})\W+(?P<count_>\d+)\W*", re.IGNORECASE
)
_COUNT = (
    rf"(?<![\w.])(?:(?P<before>\d+) ?{NODES} ?(?P<times>[x×*])? ?\(? ?)?(?P<count>\d+) ?[x×]? ?(?P<of>{_OF})\b"
    rf"(?:(?: ?[(,] ?(?:(?:in|on|over|across) )?| (?:in|on|over|across) )(?P<nodes>\d+) ?{NODES}\b\)?)?"
)
COUNT_ALONE = re.compile(_COUNT + r"\W*", re.IGNORECASE)
COUNT_AHEAD = re.compile(rf"[\W_]*{_COUNT}", re.IGNORECASE)
"""A count that a line begins with, behind the marks of a heading."""
_IN_LINE = re.compile(
    rf"{_COUNT}|(?<![\w.])(?P<chips>\d+) ?[x×]? ?(?P<chip>{CHIP}|titan\w*|[rg]tx)s?\b"
    rf"|\b(?P<chip_>{CHIP}) ?[x×] ?(?P<chips_>\d+)\b",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    rf"(?P<rate>{DIGITS}(?: ?[-–] ?{DIGITS})?(?: ?[kKM]\b)?) ?"
    rf"(?:(?P<unit>(?:{UNITS.pattern})(?:/(?:gpu|worker|device))?"
    r"|(?:ms|secs?|seconds?|s|mins?|minutes?)(?: ?/ ?| per | an )(?:iteration|iter|it|step|batch|epoch)\b)"
    r"|(?P<time>days?|minutes?|mins?|hours?|hrs?|ms|seconds?|secs?|s)\b(?!/))",
    re.IGNORECASE,
)
_PLAIN = re.compile(rf"[-*\s]*{_COUNT}[\s:=,|]+{DIGITS}\s*", re.IGNORECASE)
_UNIT_ALONE = re.compile(
    rf"(?<!\d)(?<!\d )(?:{UNITS.pattern})(?:/gpu)?|\b(?:ms|s|sec)/(?:it|iter|step)\b", re.IGNORECASE
)
_SETTING = re.compile(
    rf"`([\w.-]+)`|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b|\b((?i:{CHIP}|[df]sdp2?|ddp|zero-?\d|fp32|bf16|fp16|fp8|tf32|amp))\b"
    r"|\b(\d+(?:\.\d+)?[BM])\b(?!/)"
)
"""Words that tell one setting from another."""


_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
_COUNTABLE = r"(?:GPUs?|nodes?|machines?|boxe?s?|servers?|hosts?|workers?|cards?|[AHVBL]\d{2,3})"
_IN_DIGITS = (
    *(
        (re.compile(rf"\b{word}(?= {_COUNTABLE}\b)", re.IGNORECASE), str(count))
        for count, word in enumerate(_NUMBERS, start=1)
    ),
    (re.compile(rf"\b(?:a )?single[- ](?={_COUNTABLE}\b)", re.IGNORECASE), "1 "),
    (re.compile(r"(?<=\d) (?:machine|box|server|host)\b(?!es|s)", re.IGNORECASE), " node"),
    (re.compile(r"(?<=\d) (?:machines|boxes|servers|hosts)\b", re.IGNORECASE), " nodes"),
)
"""Counts in words, and what replaces them."""


def counted_in_digits(text: str) -> str:
    """Return a text whose counts of nodes and workers are digits: ``one box`` and ``单机`` as ``1 node``."""
    text = in_english(text)
    for pattern, digits in _IN_DIGITS:
        text = pattern.sub(digits, text)
    return text


_OF_NODES = re.compile(
    rf"\b(?:(\d{{1,6}}) nodes? (?:with|of) |(1) nodes?,? ?\(?)(\d{{1,6}}) ?x? ?(?:{CHIP}s?|gpus?)\b", re.IGNORECASE
)
_EACH_HAS = re.compile(
    rf"\b(\d{{1,6}}) nodes? ?(?:[(,] ?|with |of )(\d{{1,6}}) ?x? ?(?:{CHIP}s?|gpus?)(?: gpus?)? "
    r"(?:each|per node|a node|on each)\b",
    re.IGNORECASE,
)
"""``4 nodes (8 gpus each)``."""
_THAN_ONE = re.compile(
    rf"(?<=\d )({_OF})\b([^.;\d]{{1,60}}?\b(?:than|and|vs\.?|versus)(?: (?:on|with|for|using))?) one\b(?! {_OF})",
    re.IGNORECASE,
)
"""``on 2 nodes it is slower than on one``."""
_OF_EACH = re.compile(
    r"(?:throughput|speed|rate|performance|tps) ?(?:per|/|of each|on each|for each)[- ]?(?:gpu|worker|device)",
    re.IGNORECASE,
)
_FROM_TO = re.compile(
    rf"from (\d{{1,6}}) to (\d{{1,6}}) ({_OF})\b([^.;\d]{{0,80}}?)from ({DIGITS} ?[kKM]?\b)[^\d,;.]{{0,20}}? "
    rf"to ({DIGITS} ?[kKM]?) ?([^\d,;.]{{1,20}})",
    re.IGNORECASE,
)
"""``from 4 to 8 nodes the throughput went from 410k to 520k tokens/s``."""


@dataclass(frozen=True)
class _Found:
    line: int
    count: int
    of: str
    nodes: int
    amount: str
    unit: str
    settings: frozenset[str]


def in_sentences(document: Document) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the rates in lines of the text as the rows of a table, its headings first."""
    found = list(_all(document))
    if len(found) < 2:
        return
    per_node = max((one.count / one.nodes for one in found if one.nodes), default=0.0)
    if per_node and any(one.of == "nodes" for one in found) and any(one.of != "nodes" for one in found):
        # Where some counts say how many workers a node has, those of nodes are counts of workers.
        of = next(one.of for one in found if one.of != "nodes")
        found = [
            replace(one, of=of, count=round(one.count * per_node), nodes=one.count) if one.of == "nodes" else one
            for one in found
        ]
    # Other amounts, such as the hours beside rates, are not taken.
    unit = Counter(one.unit for one in found).most_common(1)[0][0]
    found = [one for one in found if one.unit == unit]
    if len({one.of for one in found}) > 1 or len({(one.line, one.count) for one in found}) < 2:
        return
    common = frozenset.intersection(*(one.settings for one in found))
    several = {one.settings - common for one in found}
    head = [*(["strategy"] if len(several) > 1 else []), found[0].of, unit, *(["nodes"] if per_node else [])]
    rows = [
        (
            one.line,
            [
                *([" ".join(sorted(one.settings - common)) or "others"] if len(several) > 1 else []),
                str(one.count),
                one.amount,
                # Counts without a word of nodes fill one.
                *([str(one.nodes or ceil(one.count / per_node))] if per_node else []),
            ],
        )
        for one in found
    ]
    left = [(line, [*([""] if len(several) > 1 else []), *cells]) for line, cells in _without_amount(document, found)]
    yield [(found[0].line, head), *sorted([*rows, *left], key=lambda row: row[0])]


def _all(document: Document) -> Iterator[_Found]:
    context: frozenset[str] = frozenset()
    above = ""
    for number, line in enumerate(document.lines, start=1):
        counted = counted_in_digits(line)
        text = _EACH_HAS.sub(r"\1 nodes x \2 gpus", counted)
        text = _OF_NODES.sub(r"\1\2 nodes x \3 gpus", text)
        text = _THAN_ONE.sub(r"\1\2 1 \1", text)
        text = _FROM_TO.sub(r"\4: \1 \3 \5 \7, \2 \3 \6 \7", text)
        if above and _PLAIN.fullmatch(text):  # a number below a line that says its unit
            text = f"{text.strip()} {above}"
        elif alone := _UNIT_ALONE.search(text):
            above = alone[0]
        counts, amounts = list(_IN_LINE.finditer(text)), list(_AMOUNT.finditer(text))
        named = frozenset(next(filter(None, one.groups())).lower() for one in _SETTING.finditer(counted))
        if not counts or not amounts:
            context = named if named and not amounts else context
            continue
        for count, amount in _pairs(counts, amounts):
            if not (unit := _unit(amount, text)):
                continue
            chip, chips = count["chip"] or count["chip_"], count["chips"] or count["chips_"]
            of = "gpus" if chips else count["of"].lower().rstrip("s") + "s"
            nodes = int(count["nodes"] or count["before"] or 0)
            workers = int(chips or count["count"]) * (nodes if count["times"] else 1)
            if workers:
                yield _Found(
                    number,
                    workers,
                    of,
                    nodes,
                    amount["rate"],
                    unit,
                    context | named | ({chip.lower()} if chip else set()),
                )


def _pairs(
    counts: Sequence[re.Match[str]], amounts: Sequence[re.Match[str]]
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield each count with its amount: the next one, or the one before where amounts come first; one by one where all
    counts come before as many amounts."""
    if counts[-1].end() <= amounts[0].start() and len(counts) == len(amounts):
        yield from zip(counts, amounts, strict=True)
        return
    if counts[0].start() < amounts[0].start():
        for place, count in enumerate(counts):
            end = counts[place + 1].start() if place + 1 < len(counts) else amounts[-1].end()
            if amount := next((one for one in amounts if count.end() <= one.start() <= end), None):
                yield count, amount
        return
    for place, amount in enumerate(amounts):
        end = amounts[place + 1].start() if place + 1 < len(amounts) else counts[-1].end()
        yield from ((count, amount) for count in counts if amount.end() <= count.start() <= end)


def _unit(amount: re.Match[str], text: str) -> str:
    """Return the heading of an amount's column; empty for times of nobody knows what."""
    if unit := amount["unit"]:
        if re.search(r"epoch$", unit, re.IGNORECASE) and not UNITS.search(unit):
            return f"epoch time ({re.split(r'[ /]', unit)[0]})"
        each = re.search(r"/(?:gpu|worker|device)$", unit, re.IGNORECASE) or _OF_EACH.search(text)
        return (unit_in(unit) + ("/gpu" if each else "")) if UNITS.search(unit) else re.sub(r" per | an ", "/", unit)
    time = amount["time"].lower()
    if time.startswith(("m", "h", "d")) and time != "ms":
        return f"{'epoch' if re.search(r'epoch', text, re.IGNORECASE) else 'run'} time ({time})"
    if re.search(r"\bsteps?\b|iteration", text, re.IGNORECASE):
        return f"{time}/step"
    return f"run time ({time})" if re.search(r"epoch|training|takes?\b|took", text, re.IGNORECASE) else ""


def _without_amount(document: Document, found: Sequence[_Found]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines between those with rates that begin with a count and have none."""
    lines = {one.line for one in found}
    for number in range(min(lines), max(lines)):
        text = document.lines[number - 1]
        if number not in lines and (count := re.match(rf"\W*{_COUNT}\W*(?P<rest>.*)", text, re.IGNORECASE)):
            yield number, [count["count"], count["rest"].strip() or "nothing"]
