"""Rates in lines and sentences: ``8 GPUs (2 nodes): 1200 img/s``, ``2 nodes -> ~40 s/step``, ``1 node takes 20 min``.

Omitted words are restored (`omitted_words`), comparisons become a factor for each count (`comparisons`), and each count
is paired with its amounts (`pairing`). Lines that name other chips, models, strategies or precisions than the rest, or
that another author wrote (`threads`), are separate series; an amount of unknown things is a row with their name in
place of a count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from stallpoint.inputs.documents import Document
from stallpoint_files.sentences.comparisons import BASE, FROM_TO, SECOND, compared_counts
from stallpoint_files.sentences.omitted_words import NUMBER_OF, with_words
from stallpoint_files.sentences.pairing import OTHER_AHEAD, Found, pairs, sentences_in, with_unknown
from stallpoint_files.sentences.threads import QUOTED, authors
from stallpoint_files.sentences.unwrapped import LONGEST, unwrapped
from stallpoint_files.texts.amounts import UNIT_ALONE, amounts_in, cell_of, epochs_of, heading_of
from stallpoint_files.texts.counts import ANY_COUNT, COUNT, COUNT_ALONE, NODES, WORD, in_digits, on_nodes, workers_of
from stallpoint_files.texts.headings import CHIP
from stallpoint_files.texts.numbers import DIGITS, UNITS, ends_of, per_second, seconds_in

_PLAIN = re.compile(rf"[-*\s]*{COUNT}[\s:=,|]+{DIGITS}\s*", re.IGNORECASE)
_SETTING = re.compile(
    rf"`(?=[\d.-]*[A-Za-z_])([\w.-]+)`|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b|\b((?i:{CHIP}|[df]sdp2?|ddp|zero-?\d|fp32|bf16|fp16|fp8|tf32|amp|"
    r"(?:distributed)?data-?parallel|distributed-?dp))\b|\b((?i:batch_size=\d+))\b|\b((?:TP|PP|CP|EP)[ =]?\d+)\b"
    r"|\b(\d+(?:\.\d+)?(?:[BM]|(?<=\d)b))\b(?!/)|\b(\d+)(?= (?:total |parallel )?env(?:ironment)?s\b)"
)
"""Words that distinguish settings."""
_SIZE = re.compile(r"\b(?:mini-?)?batch[ _-]?size *[=:]? *(\d+)\b", re.IGNORECASE)
_PART_OF = re.compile(
    rf"{DIGITS} ?[kKM]? ?(?:{UNITS.pattern})[ ,]*(?:on|for|in) each (?:{NODES}|{WORD}) ?= ?", re.IGNORECASE
)
"""Rate of each worker that precedes the total: ``111 img/s on each machine = 222 img/s``."""
_COMMAND = re.compile(
    r"\s*(?:[$>] )?(?:[A-Z_]+=\S+ )*(?:python3?|torchrun|accelerate|deepspeed|mpirun|srun|horovodrun) \S"
)
"""Beginning of a command line whose results are in the lines below."""
_MAX_RATIO = 1.05
"""Maximum ratio of two amounts of one count that are repeats."""
_COLLECTIVE = r"(?:all[-_ ]?(?:reduce|gather)|reduce[-_ ]?scatter|broadcast)"
_OF_A_COLLECTIVE = re.compile(
    rf"{_COLLECTIVE} (?:latency|times?|took|takes?)\b|(?:latency|time) (?:of|for) (?:an? |the )?{_COLLECTIVE}",
    re.IGNORECASE,
)
_OF_A_TRAINING = re.compile(r"train|tuning|epoch|\bsteps?\b|iteration|/ ?s\b", re.IGNORECASE)
"""Words by which a text is about training."""
_PUBLISHED = re.compile(
    r"\b(?:(?:this|the|your|their) (?:\w+ )?(?:paper|article|readme|blog ?post|model zoo)|reported (?:in|by))\b",
    re.I,
)
"""Words for what others measured."""
_AS_PUBLISHED = "as published"
_STAGE = re.compile(
    r"\b(?:pre-?train|fine-?tun|refinement|stage ?\d|phase ?\d|sft\b|grpo|ppo\b|inference|evaluat|validat)",
    re.IGNORECASE,
)
"""Stages of training, each of which is different work."""
_BATCH_SIZE = "batch_size="
_STEPS_PER = {"iterations/s": "{} it/s", "time per step": "{} s/it"}
"""Units of step rates and times, and the form of their inverse in a cell."""
_MACHINES = re.compile(r"\b(\d{1,6})M/(\d{1,6})G\b")


@dataclass(frozen=True)
class SaidRate:
    """A rate or a time of one count, as given in a line."""

    line: int
    count: int
    """Number of workers or nodes; 0 for a count of unknown things."""
    of: str
    nodes: int
    amount: str
    unit: str
    settings: frozenset[str]
    below: frozenset[str] = frozenset()
    """Heading above and mini-batch, used as settings only if amounts of one count would differ otherwise."""
    by: str = ""
    """Author of the line."""
    epochs: int = 0
    """Number of epochs of a time; 0 if the line does not give it."""


def in_sentences(document: Document) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the rates in the text's lines as rows of a table, headings first."""
    every = list(_said_rates(document))
    found = [one for one in every if one.count]
    if len(found) < 2 or (_OF_A_COLLECTIVE.search(document.text) and not _OF_A_TRAINING.search(document.text)):
        return
    # GPUs, ranks and cards all count as workers.
    workers = next((one.of for one in found if one.of != "nodes"), "")
    found = [replace(one, of=workers) if one.of != "nodes" else one for one in found]
    per_node = max((one.count / one.nodes for one in found if one.nodes), default=0.0)
    if per_node and any(one.of == "nodes" for one in found) and any(one.of != "nodes" for one in found):
        # If some counts give the workers of a node, counts of nodes become counts of workers.
        found = [
            replace(one, of=workers, count=round(one.count * per_node), nodes=one.count) if one.of == "nodes" else one
            for one in found
        ]
    # Amounts in other units, such as hours next to rates, are dropped.
    found = _of_one_epoch(_by_author(_without_batches(_in_one_unit(found))))
    if not found or _of_several_bases(found):
        return
    if _ambiguous(found) or _of_own_batches(found):
        found = [replace(one, settings=one.settings | one.below) for one in found]
    if len({one.of for one in found}) > 1 or len({(one.line, one.count) for one in found}) < 2 or _ambiguous(found):
        return
    common = frozenset.intersection(*(one.settings for one in found))
    first = found[0].settings - common
    several = {one.settings - common for one in found}
    alike = [replace(one, settings=frozenset()) for one in found]
    other = {word for one in several for word in one if word == _AS_PUBLISHED or (_STAGE.match(word) and one != first)}
    said_once = len(several) == 2 and frozenset() in several and not other and not _ambiguous(alike)
    rows: list[tuple[int, str, list[str]]] = []
    for one in found:
        nodes = [str(one.nodes or ceil(one.count / per_node))] if per_node else []  # default: full nodes
        settings = " ".join(sorted(one.settings - common)) or "others"
        rows.append((one.line, settings, [str(one.count), one.amount, *nodes]))
    rows += [(line, "", cells) for line, cells in _without_amount(document, found)]
    lines = [one.line for one in found]
    unknown = [
        (one.line, "", [one.of, one.amount])
        for one in every
        if not one.count and one.unit == found[0].unit and min(lines) - 1 <= one.line <= max(lines) + 1
    ]
    head = (found[0].line, "strategy", [found[0].of, found[0].unit, *(["nodes"] if per_node else [])])
    named = len(several) > 1 and not said_once
    table = [head, *sorted(rows, key=lambda row: row[0]), *unknown]
    yield [(line, [settings, *cells] if named else cells) for line, settings, cells in table]


