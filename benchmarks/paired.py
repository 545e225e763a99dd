"""Candidates timed against each other: interleaved rounds, medians, and ratios paired by round with their intervals."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stallpoint.base.statistics import estimate, generator, resampled


@dataclass(frozen=True)
class Timing:
    """One candidate in one round."""

    benchmark: str
    candidate: str
    round: int
    seconds: float
    peak_bytes: int | None = None
    """Largest resident set of the process, where the candidate is a command."""


@dataclass(frozen=True)
class Figure:
    """A result: the median over rounds and its 90 % interval (bootstrap)."""

    benchmark: str
    candidate: str
    quantity: str
    value: float
    low: float
    high: float
    wanted: str = ""

    def line(self, unit: str = "", digits: int = 3) -> str:
        """For people."""
        value, low, high = (f"{number:.{digits}f}" for number in (self.value, self.low, self.high))
        wanted = f", wanted {self.wanted}" if self.wanted else ""
        return f"  {f'{self.candidate}: {self.quantity}':<84}{value}{unit} [{low}, {high}]{wanted}"


def interleaved(benchmark: str, candidates: Mapping[str, Callable[[], float]], count: int) -> list[Timing]:
    """Let every candidate, which returns its own seconds, run in each of `count` rounds, and once before."""
    for candidate in candidates.values():
        candidate()
    return [Timing(benchmark, name, number, candidates[name]()) for number, name in _order(list(candidates), count)]


def rounds(
    benchmark: str, commands: Mapping[str, Sequence[str]], count: int, folder: Path | None = None
) -> list[Timing]:
    """Run every command once in each of `count` rounds."""
    return [
        Timing(benchmark, name, number, *run(commands[name], folder)) for number, name in _order(list(commands), count)
    ]


def _order(names: list[str], count: int) -> Iterable[tuple[int, str]]:
    """Round and name, in another order each round: what one leaves in the caches must not always meet the same one."""
    random = generator(0, "order")
    for number in range(count):
        yield from ((number, str(name)) for name in random.permutation(names))


def run(command: Sequence[str], folder: Path | None = None) -> tuple[float, int]:
    """Seconds and peak memory in bytes of one command; raises where it fails."""
    runner = [sys.executable, "-I", "-S", str(Path(__file__).with_name("one_command.py"))]
    seconds, peak, status = json.loads(subprocess.check_output([*runner, *command], cwd=folder))
    if status:
        raise SystemExit(f"benchmark command failed ({status}): {' '.join(command)}")
    return seconds, peak


def figure(benchmark: str, candidate: str, quantity: str, values: Sequence[float], wanted: str = "") -> Figure:
    """The median of one value for each round, with its interval."""
    random = generator(0, benchmark, candidate, quantity)
    value, low, high = estimate(resampled(values, random, np.median))
    return Figure(benchmark, candidate, quantity, value, low, high, wanted)


def ratio(timings: Sequence[Timing], ours: str, reference: str, wanted: str = "", *, above: str = "") -> Figure:
    """Time of `ours` over that of `reference`, paired by round; of both that of `above` is subtracted first."""
    seconds = {name: [timing.seconds for timing in of(timings, name)] for name in (ours, reference, above) if name}
    less = seconds.get(above, [0.0] * len(seconds[ours]))
    pairs = zip(seconds[ours], seconds[reference], less, strict=True)
    what = f"ratio to {reference}{f', both above {above}' if above else ''}"
    return figure(
        timings[0].benchmark, ours, what, [(mine - off) / (other - off) for mine, other, off in pairs], wanted
    )


def report(timings: Sequence[Timing], ours: str, reference: str, wanted: str) -> tuple[list[Figure], list[str]]:
    """The ratio of `ours` to `reference`; lines with each candidate's median and spread, and that ratio."""
    lines = [f"{timings[0].benchmark}, {1 + max(timing.round for timing in timings)} interleaved rounds"]
    for name in dict.fromkeys(timing.candidate for timing in timings):
        seconds = [timing.seconds for timing in of(timings, name)]
        peak = max(timing.peak_bytes or 0 for timing in of(timings, name))
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        lines.append(f"  {name:<28}{statistics.median(seconds):>8.2f} s  ({spread})  {peak / 1e6:>6.0f} MB")
    found = ratio(timings, ours, reference, wanted)
    return [found], [*lines, found.line(digits=2)]


def of(timings: Sequence[Timing], name: str) -> list[Timing]:
    """The runs of one candidate, by round."""
    return sorted((timing for timing in timings if timing.candidate == name), key=lambda timing: timing.round)
