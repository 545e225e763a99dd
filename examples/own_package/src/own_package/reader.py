"""A reader: lines such as ``4 workers did 380 widgets a second``."""

import re
from collections.abc import Iterator

from stallpoint.base.section import Finding
from stallpoint.inputs.documents import Document
from stallpoint_files.file_options import Options
from stallpoint_files.rates import rate_answers
from stallpoint_files.rates.rate_rows import ALL, RateRow, Rates
from stallpoint_files.reader import FoundRecords, Reader

_LINE = re.compile(r"(\d+) workers did (\d+) widgets a second")


def recognised(document: Document) -> bool:
    """Return whether a line says a rate."""
    return any(map(_LINE.fullmatch, document.lines))


def read(document: Document) -> Rates:
    """Return the rates of all workers."""
    found = [(line, match) for line, text in enumerate(document.lines, 1) if (match := _LINE.fullmatch(text))]
    rows = [RateRow("widgets", int(match[1]), float(match[2]), None, None, line) for line, match in found]
    return Rates(rows, "widgets/s", ALL)


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield what the rates say."""
    for _, rates in found.of("widgets"):
        yield from rate_answers.answers(rates, options)


READER = Reader("lines of widgets", recognised, read, answers)
