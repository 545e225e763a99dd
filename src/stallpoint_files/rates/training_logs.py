"""Rates in the logs of training programs, by patterns that are ready for usual ones, or one of the user's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median, quantiles

from stallpoint.errors import MAX_SEARCH, InputError, within
from stallpoint.inputs.documents import Document
from stallpoint_files.rates.logged_counts import (
    ACCUMULATION,
    BATCH,
    NODES,
    WORKER_BATCH,
    Begin,
    before,
    begins_in,
    counts_in_name,
    first_number,
    headings_in,
    last_before,
    workers_by_batches,
    workers_by_rates,
    workers_in,
    workers_on_nodes,
)
from stallpoint_files.rates.rate_tables import ALL, EACH
from stallpoint_files.rates.rate_tables import recognised as is_table
from stallpoint_files.texts.grids import separated
from stallpoint_files.texts.headings import COUNTS, PER_WORKER, ColumnKind, kind_of
from stallpoint_files.texts.numbers import number_in, seconds_in, unit_in
from stallpoint_files.texts.objects import objects
from stallpoint_files.texts.sentences import COUNT_AHEAD

MIN_VALUES = 10
"""Logged values below which their spread says nothing."""
MIN_STEPS = 3
"""Times between logged steps below which they say nothing."""
WARMUP = 0.1
"""Part of the lines that are warm-up."""


@dataclass(frozen=True)
class Program:
    """How a program logs its rate."""

    name: str
    line: re.Pattern[str]
    """With a group ``rate`` or ``seconds`` (of an iteration; ``ms`` or ``us`` where it is in these), perhaps ``batch``
    (of all workers), ``unit`` (of the rate, with ``/gpu`` where it is a worker's) and ``sample`` (where the time is one
    of a sample)."""
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
        """Return the pattern's match in a line, if any."""
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


