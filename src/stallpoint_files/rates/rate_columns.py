"""Choice of the columns of a table with rates or times, or with quantities in proportion to rates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stallpoint.errors import InputError
from stallpoint_files.rates.rate_rows import ALL, EACH
from stallpoint_files.tables.counted_table import CountedTable
from stallpoint_files.tables.text_columns import MIDDLE, OF_STEPS, TextColumn
from stallpoint_files.texts.headings import PER_WORKER, ColumnKind, kind_of
from stallpoint_files.texts.numbers import seconds_in, unit_in

_RAN = re.compile(
    r"(\w*net|inception|vgg|bert|gpt|t5|llama|mi[sx]tral|qwen|bloom|opt|falcon|vit|swin|\w*former|g?nmt|dlrm|ncf|ssd|yolo)"
    r"[ _-]?v?\d*(?![a-z]).*",
    re.IGNORECASE,
)
"""Headings that name a network; the numbers below may be its rates."""
_EXTREME = re.compile(
    r"(?<![a-z])(min(imum)?|max(imum)?|best|worst|p\d\d|peak|ideal|expected|theor\w*|linear|predicted|estimated|initial)(?![a-z])",
    re.IGNORECASE,
)
"""Headings of values that were not measured, or that are extremes."""
HOPED = re.compile(
    r"(?<!than )\b(?:expected|estimated|projected|predicted|theoretical)(?: \w+)? "
    r"(?:results?|times?|throughputs?|performance|speed(?:-?ups?)?|scaling|rates?|numbers|hours|duration)\b|"
    r"\b(?:throughput|performance|scaling|speed|time) (?:projections?|expectations?|estimates?|targets?)\b|"
    r"[(\[](?:expected|estimated|projected|predicted|theoretical|targets?|planned|goals?)[)\]]|"
    r"\bassum(?:es|ing) (?:\w+ )?(?:linear|ideal|perfect)|\bresource (?:requests?|requirements?)|\btime ?limits?\b",
    re.IGNORECASE,
)
"""Headings of tables and columns whose numbers were not measured."""
GUESSED = re.compile(
    r"\b(?:planning|rough|ballpark|only|are) estimates\b.{0,40}|\bnot (?:\w+ )?guarantees\b", re.IGNORECASE
)
"""Words of paragraphs above tables whose numbers were not measured."""
_BANDWIDTH = re.compile(r"(?<![a-z])(?:bus|alg) ?bw|bandwidth", re.IGNORECASE)
_TOTAL = re.compile(r"total|overall|end.to.end|\be2e\b|(step|iter(ation)?)[ _]time", re.IGNORECASE)


@dataclass(frozen=True)
class Proportional:
    """Kind of columns in proportion to a rate or its inverse, which replace a missing rate."""

    kind: str
    unit: str
    of: str
    percent: bool = False
    inverse: bool = False


PROPORTIONAL = (
    Proportional(ColumnKind.WORKER_TIME, "runs/{day}", EACH, inverse=True),
    Proportional(ColumnKind.FLOPS, "TFLOP/s", ""),
    Proportional(ColumnKind.SPEEDUP, "times the first", ALL),
    Proportional(ColumnKind.MFU, "workers at peak", EACH, percent=True),
    Proportional(ColumnKind.EFFICIENCY, "ideal workers", EACH, percent=True),
)


def rate_columns(table: CountedTable) -> tuple[list[TextColumn], Proportional | None]:
    """Return the columns with rates, one series each: those with a heading of rates or times, else those that name
    networks or repeats, else those in proportion to a rate, else all that may hold rates."""
    steps = table.of(ColumnKind.ITERATION)
    for part in table.of(ColumnKind.PART):  # ``Sync (ms)`` beside ``Overlap (ms)`` of as long steps is none
        if len(steps) == 1 and _longer(part, steps[0], table):
            part.kind = ColumnKind.ITERATION
    steps = table.of(ColumnKind.ITERATION)
    if any(_BANDWIDTH.search(column.heading) for column in table.columns):
        steps = [column for column in steps if "latency" not in column.heading.lower()]  # a collective's latency
        if not steps and not table.of(ColumnKind.RATE, ColumnKind.EPOCH):
            raise _no_rates(table)
    totals = [column for column in steps if _TOTAL.search(column.heading)]
    of_steps = [column for column in totals if OF_STEPS.search(column.heading)]
    if of_steps and not table.of(ColumnKind.RATE):
        beside = ", ".join(column.heading for column in totals if column not in of_steps)
        table.notes += [f"not read, as {of_steps[0].heading} is of the same runs: {beside}"] if beside else []
        totals = of_steps
    for found in (table.of(ColumnKind.RATE), totals, table.of(ColumnKind.EPOCH), steps):
        if found:
            return _preferred(found, table), None
    numbers = [column for column in table.of(ColumnKind.UNKNOWN) if column.heading and column.has_numbers]
    unknown = [column for column in numbers if not any("%" in cell for cell in column.cells)]
    labels = [column for column in table.of(ColumnKind.LABEL) if column.has_numbers]
    if ran := list(filter(names_run, unknown or labels)):
        return ran, None
    for like in PROPORTIONAL:
        if found := table.of(like.kind):
            return _preferred([column for column in found if not _EXTREME.search(column.heading)] or found, table), like
    if not unknown and not labels:
        raise _no_rates(table)
    return unknown or labels, None


def _longer(part: TextColumn, whole: TextColumn, table: CountedTable) -> bool:
    """Return whether times in `part` are never shorter than in `whole`, and longer in several rows: no part."""
    times = [
        [seconds_in(one.cells[row], one.heading, table.comma) for one in (part, whole)]
        for row in range(len(table.lines))
    ]
    known = [one for one in times if one[0] > 0 and one[1] > 0]
    return len(known) > 1 and all(one[0] >= 0.98 * one[1] for one in known) and sum(a > b for a, b in known) > 1


def names_run(column: TextColumn) -> bool:
    """Return whether a heading names a network, or a repeat such as ``run 2``."""
    numbered = kind_of(column.heading) == ColumnKind.LABEL and column.heading[-1:].isdigit()
    return numbered or _RAN.fullmatch(column.heading) is not None


def not_measured(what: str) -> str:
    """Return the message for a table or column with expected values instead of measured ones."""
    return f"{what[:60]}: what was expected was not measured; give the rates or times of runs"


def _no_rates(table: CountedTable) -> InputError:
    words = f"no column of rates among {', '.join(table.headings)[:200]}"
    return table.document.error(table.line, f"{words}; a unit says which, such as (images/s) or (s/iteration)")


def _preferred(found: Sequence[TextColumn], table: CountedTable) -> list[TextColumn]:
    """Return the most informative columns of rates or times: no extremes, totals rather than rates per worker, one
    average of the same repeats. `InputError` if the remaining columns were not measured."""
    usual = [column for column in found if not _EXTREME.search(column.heading)] or list(found)
    for other in (lambda head: unit_in(head) == "iterations/s", PER_WORKER.search):
        usual = [column for column in usual if not other(column.heading)] or usual
    middles: dict[str, list[TextColumn]] = {}
    for column in usual:
        if middle := MIDDLE.search(column.heading):
            others = middles.setdefault(column.heading.replace(middle[0], ""), [])
            others.insert(0 if middle[0].lower() == "median" else len(others), column)
    usual = [column for column in usual if not any(column in same[1:] for same in middles.values())]
    if all(HOPED.search(column.heading.replace("_", " ")) for column in usual):
        raise table.document.error(table.line, not_measured(usual[0].heading))
    exact = [column for column in found if column.heading == "samples_per_second"]
    return exact or [column for column in usual if unit_in(column.heading) == "tokens/s"] or usual
