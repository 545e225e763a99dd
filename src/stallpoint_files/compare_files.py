"""Compare two files that hold repeats: tables of rates, training logs, logs of all-reduces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from stallpoint.archive.comparison.change import paired
from stallpoint.archive.comparison.changes import Comparison, rows_of
from stallpoint.archive.comparison.compared_results import Results
from stallpoint.base.measured import POINT
from stallpoint.errors import InputError
from stallpoint.inputs import all_reduce_logs
from stallpoint.inputs.documents import Document
from stallpoint.records.tables import RUNS
from stallpoint_files.rates import rate_tables, training_logs

BLOCKS = 10
"""Successive iterations of a log are correlated: means of so many blocks of them are taken for repeats."""
MIN_ITERATIONS = 2 * BLOCKS
"""Iterations of a log needed for blocks."""


def compare_files(old: Path, new: Path, *, pattern: str = "", between: float = 0.0) -> Comparison:
    """Compare the repeats in two files; `InputError` where they cannot be compared."""
    (first, unit), (second, other) = (_repeats(given, pattern) for given in (old, new))
    if unit != other and ("s" in (unit, other) or "samples/s" not in (unit, other)):  # samples/s, where no word says it
        raise InputError(f"{old} is in {unit}, {new} in {other}: give both in the same unit")
    both = paired(first, second, POINT)
    if both.empty:
        raise InputError(f"{old} and {new} have nothing in common: {_points(first)}; {_points(second)}")
    if both.groupby([*POINT, "study"]).size().max() < 2:
        raise InputError(
            f"{old} and {new} have one value of each kind, so that their scatter is unknown and no difference is "
            "distinguishable from chance; give repeats, each on its own line"
        )
    known = [set(one[list(POINT)].itertuples(index=False, name=None)) for one in (first, second)]
    return Comparison(
        old=_named(old),
        new=_named(new),
        between=between,
        rows=rows_of(both, pd.DataFrame(columns=["hardware"]), between),
        verdicts=[],
        settings=[],
        unmatched={"old": len(known[0] - known[1]), "new": len(known[1] - known[0])},
        unit=unit,
    )


def _named(file: Path) -> Results:
    """Return a file as a study: its name, and when it was written."""
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return Results(file.name, {RUNS.name: pd.DataFrame({"started": [pd.Timestamp(written)]})})


def _points(visits: pd.DataFrame) -> str:
    points = visits[["network", "ranks"]].drop_duplicates()
    texts = [f"{name} on {workers}" for name, workers in points.itertuples(index=False)]
    return ", ".join(texts[:5]) + (" and more" if len(texts) > 5 else "")


def _repeats(file: Path, pattern: str) -> tuple[pd.DataFrame, str]:
    """Return columns `POINT`, visit and seconds (of a sample for rates, of an iteration, or of an all-reduce), and the
    unit of `Comparison`."""
    document = Document.read(file, pattern)
    if training_logs.recognised(document):
        found, *others = training_logs.read(document)
        if others:
            raise InputError(f"{file}: {1 + len(others)} runs in one log; give a file for each")
        return _visits(list(_logged(document, found))), "s" if found.seconds else found.unit
    if format := all_reduce_logs.recognised(document):
        runs = all_reduce_logs.read_runs(document.raw_lines, str(file), format=format)
        rows = [(run.ranks or 1, one) for run in runs for one in run.rows]
        return _visits([(f"all-reduce of {one.message_bytes:,} B", ranks, one.seconds) for ranks, one in rows]), "s"
    if rate_tables.recognised(document):
        rates, *further = rate_tables.read(document)
        if further:
            raise InputError(f"{file}: {1 + len(further)} tables; give a file for each")
        of_rows = [
            (
                "rates" if row.series == file.stem else row.series,
                row.workers,
                row.value * (row.workers if rates.of == rate_tables.EACH else 1),
            )
            for row in rates.rows
            if row.value is not None
        ]
        times = [(name, workers, value if rates.seconds else 1 / value) for name, workers, value in of_rows]
        return _visits(times), "s" if rates.seconds else rates.unit
    raise InputError(
        f"{file}: neither a table of rates (a column of workers, one of rates or times) nor a log of training, "
        "nccl-tests or OSU; describe what an iteration prints by --pattern, such as "
        "--pattern '(?P<rate>[0-9.]+) images/s'"
    )


def _logged(document: Document, found: training_logs.LoggedRate) -> Iterator[tuple[str, int, float]]:
    """Return the mean times of blocks of iterations."""
    if len(found.values) < MIN_ITERATIONS:
        raise InputError(
            f"{document.path}: {len(found.values)} iterations after the warm-up ({found.program}); {MIN_ITERATIONS} or "
            "more are needed to estimate their scatter"
        )
    for block in np.array_split(found.values, BLOCKS):
        seconds = block if found.seconds else 1 / block
        yield found.program, found.workers or 1, float(seconds.mean())


def _visits(rows: Sequence[tuple[str, int, float]]) -> pd.DataFrame:
    """Return columns `POINT`, visit and seconds of a measurement: its name, its workers and its time."""
    frame = pd.DataFrame(rows, columns=["network", "ranks", "seconds"])
    texts = dict.fromkeys(("hardware", "storage", "scaling", "sync"), "given") | {"hardware": "all"}
    frame = frame.assign(**texts, prefetch=0, batch=1, workers_per_node=1, nodes=frame["ranks"], global_batch=1)
    frame["worker_batch"] = 1
    return frame.assign(visit=frame.groupby(list(POINT)).cumcount() + 1)
