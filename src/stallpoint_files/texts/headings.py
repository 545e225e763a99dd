"""Meaning of column headings: a list of patterns with examples, of which the first match counts.

The examples are tests. A pattern is searched in the heading; `whole` patterns match the complete heading without
remarks in brackets. `_` and `-` count as spaces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache

PER_WORKER = re.compile(
    r"(/|per|each|pro|_s)[ _-]*(gpu|worker|dev|rank|process|card|chip|core|accelerator|gcd|xpu)", re.IGNORECASE
)
BRACKETS = re.compile(r"\([^()]*\)|\[[^][]*\]")
"""Remarks in headings."""
_WORKER = (
    r"(?:workers?|gpus?|ranks?|process(?:es)?|procs?|nprocs|tasks|devices|accelerators|gcds?|tpus?|xpus?|hpus?|npus?|"
    r"cards?|(?:tpu )?chips?|tiles?|cores)"
)
CHIP = r"(?:gb?\d{3}|[abhlvp]\d{1,3}[a-z]?|a[456]000|mi\d{3}[a-z]*|910[abc]\d?|k80|t4)"
"""Names of accelerators in lower case."""
_BATCH = r"(?:mini ?)?(?:batch|bs)(?: ?size)?"
_NUMBER_OF = r"(?:(?:total )?num(?:ber)?(?: of)?|(?:count|amount) of|n|no\.?(?: of)?|total|#(?: of)?|nb)"
_EACH_STEP = r"(?<![a-z/])(?:s|sec|seconds?|ms|time)\)? ?(?:/|per) ?(?:it|iter|step|batch)"
_TIME = (
    r"\b(?:ms|[uµμ]s|milli\w*|micro\w*|s|secs?|seconds?|\w*time|duration|elapsed|latency|"
    r"mins?|minutes?|h|hrs?|hours?)\b"
)
_IN_BRACKETS = r"(?<![a-z])[(\[] ?(?:ms|[uµμ]s|s|secs?|seconds?|min|minutes|h|hours?) ?[)\]]"
"""Units of times in brackets, which overrule ``speed`` or ``performance`` before them."""
_OF_STEP = r"iter(?:ation)?s?\b|steps?\b|(?:mini ?)?batch(?:es)?\b|\bit\b"


class ColumnKind(StrEnum):
    """Kind of a column's content."""

    WORKERS = "workers"
    NODES = "nodes"
    PER_NODE = "workers_per_node"
    BATCH = "batch"
    WORKER_BATCH = "batch_per_worker"
    GLOBAL_BATCH = "global_batch"
    ACCUMULATION = "accumulation"
    RATE = "rate"
    ITERATION = "iteration"
    EPOCH = "epoch"
    """Time of the same work on any count: an epoch, a training."""
    WORKER_TIME = "worker_time"
    """Total time of all workers: GPU hours."""
    PART = "part"
    """Time of a part of an iteration."""
    WORK = "work"
    """Work that was done in a time: samples, epochs."""
    SPEEDUP = "speedup"
    FLOPS = "flops"
    MFU = "mfu"
    EFFICIENCY = "efficiency"
    SETTING = "series"
    LABEL = "label"
    """Name or number of a run."""
    SCATTER = "scatter"
    """Deviation of repeats."""
    OTHER = "other"
    """A quantity that is neither rate nor time."""
    UNKNOWN = ""


COUNTS, TIMES = (ColumnKind.WORKERS, ColumnKind.NODES), (ColumnKind.ITERATION, ColumnKind.EPOCH)
LONGEST = 200
"""Maximum number of characters of a heading; longer cells are text."""


@dataclass(frozen=True)
class Heading:
    """A pattern of headings and the kind of column that they name."""

    kind: ColumnKind
    pattern: str
    examples: tuple[str, ...]
    whole: bool = False
    """Whether the pattern must match the complete heading."""
    unless: str = ""
    """Pattern that must not occur in the heading."""


