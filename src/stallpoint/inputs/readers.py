"""Readers of other programs' files: one for each format, and a line in `READERS`; the content tells which a file has.

A reader says whether it knows a text, and gives its record. To read a further format, write its module (`recognised`,
`read`) and add a line here; `stallpoint.explain.answering` has what is said of each kind of record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stallpoint.errors import InputError
from stallpoint.inputs import (
    all_reduce_json,
    all_reduce_logs,
    batch_scripts,
    key_averages,
    nccl_debug,
    rate_tables,
    training_logs,
)
from stallpoint.inputs.documents import Document
from stallpoint.inputs.trace_files import head


@dataclass(frozen=True)
class Hints:
    """What the user says that a file may lack."""

    pattern: str = ""
    """A regular expression for the lines of a training log."""


@dataclass(frozen=True)
class Reader:
    """A format of texts."""

    what: str
    """What it is, for people."""
    recognised: Callable[[Document, Hints], bool]
    read: Callable[[Document, Hints], Any]
    """The record in a text that is recognised; `InputError` names the line that is wrong."""
    shares_file: bool = False
    """Whether others may stand in the same file."""


def _runs(document: Document, hints: Hints) -> list[all_reduce_logs.AllReduceRun]:
    return all_reduce_logs.read_runs(
        document.raw_lines, str(document.path), format=all_reduce_logs.recognised(document)
    )


READERS: dict[str, Reader] = {
    "batch-script": Reader(
        "a batch script", lambda of, _: batch_scripts.recognised(of), lambda of, _: batch_scripts.read(of)
    ),
    "all-reduce-json": Reader(
        "nccl-tests (JSON)", lambda of, _: all_reduce_json.recognised(of), lambda of, _: all_reduce_json.read(of)
    ),
    "all-reduce": Reader(
        "nccl-tests, rccl-tests, OSU or Intel MPI Benchmarks",
        lambda of, _: bool(all_reduce_logs.recognised(of)),
        _runs,
        shares_file=True,
    ),
    "nccl-debug": Reader(
        "NCCL_DEBUG=INFO", lambda of, _: nccl_debug.recognised(of), lambda of, _: nccl_debug.read(of), shares_file=True
    ),
    "training-log": Reader(
        "a training log",
        lambda of, hints: training_logs.recognised(of, hints.pattern),
        lambda of, hints: training_logs.read(of, hints.pattern),
        shares_file=True,
    ),
    "key-averages": Reader(
        "a key_averages table", lambda of, _: key_averages.recognised(of), lambda of, _: key_averages.read(of)
    ),
    "rates": Reader("a table of rates", lambda of, _: rate_tables.recognised(of), lambda of, _: rate_tables.read(of)),
}
"""In the order in which they are tried."""


_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a]")


def trace(path: Path) -> bool:
    """Return whether the file is a trace of a profiler."""
    begin = head(path)
    if re.match(rb"\s*(\[\s*[{\]]|\{\s*[\"}])", begin):
        return b'"results"' not in begin or b'"traceEvents"' in begin
    # Kineto's traces are recognised by their beginning above; other texts are NCCL's profiler's, or no traces.
    if begin.lstrip()[:1] in (b"{", b"[") or not (_BINARY.search(begin) or b'"cat":' in begin):
        return False
    from stallpoint.inputs import trace_formats  # the readers of traces load what reads storages

    return any(format.recognised(begin) for format in trace_formats.FORMATS.values())


def read(path: Path, hints: Hints) -> dict[str, Any]:
    """Return the records in a file by the names of their readers; `InputError` where no reader knows it."""
    document = Document.read(path)
    if not document.text.strip():
        raise InputError(f"{path}: empty; {known()}")
    found: dict[str, Any] = {}
    for name, reader in READERS.items():
        if (not found or reader.shares_file) and reader.recognised(document, hints):
            found[name] = reader.read(document, hints)
            if not reader.shares_file:
                break
    if not found:
        raise rate_tables.unknown(document, known())
    return found


def known() -> str:
    """Return what files are known, for people."""
    texts = ", ".join(reader.what for reader in READERS.values())
    return (
        f"known are {texts}, "
        "traces of profilers (torch.profiler, Nsight Systems, Chakra, NCCL), records of probes, studies and archives"
    )
