"""Answers to external tables of rates that a study names, the same as without a study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from stallpoint.base.section import Finding
from stallpoint.errors import InputError
from stallpoint_files import readers
from stallpoint_files.file_options import Options
from stallpoint_files.rates.rate_answers import answers


def external_answers(name: str, file: Path, options: Options) -> Iterator[Finding]:
    """Yield the findings of a study's external table; `InputError` for a file that is no table of rates."""
    tables = readers.read(file).get("rates")
    if tables is None:
        raise InputError(f"{file}: no table of rates; a heading for the workers and one for their rate are expected")
    for found in chain.from_iterable(answers(rates, options) for rates in tables):
        yield replace(found, subject=f"{found.subject} in {name}")
