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
    layout_tables,
    mlperf_logs,
    nccl_debug,
    rate_tables,
    slurm_accounts,
    target_tables,
    training_logs,
    unread,
)
from stallpoint.inputs.documents import Document, head


@dataclass(frozen=True)
class Reader:
    """A format of texts."""

    what: str
    """What it is, for people."""
    recognised: Callable[[Document], object]
    read: Callable[[Document], Any]
    """The record in a text that is recognised; `InputError` names the line that is wrong."""
    shares_file: bool = False
    """Whether others may stand in the same file."""


READERS: dict[str, Reader] = {
    "mlperf": Reader("a result log of MLPerf Training", mlperf_logs.recognised, mlperf_logs.read),
    "batch-script": Reader("a batch script", batch_scripts.recognised, batch_scripts.read),
    "all-reduce-json": Reader("nccl-tests (JSON)", all_reduce_json.recognised, all_reduce_json.read),
    "all-reduce": Reader(
        "nccl-tests, rccl-tests, OSU or Intel MPI Benchmarks",
        all_reduce_logs.recognised,
        lambda of: all_reduce_logs.read_runs(of.raw_lines, str(of.path), format=all_reduce_logs.recognised(of)),
        shares_file=True,
    ),
    "nccl-debug": Reader("NCCL_DEBUG=INFO", nccl_debug.recognised, nccl_debug.read, shares_file=True),
    "training-log": Reader("a training log", training_logs.recognised, training_logs.read, shares_file=True),
    "slurm-accounts": Reader("sacct --parsable2", slurm_accounts.recognised, slurm_accounts.read),
    "key-averages": Reader("a key_averages table", key_averages.recognised, key_averages.read),
    "layouts": Reader("a table of layouts", layout_tables.recognised, layout_tables.read),
    "targets": Reader("a table of times to a target", target_tables.recognised, target_tables.read),
    "rates": Reader("a table of rates", rate_tables.recognised, rate_tables.read),
}
"""In the order in which they are tried."""


_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a]")


def trace(path: Path) -> bool:
    """Return whether the file is a trace of a profiler."""
    begin = head(path)
    if unread.unread(path):
        return False
    if re.match(rb"\s*(\[\s*[{\]]|\{\s*[\"}])", begin):
        flat = re.match(rb"\s*\[?\s*\{[^{}]*\}", begin)  # a log of steps, a table of rates, or results
        if flat and not re.search(rb'"(ph|traceEvents)"', flat[0]):
            return False
        return b'"results"' not in begin or b'"traceEvents"' in begin
    # Kineto's traces are recognised by their beginning above; other texts are NCCL's profiler's, or no traces.
    if begin.lstrip()[:1] in (b"{", b"[") or not (_BINARY.search(begin) or b'"cat":' in begin):
        return False
    from stallpoint.inputs import trace_formats  # the readers of traces load what reads storages

    return any(format.recognised(begin) for format in trace_formats.FORMATS.values())


def read(path: Path, pattern: str = "") -> dict[str, Any]:
    """Return the records in a file by the names of their readers; `InputError` where no reader knows it.

    `pattern` is the user's regular expression for the lines of a training log.
    """
    try:
        document = Document.read(path, pattern)
    except InputError:
        if known_format := unread.unread(path):
            raise unread.refused(path, known_format) from None
        raise
    if not document.text.strip():
        raise InputError(f"{path}: empty; {known()}")
    found: dict[str, Any] = {}
    for name, reader in READERS.items():
        if (not found or reader.shares_file) and reader.recognised(document):
            found[name] = reader.read(document)
            if not reader.shares_file:
                break
    if not found and pattern:
        raise InputError(f"{path}: --pattern {pattern} is found in no line; {known()}")
    if not found and (known_format := unread.unread(path)):
        raise unread.refused(path, known_format)
    if not found:
        raise rate_tables.unknown(document, known())
    return found


def known() -> str:
    """Return what files are known, for people."""
    return (
        "known are tables of rates or layouts, training logs, nccl-tests, OSU, IMB, NCCL_DEBUG=INFO, batch scripts, "
        "sacct, traces of profilers"
    )
