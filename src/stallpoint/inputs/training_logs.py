"""Rates in the logs of training programs, by patterns that are ready for usual ones, or one of the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint.inputs.rate_tables import EACH

WARMUP = 0.1
"""Part of the lines that are warm-up."""


@dataclass(frozen=True)
class Program:
    """How a program logs its rate."""

    name: str
    line: re.Pattern[str]
    """With a group ``rate`` or ``seconds`` (of an iteration; ``ms`` where it is in milliseconds), perhaps ``batch`` (of
    all workers)."""
    unit: str = "samples/s"
    of: str = ""
    """`EACH` where the rate is a worker's."""
    averages: bool = False
    """Whether the last line has the mean over all."""


_N = r"[0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
PROGRAMS = (
    Program("DeepSpeed", re.compile(rf"SamplesPerSec=(?:{_N}), CurrSamplesPerSec=(?P<rate>{_N})")),
    Program(
        "Megatron",
        re.compile(
            rf"iteration\s+\d+/\s*\d+ \|.*elapsed time per iteration \(ms\): (?P<ms>{_N})(?:.*global batch "
            rf"size:\s*(?P<batch>\d+))?"
        ),
    ),
    Program("torchtitan", re.compile(rf"step:\s*\d+.*\b(?:tps|wps): (?P<rate>{_N})"), "tokens/s", EACH),
    Program("tf_cnn_benchmarks", re.compile(rf"^total images/sec: (?P<rate>{_N})"), "images/s", averages=True),
    Program("transformers", re.compile(rf"'train_samples_per_second': '?(?P<rate>{_N})"), averages=True),
    Program("MosaicML", re.compile(rf"throughput/samples_per_sec: (?P<rate>{_N})")),
    Program(
        "Lightning or tqdm",
        re.compile(
            rf"\|\s*\d+/\d+ \[[\d:]+<[\d:?]+,\s*(?:(?P<seconds>{_N}) ?s/(?:it|step)|(?P<its>{_N}) ?(?:it|step)s?/s)"
        ),
        "iterations/s",
    ),
)
_WORLD = (
    re.compile(r"\bworld[_ ]?size\s*[:=]\s*(\d+)", re.I),
    re.compile(r"\bMEMBER: \d+/(\d+)"),
    re.compile(r"\bnranks[ =](\d+)"),
    re.compile(r"\bnum(?:ber)?[_ ]?(?:of[_ ])?(?:processes|gpus|workers)\s*[:=]\s*(\d+)", re.I),
    re.compile(r"mesh with \[[^]]*\], \[(\d+)\]"),
)


@dataclass(frozen=True)
class LoggedRate:
    """What a training log says."""

    program: str
    value: float
    """The median after warm-up: a rate, or seconds of an iteration."""
    unit: str
    seconds: bool = False
    of: str = ""
    workers: int | None = None
    batch: float | None = None
    """Samples in the mini-batch of all workers."""
    lines: int = 0
    values: Sequence[float] = ()
    """What the median is of, in their order."""


def recognised(document: Document) -> bool:
    """Whether lines of a program that is known are in it, or any that the user's pattern finds."""
    return any(one.line.search(line) for line in document.lines for one in _programs(document.pattern))


def _programs(pattern: str) -> Sequence[Program]:
    if not pattern:
        return PROGRAMS
    try:
        own = re.compile(pattern)
    except re.error as error:
        raise InputError(f"--pattern: {pattern} is no regular expression: {error}") from None
    if not {"rate", "seconds", "ms"} & set(own.groupindex):
        raise InputError(
            f"--pattern: {pattern} names no group; expected is (?P<rate>...), (?P<seconds>...) or (?P<ms>...) "
            f"around the number"
        )
    return [Program("own pattern", own)]


def read(document: Document) -> LoggedRate:
    """Return the rate in the log; `InputError` where a number that the pattern finds is none."""
    for program in _programs(document.pattern):
        found = [
            (number, match)
            for number, line in enumerate(document.lines, start=1)
            if (match := program.line.search(line))
        ]
        if found:
            return _logged(document, program, found)
    raise document.error(1, "no line with a rate")


def _logged(document: Document, program: Program, found: list[tuple[int, re.Match[str]]]) -> LoggedRate:
    seconds = False
    values = []
    for number, match in found:
        groups = match.groupdict()
        text = next((groups[name] for name in ("rate", "seconds", "ms", "its") if groups.get(name)), "")
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            value = 0.0
        if not 1e-15 < value < 1e15:
            raise document.error(
                number, f"{text[:40] or 'nothing'} is no rate; the pattern's group has to be around a number above 0"
            )
        seconds = not groups.get("rate")
        value = 1 / value if groups.get("its") else value / 1e3 if groups.get("ms") else value
        values.append(value)
    kept = values[-1:] if program.averages else values[int(len(values) * WARMUP) + (len(values) > 2) :] or values
    batches = [float(match["batch"]) for _, match in found if match.groupdict().get("batch")]
    return LoggedRate(
        program.name,
        median(kept),
        program.unit,
        seconds,
        program.of,
        _workers(document),
        batches[-1] if batches and 0 < batches[-1] < 1e12 else None,
        len(found),
        kept,
    )


def _workers(document: Document) -> int | None:
    for pattern in _WORLD:
        for line in document.lines:
            if (found := pattern.search(line)) and 0 < int(found[1][:9]) <= 10**7:
                return int(found[1])
    return None
