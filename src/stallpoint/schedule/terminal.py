"""What a run says in the terminal while it goes on: how far the measuring is, what to act on, and the answer.

Everything here is text in, text out; `snakemake_logger_plugin_stallpoint` feeds it with Snakemake's events and the logs
of the turns.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_seconds, in_words

WIDTH = 20
"""Characters of the bar."""
MILESTONE = 0.1
"""Part of the measuring after which a terminal that cannot redraw a line gets a new one."""
MOST_WARNINGS = 5
"""Warnings of one run that are printed; of more, the number."""
MOST_OF_A_LOG = 6
"""Last lines of a failed job's log that are printed."""

DISTURBED, CANNOT_RUN = "disturbed: ", "cannot run: "
"""How lines of the turns' log begin that are worth acting on; a cell's path follows."""
SO_FAR = "so far: "
"""How a line begins that says what is known before the end, as a cell's path and words."""
_VISIT = re.compile(r"^visit \d+: (\S+) in (.+)$")
_ENDED = re.compile(r"^(the precision is reached|every cell has|the budget is|no cell is)")
PHASES = {
    "prepare_storage": "Preparing training data",
    "collect": "Collecting records",
    "fit": "Fitting models",
    "draw": "Drawing charts",
    "conclude": "Drawing conclusions",
    "report_page": "Writing the report",
}
"""Rules whose start is said, once."""


class Wanted(TypedDict):
    """A cell that is to be measured now."""

    visits: float
    """Visits that it is expected to get, those for precision among them."""
    seconds: float
    """What one of them is expected to take."""


@dataclass
class Measuring:
    """How far the visits of a run are."""

    wanted: Mapping[str, Wanted]
    """By path of the cell."""
    took: dict[str, list[float]] = field(default_factory=dict)
    """By path, how long each visit took, s."""
    made: Counter[str] = field(default_factory=Counter)
    last: str = ""
    """The cell visited last."""
    ended: str = ""
    """Why no more visits were made, as the log of the turns says it."""
    warned: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Visits that are expected."""
        return math.ceil(sum(one["visits"] for one in self.wanted.values()))

    @property
    def seconds_left(self) -> float:
        """What the visits to come are expected to take, s."""
        return sum(self._visit(path) * max(0.0, one["visits"] - self.made[path]) for path, one in self.wanted.items())

    @property
    def seconds_behind(self) -> float:
        """What as many visits took as were expected of each cell, s."""
        return sum(self._visit(path) * min(one["visits"], self.made[path]) for path, one in self.wanted.items())

    def _visit(self, path: str) -> float:
        """Seconds of a visit to a cell: as its own took, or as expected times how much longer visits to others took."""
        if own := self.took.get(path):
            return sum(own) / len(own)
        seen = [(sum(took), self.wanted[one]["seconds"] * len(took)) for one, took in self.took.items()]
        took, expected = (sum(column) for column in zip(*seen, strict=True)) if seen else (1.0, 1.0)
        return self.wanted[path]["seconds"] * (took / expected if expected else 1.0)

    @property
    def done(self) -> float:
        """The part of the measuring that is behind, by what visits are expected to take."""
        if self.ended:
            return 1.0
        whole = self.seconds_behind + self.seconds_left
        return self.seconds_behind / whole if whole else 1.0

    def read(self, line: str) -> Iterator[str]:
        """Take a line of the turns' log; what is to be said of it."""
        if visit := _VISIT.match(line):
            self.last = visit[1]
            self.made[self.last] += 1
            if self.last in self.wanted and (seconds := in_seconds(visit[2])) is not None:
                self.took.setdefault(self.last, []).append(seconds)
        elif _ENDED.match(line):
            self.ended = line
        elif line.startswith(DISTURBED):
            path = line.removeprefix(DISTURBED)
            yield from self._warn(path, f"{cell_in_words(path)}: most iterations of a visit were disturbed")
        elif line.startswith(CANNOT_RUN):
            path, _, why = line.removeprefix(CANNOT_RUN).partition(": ")
            yield from self._warn(path, f"{cell_in_words(path)} cannot run here: {why}")
        elif line.startswith(SO_FAR):
            path, _, what = line.removeprefix(SO_FAR).partition(": ")
            yield f"{SO_FAR}{cell_in_words(path)}: {what}"

    def bar(self, pace: float = 1.0, at_most: float = math.inf) -> str:
        """``[########------------] 58 of 107 visits, ~3 min left: alexnet wfbp, B = 16, 2 nodes``.

        `pace` is the time that passed over that of the visits in it, `at_most` what the budget leaves, s.
        """
        filled = round(WIDTH * self.done)
        left = (
            f", ~{in_round_words(min(pace * self.seconds_left, at_most))} left"
            if self.seconds_left
            else ", more where precision asks for them"
        )
        bar = f"[{'#' * filled}{'-' * (WIDTH - filled)}] {self.made.total()} of {self.total} visits{left}"
        return f"{bar}: {cell_in_words(self.last)}" if self.last else bar

    def _warn(self, path: str, words: str) -> Iterator[str]:
        self.warned[path] += 1
        if self.warned[path] == 1 and len(self.warned) <= MOST_WARNINGS:
            yield f"! {words}"

    def more_warnings(self) -> Iterator[str]:
        """How many cells were warned of beyond those that were named."""
        if (more := len(self.warned) - MOST_WARNINGS) > 0:
            yield f"! {more} more {'cell was' if more == 1 else 'cells were'} disturbed or cannot run"