# Atomic groups, as Python before 3.11.5 keeps what a possessive group has begun and not ended: ``1000,`` of ``1000, ``.
_N = r"(?<![0-9])[0-9]++(?>(?:,[0-9]++){0,6})(?>(?:\.[0-9]++)?)(?>(?:[eE][+-]?[0-9]++)?)(?>(?: ?[kKMG]\b)?)"
_UNIT = (
    r"(?P<unit>(?:tok(?:en)?s?|samples?|ima?ge?s?|img|seq(?:uence)?s?|examples?)[ _]?(?:/|per)[ _]?s(?:ec(?:ond)?)?s?"
    r"(?:[ _]?(?:/|per)[ _]?(?:gpu|device|rank|worker|chip|core))?(?![a-zA-Z])|tokens/gpu/s(?:ec(?:ond)?)?)"
)
_STEP = re.compile(
    r"(?<![a-zA-Z])(?:step|iter|iteration|epoch)\b[^\w\n]{0,5}\d+\b(?! ?(?:gpus?|nodes?|workers?)\b)", re.IGNORECASE
)
_STEPS = ("step", "iter", "epoch")
_EPOCH = re.compile(
    rf"\b(?:epoch[_ ](?:execution )?(?:time|took)[ :=]+|time (?:taken )?(?:for|per) epoch(?: \d+)?(?: is)?[ :=]+)"
    rf"(?P<epoch>\d+:\d\d(?::\d\d)?|{_N}(?= ?s(?:ec(?:onds?)?)?\b))",
    re.IGNORECASE,
)
_EPOCHS = ("epoch time", "epoch_time", "epoch took", "epoch execution", "for epoch", "per epoch")
PROGRAMS = (
    Program("DeepSpeed", re.compile(rf"SamplesPerSec=(?:{_N}), CurrSamplesPerSec=(?P<rate>{_N})")),
    Program("DeepSpeed", re.compile(rf"\bSamplesPerSec=(?P<rate>{_N})")),
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
    Program("tf_cnn_benchmarks", re.compile(rf"^total images/sec: (?P<rate>{_N})"), "images/s", ALL, True),
    Program("transformers", re.compile(rf"\btrain_samples_per_second\W+(?P<rate>{_N})"), averages=True),
    Program("MosaicML", re.compile(rf"throughput/samples_per_sec: (?P<rate>{_N})")),
    Program(
        "steps",
        re.compile(rf"['\"]{_UNIT}['\"]: ['\"]?(?P<rate>{_N})", re.IGNORECASE),
        words=("per_sec", "/s"),
    ),
    Program(  # a rate behind the bar says more than its steps, whose mini-batch nobody says
        "Lightning or tqdm",
        re.compile(rf"{_UNIT}[:=] ?(?P<rate>{_N})", re.IGNORECASE),
        begin=re.compile(r"(?<![\d/])\d++/\d++ \[[\d:]+<[\d:?]+,"),
        words=("it,", "/s,"),
    ),
    Program(
        "Lightning or tqdm",
        re.compile(
            rf"(?:(?<![\d/])\d++/\d++ \[[\d:]+<[\d:?]+,|(?<!\d)\d++it \[[\d:]+,|• [-\d:]+)\s*"
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
    Program(
        "modded-nanogpt",
        re.compile(rf"\bstep_avg: ?(?P<ms>{_N})ms"),
        averages=True,
        begin=re.compile(r"\bstep:\d+/\d+ "),
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
    Program("PyTorch's imagenet", re.compile(rf"\bTime +(?P<seconds>{_N}) *\( *{_N}\)\s+Data\b"), words=("time ",)),
    Program(
        "MetricLogger",
        re.compile(rf"\btime: (?P<seconds>{_N}).{{0,80}} data(?:_time)?: "),
        begin=re.compile(r"\beta: "),
        words=("eta: ",),
    ),
    Program("OLMo", re.compile(rf"throughput/device/(?:tokens_per_second|TPS)=(?P<rate>{_N})"), "tokens/s", EACH),
    Program("Levanter", re.compile(rf"Progress on:train .*\brate:(?:(?P<its>{_N})it/s|(?P<seconds>{_N})s/it)")),
    Program(
        "open_clip",
        re.compile(rf"Batch \(t\): {_N}, (?P<rate>{_N})/s, {_N}/s/gpu"),
        "samples/s",
        ALL,
        begin=re.compile(r"Train Epoch: "),
    ),
    Program("TensorFlow", re.compile(rf"\bglobal_step/sec: (?P<its>{_N})")),
    Program("TensorFlow", re.compile(rf"\bTimeHistory: {_N} seconds, (?P<rate>{_N}) examples/second"), of=ALL),
    Program("DLLogger", re.compile(rf"\btrain\.(?:total_)?ips\"? ?: (?P<rate>{_N})"), of=ALL),
    Program(
        "ESPnet",
        re.compile(r"\btime=(?P<epoch>(?:\d+ hours?, )?(?:\d+ minutes? and )?\d+(?:\.\d+)? seconds)"),
        begin=re.compile(r"epoch results: \[train\]"),
    ),
    Program("ESPnet", re.compile(rf"\btrain_time=(?P<seconds>{_N})"), begin=re.compile(r"epoch:train:")),
    Program("TRL", re.compile(rf"['\"]step_time['\"]: ['\"]?(?P<seconds>{_N})"), words=("step_time",)),
    Program(
        "Paddle",
        re.compile(rf"\bips: (?P<rate>{_N})(?: ?{_UNIT})?", re.IGNORECASE),
        of=EACH,
        begin=re.compile(r"\breader_cost: "),
    ),
    Program(
        "Swin",
        re.compile(rf"\btime (?P<seconds>{_N}) \("),
        begin=re.compile(r"Train: \["),
        words=("train: [",),
    ),
    Program("ms-swift", re.compile(rf"train_speed\((?:iter/s\)'?: ?(?P<its>{_N})|s/it\)'?: ?(?P<seconds>{_N}))")),
    Program("LitGPT", re.compile(rf"iter time: (?P<ms>{_N}) ms")),
    Program("fairseq", re.compile(rf"\bwps=(?P<rate>{_N}), ups="), "words/s", ALL, words=("wps=",)),
    Program("TensorFlow NMT", re.compile(rf"\bstep-time \S+ wps (?P<rate>{_N})"), "words/s", words=("step-time",)),
    Program(
        "ColossalAI", re.compile(rf"\bThroughput: (?P<rate>{_N}) samples/sec ?, TFLOPS per GPU"), of=ALL, averages=True
    ),
    Program("MXNet", re.compile(rf"Batch ?\[\d+\]\s+Speed: (?P<rate>{_N}) samples/sec")),
    Program(
        "Keras",
        re.compile(rf"(?<!\d)\d++/\d++ \S++ (?:- )?\d++\w++ (?:(?P<ms>{_N})ms|(?P<us>{_N})us|(?P<seconds>{_N})s)/step"),
        words=("s/step",),
    ),
    Program(
        "Keras",
        re.compile(rf"(?<!\d)\d++/\d++ \S++ - \d++\w++ (?:(?P<ms>{_N})ms|(?P<us>{_N})us)/(?P<sample>sample)"),
        words=("s/sample",),
    ),
    Program(
        "steps",
        re.compile(rf"{_UNIT}(?:[\"')]?\s*[:=]|\))\s*(?P<rate>{_N})", re.IGNORECASE),
        begin=_STEP,
        words=_STEPS,
    ),
    Program(  # a key's value before the unit is none of a rate: ``lr 1e-4 tokens/sec 12000``, ``1.5 s/it | tok/s 980``
        "steps",
        re.compile(
            rf"(?:\b(?:lr|loss|acc\w*|ppl|\w*norm|mem\w*)[ :=]+{_N} |[|,;] ?){_UNIT} (?P<rate>{_N})", re.IGNORECASE
        ),
        begin=_STEP,
        words=_STEPS,
    ),
    Program("steps", re.compile(rf"(?P<rate>{_N}) ?{_UNIT}", re.IGNORECASE), begin=_STEP, words=_STEPS),
    Program(
        "steps",
        re.compile(rf"(?:(?P<seconds>{_N}) ?s(?:ec(?:onds?)?)?|(?P<ms>{_N}) ?ms)/(?:step|it|iter|iteration|batch)\b"),
        begin=_STEP,
        words=_STEPS,
    ),
    Program("steps", re.compile(rf"\bms/batch[ :=]+(?P<ms>{_N})"), begin=_STEP, words=_STEPS),
    Program(
        "steps",
        re.compile(rf"\b(?:step|iter|iteration)[_ ]time[ :=]+(?:(?P<ms>{_N}) ?ms|(?P<seconds>{_N}) ?s)\b"),
        begin=_STEP,
        words=_STEPS,
    ),
    Program(
        "steps",
        re.compile(rf"\btook[ :=]+(?:(?P<ms>{_N}) ?ms|(?P<seconds>{_N}) ?s)\b"),
        begin=re.compile(r"\bstep\b[^\w\n]{0,5}\d+\b", re.IGNORECASE),
        words=("took",),
    ),
    Program("epochs", _EPOCH, begin=_STEP, words=_EPOCHS),
    Program("RSL-RL", re.compile(rf"\bComputation: (?P<rate>{_N}) steps/s \(collection: "), "steps/s", ALL),
    Program("rl_games", re.compile(rf"\bfps step: .*\bfps total: (?P<rate>{_N})"), "frames/s", ALL),
)
"""In the order in which they are tried; the last know any line with a step, a rate and its unit."""
_REDRAWN = Program("Lightning or tqdm", re.compile(rf"(?P<its>{_N}) ?it/s"), "iterations/s")
"""What is left of a progress bar whose format is one's own, where carriage returns redraw it."""
_BELOW_HEADINGS = Program("lines", re.compile(rf"{_UNIT}[\"']?\s*[:=]\s*(?P<rate>{_N})", re.IGNORECASE))
"""Rates of programs of one's own, where headings say of how many workers they are."""
_BEHIND_RATES = Program("lines", re.compile(rf"(?P<rate>{_N}) ?{_UNIT}", re.IGNORECASE))
_REPEATED = (_BELOW_HEADINGS, Program("epochs", _EPOCH, words=_EPOCHS))
"""Lines without a step, of a log whose name says its workers or that has several and counts in none of them."""
_STEP_COLUMN = re.compile(r"(?:(?:train|trainer|metrics?)[/_ ])?_?(?:global[_ ])?step", re.IGNORECASE)
_WALL_COLUMN = re.compile(r"wall[ _]time|_timestamp|_runtime|(?:relative|elapsed)[ _]time|relative", re.IGNORECASE)
"""Headings of columns of steps, and of when they were logged, in exports of TensorBoard and W&B."""
_TITAN = "throughput(tps)"
"""What torchtitan calls the tokens/s of each worker."""
_REDRAWS = re.compile(r"\r(?![\r\n])")
_MODEL = re.compile(
    r"\b(num_layers|num_hidden_layers|n_layers?|hidden_size|n_embd|d_model)\b[\"' .:=]{1,60}(\d{1,9})\b"
)
_LEARNING = re.compile(r"\bactor_rollout_ref\b|\bgrpo[_.]|\b(?:GRPO|PPO|RLOO)Trainer\b|\brollout[_-]batch[_-]size\b")
_LOADERS = re.compile(r"[\"']num_workers[\"']: *(\d+)")
_EVALUATION = re.compile(r"(?<![a-z])(?:eval|evaluation|valid|validation|val|test)[\W_]", re.IGNORECASE)
_OF_STEPS = re.compile(r"[\[ ] *\d{1,9}/(\d{1,9})[\] ]")
_RANK = re.compile(
    r"\s{0,3}(?:\[(?:rank|default)?(\d{1,5})\] ?:|\[\d+,(\d{1,5})\]|(\d{1,5}):(?=\s)|.{0,40}?\bNode\[(\d{1,5})\] )"
)
"""The rank that a launcher puts before a line."""


@dataclass(frozen=True)
class LoggedRate:
    """What a training log, or a part of it on other workers, says."""

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
    notes: Sequence[str] = ()
    nodes: int | None = None
    model: str = ""
    """Its layers and sizes, where the log lists them."""
    run: str = ""
    """The run's name, where a file has several."""
    learning: bool = False
    """Whether it trains by reinforcement, whose step is a sum of phases."""
    epochs: bool = False
    """Whether `seconds` are those of an epoch, which is the same work on any count."""
    steps: int | None = None
    """Steps of an epoch or of all, where lines say ``[ 10/1251]``."""
    phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of the parts of an iteration, for each of `values`: those that every line has."""

    @property
    def spread(self) -> float | None:
        """Return the relative deviation of the values by their middle half, which outliers leave; None of a few."""
        if len(self.values) < MIN_VALUES:
            return None
        low, _, high = quantiles(self.values, n=4)
        return (high - low) / 1.349 / self.value


_SETUP = re.compile(
    r"CUDA capacity: ([^:]+?) with|Building (\S+ \S+) with|(Float8) training|"
    r"^(?:Model|GPU|Precision|Data type):\s+(.+)",
    re.I,
)
"""Lines of torchtitan and tf_cnn_benchmarks about these, and of programs that print them with such names."""
_SETUP_WORDS = ("cuda capacity", "building ", "float8", "model:", "gpu:", "precision:", "data type:")
"""As `Program.words`."""
Found = list[tuple[int, re.Match[str]]]
"""Lines of a program with their numbers."""


_PHASE = re.compile(
    r"\b(data|load|loader|loading|reader_cost|forward|fwd|backward|bwd|optimizer|update|comm|communication|all[-_]?reduce)"
    rf"(?:[_ ](?:time|loading))?\b[ :=]*+({_N})(?: ?(ms|s)\b)?",
    re.IGNORECASE,
)
"""Parts of an iteration as lines print them: ``data_time: 0.01``, ``forward 12 ms``."""
_SCALES = {"ms": 1e-3, "us": 1e-6}
"""Groups of times in other units, and these in seconds."""
_GROUPS = {"rate", "seconds", "its", "epoch", "batch", "unit", "sample", *_SCALES}
"""Groups of patterns that are no part of an iteration."""


def recognised(document: Document) -> bool:
    """Whether lines of a program that is known are in it, or any that the user's pattern finds.

    Objects of several counts are a table, whatever printed them; those of several ``num_workers`` are asked about.
    """
    if document.text.lstrip()[:1] in ("[", "{"):
        rows = [row for _, row in objects(document)]
        counts = {tuple(cell for head, cell in row.items() if kind_of(head) in COUNTS) for row in rows}
        if len(counts) > 1 or len({*_LOADERS.findall(document.text)}) > 1:
            return False
    if not document.pattern and (_in_columns(document) or _in_list(document)):
        return True
    return _found(document) is not None


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


@lru_cache(maxsize=1)
def _found(document: Document) -> tuple[Program, Found] | None:
    """Return the first program that has lines in the log, with these."""
    for program in _programs(document.pattern):
        limit = (
            within(MAX_SEARCH, f"{document.path}: --pattern {document.pattern}") if document.pattern else nullcontext()
        )
        with limit:
            found = _lines(document, program)
        if found:
            return program, found
    if not document.pattern and _REDRAWS.search(document.text) and (found := _lines(document, _REDRAWN)):
        return _REDRAWN, found
    if not document.pattern and len(headings := headings_in(document)) > 1:
        for program in (_BELOW_HEADINGS, _BEHIND_RATES):
            found = _lines(document, program)
            if len({*before(headings, [number for number, _ in found])} - {None}) > 1:
                return program, found
    for program in () if document.pattern else _REPEATED:
        found = _lines(document, program)
        counted = any(COUNT_AHEAD.search(document.lines[number - 1]) for number, _ in found)
        many = any(counts_in_name(document.path.name)) or (len(found) >= MIN_STEPS and not counted)
        if found and many and not is_table(document):
            return program, found
    return None


def _lines(document: Document, program: Program) -> Found:
    """Return the lines of a program, of those of evaluation none beside those of training."""
    if program.words and not _has(document.text, program.words):
        return []
    found = [(number, match) for number, line in enumerate(document.lines, start=1) if (match := program.search(line))]
    train = [one for one in found if not _EVALUATION.search(document.lines[one[0] - 1])]
    return train or found


def read(document: Document) -> list[LoggedRate]:
    """Return the rate in the log, or in each part of it that ran on other workers; `InputError` where a number that the
    pattern finds is none."""
    if not document.pattern and (columns := _in_columns(document)):
        return columns
    if not (known := _found(document)):
        if logged := _in_list(document):
            return logged
        raise document.error(1, "no line with a rate")
    program, found = known
    parts: dict[int | None, Found] = {}
    numbers = [number for number, _ in found]
    begins = begins_in(document, numbers)
    for begin, line in zip(before(begins, numbers), found, strict=True):
        parts.setdefault(begin, []).append(line)
    return [_logged(document, program, part, begins.get(begin or 0)) for begin, part in parts.items()]


def _in_columns(document: Document) -> list[LoggedRate]:
    """Return the rates in a CSV file with a row for each step, as loggers of metrics write; none if it is none.

    An export of Weights & Biases has columns ``run - metric`` of several runs.
    """
    rows = separated(enumerate(document.raw_lines, start=1), ",")
    _, heads = next(rows, (1, []))
    kinds = list(map(kind_of, heads))
    rates = [
        index
        for index, kind in enumerate(kinds)
        if kind == ColumnKind.RATE
        and unit_in(heads[index]) not in ("", "iterations/s")
        and not heads[index].endswith(("__MIN", "__MAX"))
        and not _EVALUATION.search(heads[index])
    ]
    if not rates or {ColumnKind.WORKERS, ColumnKind.NODES} & set(kinds) or not any(map(_STEP_COLUMN.fullmatch, heads)):
        return _by_wall_times(heads, rows)
    body = [cells for _, cells in rows if len(cells) == len(heads)]
    found: dict[str, LoggedRate] = {}
    for column in rates:
        run = heads[column].rpartition(" - ")[0]
        cells = [number_in(cells[column]) for cells in body]
        values = _warm([value for value in cells if 1e-15 < value < 1e15])
        if not values:
            continue
        of = EACH if PER_WORKER.search(heads[column]) or heads[column].endswith(_TITAN) else ""
        unit = unit_in(heads[column])
        rate = LoggedRate("steps", median(values), unit, of=of, lines=len(values), values=values, run=run)
        first = found.setdefault(run, rate)
        if first.unit == unit and first.of != of:
            every, each = max(first.value, rate.value), min(first.value, rate.value)
            found[run] = replace(first, of=first.of or ALL, workers=round(every / each))
    return list(found.values())


def _by_wall_times(heads: Sequence[str], rows: Iterable[tuple[int, list[str]]]) -> list[LoggedRate]:
    """Return the seconds of a step by when steps were logged; none where columns of both are missing."""
    steps = [index for index, head in enumerate(heads) if _STEP_COLUMN.fullmatch(head)]
    walls = [index for index, head in enumerate(heads) if _WALL_COLUMN.fullmatch(head)]
    if not steps or not walls or {ColumnKind.WORKERS, ColumnKind.NODES} & set(map(kind_of, heads)):
        return []
    logged = [(number_in(cells[steps[0]]), number_in(cells[walls[0]])) for _, cells in rows if len(cells) == len(heads)]
    values = [
        (end[1] - begin[1]) / (end[0] - begin[0])
        for begin, end in pairwise(logged)
        if end[0] > begin[0] and end[1] > begin[1]
    ]
    if len(values) < MIN_STEPS:
        return []
    kept = _warm(values)
    note = "seconds between logged steps, with all that is done between them"
    return [LoggedRate("metrics", median(kept), "", True, lines=len(values), values=kept, notes=(note,))]


@lru_cache(maxsize=1)
def _in_list(document: Document) -> list[LoggedRate]:
    """Return the seconds of a step in a list such as W&B's history is in JSON; none of other texts."""
    if not document.text.startswith("["):
        return []
    try:
        rows = json.loads(document.text)
    except (ValueError, RecursionError):
        return []
    if not all(isinstance(row, dict) for row in rows) or not rows:
        return []
    heads = [str(head) for head in rows[0]]
    return _by_wall_times(heads, ((1, [str(row.get(head, "")) for head in heads]) for row in rows))


def _warm(values: list[float]) -> list[float]:
    """Return the values after the warm-up."""
    return values[int(len(values) * WARMUP) + (len(values) > 2) :] or values


def _logged(document: Document, program: Program, found: Found, begin: Begin | None) -> LoggedRate:
    notes = [document.cut] if document.cut else []
    batches = [float(match["batch"]) for _, match in found if match.groupdict().get("batch")]
    if len(set(batches)) > 1:
        # The mini-batch is ramped up: only lines of the last one are of the training that follows.
        notes.append(f"the mini-batch changes ({batches[0]:g} to {batches[-1]:g}); lines of the last one are taken")
        found = [(number, match) for number, match in found if match["batch"] and float(match["batch"]) == batches[-1]]
    values = [_value(document, number, match) for number, match in found]
    groups = found[-1][1].groupdict()
    seconds = not (groups.get("rate") or groups.get("sample"))
    kept = values[-1:] if program.averages else _warm(values)
    named = groups.get("unit") or ""
    first, last = (found[0][0], found[-1][0]) if begin else (1, len(document.lines))
    lines = document.lines[max(first - 50, 0) if begin else 0 : last]
    ranks = _by_rank(document, found, values)
    of = EACH if PER_WORKER.search(named) else program.of
    if not of and not seconds and len(ranks) > 1 and len({tuple(of_rank) for of_rank in ranks.values()}) > 1:
        of = EACH  # a rate of all ranks together would be equal on each
    workers, nodes = (begin.workers, begin.nodes) if begin else (workers_in(lines), first_number(NODES, lines))
    workers = workers or workers_on_nodes(nodes, lines) or workers_by_rates(lines) or workers_by_batches(lines)
    if not workers and not nodes and not begin:
        workers, nodes = counts_in_name(document.path.name)
    if workers is None and not nodes and len(ranks) > 1 and set(ranks) == set(range(len(ranks))):
        workers = len(ranks)
    batch = batches[-1] if batches else float(last_before(BATCH, document, found[0][0]) or 0) if seconds else 0.0
    if seconds and not batch and workers and (each := first_number(WORKER_BATCH, [document.text])):
        batch = float(each * workers * (first_number(ACCUMULATION, lines) or 1))
    model, setup, learning = _model_and_setup(document)
    return LoggedRate(
        program.name,
        median(kept),
        unit_in(named) or program.unit,
        seconds,
        of,
        workers,
        batch if 0 < batch < 1e12 else None,
        len(found),
        kept,
        setup,
        tuple(notes),
        nodes,
        model,
        learning=learning,
        epochs="epoch" in groups,
        steps=first_number(_OF_STEPS, [document.lines[found[-1][0] - 1]]),
        phases=_phases(document, found[-len(kept) :]) if seconds else {},
    )


@lru_cache(maxsize=1)
def _model_and_setup(document: Document) -> tuple[str, str, bool]:
    """Return the size of the model, the words of the setup, and whether it trains by reinforcement."""
    layers = {match[1]: match[2] for line in document.lines if (match := _MODEL.search(line))}
    setup = dict.fromkeys(
        part
        for line in document.lines
        if _has(line, _SETUP_WORDS)
        for one in _SETUP.finditer(line)
        for part in one.groups("")
        if part
    )
    model = ", ".join(f"{name} {size}" for name, size in sorted(layers.items()))
    return model, " ".join(setup), bool(_LEARNING.search(document.text))


def _phases(document: Document, found: Found) -> dict[str, list[float]]:
    """Return the parts of an iteration that all lines have; further groups of the user's pattern are parts, too."""
    lines = []
    for number, match in found:
        groups = match.groupdict()
        in_ms = bool(groups.get("ms"))
        parts = [(name, text, "") for name, text in groups.items() if text and name not in _GROUPS]
        if not parts:
            parts = [(one[1], one[2], one[3] or "") for one in _PHASE.finditer(document.lines[number - 1])]
        lines.append(
            {
                name.lower(): number_in(text) / (1e3 if unit == "ms" or (in_ms and unit != "s") else 1)
                for name, text, unit in parts
            }
        )
    names = set.intersection(*map(set, lines))
    return {name: [line[name] for line in lines] for name in sorted(names)}


def _value(document: Document, number: int, match: re.Match[str]) -> float:
    groups = match.groupdict()
    text = next((groups[name] for name in ("rate", "seconds", "its", "epoch", *_SCALES) if groups.get(name)), "")
    value = seconds_in(text, "", False) if groups.get("epoch") else number_in(text)
    if not 1e-15 < value < 1e15:
        raise document.error(
            number, f"{text[:40] or 'nothing'} is no rate; the pattern's group has to be around a number above 0"
        )
    value *= next((scale for name, scale in _SCALES.items() if groups.get(name)), 1.0)
    return 1 / value if groups.get("its") or groups.get("sample") else value


def _by_rank(document: Document, found: Found, values: Sequence[float]) -> dict[int, list[float]]:
    """Return the values by the rank that the launcher puts before their lines."""
    ranks: dict[int, list[float]] = {}
    for (number, _), value in zip(found, values, strict=True):
        if mark := _RANK.match(document.raw_lines[number - 1]):
            ranks.setdefault(int(next(filter(None, mark.groups()))), []).append(value)
    return ranks
