"""Answers to a table of rates: where training stops getting faster, what that costs, and what would show the reason.

Measured rates answer first (`curve_answer`); scaling laws predict beyond them (`rate_predictions`). Rates with two
possible readings are answered in both; if the answers differ, the deciding information is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.text import listed, number
from stallpoint_files.file_options import Options
from stallpoint_files.rates.curve_answer import at_workers, in_arrows, measured, points_of, subject_of
from stallpoint_files.rates.curve_losses import count_of
from stallpoint_files.rates.published_rates import compared
from stallpoint_files.rates.rate_predictions import with_prediction
from stallpoint_files.rates.rate_rows import ALL, EACH, STRONG, WEAK, Rates
from stallpoint_files.rates.rate_series import ASKED, CLEAR, RateSeries, series_of

IMPLAUSIBLE = 3
"""Maximum efficiency for rates to be of equal settings; above it, something else made the larger count faster."""
MAX_FITTED = 12
"""Maximum number of series of a file for laws to be fitted, at half a second each."""


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
            found = replace(found, notes=(*found.notes, *_compared_to_others(one, every)))
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
    """Return the finding on series with a single count each, which form no curve."""
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


def _compared_to_others(one: RateSeries, every: Sequence[RateSeries]) -> Iterator[str]:
    """Yield sentences that compare a single rate with other series' rates on equally many workers."""
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
    curve, placed = series.first, _placements(series, rates)
    subject, last = subject_of(series.name, curve), curve.counts[-1]
    spread = f"a rate on {2 * last} {series.counted}, spread alike: whether a further node helps at all"
    if len(curve.counts) == 1:
        words, ask, fits = "the same number of workers on more nodes is slower", spread, ""
        if not placed:
            words = f"one count ({last}) says nothing of scaling"
            ask = f"the rate on {2 * last} {series.counted}; two counts say what a doubling gains"
            fits = f"{number(curve.rate(last))} {curve.unit}" if len(series.readings) == 1 else ""
        return Finding(
            "rates", subject, words, Verdict.UNDECIDED, causes=placed, evidence="measured", fits=fits, ask=(ask,),
            notes=notes,
        )  # fmt: skip
    if len(series.readings) > 1:
        return _two_readings(series, subject, notes)
    found = measured(subject, curve)
    if curve.odd_count is not None and curve.efficiency(last) > IMPLAUSIBLE:
        first, counted = curve.counts[0], series.counted
        words = f"{last} {counted} are {curve.rate(last) / curve.rate(first):.3g} times as fast as {first}"
        ask = f"rates of equal settings on {first} and {last} {counted}: workers alone do not do that"
        return replace(found, words=words, verdict=Verdict.UNDECIDED, ask=(ask,))
    found = replace(found, notes=(*notes, *found.notes), causes=(*placed, *found.causes))
    if placed:
        beyond = "not predicted: rates inside a node do not hold between nodes, where the same workers are slower"
        return replace(found, beyond=beyond, ask=(*found.ask, spread))
    if not fit_laws:
        return replace(found, beyond=f"not predicted: more than {MAX_FITTED} series in the file")
    return with_prediction(found, series, options)


def _placements(series: RateSeries, rates: Rates) -> tuple[Cause, ...]:
    """Return the cause that equally many workers are slower on more nodes, if that was measured; else nothing."""
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


_NAMES = {
    ALL: "as rates of all",
    EACH: "as rates of each",
    WEAK: "if the mini-batch grows (weak)",
    STRONG: "if it is split (strong)",
}


def _two_readings(series: RateSeries, subject: str, notes: tuple[str, ...]) -> Finding:
    """Return the finding on a series with two possible readings."""
    said = []
    curves = {name: one.curve for name, one in series.readings.items()}
    for name, curve in curves.items():
        first, last = curve.counts[0], curve.counts[-1]
        times = curve.rate(last) / curve.rate(first)
        base = "one" if first == 1 else f"{first}"
        of_curve, count = curve.verdict
        stalled = f" and nothing beyond {count} gains" if of_curve == Verdict.STALLS else ""
        said.append(f"{_NAMES[name]}, {last} are {number(times)} times as fast as {base}{stalled}")
    verdicts = {curve.verdict[0] for curve in curves.values()}
    verdict = verdicts.pop() if len(verdicts) == 1 else Verdict.UNDECIDED
    if verdict == Verdict.STALLS:
        stalls = [curve.verdict[1] for curve in curves.values()]
        low, high = min(stalls), max(stalls)
        headline = f"stops getting faster at {f'{low} or ' if low < high else ''}{count_of(high, series.first)}"
        workers = at_workers(low, low, high)
    else:
        lead = "still gets faster in both readings" if verdict == Verdict.SCALES else "it depends"
        headline, workers = f"{lead}: {'; '.join(said)}", {}
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
        ask=(ASKED[next(iter(series.readings))],),
        notes=notes,
        points=points_of(likely),
        about={"unit": likely.unit},
    )