def opening(
    study: str,
    wanted: Mapping[str, Wanted],
    seconds: tuple[float, float, float],
    left_out: Sequence[str] = (),
    results: str = "",
) -> Iterator[str]:
    """What will be measured, how long that takes (low, typical, high), and what is left out and why."""
    low, typical, high = map(in_round_words, seconds)
    what = f"{len(wanted)} cell{'' if len(wanted) == 1 else 's'}"
    yield f"Study {study}: {what} to measure in turns, about {typical} ({low} to {high})."
    yield from (f"! left out: {reason}" for reason in left_out[:MOST_WARNINGS])
    if (more := len(left_out) - MOST_WARNINGS) > 0:
        yield f"! left out for {more} more reason{'' if more == 1 else 's'}: see snakemake -n"
    yield f"Ctrl-C is safe: finished visits are kept, and the same command goes on with them. Results: {results}"


def in_round_words(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 5 min``: no more digits than an expectation has."""
    if seconds < 55:
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def cell_in_words(path: str) -> str:
    """``alexnet wfbp, B = 16, 2 nodes`` for the path of a cell."""
    kind, *labels = path.split("/")
    of = dict(label.split("~", 1) for label in labels if "~" in label)
    workers = int(of.get("workers_per_node", 1))
    words = [f"{of.get('network', of.get('storage', ''))} {of.get('sync', '')}".strip()]
    if kind not in ("train", "command"):
        words[0] = f"{kind} {words[0]}".strip()
    elif of.get("scaling") == "compute":
        words = [f"{of['network']} computing, b = {of['batch']}"]
    else:
        words.append(f"{'b' if of['scaling'] == 'weak' else 'B'} = {of['batch']}")
    return ", ".join([*words, placement_in_words(int(of.get("nodes", 1)) * workers, workers)])


def failure(rule: str, logs: Sequence[str], text: str, say: str) -> Iterator[str]:
    """A failed job: which, the last words of its log, and where that is."""
    yield f"! {rule} failed{f': {say}' if say else ''}"
    said = [line for line in text.splitlines() if line.strip()]
    errors = list(dict.fromkeys(line for line in said if line.startswith("error: ")))
    yield from (f"    {line}" for line in (errors or said)[-MOST_OF_A_LOG:])
    yield from (f"    log: {log}" for log in logs)


def closing(seconds: float | None, headline: Sequence[str], report: str) -> Iterator[str]:
    """The end of a run: how long it took (None: there was nothing to do), the answer, the report."""
    yield "Nothing to be done: all results are up to date." if seconds is None else f"Done in {in_words(seconds)}."
    yield from headline
    if report:
        yield f"Report: {report}"


DISK_FULL = (
    "! the disk is full, or the quota used up: make space, and the same command goes on; what was finished is kept"
)
"""Said once, in place of all that Snakemake says of its own files that it cannot write."""
_FULL = re.compile(r"\[Errno (27|28|122)\]|No space left on device|Disk quota exceeded|File too large")


def is_of_full_disk(message: str) -> bool:
    """Whether Snakemake says that a disk takes no more."""
    return _FULL.search(message) is not None


def is_noise(message: str) -> bool:
    """Whether Snakemake says something that nobody has to act on, or that was said better."""
    return any(part in message for part in _NOISE)


_NOISE = (
    "Exiting because a job execution failed",
    "At least one job did not complete successfully",
    "Removing output files of failed job",
    "Trying to restart job",
    "CalledProcessError in file",
    "Ignore corrupted or currently written metadata record",  # of a run that was killed, or found no space: made again
    # Snakemake's Slurm plugin, wherever no account is named; where one is needed, sbatch says so.
    "No SLURM account given",
    "not able to get a SLURM account",
    "Unable to guess SLURM account",
)
