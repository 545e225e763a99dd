"""Commands timed against each other: interleaved rounds, medians, and the spread of their ratio."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Timing:
    """One run of one command."""

    benchmark: str
    candidate: str
    round: int
    seconds: float
    peak_bytes: int
    """Largest resident set of the process."""


def rounds(
    benchmark: str, commands: Mapping[str, Sequence[str]], count: int, folder: Path | None = None
) -> list[Timing]:
    """Run every command once in each of `count` rounds; the order turns, so that none is always first."""
    names = list(commands)
    timings = []
    for number in range(count):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seconds, peak = run(commands[name], folder)
            timings.append(Timing(benchmark, name, number, seconds, peak))
    return timings


def run(command: Sequence[str], folder: Path | None = None) -> tuple[float, int]:
    """Seconds and peak memory in bytes of one command; raises where it fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"benchmark command failed ({process.returncode}): {' '.join(command)}")
    return seconds, usage.ru_maxrss * 1024


def report(timings: Sequence[Timing], ours: str, reference: str, target: str) -> list[str]:
    """Lines with each candidate's median and the ratio of `ours` to `reference`, paired by round."""
    lines = []
    for name in dict.fromkeys(timing.candidate for timing in timings):
        seconds = [timing.seconds for timing in timings if timing.candidate == name]
        peak = max(timing.peak_bytes for timing in timings if timing.candidate == name)
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        lines.append(f"  {name:<28}{statistics.median(seconds):>8.2f} s  ({spread})  {peak / 1e6:>6.0f} MB")
    ratios = [
        mine.seconds / other.seconds for mine, other in zip(of(timings, ours), of(timings, reference), strict=True)
    ]
    lines.append(
        f"  {ours} / {reference}: median {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f}-{max(ratios):.2f}), wanted {target}"
    )
    return lines


def of(timings: Sequence[Timing], name: str) -> list[Timing]:
    """The runs of one candidate, by round."""
    return sorted((timing for timing in timings if timing.candidate == name), key=lambda timing: timing.round)
