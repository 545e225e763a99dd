"""Answers to a table of rates: where it stops getting faster, what that costs, and what would show the reason.

What is measured answers first: laws (`stallpoint.models.scaling`) say what comes beyond it. Rates that can be read in
two ways (of each worker or of all; seconds of an iteration with a mini-batch that stays or is split) are read in both,
and where the answers differ the one thing that decides is asked for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

from stallpoint.base.curve import SURE, Curve, rates_from
from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.text import listed, number
from stallpoint_files.file_options import Options
from stallpoint_files.rates.published_rates import compared
from stallpoint_files.rates.rate_tables import ALL, EACH, STRONG, WEAK, RateRow, Rates

FASTER_STEPS = 1.2
"""Weak scaling never makes an iteration as many times faster with more workers; strong scaling does."""
CLEAR = 0.05
"""Difference of rates that noise without repeats may make."""
IMPLAUSIBLE = 3
"""Efficiency above which rates are not believed to be of equal settings, whatever else made the larger count faster."""
KEPT = 0.97
"""Part of a worker's rate above which a doubling lost nothing that is worth a cause."""
MAX_FITTED = 12
"""Series of a file, about as many in each table, whose laws are fitted, at half a second each."""


Runs = Sequence[tuple[RateRow, float]]
"""Each measurement with its total rate."""


@dataclass(frozen=True)
class RateReading:
    """Rates of a series, read in one way."""

    curve: Curve
    runs: Runs


@dataclass(frozen=True)
class RateSeries:
    """One series of a table, with its possible readings."""

    name: str
    rows: Sequence[RateRow]
    counted: str
    readings: Mapping[str, RateReading] = field(default_factory=dict)
    """By the value of `Options` that selects each: ``all``, ``each``, ``weak``, ``strong``."""

    @property
    def first(self) -> Curve:
        """The curve of the most likely reading."""
        return next(iter(self.readings.values())).curve


def series_of(rates: Rates, options: Options) -> Iterator[RateSeries]:
    """Yield the series of a table in the order of their first rows."""
    grouped: defaultdict[str, list[RateRow]] = defaultdict(list)
    for row in rates.rows:
        grouped[row.series].append(row)
    counted = "workers" if rates.counted == "nodes" and options.workers_per_node else rates.counted
    for name, rows in grouped.items():
        rows = [_completed(row, options, nodes=counted != rates.counted) for row in rows]
        measured = sorted((row for row in rows if row.value is not None), key=lambda row: row.workers)
        if measured:
            part = " of one worker on each node" if counted == "nodes" and rates.of == EACH else ""
            readings = {
                of: replace(one, curve=replace(one.curve, counted=counted, unit=one.curve.unit + part))
                for of, one in _readings(_packed(measured), rates, options).items()
            }
            yield RateSeries(name, measured, counted, readings)
        else:
            yield RateSeries(name, rows, counted)


def _completed(row: RateRow, options: Options, *, nodes: bool) -> RateRow:
    """Return a row completed by the options; with `nodes` its count is of nodes, and becomes one of workers."""
    workers = round(row.workers * (options.workers_per_node or 1)) if nodes else row.workers
    split = row.global_batch / workers if row.global_batch else None
    return replace(
        row,
        workers=workers,
        workers_per_node=row.workers_per_node or options.workers_per_node,
        batch_per_worker=row.batch_per_worker or split or options.batch,
    )


def _packed(rows: Sequence[RateRow]) -> list[RateRow]:
    """Return, of rows with the same number of workers, those on the fewest nodes: others are no repeats of them."""
    packed: defaultdict[int, float] = defaultdict(float)
    for row in rows:
        packed[row.workers] = max(packed[row.workers], row.workers_per_node or 0.0)
    return [row for row in rows if not row.workers_per_node or row.workers_per_node == packed[row.workers]]


