"""Comparison of two files with repeated measurements: tables of rates, training logs, logs of all-reduces."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from stallpoint.archive.comparison.change import pair_visits
from stallpoint.archive.comparison.changes import Comparison, rows_of
from stallpoint.archive.comparison.compared_results import Results
from stallpoint.base.measured import POINT
from stallpoint.errors import InputError
from stallpoint.inputs import all_reduce_logs
from stallpoint.inputs.documents import Document
from stallpoint.records.tables import RUNS
from stallpoint_files.log_comparison import MIN_ITERATIONS, LoggedRun, compare_logs
from stallpoint_files.rates import rate_tables
from stallpoint_files.rates.rate_rows import EACH
from stallpoint_files.training import training_logs
from stallpoint_files.training.logged_rate import LoggedRate


def compare_files(old: Sequence[Path], new: Sequence[Path], *, pattern: str = "", between: float = 0.0) -> Comparison:
    """Return the comparison of two states by the repeats in their files; `InputError` if nothing is comparable."""
    documents = [[Document.read(file, pattern) for file in state] for state in (old, new)]
    logs = [one for one in [*documents[0], *documents[1]] if training_logs.recognised(one)]
    if len(logs) == len(old) + len(new):
        return _judge_logs(documents, (_as_results(old), _as_results(new)), between)
    if logs and len(old) == len(new) == 1:
        raise InputError(f"{old[0]} and {new[0]}: {logs[0].path} is a log of training, the other is none")
    for state in documents:
        if len(state) > 1:
            raise InputError(f"{state[0].path} and {len(state) - 1} more: only logs of training are several to a state")
    return _judge_tables(documents[0][0], documents[1][0], between)


def _judge_logs(documents: Sequence[Sequence[Document]], names: tuple[Results, Results], between: float) -> Comparison:
    """Return the comparison of two states' training logs; each log is one run."""
    states = [[found for document in state for found in _runs(document)] for state in documents]
    kinds = {(run.program, run.workers or 1): run for state in states for run in state}
    if len(kinds) > 1:
        texts = (f"{program} on {workers}" for program, workers in kinds)
        raise InputError(f"{names[0].name} and {names[1].name} have nothing in common: {'; '.join(texts)}")
    units = {"s" if run.seconds else run.unit for run in kinds.values()}
    old, new = ([_logged_run(run) for run in state] for state in states)
    first = states[0][0]
    found = compare_logs(old, new, log_places(first.workers or 1), between)
    return Comparison(
        *names, between=found.between, rows=found.rows, verdicts=[], settings=[], unmatched={}, unit=units.pop(),
        notes=found.notes,
    )  # fmt: skip


def _runs(document: Document) -> list[LoggedRate]:
    """Return the runs in a log: one, or several that its columns name."""
    found = training_logs.read(document)
    if len(found) > 1 and not all(one.run for one in found):
        raise InputError(f"{document.path}: {len(found)} runs in one log; give a file for each")
    for one in found:
        if len(one.values) < MIN_ITERATIONS:
            raise InputError(
                f"{document.path}: {len(one.values)} iterations after the warm-up ({one.program}); {MIN_ITERATIONS} or "
                "more are needed to estimate their scatter"
            )
    return found


def _logged_run(run: LoggedRate) -> LoggedRun:
    values = np.asarray(run.values, dtype=float)
    return LoggedRun(values if run.seconds else 1 / values, {name: np.asarray(one) for name, one in run.phases.items()})


def _judge_tables(old: Document, new: Document, between: float) -> Comparison:
    """Return the comparison of tables of rates, or logs of all-reduces."""
    (first, unit), (second, other) = (_repeats(given) for given in (old, new))
    if unit != other and ("s" in (unit, other) or "samples/s" not in (unit, other)):  # default: samples/s
        raise InputError(f"{old.path} is in {unit}, {new.path} in {other}: give both in the same unit")
    both = pair_visits(first, second, POINT)
    if both.empty:
        raise InputError(f"{old.path} and {new.path} have nothing in common: {_points(first)}; {_points(second)}")
    if both.groupby([*POINT, "study"]).size().max() < 2:
        raise InputError(
            f"{old.path} and {new.path} have one value of each kind, so that their scatter is unknown and no "
            "difference is distinguishable from chance; give repeats, each on its own line"
        )
    known = [set(one[list(POINT)].itertuples(index=False, name=None)) for one in (first, second)]
    return Comparison(
        old=_as_results([old.path]),
        new=_as_results([new.path]),
        between=between,
        rows=rows_of(both, pd.DataFrame(columns=["hardware"]), between),
        verdicts=[],
        settings=[],
        unmatched={"old": len(known[0] - known[1]), "new": len(known[1] - known[0])},
        unit=unit,
    )


def _as_results(files: Sequence[Path]) -> Results:
    """Return results that name the files, with the oldest file's time."""
    written = datetime.fromtimestamp(min(file.stat().st_mtime for file in files), UTC)
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return Results(files[0].name + more, {RUNS.name: pd.DataFrame({"started": [pd.Timestamp(written)]})})


def _points(visits: pd.DataFrame) -> str:
    points = visits[["network", "ranks"]].drop_duplicates()
    texts = [f"{name} on {workers}" for name, workers in points.itertuples(index=False)]
    return ", ".join(texts[:5]) + (" and more" if len(texts) > 5 else "")


def _repeats(document: Document) -> tuple[pd.DataFrame, str]:
    """Return columns `POINT`, visit and seconds (for each sample, or all-reduce), and the unit of `Comparison`."""
    file = document.path
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
                row.value * (row.workers if rates.of == EACH else 1),
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


def _visits(rows: Sequence[tuple[str, int, float]]) -> pd.DataFrame:
    """Return columns `POINT`, visit and seconds of measurements, given as (name, workers, seconds)."""
    frame = pd.DataFrame(rows, columns=["network", "ranks", "seconds"])
    frame = _with_point_columns(frame)
    return frame.assign(visit=frame.groupby(list(POINT)).cumcount() + 1)


def log_places(workers: int) -> pd.Series:
    """Return the columns of `POINT` for logs of `workers` workers."""
    return _with_point_columns(pd.DataFrame({"network": [""], "ranks": [workers]})).iloc[0]


def _with_point_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of network and ranks, completed by constants for the other columns of `POINT`."""
    texts = dict.fromkeys(("hardware", "storage", "scaling", "sync"), "given") | {"hardware": "all"}
    numbers = dict.fromkeys(("batch", "workers_per_node", "global_batch", "worker_batch"), 1)
    return frame.assign(**texts, **numbers, prefetch=0, nodes=frame["ranks"])