HEADINGS = (
    Heading(
        ColumnKind.PER_NODE,
        rf"{_WORKER} ?(?:per|/|each) ?(?:node|host|server)|ppn",
        ("gpus_per_node", "GPUs / node"),
        True,
    ),
    Heading(
        ColumnKind.WORKERS,
        rf"#? ?(?:nodes? ?[x×*] ?#?{_WORKER}|{_WORKER} ?[x×*] ?#?nodes?)\b.*",
        ("nodes x GPUs", "#GPUs × #nodes"),
        True,
    ),
    Heading(ColumnKind.OTHER, rf"accumulated {_BATCH}.*", ("Accumulated Batch size / GPU",), True),
    Heading(
        ColumnKind.SETTING, r"num ?workers|(?:data ?)?loader ?workers", ("num_workers", "dataloader workers"), True
    ),
    Heading(
        ColumnKind.GLOBAL_BATCH,
        rf"(?:glob(?:al)?|total|effective)(?: train)? ?{_BATCH}|gbs",
        ("GlobalBatchSize", "Glob-BS", "total batch size"),
        True,
    ),
    Heading(ColumnKind.BATCH, _BATCH, ("Batch Size", "bs"), True),
    Heading(
        ColumnKind.WORKER_BATCH,
        rf"(?:(?:local|micro|per ?(?:gpu|worker|device)) ?)?{_BATCH}"
        r"(?: ?(?:per|/) ?(?:gpu|worker|device|rank))?(?::.*)?|mbs",
        ("MicroBatchSize", "Batch size / GPU", "per device batch size"),
        True,
    ),
    Heading(
        ColumnKind.ACCUMULATION,
        r"(?:grad(?:ient)? ?)?acc(?:um(?:ulation)?)?(?: ?steps)?",
        ("grad_accum", "GradAccum", "Accumulation steps", "gradient accumulation steps"),
        True,
    ),
    Heading(
        ColumnKind.WORKERS,
        rf"{_NUMBER_OF}? ?(?:train(?:ing)? ?|mpi |{CHIP} )?{_WORKER}(?: ?(?:count|s))?|np|n|world ?size|dp|"
        rf"{_NUMBER_OF} ?{CHIP}s?|{CHIP}s",
        (
            "No. of GPUs",
            "Number of A100s",
            "# GPUs",
            "n_procs",
            "world_size",
            "H100s",
            "Number of Training GPUs",
            "Number of V100 GPUs",
            "MPI ranks",
            "# of GPU",
            "#GPU:s",
        ),
        True,
    ),
    Heading(
        ColumnKind.NODES,
        rf"{_NUMBER_OF}? ?(?:{CHIP} ?)?(?:nodes?|hosts?|servers?|machines?)",
        ("nodes", "Number of nodes", "#hosts", "A100 nodes (8 GPUs each)"),
        True,
    ),
    Heading(
        ColumnKind.LABEL,
        r"(?:runs?|names?|jobs?|ids?|rep(?:eat|etition)?s?|trials?|attempts?|try|seeds?|date|"
        r"captions?|notes?|remarks?|(?:global )?step|iteration|epoch)[ #]*\d*",
        ("run 2", "Date", "step", "caption"),
        True,
    ),
    Heading(
        ColumnKind.WORK,
        r"(?:total |num(?:ber of)? |n )?(?:epochs|steps|iterations|"
        r"(?:samples|images|tokens|sequences)(?: ?(?:/|per) ?(?:step|iter(?:ation)?|batch))?)",
        ("samples", "epochs", "num_steps", "tokens/step"),
        True,
    ),
    Heading(ColumnKind.EPOCH, r"time to (?:accuracy|solution|target|train|converge)", ("time to accuracy [min]",)),
    Heading(ColumnKind.ITERATION, _EACH_STEP, ("s/iteration", "Speed (s/it)", "ms per step", "weak scaling: s/step")),
    Heading(
        ColumnKind.SCATTER,
        r"(?<![a-z/])(?:std(?:dev|err)?|sd|sem|stderr|standard (?:deviation|error)|dev(?:iation)?|ci\d*|[±σ])(?![a-z])",
        ("std img/s", "±", "throughput_std"),
        unless=r"(?:mean|median|average|avg)\W",
    ),
    Heading(ColumnKind.MFU, r"\b[mh]fu\b|flops? utili[sz]ation", ("MFU (%)", "Model flops utilization")),
    Heading(ColumnKind.FLOPS, r"flop", ("TFLOP/s/GPU", "per-GPU TFLOP/s")),
    Heading(
        ColumnKind.SPEEDUP,
        r"speed ?up|(?:strong|weak) scaling|accelerat\w+ (?:rate|ratio|factor)",
        ("Speedup", "TF32 Strong Scaling", "Weak scaling - FP32", "Acceleration Rate"),
        unless=r"efficien",
    ),
    Heading(ColumnKind.EFFICIENCY, r"efficien|\beff\b", ("efficiency", "Scaling eff.", "Weak Scaling Efficiency")),
    Heading(
        ColumnKind.WORKER_TIME,
        rf"\b(?:gpu|node|core|device|chip|accelerator|tpu|{CHIP})s?[ -]?(?:h|hours?|hrs?|days?)\b",
        ("gpu hours", "GPU-days", "A100 hours"),
    ),
    Heading(
        ColumnKind.OTHER,
        r"loss|acc(?!el|ount)|mem|err(?:or)?\b|variance|utili[sz]|%|"
        r"compute seconds|learning|cost|price|dollar|[$€]|power(?! ?\d)|watt|energy|joule|kwh|"
        r"[(\[]k?[wj][)\]]|bytes?|bandwidth|(?<![a-z0-9])(?:lr|(?:alg|bus)?bw|[kmgt]i?b(?:ps|its?)?)(?![a-z0-9])|"
        r"(?:error|hit|miss|drop(?:out)?|decay|success|failure|acceptance|sampling|compression) *rate|"
        r"\b(?:ttft|tpot|itl)\b|first token|(?:/|per|inter)[ -]?(?:output )?token\b|"
        r"(?:clock|link|network|disk) *(?:rate|speed)|\bat (?:step|epoch|iteration)$|"
        r"\bm?ap\b|\btop ?\d|\bauc\b|^(?:max|num|n)? ?epochs?$",
        (
            "lr",
            "learning rate",
            "cost ($/hour)",
            "Energy (J)",
            "busbw",
            "GPU utilization",
            "top-1 accuracy",
            "mAP",
            "link speed",
            "final speed at step",
            "TTFT (ms)",
            "ms/token",
        ),
    ),
    Heading(
        ColumnKind.RATE,
        r"/ ?s\b|/ ?(?:cpu ?)?sec|per ?s(?:ec(?:ond)?)?\b|throughput|\brates?\b|(?<!deep)speed|\btps\b|\bfps\b|"
        r"tok(?:ens?)?(?:/| s\b)|performance|\bips\b|\bwps\b|(?:/|per) ?(?:min(?:ute)?|h|hr|hour|day)\b",
        ("img/s", "samples_per_second", "Throughput - TF32", "tok_s_gpu", "tokens per day", "zones/cpu_second"),
        unless=_IN_BRACKETS,
    ),
    Heading(
        ColumnKind.PART,
        rf"(?=.*{_TIME}).*(?:forward|backward|comp(?:ut\w*)?\b|comm|sync|all ?reduce|all ?gather|data|load|wait|"
        r"start|warm|refit)",
        ("forward time", "data time", "all-reduce time (ms)"),
    ),
    Heading(
        ColumnKind.EPOCH,
        rf"(?=.*{_TIME}).*(?:epoch|train|total|wall|run|elapsed|duration|accuracy|solution|"
        r"\b(?:hours?|hrs?|h|minutes?|mins?)\b)",
        ("epoch time", "duration", "walltime", "minutes", "training hours"),
        unless=_OF_STEP,
    ),
    Heading(ColumnKind.ITERATION, _TIME, ("iteration time (us)", "Total step time (s)", "time", "latency")),
    Heading(
        ColumnKind.SETTING,
        r"series|models?(?: sizes?)?|networks?|config(?:uration)?s?|benchmarks?|setup|mode|framework|"
        r"strateg(?:y|ies)|method|chips?|gpu types?|hardware|systems?|clusters?|precision|dtype|optimi[sz]ations?|"
        r"techniques?|operations?|sharding(?: strategy)?|backends?|algorithms?|data ?sets?(?: sizes?)?|sizes?|"
        r"(?:context|seq(?:uence)?) ?len(?:gth)?s?|(?:num(?:ber of)? )?layers|hidden(?: size)?|[tpce]p|zero(?: stage)?|"
        r"(?:tensor|pipeline|context|expert|sequence) ?(?:model )?parallel(?:ism)?(?: ?size| ?degree)?|"
        rf"(?:{_NUMBER_OF} ?)?param(?:eter)?s|torch\.compile|compile",
        (
            "model",
            "Model size",
            "SeqLen (T)",
            "Context Length",
            "NumParams",
            "No. of params",
            "Sharding Strategy",
            "torch.compile",
            "hidden size",
            "tp",
            "Pipeline parallel size",
        ),
        True,
    ),
)
"""Headings in the order in which they are tried."""