def _readings(rows: Sequence[RateRow], rates: Rates, options: Options) -> dict[str, RateReading]:
    of, scaling = options.of or rates.of, options.scaling
    if rates.seconds == "epoch":
        return {ALL: _reading(rows, options, lambda row: 3600 / (row.value or 1), rates.unit)}
    if rates.seconds == "iteration":
        batches = {row.batch_per_worker for row in rows}
        known = None not in batches
        if known:
            return {
                ALL: _reading(rows, options, lambda row: row.workers * (row.batch_per_worker or 1) / (row.value or 1))
            }
        weak = _reading(rows, options, lambda row: row.workers / (row.value or 1), "mini-batches/s")
        strong = _reading(rows, options, lambda row: 1 / (row.value or 1), "iterations/s")
        first, *_, last = [*weak.curve.counts, weak.curve.counts[-1]]
        # Strong scaling is assumed where steps get shorter, unless by more than workers can make them.
        shorter = weak.curve.gain(first, last) > 2 * FASTER_STEPS if first < last else False
        if (
            not scaling
            and shorter
            and strong.curve.rate(last) * first <= FASTER_STEPS * strong.curve.rate(first) * last
        ):
            scaling = STRONG
        return {name: one for name, one in {WEAK: weak, STRONG: strong}.items() if scaling in ("", name)}
    every = _reading(rows, options, lambda row: row.value or 1, rates.unit)
    each = _reading(rows, options, lambda row: (row.value or 1) * row.workers, rates.unit)
    if of:
        return {of: each if of == EACH else every}
    values = [every.curve.rate(count) for count in every.curve.counts]
    flat = len(values) > 1 and max(values) <= (1 + CLEAR) * values[0]
    return {ALL: every, EACH: each} if flat else {ALL: every}


def _reading(
    rows: Sequence[RateRow], options: Options, rate: Callable[[RateRow], float], unit: str = "samples/s"
) -> RateReading:
    runs = [(row, float(rate(row))) for row in rows]
    found: defaultdict[int, list[float]] = defaultdict(list)
    for row, of_run in runs:
        found[row.workers] += (
            [of_run / (1 + row.deviation), of_run, of_run * (1 + row.deviation)] if row.deviation else [of_run]
        )
    nodes = {row.workers_per_node for row in rows}
    per_node = max((one for one in nodes if one), default=None) if None not in nodes else None
    repeated = len(runs) > len(found) or any(row.deviation for row in rows)
    return RateReading(Curve(rates_from(found), per_node, options.threshold, unit, repeated=repeated), runs)


def answers(rates: Rates, options: Options) -> Iterator[Finding]:
    """Yield a finding for each series of the table."""
    options = replace(options, scaling=options.scaling or rates.scaling)
    every = list(series_of(rates, options))
    if len(every) > 1 and all(len({row.workers for row in one.rows}) == 1 for one in every):
        yield _without_curve(every, rates)
        return
    curves = sum(len(one.readings) == 1 and len(one.first.counts) > 1 for one in every if one.readings)
    fitted = curves * rates.tables <= MAX_FITTED
    lines = {f"line {row.line}" for one in every for row in one.rows}
    others = tuple(note for note in rates.notes if note.partition(":")[0] not in lines)
    for one in every:
        found = _finding(one, rates, options, fitted)
        if len(one.rows) == 1 and len(one.readings) == 1:
            found = replace(found, notes=(*found.notes, *_beside(one, every)))
        if one is every[0]:
            found = replace(found, notes=(*others, *found.notes))
        if len(one.readings) == 1 and one.counted != "nodes":
            per_worker = {count: one.first.rate(count) / count for count in one.first.counts}
            setup = f"{one.name} {rates.setup} {options.setup}"
            batches = {row.workers: row.batch_per_worker and row.batch_per_worker * row.workers for row in one.rows}
            beside = compared(setup, one.first.unit, per_worker, found.causes, batches, rates.spread)
            found = replace(found, notes=(*beside, *found.notes))
        yield found