def _in_one_unit(found: Sequence[SaidRate]) -> list[SaidRate]:
    """Return the amounts in the unit that covers most counts; of equal ones, step rates and times come last, as their
    mini-batch is unknown. Steps per second and seconds per step count as one unit."""
    units = Counter(one.unit for one in found)
    of = {unit: {one.count for one in found if one.unit == unit} for unit in units}
    first = max(units, key=lambda unit: (len(of[unit]), units[unit], unit not in _STEPS_PER))
    kept = [one for one in found if one.unit == first]
    counts = {one.count for one in kept}
    others = [one for one in found if {one.unit, first} == set(_STEPS_PER) and one.unit != first]
    if others and not counts & {one.count for one in others}:
        inverse = [replace(one, unit=first, amount=_STEPS_PER[one.unit].format(one.amount)) for one in others]
        return sorted([*kept, *inverse], key=lambda one: one.line)
    return kept


def _by_author(found: list[SaidRate]) -> list[SaidRate]:
    """Return the rates with the author as a setting if there are several authors, without quoted duplicates."""
    if len({one.by for one in found}) < 2:
        return found
    said = {(one.count, one.amount) for one in found if one.by != QUOTED}
    return [
        replace(one, settings=one.settings | {one.by or "first post"})
        for one in found
        if one.by != QUOTED or (one.count, one.amount) not in said
    ]


