"""Answers to result logs of MLPerf Training: the logs of one system are one series."""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.base.section import Finding
from stallpoint.base.stall import Verdict
from stallpoint.errors import InputError
from stallpoint.text import number
from stallpoint_files.file_options import Options
from stallpoint_files.reader import FoundRecords
from stallpoint_files.targets import mlperf_logs, target_answers
from stallpoint_files.targets.mlperf_logs import MlperfRun


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield the findings on result logs; the logs of one system are one series."""
    logs: list[list[MlperfRun]] = [log for _, log in found.of("mlperf")]
    runs = [run for log in logs for run in log]
    if not runs:
        return
    if options.workers and len(options.workers) != len(logs):
        raise InputError(
            f"--workers: {len(options.workers)} counts for {len(logs)} result logs; one for each, in order"
        )
    given = options.workers or (0,) * len(logs)
    counts = [count or run.workers or 0 for log, count in zip(logs, given, strict=True) for run in log]
    if all(counts):
        yield from target_answers.answers(mlperf_logs.target_runs(runs, counts), options)
        return
    unknown = next(run for run, count in zip(runs, counts, strict=True) if not count)
    minutes = "; ".join(f"{_log_name(run)}: {number(run.seconds / 60)} min" for run in runs[:4] if run.seconds)
    platform = f" (its platform line, {unknown.platform}, may be a placeholder)" if unknown.platform else ""
    yield Finding(
        target_answers.KIND,
        f"result log{'s' if len(runs) > 1 else ''} of {unknown.system}",
        minutes or "no run reached the target",
        Verdict.UNDECIDED,
        evidence="logged",
        ask=(
            f"how many accelerators there were, which {unknown.path} does not say{platform}:  --workers N (one for "
            "each log, with commas), or the system's JSON where submissions have it",
        ),
    )


def _log_name(run: MlperfRun) -> str:
    """Return the log's name, with its system and benchmark if it is in a submission's folder."""
    return "/".join(run.path.parts[-3:]) if run.path.name.startswith("result_") else run.path.name