def _without_curve(every: Sequence[RateSeries], rates: Rates) -> Finding:
    """Return what is said of series with one count each: no curve, and what they are where their count is the same."""
    told = [
        f"{one.name}, {one.rows[0].workers} {one.counted}"
        + (f": {number(one.first.rate(one.first.counts[0]))} {one.first.unit}" if len(one.readings) == 1 else "")
        for one in every
    ]
    counts = sorted({one.rows[0].workers for one in every})
    if len(counts) == 1:
        words = f"one count ({counts[0]}) says nothing of scaling"
        ask = f"the rates on {2 * counts[0]} {every[0].counted} of one of them; two counts say what a doubling gains"
    else:
        words = f"no curve: each of {listed([str(count) for count in counts])} {every[0].counted} ran another setting"
        ask = f"rates of one of them on further counts: one curve is of equal settings ({_listed_names(every)})"
    return Finding(
        "rates", "runs of different settings", words, Verdict.UNDECIDED, evidence="measured", fits="; ".join(told[:6]),
        ask=(ask,), notes=tuple(rates.notes),
    )  # fmt: skip


def _beside(one: RateSeries, every: Sequence[RateSeries]) -> Iterator[str]:
    """Yield how one rate compares with that of other series on as many workers."""
    (count,) = one.first.counts
    for other in every:
        if other is not one and len(other.readings) == 1 and count in other.first.counts:
            times = one.first.rate(count) / other.first.rate(count)
            yield f"on {count} {one.counted} {one.name} is {number(times)} times as fast as {other.name}"


def _listed_names(every: Sequence[RateSeries]) -> str:
    names = [one.name for one in every]
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "") + " differ"


def _finding(series: RateSeries, rates: Rates, options: Options, fit_laws: bool) -> Finding:
    notes = tuple(note for note in rates.notes if any(note.startswith(f"line {row.line}:") for row in series.rows))
    if not series.readings:
        return Finding(
            "rates", series.name, "no rate was measured", Verdict.WITHHELD, ask=("a rate on two worker counts",)
        )
    curve = series.first
    subject = subject_of(series, curve)
    placed = _placements(series, rates)
    last = curve.counts[-1]
    spread = f"a rate on {2 * last} {series.counted}, spread alike: whether a further node helps at all"
    if len(curve.counts) == 1:
        more = spread if placed else f"the rate on {2 * last} {series.counted}; two counts say what a doubling gains"
        one = (
            "the same number of workers on more nodes is slower"
            if placed
            else f"one count ({last}) says nothing of scaling"
        )
        fits = "" if placed or len(series.readings) > 1 else f"{number(curve.rate(last))} {curve.unit}"
        return Finding(
            "rates",
            subject,
            one,
            Verdict.UNDECIDED,
            causes=placed,
            evidence="measured",
            fits=fits,
            ask=(more,),
            notes=notes,
        )
    if len(series.readings) > 1:
        return _read_twice(series, subject, notes)
    found = measured(series, subject, curve)
    if curve.odd is not None and curve.efficiency(last) > IMPLAUSIBLE:
        first, counted = curve.counts[0], series.counted
        words = f"{last} {counted} are {curve.rate(last) / curve.rate(first):.3g} times as fast as {first}"
        ask = f"rates of equal settings on {first} and {last} {counted}: workers alone do not do that"
        return replace(found, words=words, verdict=Verdict.UNDECIDED, ask=(ask,))
    found = replace(found, notes=(*notes, *found.notes), causes=(*placed, *found.causes))
    if placed:
        beyond = "not predicted: rates inside a node do not hold between nodes, where the same workers are slower"
        return replace(found, beyond=beyond, ask=(*found.ask, spread))
    return (
        _with_laws(found, series, curve, options)
        if fit_laws
        else replace(found, beyond=f"not predicted: more than {MAX_FITTED} series in the file")
    )


def _placements(series: RateSeries, rates: Rates) -> tuple[Cause, ...]:
    """Return the cause that as many workers on more nodes are slower, where that was measured."""
    for count in series.first.counts:
        here = [row for row in series.rows if row.workers == count and row.workers_per_node and row.value]
        packed = max(here, key=lambda row: row.workers_per_node or 0, default=None)
        spread = min(here, key=lambda row: row.workers_per_node or 0, default=None)
        if packed and spread and packed.workers_per_node != spread.workers_per_node:
            times = (packed.value or 1) / (spread.value or 1)
            times = 1 / times if rates.seconds else times
            nodes = math.ceil(count / (spread.workers_per_node or 1))
            if times > 1 + 2 * CLEAR:
                words = (
                    f"{count} {series.counted} on {nodes} nodes are {number(times)} times as slow as on fewer: the link"
                )
                return (Cause("link_between_nodes", f"{words} between nodes", round(1 - 1 / times, 3)),)
    return ()


