"""Rates in the logs of training programs, by patterns that are ready for usual ones, or one of the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint.inputs.rate_tables import ALL, EACH, PER_WORKER, kind_of, number_in, separated, unit_in

WARMUP = 0.1
"""Part of the lines that are warm-up."""


@dataclass(frozen=True)
class Program:
    """How a program logs its rate."""

    name: str
    line: re.Pattern[str]
    """With a group ``rate`` or ``seconds`` (of an iteration; ``ms`` where it is in milliseconds), perhaps ``batch`` (of
    all workers) and ``unit`` (of the rate, with ``/gpu`` where it is a worker's)."""
    unit: str = "samples/s"
    of: str = ""
    """`EACH` where the rate is a worker's."""
    averages: bool = False
    """Whether the last line has the mean over all."""
    words: tuple[str, ...] = ()
    """Texts in lower case of which each of its lines has one; asked first where the pattern begins with no text, which
    takes ten times as long."""
    begin: re.Pattern[str] | None = None
    """What `line` is searched behind. In one pattern (``begin.*line``) a line with many beginnings and no end would
    take a time that grows with the square of its length."""

    def search(self, line: str) -> re.Match[str] | None:
        """Find the pattern in a line."""
        if self.words and not _has(line, self.words):
            return None
        if not self.begin:
            return self.line.search(line)
        begin = self.begin.search(line)
        return begin and self.line.search(line, begin.end())


def _has(line: str, words: Sequence[str]) -> bool:
    """Return whether one of the words is in the line, upper or lower case."""
    lower = line.lower()
    return any(word in lower for word in words)


_N = r"(?<![0-9])[0-9]++(?:,[0-9]++){0,6}+(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?: ?[kKMG]\b)?+"
_UNIT = (
    r"(?P<unit>(?:tok(?:en)?s?|samples?|ima?ge?s?|img|seq(?:uence)?s?|examples?)[ _]?(?:/|per)[ _]?s(?:ec(?:ond)?)?s?"
    r"(?:[ _]?(?:/|per)[ _]?(?:gpu|device|rank|worker|chip))?(?![a-zA-Z]))"
)
_STEP = re.compile(r"\b(?:step|iter|iteration|epoch)\b[^\w\n]{0,5}\d+\b", re.IGNORECASE)
_STEPS = ("step", "iter", "epoch")
PROGRAMS = (
    Program("DeepSpeed", re.compile(rf"SamplesPerSec=(?:{_N}), CurrSamplesPerSec=(?P<rate>{_N})")),
    Program(
        "Megatron",
        re.compile(rf"elapsed time per iteration \(ms\): (?P<ms>{_N})(?:.*global batch size:\s*(?P<batch>\d+))?"),
        begin=re.compile(r"iteration\s+\d+/\s*\d+ \|"),
    ),
    Program(
        "torchtitan",
        re.compile(rf"\b(?:tps|wps): (?P<rate>{_N})"),
        "tokens/s",
        EACH,
        begin=re.compile(r"step:\s*\d+"),
    ),
    Program("tf_cnn_benchmarks", re.compile(rf"^total images/sec: (?P<rate>{_N})"), "images/s", averages=True),
    Program("transformers", re.compile(rf"\btrain_samples_per_second\W+(?P<rate>{_N})"), averages=True),
    Program("MosaicML", re.compile(rf"throughput/samples_per_sec: (?P<rate>{_N})")),
    Program(
        "Lightning or tqdm",
        re.compile(
            rf"(?:\|\s*\d+/\d+ \[[\d:]+<[\d:?]+,|• [-\d:]+)\s*"
            rf"(?:(?P<seconds>{_N}) ?s/(?:it|step)|(?P<its>{_N}) ?(?:it|step)s?/s)"
        ),
        "iterations/s",
    ),
    Program(
        "Horovod's benchmark", re.compile(rf"^Total img/sec on \d+ \w+\(s\): (?P<rate>{_N})"), "images/s", ALL, True
    ),
    Program(
        "nanotron",
        re.compile(rf"\btokens_per_sec: (?P<rate>{_N})"),
        "tokens/s",
        ALL,
        begin=re.compile("iteration: "),
    ),
    Program(
        "MaxText",
        re.compile(rf"\bTokens/s/device: (?P<rate>{_N})"),
        "tokens/s",
        EACH,
        begin=re.compile(r"completed step: \d+, "),
    ),
    Program(
        "NeMo",
        re.compile(rf"^(?>.*?\bglobal_batch_size: (?P<batch>\d+))?.*?\btrain_step_timing in s[=:] ?(?P<seconds>{_N})"),
        words=("train_step_timing",),
    ),
    Program("llm.c", re.compile(rf"^step +\d+/\d+ \| loss .*\| (?P<rate>{_N}) tok/s"), "tokens/s", ALL),
    Program("nanoGPT", re.compile(rf"^iter \d+: loss .*\btime (?P<ms>{_N})ms")),
    Program(
        "timm",
        re.compile(rf"Time: *{_N}s, +(?P<rate>{_N})/s"),
        "images/s",
        ALL,
        begin=re.compile(r"Train: \d+ \["),
    ),
    Program(
        "MMEngine",
        re.compile(rf"\btime: (?P<seconds>{_N})"),
        begin=re.compile(r"(?:Epoch|Iter)\(train\)"),
        words=("(train)",),
    ),
    Program("PyTorch's imagenet", re.compile(rf"^Epoch: \[\d+\]\[ *\d+/\d+\]\s+Time +(?P<seconds>{_N})")),
    Program(
        "MetricLogger",
        re.compile(rf"\btime: (?P<seconds>{_N}).{{0,80}} data(?:_time)?: "),
        begin=re.compile(r"\beta: "),
        words=("eta: ",),
    ),
    Program("OLMo", re.compile(rf"throughput/device/tokens_per_second=(?P<rate>{_N})"), "tokens/s", EACH),
    Program("LitGPT", re.compile(rf"iter time: (?P<ms>{_N}) ms")),
    Program("fairseq", re.compile(rf"\bwps=(?P<rate>{_N}), ups="), "words/s", ALL, words=("wps=",)),
    Program("MXNet", re.compile(rf"Batch ?\[\d+\]\s+Speed: (?P<rate>{_N}) samples/sec")),
    Program("Keras", re.compile(rf"(?<!\d)\d++/\d++ \S++ - \d++\w++ (?P<ms>{_N})ms/step"), words=("ms/step",)),
    Program(
        "steps",
        re.compile(rf"{_UNIT}[\"']?\s*[:=]\s*(?P<rate>{_N})", re.IGNORECASE),
        begin=_STEP,
        words=_STEPS,
    ),
    Program("steps", re.compile(rf"(?P<rate>{_N}) ?{_UNIT}", re.IGNORECASE), begin=_STEP, words=_STEPS),
)
"""In the order in which they are tried; the last know any line with a step, a rate and its unit."""
_WORLD = (
    re.compile(r"\bworld[_ ]?size[\"']?\s*[:=]\s*(\d+)", re.I),
    re.compile(r"\bMEMBER: \d+/(\d+)"),
    re.compile(r"\bnranks[ =](\d+)"),
    re.compile(r"\bnum(?:ber)?[_ ]?(?:of[_ ])?(?:processes|gpus|workers)\s*[:=]\s*(\d+)", re.I),
    re.compile(r"mesh with \[[^][]*\], \[(\d+)\]"),
    re.compile(r"^Total img/sec on (\d+) \w+\(s\): "),
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
    setup: str = ""
    """Lines about model, precision and hardware."""
    cut: str = ""
    """`Document.cut`."""


_SETUP = re.compile(
    r"CUDA capacity: ([^:]+?) with|Building (\S+ \S+) with|(Float8) training|"
    r"^(?:Model|GPU|Precision|Data type):\s+(.+)",
    re.I,
)
"""Lines of torchtitan and tf_cnn_benchmarks about these, and of programs that print them with such names."""
_SETUP_WORDS = ("cuda capacity", "building ", "float8", "model:", "gpu:", "precision:", "data type:")
"""As `Program.words`."""


def recognised(document: Document) -> bool:
    """Whether lines of a program that is known are in it, or any that the user's pattern finds."""
    return (not document.pattern and _in_columns(document) is not None) or any(
        one.search(line) for line in document.lines for one in _programs(document.pattern)
    )


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
    if not document.pattern and (columns := _in_columns(document)):
        return columns
    for program in _programs(document.pattern):
        found = [
            (number, match) for number, line in enumerate(document.lines, start=1) if (match := program.search(line))
        ]
        if found:
            return _logged(document, program, found)
    raise document.error(1, "no line with a rate")


def _in_columns(document: Document) -> LoggedRate | None:
    """Return the rate in a CSV file with a row for each step, as loggers of metrics write; None if it is none."""
    rows = separated(enumerate(document.raw_lines, start=1), ",")
    _, heads = next(rows, (1, []))
    kinds = list(map(kind_of, heads))
    rates = [index for index, kind in enumerate(kinds) if kind == "rate"]
    column = next((index for index in rates if unit_in(heads[index]) not in ("", "iterations/s")), None)
    if column is None or {"workers", "nodes"} & set(kinds) or not {"step", "global_step"} & set(map(str.lower, heads)):
        return None
    cells = [number_in(cells[column], decimal_comma=False) for _, cells in rows if len(cells) == len(heads)]
    values = _warm([value for value in cells if 1e-15 < value < 1e15])
    of = EACH if PER_WORKER.search(heads[column]) else ""
    unit = unit_in(heads[column])
    return LoggedRate("steps", median(values), unit, of=of, lines=len(values), values=values) if values else None


def _warm(values: list[float]) -> list[float]:
    """Return the values behind the warm-up."""
    return values[int(len(values) * WARMUP) + (len(values) > 2) :] or values


def _logged(document: Document, program: Program, found: list[tuple[int, re.Match[str]]]) -> LoggedRate:
    seconds = False
    values = []
    for number, match in found:
        groups = match.groupdict()
        text = next((groups[name] for name in ("rate", "seconds", "ms", "its") if groups.get(name)), "")
        value = number_in(text, decimal_comma=False)
        if not 1e-15 < value < 1e15:
            raise document.error(
                number, f"{text[:40] or 'nothing'} is no rate; the pattern's group has to be around a number above 0"
            )
        seconds = not groups.get("rate")
        value = 1 / value if groups.get("its") else value / 1e3 if groups.get("ms") else value
        values.append(value)
    kept = values[-1:] if program.averages else _warm(values)
    named = found[-1][1].groupdict().get("unit") or ""
    batches = [float(match["batch"]) for _, match in found if match.groupdict().get("batch")]
    return LoggedRate(
        program.name,
        median(kept),
        unit_in(named) or program.unit,
        seconds,
        EACH if PER_WORKER.search(named) else program.of,
        _workers(document),
        batches[-1] if batches and 0 < batches[-1] < 1e12 else None,
        len(found),
        kept,
        " ".join(
            dict.fromkeys(
                part
                for line in document.lines
                if _has(line, _SETUP_WORDS)
                for one in _SETUP.finditer(line)
                for part in one.groups("")
                if part
            )
        ),
        document.cut,
    )


def _workers(document: Document) -> int | None:
    for pattern in _WORLD:
        for line in document.lines:
            if (found := pattern.search(line)) and 0 < (workers := int(found[1])) <= 10**7:
                return workers
    return None
