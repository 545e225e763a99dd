"""Result logs of MLPerf Training: one run in each file, its events in lines ``:::MLLOG {...}`` (mlcommons/logging).

Number and name of accelerators come from the system's JSON, if the file's folders are those of a submission
(``SUBMITTER/results/SYSTEM/BENCHMARK/result_0.txt`` and ``SUBMITTER/systems/SYSTEM.json``): platform lines of logs may
be placeholders. The clock runs from ``run_start`` to ``run_stop``; the time before is warm-up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from stallpoint.inputs.documents import Document, open_bytes
from stallpoint_files.targets.target_tables import TargetRun, TargetTable

_MARK = ":::MLLOG"
_LINE = re.compile(rf"{_MARK}\s*(\{{.*\}})")
_BEGIN = 2**20
"""Bytes within which a result log has its first event; launchers may print before it."""
_RANKS_APART = 60.0
"""Maximum time between ranks' starts of the clock of one run, s."""
_WARMUP_TIMES = 2
"""Number of logged iteration times that are warm-up."""
_MAX_EPOCHS = 20_000
"""Maximum number of epochs: a larger ``epoch_num`` counts samples, as in bert, gpt3 and later unet3d."""
_STEP_COUNTS = {"ssd": 100_000, "retinanet": 100_000}
"""Number below which the ``train_samples`` of a benchmark are iterations of an epoch."""
_PLAUSIBLE_RATIO = (0.5, 1.5)
"""Range of (samples / logged throughput) / run time: outside, the throughput is not of samples, or not the total."""


@dataclass(frozen=True)
class MlperfRun:
    """One run of a benchmark."""

    path: Path
    benchmark: str
    submitter: str
    chip: str
    """Accelerator; empty without a system's JSON."""
    precision: str
    platform: str
    """Platform by the log."""
    workers: int | None
    per_node: float | None
    batch: float | None
    samples: float | None
    """Samples to the target; None if the log does not count them."""
    seconds: float | None
    """Time on the clock, s; None if the target was not reached."""
    working_seconds: float | None
    """Time that the samples take by the logged iteration time, or by the throughput, s."""
    warm_up: float
    """Time before the clock starts, s."""
    evaluation: float
    """Time of evaluations on the clock, s."""

    @property
    def system(self) -> str:
        """Return the name that runs of one curve share: benchmark, submitter, accelerator and precision."""
        return " ".join(filter(None, (self.benchmark, self.submitter, self.chip, self.precision)))


def in_folder(folder: Path) -> list[Path]:
    """Return the result logs in a folder and its subfolders."""
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in (".txt", ".log", ".out"))
    return [path for path in files if _is_result(path)]


def _is_result(path: Path) -> bool:
    """Return whether a file begins like a result log."""
    try:
        with open_bytes(path) as file:
            return _MARK.encode() in file.read(_BEGIN)
    except (OSError, EOFError):
        return False


def recognised(document: Document) -> bool:
    """Return whether the text contains an event."""
    return _MARK in document.text and next(_events(document), None) is not None


def _events(document: Document) -> Iterator[dict[str, Any]]:
    for line in document.raw_lines:
        if found := _LINE.search(line):
            try:
                event = json.loads(found[1])
            except (ValueError, RecursionError):
                continue  # the line is damaged: two ranks wrote into it, or the file ends here
            if isinstance(event, dict) and isinstance(event.get("key"), str):
                metadata = event.get("metadata")
                yield event | {"metadata": metadata if isinstance(metadata, dict) else {}}


def read(document: Document) -> list[MlperfRun]:
    """Return the runs in order; `InputError` if no clock started."""
    values: dict[str, Any] = {}
    runs = []
    for events in _by_run(_events(document)):
        values |= {event["key"]: event.get("value") for event in events}
        runs += [_run(document, events, values, event) for event in events if event["key"] == "run_start"][:1]
    if not runs:
        raise document.error(1, "a result log of MLPerf without run_start: the run ended before its clock started")
    return runs