@cache
def _compiled() -> tuple[tuple[Heading, re.Pattern[str], re.Pattern[str] | None], ...]:
    return tuple(
        (one, re.compile(one.pattern, re.IGNORECASE), re.compile(one.unless, re.IGNORECASE) if one.unless else None)
        for one in HEADINGS
    )


def _spaced(text: str) -> str:
    """Return the words of a heading separated by one space: ``micro-batch`` and ``MicroBatch`` are ``micro batch``."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.strip(" *`_"))
    return re.sub(r"[_\- ]+", " ", text.replace(":s", "s")).strip()


@lru_cache(maxsize=4096)
def kind_of(heading: str) -> ColumnKind:
    """Return the kind of a column's content by its heading; `ColumnKind.UNKNOWN` (empty) without a match."""
    if len(heading) > LONGEST:
        return ColumnKind.UNKNOWN
    name, words = _spaced(BRACKETS.sub("", heading)), _spaced(heading)
    for one, pattern, unless in _compiled():
        found = pattern.fullmatch(name) if one.whole else pattern.search(words)
        if found and not (unless and unless.search(words)):
            return one.kind
    return ColumnKind.UNKNOWN


_THREADS = re.compile(rf"(?-i:p)|(?:{_NUMBER_OF} ?)?threads?(?: count)?", re.IGNORECASE)
_NUM_WORKERS = re.compile(r"num ?workers", re.IGNORECASE)


def count_in_place(headings: Sequence[str]) -> str:
    """Return the heading that counts workers if none says so: ``threads`` or ``p`` in a table with times, or
    ``num_workers`` in one with speedups; empty without one."""
    kinds = set(map(kind_of, headings))
    scaled = kinds & {ColumnKind.SPEEDUP, ColumnKind.EFFICIENCY}
    if not scaled | (kinds & {*TIMES}) or kinds & {*COUNTS, ColumnKind.PER_NODE}:
        return ""
    of = [_THREADS, *([_NUM_WORKERS] if scaled else [])]
    return next((head for head in headings if any(one.fullmatch(_spaced(head)) for one in of)), "")