def subject_of(series: RateSeries, curve: Curve) -> str:
    """Return the subject of the answer: the series, its counts, and workers of a node."""
    counts = f"{curve.counts[0]}-{curve.counts[-1]}" if len(curve.counts) > 1 else f"{curve.counts[0]}"
    nodes = f" ({number(curve.per_node)} a node)" if curve.per_node and curve.per_node > 1 else ""
    counted = series.counted.removesuffix("s") if counts == "1" else series.counted
    return f"{series.name}, {counts} {counted}{nodes}"


def _workers(value: float, low: float, high: float | None = None) -> dict[str, Any]:
    """Return the fields of a finding for a count of workers, at which it stalls or up to which it scales."""
    return {"value": value, "low": low, "high": high, "unit": "workers"}


def _points(curve: Curve) -> tuple[dict[str, float | None], ...]:
    return tuple({"workers": count, "rate": curve.rate(count)} for count in curve.counts)


def in_arrows(values: Iterable[float]) -> str:
    """Return rates one after the other: ``532 -> 710 -> 879``."""
    return " -> ".join(number(value) for value in values)


_ASKS = {
    ALL: "say whether these rates are of all workers (--rates all) or of each (--rates each)",
    WEAK: "say whether each worker's mini-batch stays (--scaling weak) or one is split (--scaling strong), or give "
    "samples_per_second",
}
_NAMES = {
    ALL: "as rates of all",
    EACH: "as rates of each",
    WEAK: "if the mini-batch grows (weak)",
    STRONG: "if it is split (strong)",
}


def _read_twice(series: RateSeries, subject: str, notes: tuple[str, ...]) -> Finding:
    """Return the finding of a series that can be read in two ways."""
    compared = []
    curves = {name: one.curve for name, one in series.readings.items()}
    for name, curve in curves.items():
        first, last = curve.counts[0], curve.counts[-1]
        times = curve.rate(last) / curve.rate(first)
        base = "one" if first == 1 else f"{first}"
        said, count = curve.verdict
        stalled = f" and nothing beyond {count} gains" if said == Verdict.STALLS else ""
        compared.append(f"{_NAMES[name]}, {last} are {number(times)} times as fast as {base}{stalled}")
    verdicts = {curve.verdict[0] for curve in curves.values()}
    verdict = verdicts.pop() if len(verdicts) == 1 else Verdict.UNDECIDED
    if verdict == Verdict.STALLS:
        stalls = [curve.verdict[1] for curve in curves.values()]
        low, high = min(stalls), max(stalls)
        counted = series.counted if high > 1 else series.counted.removesuffix("s")
        headline = f"stops getting faster at {low}{'' if low == high else f' or {high}'} {counted}"
        workers = _workers(low, low, high)
    else:
        lead = "still gets faster in both readings" if verdict == Verdict.SCALES else "it depends"
        headline, workers = f"{lead}: {'; '.join(compared)}", {}
    likely = series.first
    unit = "s an iteration" if WEAK in series.readings else likely.unit
    values = [median(row.value or 0.0 for row in series.rows if row.workers == count) for count in likely.counts]
    return Finding(
        "rates",
        subject,
        headline,
        verdict,
        **workers,
        evidence="read in two ways",
        fits=f"{in_arrows(values)} {unit} on {', '.join(map(str, likely.counts))} {series.counted}",
        ask=(_ASKS[next(iter(series.readings))],),
        notes=notes,
        points=_points(likely),
        about={"unit": likely.unit},
    )