def _by_run(events: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the events of each run; a new run begins with a clock start after a stop, or long after the last start."""
    run: list[dict[str, Any]] = []
    began, ended = None, 0
    for event in events:
        if event["key"] == "run_start":
            if began and (ended or _seconds_between(began, event) > _RANKS_APART):
                yield run[: ended or len(run)]
                run, ended = run[ended or len(run) :], 0
            began = event
        run.append(event)
        if event["key"] == "run_stop":
            ended = len(run)
    yield run


def _run(
    document: Document, events: Sequence[dict[str, Any]], values: Mapping[str, Any], start: Mapping[str, Any]
) -> MlperfRun:
    """Return the run with these events, whose clock begins at `start`."""
    stop = next((event for event in reversed(events) if event["key"] == "run_stop"), None)
    reached = stop is not None and stop["metadata"].get("status") == "success"
    seconds = _seconds_between(start, stop) if stop and reached else None
    benchmark, batch = str(values.get("submission_benchmark") or ""), _positive(values.get("global_batch_size"))
    samples = _samples(events, values, benchmark, batch)
    system = _system(document.path)
    processors = not _positive(system.get("accelerators_per_node")) and not system.get("accelerator_model_name")
    chips, chip = ("host_processors", "host_processor") if processors else ("accelerators", "accelerator")
    nodes, per_node = (_positive(system.get(name)) for name in ("number_of_nodes", f"{chips}_per_node"))
    folder = document.path.parents[3] if _in_submission(document.path) else None
    submitter = system.get("submitter") or values.get("submission_org") or (folder.name if folder else "")
    return MlperfRun(
        document.path,
        benchmark or (document.path.parent.name if folder else "MLPerf"),
        str(submitter),
        str(system.get(f"{chip}_model_name") or ""),
        str(values.get("precision") or ""),
        str(values.get("submission_platform") or ""),
        round(nodes * per_node) if nodes and per_node else None,
        per_node,
        batch,
        samples,
        seconds,
        _working_seconds(events, samples, batch, seconds),
        _seconds_between(events[0], start),
        sum(_seconds_between(begin, end) for begin, end in _evaluations(events)),
    )


def _seconds_between(start: Mapping[str, Any], stop: Mapping[str, Any]) -> float:
    """Return the time between two events, s."""
    first, last = _positive(start.get("time_ms")), _positive(stop.get("time_ms"))
    return (last - first) / 1e3 if first and last and last > first else 0.0


def _positive(value: object) -> float | None:
    """Return `value` as a positive number; None for anything else."""
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if 0 < found < 1e18 else None


def _in_submission(path: Path) -> bool:
    return len(path.parents) > 3 and path.parents[2].name == "results"


def _system(path: Path) -> dict[str, Any]:
    """Return the content of the system's JSON; empty if the log is not in a submission's folder."""
    if not _in_submission(path):
        return {}
    file = path.parents[3] / "systems" / f"{path.parents[1].name}.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _samples(
    events: Sequence[Mapping[str, Any]], values: Mapping[str, Any], benchmark: str, batch: float | None
) -> float | None:
    """Return the samples until the last evaluation or the end; None if they are not counted."""
    ends = [event["metadata"] for event in events if event["key"] in ("run_stop", "eval_accuracy")]
    every = _positive(values.get("train_samples"))
    for of_event in reversed(ends):
        if samples := _positive(of_event.get("samples_count")):
            return samples
        for name in ("epoch_num", "epoch_count"):
            epochs = _positive(of_event.get(name))
            if epochs and epochs > _MAX_EPOCHS:
                return epochs
            if epochs and every:
                counts_steps = every < _STEP_COUNTS.get(benchmark, 0)
                return epochs * every * (batch or 1 if counts_steps else 1)
        if (steps := _positive(of_event.get("step_num"))) and batch:
            return steps * batch
    return None


def _working_seconds(
    events: Sequence[Mapping[str, Any]], samples: float | None, batch: float | None, seconds: float | None
) -> float | None:
    """Return the time of the samples at the logged iteration times, or at the logged throughput, s."""
    tracked = [of for event in events if event["key"] == "tracked_stats" and isinstance(of := event.get("value"), dict)]
    steps = [step for of in tracked if (step := _positive(of.get("train_step_time")))]
    if samples and batch and steps:
        return samples / batch * median(steps[_WARMUP_TIMES:] or steps)
    rates = [rate for of in tracked if (rate := _positive(of.get("throughput")))]
    if samples and seconds and rates:
        working = samples / median(rates)
        return working if _PLAUSIBLE_RATIO[0] < working / seconds < _PLAUSIBLE_RATIO[1] else None
    return None


def _evaluations(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the start and end of each evaluation; of several ranks' events, the first ones."""
    begun = None
    for event in events:
        if event["key"] == "eval_start":
            begun = begun or event
        elif event["key"] == "eval_stop" and begun:
            yield begun, event
            begun = None


def target_runs(runs: Sequence[MlperfRun], counts: Sequence[int]) -> TargetTable:
    """Return the runs of all logs, on `counts` accelerators, as a table; runs of one system are repeats."""
    found = [
        TargetRun(
            run.system,
            count,
            run.batch,
            run.samples,
            run.seconds,
            run.seconds and run.working_seconds,
            run.per_node,
            task=run.benchmark,
        )
        for run, count in zip(runs, counts, strict=True)
    ]
    notes = []
    if failed := sum(run.seconds is None for run in runs):
        notes.append(f"{failed} of {len(runs)} runs did not reach the target and are left out")
    if done := [run for run in runs if run.seconds]:
        parts = [100 * run.evaluation / (run.seconds or 1) for run in done if run.evaluation]
        evaluation = f", evaluation in it {median(parts):.0f} %" if parts else ""
        notes.append(f"medians: warm-up before the clock {median(run.warm_up for run in done):.0f} s{evaluation}")
    return TargetTable(found, "accelerators", "samples", tuple(notes))