def _of_one_epoch(found: list[SaidRate]) -> list[SaidRate]:
    """Return times of different numbers of epochs converted to one epoch; empty if some numbers are unknown."""
    numbers = {one.epochs for one in found}
    if len(numbers - {0}) < 2:
        return found
    if 0 in numbers or any(len(ends_of(one.amount)) > 1 for one in found):
        return []
    return [
        replace(one, amount=f"{seconds_in(one.amount, '', False) / one.epochs:.9g} s", unit="epoch time")
        for one in found
    ]


def _of_several_bases(found: Sequence[SaidRate]) -> bool:
    """Return whether the factors of one setting have several base counts."""
    bases = {(one.settings, one.count) for one in found if one.amount == BASE}
    return len(bases) > len({settings for settings, _ in bases})


def _batch_in(settings: frozenset[str]) -> float | None:
    """Return the mini-batch in settings; None for no mini-batch or several."""
    sizes = [float(word.removeprefix(_BATCH_SIZE)) for word in settings if word.startswith(_BATCH_SIZE)]
    return sizes[0] if len(sizes) == 1 else None


def _without_batches(found: list[SaidRate]) -> list[SaidRate]:
    """Return the rates without mini-batches as settings, if these are in proportion to the workers."""
    sizes = [_batch_in(one.settings) for one in found]
    each = {size and size / one.count for size, one in zip(sizes, found, strict=True)}
    if None in each or len(each) > 1:
        return found
    return [
        replace(one, settings=frozenset(word for word in one.settings if not word.startswith(_BATCH_SIZE)))
        for one in found
    ]


def _of_own_batches(found: Sequence[SaidRate]) -> bool:
    """Return whether the mini-batches differ between counts, but not in proportion to the workers."""
    batches = {one.count: size for one in found if (size := _batch_in(one.below)) is not None}
    if any(_batch_in(one.below) is None for one in found):
        return False
    return min(len(set(batches.values())), len({size / count for count, size in batches.items()})) > 1


def _ambiguous(found: Sequence[SaidRate]) -> bool:
    """Return whether a count has different amounts with equal settings."""
    common = frozenset.intersection(*(one.settings for one in found))
    alike: dict[tuple[int, int, frozenset[str]], list[float]] = {}
    for one in found:
        value = (seconds_in if "time" in one.unit else per_second)(one.amount, one.unit, False)
        if value > 0:
            alike.setdefault((one.count, one.nodes, one.settings - common), []).append(value)
    return any(max(values) > _MAX_RATIO * min(values) for values in alike.values())


@dataclass
class _Context:
    """Context from earlier lines that applies to the lines below."""

    settings: frozenset[str] = frozenset()
    unit: str = ""
    count: str = ""
    heading: str = ""
    by: str = ""

    def completed(self, text: str, around: str) -> str:
        """Return a line with its omitted words restored, including the count or unit from lines above."""
        if any(one.search(text) for one in (ANY_COUNT, SECOND, FROM_TO, NUMBER_OF)):  # skips most lines of logs
            text = compared_counts(with_words(_PART_OF.sub("", on_nodes(text))))
        elif self.count and amounts_in(text, around):
            text = f"{self.count}, {text}"
        if self.unit and _PLAIN.fullmatch(text):
            text = f"{text.strip()} {self.unit}"
        elif alone := UNIT_ALONE.search(text):
            self.unit = alone[0]
        return text

    def take(self, line: str, text: str, counts: Sequence[Found]) -> None:
        """Remember the count of a line without an amount, or the line itself if it is a heading."""
        is_heading = line.rstrip(" *`").endswith(":") or line.lstrip().startswith(("**", "#"))
        if counts:
            said = {one[0].strip(" ,(") for one in counts}
            alone = len(said) == 1 and (
                is_heading or COUNT_ALONE.fullmatch(text.strip(" *-")) or _COMMAND.match(line) is not None
            )
            self.count = said.pop() if alone else ""
        elif is_heading:
            self.heading = line.strip(" *#:`")


