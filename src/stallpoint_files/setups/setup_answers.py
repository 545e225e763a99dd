"""Answers to a sentence or configuration: which wall it names, how long that takes, and what would show more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.inputs.documents import Document
from stallpoint.text import number
from stallpoint_files.file_options import Options
from stallpoint_files.links.links import link_named
from stallpoint_files.rates import rate_answers, rate_series
from stallpoint_files.rates.rate_rows import ALL, EACH, STRONG, WEAK, Rates
from stallpoint_files.rates.rate_series import RateSeries
from stallpoint_files.rates.rate_tables import POSTED
from stallpoint_files.reader import FoundRecords
from stallpoint_files.setups import walls
from stallpoint_files.setups.walls import traffic
from stallpoint_files.setups.words import GATHERS, Setup, Sharding, read_setup
from stallpoint_files.tables.grids import numbered_headings
from stallpoint_files.texts import unread
from stallpoint_files.texts.amounts import AMOUNT, NAMED, amounts_said
from stallpoint_files.texts.counts import counted_in_digits
from stallpoint_files.texts.numbers import DIGITS, number_in

KIND = "setup"
EXPLAINS = 0.8
"""Minimum fraction of a step's added time for a wall to explain it."""
_EQUAL = 0.05
_EACH_SAID = re.compile(r"(?:numbers|rates|values)\b[^.\n]{0,30}\b(?:are|show)\b[^.\n]{0,20}\bper[- ]gpu", re.I)
_PROGRAM = re.compile(
    r"^\s*(?:import |from \w|def |class |#SBATCH|#!|[{\[<\"]|\d{4}-\d\d-\d\d|\[|.*\|.*\||"
    r"\S.* {2,}[\d.,]+ {2,}[\d.,]+$)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class SetupInWords:
    """A text that gives a training's setup, but no rates."""

    setup: Setup


def recognised(document: Document) -> bool:
    """Return whether a text is a few sentences that name parts of a training and a possible wall."""
    text = document.text
    if len(text) > POSTED or _PROGRAM.search(text) or unread.unread(document.path) or _is_table(document):
        return False
    setup = read_setup(text)
    slow = setup.slow and re.search(r"train|tun(?:e|ing)|epoch|step|ddp", text, re.IGNORECASE)
    measured = [one[0] for one in AMOUNT.finditer(counted_in_digits(text)) if one["time"] or one["unit"]]
    measured += NAMED.findall(text)
    if (amounts_said(text) or len(measured) > 1) and not list(walls.causes(setup)):
        return False  # the answer then is a question: to which count does each amount belong?
    named = setup.strategies or setup.gloo or setup.steps or slow or setup.links or len(setup.chips) > 1
    asked = setup.model and setup.chip and text.rstrip().endswith(("?", "？"))
    where = setup.nodes or setup.counts or setup.chips or (setup.slow and (setup.strategies or setup.links))
    return bool((named or asked) and where)


def _is_table(document: Document) -> bool:
    """Return whether a text begins with headings and a row of as many numbers."""
    head, row = [*filter(str.strip, document.raw_lines), "", ""][:2]
    return bool(numbered_headings(head, row))


def read(document: Document) -> SetupInWords:
    """Return the setup."""
    return SetupInWords(read_setup(document.text))


def answers(found: FoundRecords, options: Options) -> Iterator[Finding]:
    """Yield a finding for each setup that has no rates."""
    for path, question in found.of("setup"):
        yield _finding(path.stem, _completed(question.setup, options))


def _completed(setup: Setup, options: Options) -> Setup:
    links = [link_named(options.link)] if options.link else setup.links
    return replace(setup, links=links, batch=options.batch or setup.batch)


def subject(setup: Setup) -> str:
    """Return a short description of the setup."""
    workers, chip = setup.workers, setup.chip.name if setup.chip else "GPUs"
    count = f"{workers} {chip}" if workers else chip
    where = f" ({setup.nodes} x {setup.per_node})" if setup.nodes and setup.per_node else ""
    if not where and setup.nodes:
        where = f" on {setup.nodes} node{'' if setup.nodes == 1 else 's'}"
    link = setup.link.name if setup.link and setup.nodes != 1 else ""
    parts = (setup.model.name if setup.model else "", str(setup.strategy or ""), count + where, link)
    return ", ".join(filter(None, parts))


def _finding(name: str, setup: Setup) -> Finding:
    if setup.steps and (setup.alike or not setup.slow):
        return _fixed_steps(setup, *_two_counts(setup))
    causes, asks = tuple(walls.causes(setup)), tuple(_questions(setup))
    if not causes:
        words = "nothing in it is slow by itself: its rate is not said"
        if setup.strategy == Sharding.HYBRID:
            words = "sharded inside a node, which is as it should be: its rate is not said"
        if setup.model and setup.chip:
            asks = (*asks, f"what others' rates let expect of it:  stallpoint expect '{subject(setup)}'")
        return Finding(KIND, subject(setup) or name, words, Verdict.UNDECIDED, evidence="no rate", ask=asks)
    lead = _HEADLINES.get(causes[0].name, "something in it is slow by itself")
    if setup.link and traffic(setup):
        evidence = "calculated from what is said, not measured"
        return Finding(KIND, subject(setup) or name, lead, causes=causes, evidence=evidence, ask=asks)
    return Finding(
        KIND, subject(setup) or name, f"its rate is not said; a hint from its words alone: {lead}", Verdict.UNDECIDED,
        causes=causes, evidence="no rate", ask=asks,
    )  # fmt: skip


_HEADLINES = {
    walls.PARAMETERS: "all parameters go over the link between nodes in each pass",
    walls.GRADIENTS: "the gradients go over the link between nodes in each step",
    "several_chips": "GPUs of several models wait for the slowest",
    "gloo": "gradients go through the host",
}


def _questions(setup: Setup) -> Iterator[str]:
    """Yield the measurements that would show how slow the training is, and why."""
    if not setup.nodes and not setup.links and 1 < (setup.workers or 0) <= walls.LARGEST_NODE:
        yield f"seconds of a step on 1 GPU and on {setup.workers}, with the mini-batch"
        return
    yield from _link_asked(setup)
    if setup.nodes != 1 and not (setup.model and setup.strategies):
        yield "model and strategy (DDP, ZeRO-3, FSDP), which say what goes over it"
    several = setup.nodes if (setup.nodes or 0) > 1 else "two"
    yield f"seconds of a step on one machine and on {several}, with the mini-batch"


def _link_asked(setup: Setup) -> tuple[str, ...]:
    if setup.links or setup.nodes == 1:
        return ()
    return ("the link between nodes (Gbit/s, or all_reduce_perf -b 64M -e 256M -f 2 on two nodes)",)


def _two_counts(setup: Setup) -> tuple[int, int]:
    counts = sorted({*setup.counts})
    return (counts[0], counts[-1]) if len(counts) > 1 else (1, counts[0] if counts else 1)


def _fixed_steps(setup: Setup, few: int, many: int) -> Finding:
    steps = f"{setup.steps:,} steps" if setup.steps else "the steps"
    batch = f"of {number(setup.batch)} for each GPU" if setup.batch else "for each GPU"
    times = number(many / few)
    cause = Cause(
        "fixed_steps",
        f"{steps} are fixed and the mini-batch is {batch}: {many} do {times} times the samples of {few} in that time; "
        f"for equally many samples, {times} times fewer steps",
    )
    ask = () if setup.batch else ("whether each GPU keeps its mini-batch: if one is split, nothing is gained",)
    words = f"nothing is slow: the same time does {times} times the samples"
    return Finding(KIND, f"{few}-{many} GPUs", words, Verdict.SCALES, causes=(cause,), evidence="arithmetic", ask=ask)


def _steps_or_epochs(few: int, many: int) -> Finding:
    """Return the question about trainings that take equally long on any count, each worker with its own mini-batch."""
    more = f"they do {number(many / few)} times the samples if the steps are fixed"
    words = f"{many} take as long as {few}, each with its own mini-batch: {more}"
    ask = ("whether the number of steps is fixed, or that of epochs (then nothing is gained)",)
    return Finding("rates", f"{few}-{many} GPUs", words, Verdict.UNDECIDED, evidence="arithmetic", ask=ask)


# --- rates with their setup -----------------------------------------------------------------------


def rate_findings(rates: Rates, options: Options) -> Iterator[Finding]:
    """Yield the findings on a table of rates, with what the surrounding text says about the setup."""
    if not rates.text:
        yield from rate_answers.answers(rates, options)
        return
    setup = _completed(read_setup(rates.text), options)
    counts = sorted({row.workers for row in rates.rows})
    if rates.seconds and (setup.batch or rates.scaling == WEAK) and _is_constant(rates):
        if setup.steps:
            yield _fixed_steps(setup, counts[0], counts[-1])
            return
        if rates.seconds == "epoch" and "epoch" not in rates.unit and len(counts) > 1:
            yield _steps_or_epochs(counts[0], counts[-1])
            return
    per_node = setup.per_node if rates.counted != "nodes" else None
    options = replace(
        options,
        of=options.of or _of_each(rates) or _total_by_peak(rates, setup),
        workers_per_node=options.workers_per_node or per_node,
        batch=options.batch or (None if rates.counted == "nodes" else setup.batch),
        scaling=options.scaling or rates.scaling or (WEAK if setup.batch else ""),
    )
    every = list(rate_series.series_of(rates, options))
    strategies = {one.name: read_setup(one.name).strategy for one in every}
    for series, found in zip(every, rate_answers.answers(rates, options), strict=False):
        own = replace(setup, strategies=[of] if (of := strategies[series.name]) else setup.strategies)
        causes = (*_gather_cost(series, every, strategies), *_step_causes(series, found, own, rates, options))
        if causes:
            asks = _link_asked(own) if any(one.name == walls.PARAMETERS for one in causes) else ()
            found = replace(found, causes=(*causes, *found.causes), ask=(*asks, *found.ask))
        yield found


def _is_constant(rates: Rates) -> bool:
    values = [row.value for row in rates.rows if row.value]
    return len(values) > 1 and max(values) <= (1 + _EQUAL) * min(values)


def _total_by_peak(rates: Rates, setup: Setup) -> str:
    """Return `ALL` if the rates, taken as those of each worker, would exceed the chip's peak; else an empty text."""
    if rates.of or rates.seconds or not setup.model or not setup.chip:
        return ""
    best = max((row.value or 0 for row in rates.rows), default=0)
    alike = rates.unit in (setup.model.unit, "samples/s", "images/s")
    return ALL if alike and best * setup.model.flops > max(setup.chip.peaks.values()) else ""


def _of_each(rates: Rates) -> str:
    """Return `EACH` if the text says so of its numbers, or has each rate's product with its count; else empty."""
    if rates.of or rates.seconds:
        return ""
    numbers = [number_in(one) for one in re.findall(DIGITS, rates.text)]
    totals = [row.workers * row.value for row in rates.rows if row.value and row.workers > 1]
    products = len(totals) > 1 and all(any(abs(one / total - 1) < 0.002 for one in numbers) for total in totals)
    return EACH if products or _EACH_SAID.search(rates.text) else ""


def _gather_cost(series: RateSeries, every: list[RateSeries], of: dict[str, Sharding | None]) -> Iterator[Cause]:
    """Yield the cost of gathering parameters over all nodes relative to within a node, if both were measured."""
    if of[series.name] not in GATHERS or not series.readings:
        return
    for other in every:
        if of[other.name] == Sharding.HYBRID and other.readings:
            for count in set(series.first.counts) & set(other.first.counts):
                part = series.first.rate(count) / other.first.rate(count)
                if part < 1 - _EQUAL:
                    yield Cause(
                        walls.PARAMETERS,
                        f"parameters gathered over all {count} {series.counted} cost {100 * (1 - part):.0f} %: "
                        f"{number(part)} times the rate of sharding inside a node; keep it inside a node",
                        round(1 - part, 3),
                    )


def _step_causes(series: RateSeries, found: Finding, setup: Setup, rates: Rates, options: Options) -> Iterator[Cause]:
    """Yield the added time of a step on more workers, and the walls in the setup that may cause it."""
    if not series.readings or len(series.first.counts) < 2 or len({of.name for _, of in setup.chips}) > 1:
        return
    more = _added_time(series, setup, rates, options)
    sent = traffic(
        replace(setup, nodes=setup.nodes or (series.first.counts[-1] if series.counted == "nodes" else None))
    )
    beside = ""
    if sent and setup.link and more and more.seconds:
        takes = sent.seconds(setup.link)
        what = "explains it" if takes >= EXPLAINS * more.seconds else f"is {100 * takes / more.seconds:.0f} % of it"
        beside = f"a step takes {number(more.seconds)} s more: the link {what}"
        if takes > more.step / EXPLAINS:
            beside = f"but a step takes {number(more.step)} s: the link is faster, or less goes over it than is said"
    slow = found.is_bad or found.verdict == Verdict.UNDECIDED
    for cause in walls.causes(setup) if slow else ():
        explains = beside if sent and cause.name == sent.name else ""
        yield replace(cause, evidence="; ".join(filter(None, (cause.evidence, explains))))
    if more:
        yield from more.causes


@dataclass(frozen=True)
class _AddedTime:
    """Added time of a step on the last count, compared to ideal scaling."""

    seconds: float
    step: float
    """Duration of a step on the last count, s."""
    causes: tuple[Cause, ...] = ()


def _added_time(series: RateSeries, setup: Setup, rates: Rates, options: Options) -> _AddedTime | None:
    """Return the added time of a step on the last count over ideal scaling from the count before."""
    curve = series.first
    few, many = list(pairwise(curve.counts))[-1]
    in_steps = rates.seconds == "iteration" or rates.unit == "iterations/s"
    if in_steps:
        values = {count: _step_seconds(series, rates, count) for count in (few, many)}
        strong = options.scaling == STRONG or next(iter(series.readings)) == STRONG
    elif setup.batch and rates.unit in ("samples/s", "images/s") and not rates.seconds:
        values = {count: setup.batch * _workers_at(series, setup, count) / curve.rate(count) for count in (few, many)}
        strong = False
    else:
        return None
    if not strong:
        return _AddedTime(values[many] - values[few], values[many])
    seconds, ideal = values[many], values[few] * few / many
    lost = seconds - ideal
    if lost <= _EQUAL * seconds:
        return None
    if seconds < values[few]:
        fixed = (values[many] * many - values[few] * few) / (many - few)
        words = (
            f"{number(fixed)} s of a step do not get less with {series.counted}, if the rest does: what each step does "
            "once (loading data, the host, communication)"
        )
    else:
        words = (
            f"{number(many / few)} times the {series.counted} should take a step from {number(values[few])} to "
            f"{number(ideal)} s; it takes {number(seconds)}: {number(lost)} s are new, and in them workers wait (less "
            "power at full utilisation says the same)"
        )
    return _AddedTime(lost, seconds, (Cause("added_seconds", words, round(lost / seconds, 3)),))


def _step_seconds(series: RateSeries, rates: Rates, count: int) -> float:
    value = next(row.value or 1.0 for row in series.rows if row.workers == count)
    return value if rates.seconds else 1 / value


def _workers_at(series: RateSeries, setup: Setup, count: int) -> int:
    return count * (setup.per_node or 1) if series.counted == "nodes" else count
