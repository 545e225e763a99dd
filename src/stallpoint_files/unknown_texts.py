"""The question about a text that no reader knows: what its first table or its sentences lack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint.text import listed
from stallpoint_files.rates.rate_columns import not_measured
from stallpoint_files.rates.rate_tables import EXPECTED, is_hoped
from stallpoint_files.sentences.omitted_words import numbers_alone, with_words
from stallpoint_files.sentences.unwrapped import LONGEST, is_prose, unwrapped
from stallpoint_files.tables.grids import RULED, numbered_headings
from stallpoint_files.texts.amounts import AMOUNT, NAMED, heading_of
from stallpoint_files.texts.counts import ANY_COUNT, counted_in_digits, workers_of
from stallpoint_files.texts.headings import COUNTS, TIMES, ColumnKind, kind_of
from stallpoint_files.texts.numbers import DIGITS

_SENTENCE = 9
"""Minimum number of words for a cell to be a sentence rather than a heading."""
_MANY_LINES = 10
"""Minimum number of lines for which numbers without a unit are not asked about."""
_UNITS = "a unit says which, above rates or times, such as (images/s), (s/iteration) or (minutes)"
_ROW = 3
"""Minimum number of bars for a line to be a row of a table rather than a sentence."""
_ABOUT = re.compile(r"gpu|node|train|slow|fast|scal|fsdp|ddp|batch|epoch|nccl|ethernet|infiniband", re.IGNORECASE)
"""Words of sentences about a training."""
_SEARCHED = 1000
"""Maximum number of lines that are searched for counts and amounts."""
_MAX_NAMED = 6
"""Maximum number of counts, and of amounts, that a question names."""
_LINES_ABOVE = 15
"""Number of lines above a table that may give the worker count of all its runs."""
_WORLD = re.compile(r"\bworld[ _-]?size\W{1,9}(\d{1,6})\b", re.IGNORECASE)
_OTHER_RATE = re.compile(
    rf"(?<![\w.]){DIGITS}(?: ?[-–] ?{DIGITS})? ?[A-Za-z]{{1,12}}/(?:s|sec|min|hr?|day)\b(?! ?ethernet)"
)
"""Rates in units that no reader knows, such as ``150-152 ns/day``."""


class TextQuestion(NamedTuple):
    """A question about a text."""

    text: str
    """Empty if nothing can be asked."""
    on_numbers: bool = True
    """Whether the question is about numbers in the text, not about numbers that the text lacks."""


def unknown(document: Document, known: str) -> InputError:
    """Return the error for a text without a reader: what its first line lacks to be a heading, or the known formats."""
    script = re.search(r"^(?:import|from) torch\b", document.text, re.MULTILINE)
    if script and not is_prose(document.text[: script.start()].splitlines()):
        return document.error(
            document.text.count("\n", 0, script.start()) + 1,
            "a training script is run, not read:  with stallpoint.probe(model, optimizer) as probe:  around its loop "
            "and  probe.step()  behind each update print at its end which rank, phase and layer holds the others up",
        )
    lines = [(index, line) for index, line in enumerate(document.raw_lines, start=1) if line.strip()]
    number, line = lines[0]
    if re.search(r"\bnum_workers\b", line) and re.search(r"[,;|\t]", line):
        what = "num_workers may be those of a data loader, and there is no heading of worker counts beside it"
        return document.error(number, f"{what}; write gpus, ranks or workers if they train")
    if re.fullmatch(r"[\d.,;\s]+", line) and re.search(r"\d[\s;,]+\d", line):
        return document.error(number, f"numbers without a heading: {line.strip()[:60]!r}; {EXPECTED}")
    title = next((one for one in lines if one[1].startswith("#")), (1, ""))
    if is_hoped(title[1]):
        return document.error(title[0], not_measured(title[1]))
    of_table = _question_on_counts(document)
    asked = TextQuestion(of_table) if of_table else question_on_sentences(document)
    for (place, head), (_, ruled), (_, row) in zip(lines, lines[1:], lines[2:], strict=False):
        kinds = {kind_of(cell.strip()) for cell in head.split("|")}
        numbered = kinds & {ColumnKind.RATE, *TIMES} or numbered_headings(head, row)
        if RULED.fullmatch(ruled) and numbered and (kinds & {*COUNTS} or not (asked.text and asked.on_numbers)):
            above = "" if kinds & {*COUNTS} else _count_above(document.raw_lines[: place - 1])
            return document.error(place, _which_counts(head, row) + above)
    if asked.text:
        return document.error(number, asked.text)
    return document.error(
        number,
        f"{line.strip()[:60]!r} begins nothing that is known; {known}; for a training log, --pattern"
        + (document.cut_remark and f"; {document.cut_remark}"),
    )


def _which_counts(head: str, row: str) -> str:
    """Return the question which column of a table has the worker counts, or else what its other numbers are."""
    numbered = numbered_headings(head, row)
    names = ", ".join(name for name in numbered if kind_of(name) not in COUNTS)[:200]
    if names and any(kind_of(name) in COUNTS for name in numbered):
        return f"nothing says whether the numbers below {names} are rates or times; {_UNITS}"
    expected = f"numbers are below {names}: write gpus or nodes above the counts; {_UNITS}"
    return f"no heading of worker counts in {head.strip()[:80]!r}; {expected if names else EXPECTED}"


def _count_above(lines: Sequence[str]) -> str:
    """Return the request for a second count if lines above a table give one worker count; empty for none or several."""
    text = counted_in_digits("\n".join(lines[-_LINES_ABOVE:]))
    counts = {workers_of(one)[0] for one in ANY_COUNT.finditer(text)} | {int(one) for one in _WORLD.findall(text)}
    if len(counts) != 1:
        return ""
    (count,) = counts
    return f"; if all ran on {count}, one count says nothing of scaling: give the rates on {2 * count} beside them"


def _question_on_counts(document: Document) -> str:
    """Return the question about a text that begins with a table without worker counts; empty for other texts."""
    line, below = [*filter(str.strip, document.raw_lines), "", ""][:2]
    forms = [re.sub(r"\d+", "0", one.strip())[:20] for one in (line, below)]
    cells = re.split(r"[,;|\t]", line)
    tabular = below and forms[0] != forms[1] and len(cells) > 1 and all(len(cell.split()) < _SENTENCE for cell in cells)
    tabular = tabular and not line.rstrip().endswith((".", "?", "!")) and not line.startswith("#")
    if tabular and (
        any(kind_of(cell) not in ("", ColumnKind.SETTING) for cell in cells) or numbered_headings(line, below)
    ):
        return _which_counts(line, below)
    return ""


def question_on_sentences(document: Document) -> TextQuestion:
    """Return the question about sentences whose worker counts and numbers cannot be paired, or which have rates only;
    an empty one for sentences without either, and for long texts with one count and no amount."""
    said = [line for line in document.lines[:_SEARCHED] if line.strip()]
    long = len(said) >= _MANY_LINES or max(map(len, said), default=0) > LONGEST
    counts: dict[str, list[str]] = {}
    numbers: list[str] = []
    rates: list[str] = []
    lines = [one for _, one in unwrapped(document.lines[:_SEARCHED]) if one.strip() and len(one) <= LONGEST]
    for line in (with_words(counted_in_digits(one)) for one in lines if one.count("|") < _ROW):
        of_line = list(ANY_COUNT.finditer(line))
        for one in of_line:
            of = (one["of"] or one["chip"]).lower().rstrip("s")
            of = of.upper() if of == "gpu" or not one["of"] else of
            counts.setdefault(of, []).append(one["count"] or one["chips"])
        found = [*AMOUNT.finditer(line)]
        of_rates = [one for one in found if one["unit"] or one["time"] or _has_quantity(one, line)]
        rates += [one[0].strip() for one in of_rates]
        amounts = of_rates if long else found
        amounts += (
            [] if long and not of_line else [one for one in _OTHER_RATE.finditer(line) if not AMOUNT.match(one[0])]
        )
        alone = [] if long else numbers_alone(line, [*of_line, *amounts])
        numbers += [one[0].strip() for one in sorted([*amounts, *alone], key=lambda one: one.start())]
        named = [] if amounts else NAMED.findall(line)
        rates += named
        numbers += named
    rows = [line for line in lines if line.count("|") >= _ROW]
    numbers = numbers or [one[0] for row in rows for one in AMOUNT.finditer(row) if one["time"]]
    prose = is_prose(said)
    if not counts and rates:
        seen = ", ".join(list(dict.fromkeys(rates))[:_MAX_NAMED])
        write = "write  8 GPUs: 1200 img/s, or of a log --pattern, --workers"
        return TextQuestion(f"seen: {seen}, and not on how many workers; {write}")
    few = long and not numbers and len(set(chain.from_iterable(counts.values()))) < 2
    if (not counts or few) and (prose or _is_a_sentence(said)):
        seen = ", ".join(_count_in_words(listed(list(dict.fromkeys(found))), of) for of, found in counts.items())
        seen = seen and f"seen: {seen}; "
        write = "write  8 GPUs: 1200 img/s, 16 GPUs: ..., or give the log"
        return TextQuestion(f"{seen}no rate or time of a count of workers; {write}", on_numbers=False)
    if not counts or few:
        return TextQuestion("")
    several = {of: sorted(set(found), key=int)[:_MAX_NAMED] for of, found in counts.items()}
    seen = ", ".join(_count_in_words(listed(found), of) for of, found in several.items())
    of, (first, *others) = next(iter(several.items()))
    other = others[0] if others else str(2 * int(first))
    write = f"write them as  {_count_in_words(first, of)}: 1200 img/s, {_count_in_words(other, of)}: ..."
    if not numbers:
        return TextQuestion(f"seen: {seen}, and no rate or time of them with a unit; {write}")
    seen += f"; {', '.join(list(dict.fromkeys(numbers))[:_MAX_NAMED])}"
    if others or len(several) > 1:
        return TextQuestion(f"seen: {seen}: not told which belongs to which, or what they are; {write}")
    return TextQuestion(f"seen: {seen}; a rate or time at another count is needed; {write}")


def _has_quantity(amount: re.Match[str], text: str) -> bool:
    """Return whether the text says of which quantity a share or a factor is."""
    return bool(heading_of(amount, text)) and not amount["clock"]


def _is_a_sentence(lines: Sequence[str]) -> bool:
    """Return whether few lines are words about a training for the most part, as of a question in a line."""
    words = re.findall(r"(?<![\w=])[A-Za-z][a-z']+(?![\w=])", text := " ".join(lines))
    return len(lines) < _MANY_LINES and len(words) * 2 > len(text.split()) and _ABOUT.search(text) is not None


def _count_in_words(count: str, of: str) -> str:
    return f"{count} {of}{'' if count == '1' else 's'}"