def _said_rates(document: Document) -> Iterator[SaidRate]:
    above = _Context()
    around = document.text if len(document.text) <= LONGEST else ""
    by, in_each = authors(document.lines), _gpus_in_each(document.text)
    for number, line in unwrapped(document.lines):
        if len(line) > LONGEST:
            continue
        writer = by[number - 1]
        if writer not in (QUOTED, above.by):
            above = _Context(by=writer)  # context of another author does not apply
        counted = in_digits(_MACHINES.sub(r"\1 nodes x \2 gpus", line) if in_each else line)
        text, named = above.completed(counted, around), _settings_in(counted)
        counts = list(ANY_COUNT.finditer(text))
        other = None if counts else OTHER_AHEAD.match(text)
        amounts = amounts_in(text, around) if counts or named or other else ()
        if not counts or not amounts:
            if other and amounts and other.end() <= amounts[0].start():
                unit = heading_of(amounts[0], text, around)
                yield SaidRate(number, 0, other["of"], 0, cell_of(amounts[0], text), unit, frozenset())
            above.settings = named if named and not amounts else above.settings
            above.take(line, text, counts)
            continue
        paired = list(pairs(with_unknown(counts, amounts, text), amounts, text, around))
        own = _own_settings(text, paired) or [named] * len(paired)
        below = frozenset({above.heading} - {""}) | {f"{_BATCH_SIZE}{size}" for size in _SIZE.findall(counted)}
        for (count, amount), settings in zip(paired, own, strict=True):
            unit = heading_of(amount, text, around)
            if "chip" not in count.groupdict():
                yield SaidRate(number, 0, count["of"], 0, cell_of(amount, text), unit, frozenset())
                continue
            chip = count["chip"]
            of = "gpus" if chip else count["of"].lower().rstrip("s") + "s"
            workers, nodes, _ = workers_of(count)
            begin, end = next(of for of in sentences_in(text) if of[0] <= count.start() < of[1])
            work = {of[0].lower() for of in _STAGE.finditer(text, begin, end)}
            work |= {_AS_PUBLISHED} if _PUBLISHED.search(text, begin, end) else set()
            settings = above.settings | settings | ({chip.lower().replace(" ", "")} if chip else set()) | work
            if workers:
                epochs = epochs_of(amount, text) if unit in ("epoch time", "run time") else 0
                cell = cell_of(amount, text)
                yield SaidRate(number, workers, of, nodes, cell, unit, settings, below, writer, epochs)


def _gpus_in_each(text: str) -> bool:
    """Return whether ``2M/8G`` means 8 GPUs per machine: the largest number occurs with several counts of machines."""
    found = [(int(machines), int(gpus)) for machines, gpus in _MACHINES.findall(text)]
    most = max((gpus for _, gpus in found), default=0)
    return len({machines for machines, gpus in found if gpus == most}) > 1


def _settings_in(text: str) -> frozenset[str]:
    return frozenset(next(filter(None, one.groups())).lower() for one in _SETTING.finditer(text))


def _own_settings(text: str, paired: Sequence[tuple[Found, Found]]) -> list[frozenset[str]]:
    """Return the settings after (or else before) each pair of count and amount; empty unless each pair has its own."""
    begins = [min(count.start(), amount.start()) for count, amount in paired]
    ends = [max(count.end(), amount.end()) for count, amount in paired]
    for _, amount in paired:  # amounts are blanked, as "30B tokens" is not a model's size
        text = text[: amount.start()] + " " * len(amount[0]) + text[amount.end() :]
    for cuts in ([*begins, len(text)], [0, *ends]):
        found = [_settings_in(text[begin:end]) for begin, end in pairwise(cuts)]
        if len(found) > 1 and all(found) and len(set(map(len, found))) == 1:
            return found
    return []


def _without_amount(document: Document, found: Sequence[SaidRate]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines between lines with rates that begin with a count but have no rate."""
    lines = {one.line for one in found}
    for number, text in unwrapped(document.lines[: max(lines)]):
        if (
            min(lines) < number < max(lines)
            and number not in lines
            and (count := re.match(rf"\W*{COUNT}\W*(?P<rest>.*)", text, re.IGNORECASE))
        ):
            yield number, [count["count"], count["rest"].strip() or "nothing"]