def measured(series: RateSeries, subject: str, curve: Curve) -> Finding:
    """Return the answer by measured rates alone, without laws."""
    counts, (verdict, at) = curve.counts, curve.verdict
    last, before = counts[-1], counts[-2]
    gain = f"{100 * (curve.gain(before, last) - 1):.0f} %"
    counted = series.counted if at > 1 else series.counted.removesuffix("s")
    efficient = "" if curve.dips or at == counts[0] else f", {100 * curve.efficiency(at):.0f} % efficient"
    asks: list[str] = []
    notes: list[str] = []
    chance = curve.stall.probabilities[at]
    likely = f"P = {chance:.2f}" if chance < SURE else f"P > {SURE}"
    doubt = "sure" if curve.sure else f"{likely}{_prior_words(curve)}"
    if verdict == Verdict.STALLS:
        later = counts[counts.index(at) + 1 :]
        headline = f"stops getting faster at {at} {counted}{efficient}"
        workers = _workers(at, at, later[0])
        if len(later) == 1:
            doubt = f"one count beyond it ({later[0]})"
            asks.append(f"a rate on {2 * last} {series.counted}")
    elif verdict == Verdict.SCALES:
        headline = f"still gets faster at {last}, by {gain} for the last doubling{efficient}"
        workers = _workers(last, last)
    elif curve.stalls_within:
        likely_at = curve.stall.likely
        chance = sum(curve.stall.probabilities[count] for count in likely_at)
        headline = f"stops getting faster at {' or '.join(map(str, likely_at))} {series.counted}"
        workers = _workers(at, at, likely_at[-1])
        doubt = f"P = {min(chance, SURE):.2f} that it stops at one of them{_prior_words(curve)}"
        asks.append(f"repeat the run on {listed([str(count) for count in curve.stall.deciding])} {series.counted}")
    else:
        doubt, workers = "not sure", _workers(at, at)
        if curve.step_only:
            node = f"a node of {curve.full_node}" if curve.full_node else f"{at}, which may be a node,"
            why = f"one count ({last}) beyond {node} does not tell a step from a stall"
            asks.append(f"a rate on {2 * last} {series.counted}: a step comes once, a stall stays")
        elif curve.short:
            why = f"{last} are no doubling of them"
            asks.append(f"a rate on {2 * at} {series.counted}")
        else:
            after = counts[counts.index(at) + 1]
            doubling = "the last doubling" if after == last else f"a doubling from {at} to {after}"
            gain = f"{100 * (curve.gain(at, after) - 1):.0f} %"
            why = f"{doubling} gains {gain}, within what equal runs may differ by"
            doubt += _prior_words(curve)
            deciding = listed([str(count) for count in curve.stall.deciding])
            asks.append(f"repeat the run on {deciding} {series.counted}, or measure {2 * last}")
        headline = f"undecided beyond {at} {counted}: {why}"
    if len(counts) == 2 and verdict == Verdict.SCALES:
        doubt = "two counts only"
    causes: tuple[Cause, ...] = ()
    if curve.odd is not None:
        notes.append(_odd(curve))
        doubt = "but not of the same settings"
    else:
        causes = tuple(sorted(_losses(curve), key=lambda cause: -(cause.share or 0)))
    if counts[-1] / counts[-2] > 2.5 or len(counts) == 2:
        asks.append(_gap(series, curve))
    effs = [f"{100 * curve.efficiency(count):.0f} % at {count}" for count in _shown(curve)]
    fits = f"{in_arrows(map(curve.rate, counts[-6:]))} {curve.unit}; efficiency {', '.join(effs)}"
    if verdict == Verdict.STALLS and (crossed := _probe(curve, at)):
        asks.append(crossed)
    return Finding(
        "rates",
        subject,
        "; ".join([*_dips(curve), headline]),
        verdict,
        **workers,
        causes=causes,
        evidence=f"measured, {doubt}",
        fits=fits,
        ask=tuple(dict.fromkeys(asks)),
        notes=tuple(notes),
        points=_points(curve),
        about={"unit": curve.unit},
        to_mend=bool(curve.dips or curve.slower_beyond),
    )


