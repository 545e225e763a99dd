"""Terminal output of a run: the progress of measuring, warnings, and the answer.

All functions here turn text into text; `snakemake_logger_plugin_stallpoint` passes Snakemake's events and the logs of
measuring jobs to them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_round_words, in_seconds, in_words

WIDTH = 20
"""Characters of the bar."""
MILESTONE_FRACTION = 0.1
"""Fraction of the visits after which a new line is printed if the output cannot redraw its line."""
MAX_WARNINGS = 5
"""Maximum number of warnings that a run prints; further warnings are counted."""
MAX_LOG_LINES = 6
"""Number of last lines that are printed of a failed job's log."""

DISTURBED, CANNOT_RUN = "disturbed: ", "cannot run: "
"""Prefixes of warnings in the log of a measuring job; the path of a cell follows."""
AGAIN, LOST = "visited again", "not visited again"
"""Consequences of a disturbed visit, with which its warning ends."""
PRELIMINARY_PREFIX = "so far: "
"""Prefix of a preliminary result in the log; the path of a cell, and words follow."""
_VISIT = re.compile(r"^visit \d+: (\S+) in (.+)$")
_END_LINE = re.compile(r"^(the precision is reached|every cell has|the budget is|no cell is)")
PHASES = {
    "prepare_storage": "Preparing training data",
    "collect": "Collecting records",
    "fit": "Fitting models",
    "draw": "Drawing charts",
    "conclude": "Drawing conclusions",
    "report_page": "Writing the report",
    "archive": "Packing the archive, its report without names",
}
"""Words by which the start of a rule is reported, once for each rule."""


class WantedVisits(TypedDict):
    """Expected visits to a cell that the run measures: their number and duration."""

    visits: float
    """Expected number of visits, including visits for precision."""
    seconds: float
    """Expected duration of a visit, s."""


