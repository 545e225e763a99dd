"""Exports of metric loggers (TensorBoard, Weights & Biases): a row for each logged step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from statistics import median

from stallpoint.inputs.documents import Document
from stallpoint_files.rates.rate_rows import ALL, EACH
from stallpoint_files.tables.grids import separated
from stallpoint_files.texts.headings import COUNTS, PER_WORKER, ColumnKind, kind_of
from stallpoint_files.texts.numbers import number_in, unit_in
from stallpoint_files.training.logged_rate import EVALUATION, LoggedRate, after_warmup

MIN_STEPS = 3
"""Minimum number of intervals between logged steps."""
_STEP_COLUMN = re.compile(r"(?:(?:train|trainer|metrics?)[/_ ])?_?(?:global[_ ])?step", re.IGNORECASE)
_WALL_COLUMN = re.compile(r"wall[ _]time|_timestamp|_runtime|(?:relative|elapsed)[ _]time|relative", re.IGNORECASE)
"""Headings of columns with steps, and with the times at which they were logged."""
_TITAN = "throughput(tps)"
"""Torchtitan's name of the tokens/s of each worker."""


def in_csv(document: Document) -> list[LoggedRate]:
    """Return the rates in a metric logger's CSV file with a row for each step; empty for other files.

    An export of Weights & Biases has columns ``run - metric`` of several runs.
    """
    rows = separated(enumerate(document.raw_lines, start=1), ",")
    _, heads = next(rows, (1, []))
    kinds = list(map(kind_of, heads))
    rates = [
        index
        for index, kind in enumerate(kinds)
        if kind == ColumnKind.RATE
        and unit_in(heads[index]) not in ("", "iterations/s")
        and not heads[index].endswith(("__MIN", "__MAX"))
        and not EVALUATION.search(heads[index])
    ]
    if not rates or {*COUNTS} & set(kinds) or not any(map(_STEP_COLUMN.fullmatch, heads)):
        return _by_wall_times(heads, rows)
    body = [cells for _, cells in rows if len(cells) == len(heads)]
    found: dict[str, LoggedRate] = {}
    for column in rates:
        run = heads[column].rpartition(" - ")[0]
        cells = [number_in(cells[column]) for cells in body]
        values = after_warmup([value for value in cells if 1e-15 < value < 1e15])
        if not values:
            continue
        of = EACH if PER_WORKER.search(heads[column]) or heads[column].endswith(_TITAN) else ""
        unit = unit_in(heads[column])
        rate = LoggedRate("steps", median(values), unit, of=of, lines=len(values), values=values, run=run)
        first = found.setdefault(run, rate)
        if first.unit == unit and first.of != of:
            every, each = max(first.value, rate.value), min(first.value, rate.value)
            found[run] = replace(first, of=first.of or ALL, workers=round(every / each))
    return list(found.values())


def _by_wall_times(heads: Sequence[str], rows: Iterable[tuple[int, list[str]]]) -> list[LoggedRate]:
    """Return the seconds of a step from the times at which steps were logged; empty without these columns."""
    steps = [index for index, head in enumerate(heads) if _STEP_COLUMN.fullmatch(head)]
    walls = [index for index, head in enumerate(heads) if _WALL_COLUMN.fullmatch(head)]
    if not steps or not walls or {*COUNTS} & set(map(kind_of, heads)):
        return []
    every = [(number_in(cells[steps[0]]), number_in(cells[walls[0]])) for _, cells in rows if len(cells) == len(heads)]
    # Several metrics of one step may be logged in rows of their own.
    logged = [next(of_step) for _, of_step in groupby(every, key=itemgetter(0))]
    values = [
        (end[1] - begin[1]) / (end[0] - begin[0])
        for begin, end in pairwise(logged)
        if end[0] > begin[0] and end[1] > begin[1]
    ]
    if len(values) < MIN_STEPS:
        return []
    kept = after_warmup(values)
    note = "seconds between logged steps, with all that is done between them"
    return [LoggedRate("metrics", median(kept), "", True, lines=len(values), values=kept, notes=(note,))]


@lru_cache(maxsize=1)
def in_json(document: Document) -> list[LoggedRate]:
    """Return the seconds of a step from a JSON list such as W&B's history; empty for other texts."""
    if not document.text.startswith("["):
        return []
    try:
        rows = json.loads(document.text)
    except (ValueError, RecursionError):
        return []
    if not all(isinstance(row, dict) for row in rows) or not rows:
        return []
    heads = [str(head) for head in rows[0]]
    return _by_wall_times(heads, ((1, [str(row.get(head, "")) for head in heads]) for row in rows))