def _prior_words(curve: Curve) -> str:
    """Return the prior that the noise is taken from, where nothing was repeated."""
    return (
        ""
        if curve.repeated
        else f"; single runs, taken to differ by {100 * curve.prior.deviation:.0f} % ({curve.prior.words})"
    )


def _dips(curve: Curve) -> Iterator[str]:
    """Yield what is slower: the largest count, and the deepest dip with what makes up for it."""
    if (beyond := curve.slower_beyond) and curve.verdict[0] == Verdict.UNDECIDED:
        before = max(curve.counts, key=curve.rate)
        times = curve.rate(beyond) / curve.rate(before)
        yield f"{beyond} {curve.counted} are slower than {before}, {times:.2f} times"
    if not curve.dips:
        return
    dip = min(curve.dips, key=lambda dip: curve.rate(dip.at) / curve.rate(dip.before))
    last, node = curve.counts[-1], curve.full_node or 1
    in_nodes = curve.counted == "nodes" or (node > 1 and not any(count % node for count in (*dip, last)))
    counted, each = ("nodes", node) if in_nodes else (curve.counted, 1)
    at, before, end = (count // each for count in (dip.at, dip.before, last))
    slower, faster = (f"{curve.rate(count) / curve.rate(dip.before):.2f}" for count in (dip.at, last))
    yield (
        f"{at} {counted} are slower than {before}, {slower} times; from {at} on it gains again; {end} {counted} are "
        f"{faster} times {before}, {100 * curve.efficiency(last):.0f} % efficient"
    )


def _shown(curve: Curve) -> list[int]:
    """Return the counts whose efficiency is worth saying: the stall, and the last."""
    verdict, at = curve.verdict
    return list(dict.fromkeys([*([at] if verdict == Verdict.STALLS else []), curve.counts[-1]]))


def _odd(curve: Curve) -> str:
    odd = curve.odd or 0
    index = curve.counts.index(odd)
    steep = [(a, b) for a, b in pairwise(curve.counts) if odd in (a, b)]
    start, end = max(steep, key=lambda pair: curve.gain(*pair))
    times = curve.rate(end) / curve.rate(start)
    slow = index < len(curve.counts) - 1 and odd == start
    what = "was slower than it need be, or ran" if slow else "ran"
    return (
        f"{end} are {number(times)} times as fast as {start}: workers alone do not do that, so {odd} {what} with other "
        "settings; no cause is named"
    )


def _gap(series: RateSeries, curve: Curve) -> str:
    counts = curve.counts
    if len(counts) == 2:
        where = f"{2 * counts[-1]}"
        if curve.full_node and counts[0] <= curve.full_node < counts[1]:
            return (
                f"a rate on {where} {series.counted}: a loss that comes once, at the first node boundary, then "
                f"stays; one "
                "that grows with nodes comes again"
            )
        return f"a rate on {where} {series.counted}: two counts do not tell a loss that grows from one that stays"
    middle = 2 * counts[-2]
    return f"a rate on {middle} {series.counted}: between {counts[-2]} and {counts[-1]} nothing is measured"


def _probe(curve: Curve, stall: int) -> str:
    """Return the measurement that distinguishes a slow link from a slow server."""
    if not curve.full_node:
        return "how many workers a node has (--workers-per-node), and whether one server or file system feeds all"
    nodes = math.ceil(stall / curve.full_node)
    few = f"{max(nodes, 2)} and {2 * max(nodes, 2)} nodes"
    return f"time an all-reduce of the gradients' size on {few}:  all_reduce_perf -b 64M -e 256M -f 2"


def _losses(curve: Curve) -> Iterator[Cause]:
    """Yield why workers lose."""
    counts, node = curve.counts, curve.full_node
    if curve.stall.reached and not (curve.step_only or curve.short):
        yield _saturated(curve, curve.stall.ranks)
        return
    inside = [count for count in counts if node and count <= node]
    across = [count for count in counts if node and count > node]
    if not node or (not across and inside):
        lost = 1 - curve.efficiency(counts[-1])
        if lost > 1 - KEPT:
            where = "inside the node" if inside else f"with the number of {curve.counted}"
            shared = "something that all share" + ("" if curve.counted == "nodes" else " (nodes are not known)")
            why = "links or host shared by its GPUs, or uneven work" if inside else f"communication, or {shared}"
            if curve.unit.startswith("runs"):
                why += "; or more samples to a target, if the mini-batch grows (samples_to_target would tell)"
            each = f"each {curve.counted.removesuffix('s')}"
            words = f"{each} loses {100 * lost:.0f} % {where}: {why}"
            yield Cause("inside_node" if inside else "workers", words, round(lost, 3))
        return
    start = counts[0]
    if len(inside) > 1 and (lost := 1 - curve.efficiency(inside[-1])) > 1 - KEPT:
        yield Cause(
            "inside_node",
            "inside the node: uneven work of samples, the host's share of loading, or links between its GPUs",
            round(lost, 3),
            f"{start} -> {inside[-1]} keep {100 * curve.efficiency(inside[-1]):.0f} % of a worker's rate",
        )
    base = inside[-1] if inside else across[0]
    if across and across[-1] != base:
        between = curve.efficiency(across[-1]) / curve.efficiency(base)
        first = across[0] if inside else across[1]
        at_boundary = curve.efficiency(first) / curve.efficiency(base)
        lost = curve.efficiency(base) - curve.efficiency(across[-1])
        if between < KEPT and inside:
            after = between / at_boundary
            once = at_boundary < KEPT and (first == across[-1] or after > at_boundary + 0.02)
            words = (
                f"the first node boundary costs {100 * (1 - at_boundary):.0f} % of each worker's rate"
                + ("" if first == across[-1] else f", later nodes {100 * max(0, 1 - after):.0f} %")
                if once
                else f"between nodes a worker loses {100 * (1 - between):.0f} %, more with each doubling: "
                f"communication over the network"
            )
            yield Cause("node_boundary" if once else "between_nodes", words, round(max(lost, 0), 3))
        elif between < KEPT:
            words = (
                f"a worker loses {100 * (1 - between):.0f} % with the nodes: communication over the "
                f"network, or something that all nodes share"
            )
            yield Cause("between_nodes", words, round(max(lost, 0), 3))


def _saturated(curve: Curve, stall: int) -> Cause:
    """Return the cause where every worker added takes as much as it gives; of an undecided curve, if it stops there."""
    node = curve.full_node
    condition = "if it stops there: " if curve.verdict[0] == Verdict.UNDECIDED else ""
    nodes = "" if not node or stall <= node else f" ({math.ceil(stall / node)} nodes)"
    lost = round(1 - curve.efficiency(curve.counts[-1]), 3)
    last = curve.counts[-1]
    if curve.rate(last) < (1 - CLEAR) * curve.rate(stall):
        return Cause(
            "contention",
            f"{condition}from {_count_of(stall, curve)}{nodes} on all together get slower: each one added costs the "
            "others time (a link that gets fuller, or latency that grows)",
            lost,
        )
    where = "a server or link inside the node" if node and last <= node else "a shared server, file system or link"
    return Cause(
        "shared_limit",
        f"{condition}after {_count_of(stall, curve)}{nodes} every one added takes as much as it gives: {where} "
        "(not told apart)",
        lost,
    )


def _count_of(count: int, curve: Curve) -> str:
    return f"{count} {curve.counted if count > 1 else curve.counted.removesuffix('s')}"


def _falling(curve: Curve, batch_unknown: bool, lower: float) -> str:
    """Return why the interval has no valid lower end: gains per doubling fall faster and faster for an unknown reason.

    An example is a mini-batch that is split, which no law covers if its size is unknown. The text is empty for other
    curves, and if the interval already includes no further gain. `KEPT_GAIN` and `FALL` were chosen with one public
    curve in sight (docs/own-numbers.md). With known mini-batches such curves are predicted: of 32 in public tables
    (H100, Pollux; benchmarks/public_tables.py) 27 rates at twice the count were in the interval, 3 below it.
    """
    gains = [curve.gain(a, b) for a, b in pairwise(curve.counts)][-3:]
    falls = len(gains) == 3 and gains[0] - KEPT_GAIN > gains[1] and gains[1] - KEPT_GAIN > gains[2]
    if (
        not batch_unknown
        or not falls
        or gains[0] - gains[2] < FALL
        or lower < (1 + curve.threshold) * curve.rate(curve.counts[-1])
    ):
        return ""
    listed = ", ".join(f"{100 * (gain - 1):.0f} %" for gain in gains)
    return f"each doubling gains less than the one before ({listed}), and nothing says how much less the next one does"


KEPT_GAIN, FALL = 0.01, 0.1
"""What gains of two doublings may differ by, and how much less the last of three gains where they fall."""


def _with_laws(found: Finding, series: RateSeries, curve: Curve, options: Options) -> Finding:
    """Return the finding with the laws' prediction of the requested counts, or of twice the largest."""
    last = curve.counts[-1]
    if curve.odd is not None:
        return replace(found, beyond=f"not predicted: the rate at {curve.odd} does not belong to the others")
    import pandas as pd  # a late import: it takes half a second

    from stallpoint.models.scaling.extrapolation import fit

    rows: list[dict[str, Any]] = [
        {
            "series": series.name,
            "workers": float(row.workers),
            "workers_per_node": row.workers_per_node,
            "samples_per_second": rate,
            "batch_per_worker": row.batch_per_worker,
        }
        for row, rate in next(iter(series.readings.values())).runs
    ]
    asked_at = options.at[-1] if options.at else 2 * last
    rows.append({**rows[-1], "workers": float(asked_at), "samples_per_second": None})
    totals = {row["workers"] * (row["batch_per_worker"] or math.nan) for row in rows[:-1]}
    if options.at_batch:
        rows[-1]["batch_per_worker"] = options.at_batch / asked_at
    elif len(totals) == 1 and len({row["workers"] for row in rows[:-1]}) > 1:  # workers share one mini-batch
        rows[-1]["batch_per_worker"] = totals.pop() / asked_at
    table = pd.DataFrame(rows).astype(dict.fromkeys(list(rows[0])[1:], float))
    scaling = options.scaling or next(iter(series.readings))
    if scaling == STRONG and table["batch_per_worker"].isna().all():
        table["batch_per_worker"] = last / table["workers"]
    elif scaling == WEAK and table["batch_per_worker"].isna().all():
        table["batch_per_worker"] = 1.0
    (fitted,) = fit(table)
    predicted = fitted.predict()
    at = predicted[predicted["workers"] == asked_at].to_dict("records")[0]
    law, _, asked = str(at["law"]).partition("; ")
    asks = list(found.ask)
    if asked and not options.scaling:
        _, _, both = asked.partition(": ")
        asks.append(f"{_ASKS[WEAK].partition(', or')[0]}: {both.replace('workers', series.counted)}")
    if math.isnan(at["predicted"]):
        reason = law.partition(": ")[2] or law
        return replace(found, beyond=f"not predicted: {reason}", ask=tuple(asks))
    if falling := _falling(curve, bool(table["batch_per_worker"].isna().all()), float(at["lower"])):
        return replace(found, beyond=f"not predicted: {falling}", ask=(f"a rate at {asked_at} {series.counted}", *asks))
    gain = at["predicted"] / curve.rate(last) - 1
    ends = f"{number(at['lower'])} to {number(at['upper'])}"
    percent = round(100 * gain)
    gains = f"a {'gain' if percent > 0 else 'loss'} of {abs(percent)} %" if percent else "no gain"
    beyond = f"{asked_at}: {number(at['predicted'])} {curve.unit} ({ends}), {gains}"
    if (node := curve.full_node) and last <= node < asked_at:
        asks.append(f"a rate on 2 nodes ({2 * node} {series.counted}): nothing that is measured crosses the network")
    points = (
        *found.points,
        {"workers": asked_at, "predicted": at["predicted"], "low": at["lower"], "high": at["upper"]},
    )
    return replace(found, beyond=beyond, ask=tuple(asks), points=points)