@dataclass
class Measuring:
    """Progress of the visits of a run."""

    wanted: Mapping[str, WantedVisits]
    """Expected visits by the cell's path."""
    took: dict[str, list[float]] = field(default_factory=dict)
    """Duration of each visit by the cell's path, s."""
    made: Counter[str] = field(default_factory=Counter)
    last: str = ""
    """Path of the cell visited last."""
    ended: str = ""
    """Line of the log that says why visits ended; empty before."""
    disturbed: dict[str, str] = field(default_factory=dict)
    """Consequence of the last disturbed visit (`AGAIN`, `LOST`), by the cell's path."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reason why a cell cannot run, by the cell's path."""

    @property
    def total(self) -> int:
        """Expected number of visits."""
        return math.ceil(sum(one["visits"] for one in self.wanted.values()))

    @property
    def seconds_to_go(self) -> float:
        """Expected duration of the remaining visits, s."""
        return sum(self._visit(path) * max(0.0, one["visits"] - self.made[path]) for path, one in self.wanted.items())

    @property
    def seconds_done(self) -> float:
        """Duration of the finished visits, s; a cell counts with at most its expected number of visits."""
        return sum(self._visit(path) * min(one["visits"], self.made[path]) for path, one in self.wanted.items())

    def _visit(self, path: str) -> float:
        """Return the duration of a visit to a cell, s: the mean of its visits. Without a visit, the expected duration
        times the slowdown that visits to other cells showed."""
        if own_durations := self.took.get(path):
            return sum(own_durations) / len(own_durations)
        totals = [(sum(took), self.wanted[one]["seconds"] * len(took)) for one, took in self.took.items()]
        took, expected_seconds = (sum(column) for column in zip(*totals, strict=True)) if totals else (1.0, 1.0)
        return self.wanted[path]["seconds"] * (took / expected_seconds if expected_seconds else 1.0)

    @property
    def done(self) -> float:
        """Finished share of all visits' time, from 0 to 1."""
        if self.ended:
            return 1.0
        total = self.seconds_done + self.seconds_to_go
        return self.seconds_done / total if total else 1.0

    def read(self, line: str) -> Iterator[str]:
        """Read a line of a measuring job's log; yield the lines to print about it."""
        if visit := _VISIT.match(line):
            self.last = visit[1]
            self.made[self.last] += 1
            if self.last in self.wanted and (seconds := in_seconds(visit[2])) is not None:
                self.took.setdefault(self.last, []).append(seconds)
        elif _END_LINE.match(line):
            self.ended = line
        elif line.startswith(DISTURBED):
            path, _, words = line.removeprefix(DISTURBED).partition(": ")
            self.disturbed[path] = words
        elif line.startswith(CANNOT_RUN):
            path, _, reason = line.removeprefix(CANNOT_RUN).partition(": ")
            self._exclude(path)
            if reason not in self.failed.values() and len(set(self.failed.values())) < MAX_WARNINGS:
                yield f"! {cell_in_words(path)} cannot run here: {reason}"
            self.failed[path] = reason
        elif line.startswith(PRELIMINARY_PREFIX):
            path, _, words = line.removeprefix(PRELIMINARY_PREFIX).partition(": ")
            yield f"{PRELIMINARY_PREFIX}{cell_in_words(path)}: {words}"

    def _exclude(self, path: str) -> None:
        """Subtract the last visit to a cell that cannot run, and expect no more visits to the cell."""
        if self.made[path]:
            self.made[path] -= 1
        del self.took.get(path, [])[-1:]
        if path in self.wanted:
            self.wanted = {**self.wanted, path: {**self.wanted[path], "visits": self.made[path]}}

    def slowdown(self, elapsed_seconds: float) -> float:
        """Return the ratio of the `elapsed_seconds` to the time of finished visits; 1 while few are finished."""
        return elapsed_seconds / self.seconds_done if self.seconds_done and self.done > MILESTONE_FRACTION / 2 else 1.0

    def bar(self, slowdown: float = 1.0, limit: float = math.inf) -> str:
        """Return ``[########------------] 58 of 107 visits, ~3 min left: alexnet wfbp, B = 16, 2 nodes``.

        `slowdown` is the ratio of elapsed time to the time of visits, `limit` the remaining time of the budget, s. The
        bar shows the planned number of visits. A budget may end visits earlier; a precision may need fewer or more.
        """
        made, total, share, to_go = self.made.total(), self.total, self.done, self.seconds_to_go
        if limit < slowdown * to_go:  # the budget ends before the planned visits do
            to_go = limit / slowdown
            share = self.seconds_done / ((self.seconds_done + to_go) or 1.0)
        filled = round(WIDTH * share)
        rest = (
            f"~{in_round_words(slowdown * to_go)} left" if self.seconds_to_go else "more where precision asks for them"
        )
        bar = f"[{'#' * filled}{'-' * (WIDTH - filled)}] {made}{f' of {total}' if made <= total else ''} visits, {rest}"
        return f"{bar}: {cell_in_words(self.last)}" if self.last else bar

    def more_warnings(self) -> Iterator[str]:
        """Yield warnings about disturbed cells, and the number of cells that cannot run and were not named yet."""
        for mark, consequence in (("", AGAIN), ("! ", LOST)):
            if cells := [path for path, outcome in self.disturbed.items() if outcome == consequence]:
                first = cell_in_words(cells[0])
                further = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
                yield f"{mark}disturbed in most iterations of a visit, {consequence}: {first}{further}"
        if more_failed := len(self.failed) - min(MAX_WARNINGS, len(set(self.failed.values()))):
            yield f"! {more_failed} more cell{' cannot' if more_failed == 1 else 's cannot'} run here"


def opening_lines(
    study: str,
    wanted: Mapping[str, WantedVisits],
    seconds: tuple[float, float, float],
    excluded: Sequence[str] = (),
    results: str = "",
    warnings: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the first lines of a run: its cells, the expected time `seconds` (low, typical, high), and warnings."""
    low, typical, high = map(in_round_words, seconds)
    cells = f"{len(wanted)} cell{'' if len(wanted) == 1 else 's'}"
    yield f"Study {study}: {cells} to measure, about {typical} ({low} to {high})."
    yield from (f"! excluded: {reason}" for reason in excluded[:MAX_WARNINGS])
    if (further_reasons := len(excluded) - MAX_WARNINGS) > 0:
        yield f"! excluded for {further_reasons} more reason{'' if further_reasons == 1 else 's'}: see snakemake -n"
    yield from (f"! {warning}" for warning in warnings)
    yield f"Ctrl-C is safe: finished visits are kept, and the same command goes on with them. Results: {results}"


def cell_in_words(path: str) -> str:
    """Return words for a cell, given its path: ``alexnet wfbp, B = 16, 2 nodes``."""
    kind, *labels = path.split("/")
    values = dict(label.split("~", 1) for label in labels if "~" in label)
    workers = int(values.get("workers_per_node", 1))
    words = [f"{values.get('network', values.get('storage', ''))} {values.get('sync', '')}".strip()]
    if kind not in ("train", "command"):
        words[0] = f"{kind} {words[0]}".strip()
    elif values.get("scaling") == "compute":
        words = [f"{values['network']} computing, b = {values['batch']}"]
    else:
        words.append(f"{'b' if values['scaling'] == 'weak' else 'B'} = {values['batch']}")
    return ", ".join([*words, placement_in_words(int(values.get("nodes", 1)) * workers, workers)])


def failure(rule: str, logs: Sequence[str], text: str, explanation: str) -> Iterator[str]:
    """Yield lines about a failed job: its rule, its errors (without any, the last lines of its log), the log's path."""
    yield f"! {rule} failed{f': {explanation}' if explanation else ''}"
    lines = [line for line in text.splitlines() if line.strip()]
    errors = list(dict.fromkeys(line for line in lines if line.startswith("error: ")))[-MAX_LOG_LINES:]
    quoted_lines = lines[lines.index(errors[-1]) + 1 :] if errors and errors[-1].endswith("ends with") else []
    yield from (f"    {line}" for line in [*errors, *(quoted_lines if errors else lines)[-MAX_LOG_LINES:]])
    yield from (f"    log: {log}" for log in logs)


def stopping_lines(jobs: Mapping[str, str]) -> Iterator[str]:
    """Yield lines about an interruption of the run; `jobs` maps its jobs in Slurm's queue to their rules."""
    if jobs:
        yield "Cancelling " + ", ".join(f"job {job} ({rule})" for job, rule in jobs.items()) + "."
    yield "Stopping: finished visits are kept, and the same command goes on with them."


def closing_lines(seconds: float | None, headline: Sequence[str], report: str, archive: str = "") -> Iterator[str]:
    """Yield the last lines of a run: duration `seconds` (None if there was nothing to do), answer, report, archive."""
    yield "Nothing to be done: all results are up to date." if seconds is None else f"Done in {in_words(seconds)}."
    yield from headline
    if report:
        yield f"Report: {report}"
    if archive:
        yield f"Archive: {archive}"


DISK_FULL = (
    "! the disk is full, or the quota used up: make space, and the same command goes on; what was finished is kept"
)
"""Message that is printed once, in place of Snakemake's messages about each file that it cannot write."""
_FULL_DISK_ERROR = re.compile(r"\[Errno (27|28|122)\]|No space left on device|Disk quota exceeded|File too large")


def is_of_full_disk(message: str) -> bool:
    """Return whether a message of Snakemake is about a full disk."""
    return _FULL_DISK_ERROR.search(message) is not None


def is_noise(message: str) -> bool:
    """Return whether a message of Snakemake needs no action, or repeats an earlier one."""
    return any(part in message for part in _NOISE_MESSAGES)


_NOISE_MESSAGES = (
    "Exiting because a job execution failed",
    "At least one job did not complete successfully",
    "Removing output files of failed job",
    "Trying to restart job",
    "CalledProcessError in file",
    "Ignore corrupted or currently written metadata record",  # killed runs leave such files; Snakemake rewrites them
    # Snakemake's Slurm plugin warns if no account is set; if an account is needed, sbatch reports an error.
    "No SLURM account given",
    "not able to get a SLURM account",
    "Unable to guess SLURM account",
)
