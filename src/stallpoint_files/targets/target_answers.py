"""Answers on times to a target: where more workers stop shortening them, and what is lost: more samples, as the
mini-batch grows, or more seconds per sample.

Minutes are judged as rates (1 / minutes) like any curve; whether the last workers are worth it is a separate note.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from stallpoint.base.curve import Curve, rates_from
from stallpoint.base.priors import RUN_TO_TARGET
from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.models.convergence.target_halves import HalvesOfTarget
from stallpoint.text import number
from stallpoint_files.file_options import Options
from stallpoint_files.rates.curve_answer import in_arrows, measured, subject_of
from stallpoint_files.rates.published_rates import compared
from stallpoint_files.targets.target_tables import TargetRun, TargetTable, unexplained

KIND = "time to target"
WORTH = 1.5
"""Minimum gain of a doubling to be worth it: half of the possible gain."""
NEXT_COUNT = 2
"""Ratio of the predicted count to the largest measured one, if no count is requested."""
_MIN_LOSS = 0.03
"""Minimum loss, as a fraction of the ideal, to be named."""


@dataclass(frozen=True)
class _AtCount:
    """Medians over runs of equal worker count and mini-batch."""

    workers: int
    batch: float | None
    needed: float | None
    seconds: float
    runs: Sequence[TargetRun]


def answers(table: TargetTable, options: Options) -> Iterator[Finding]:
    """Yield a finding for each series of the table."""
    grouped: defaultdict[str, list[TargetRun]] = defaultdict(list)
    for run in table.runs:
        grouped[run.series].append(run)
    for name, runs in grouped.items():
        done = [run for run in runs if run.seconds]
        if done:
            yield _finding(name, done, table, options)
        else:
            yield Finding(
                KIND, name, "no run reached the target", Verdict.WITHHELD, ask=("the minutes of runs on two counts",)
            )


def _finding(name: str, runs: Sequence[TargetRun], table: TargetTable, options: Options) -> Finding:
    points = _medians(runs)
    fastest = {one.workers: one for one in sorted(points, key=lambda one: -one.seconds)}
    chosen = [fastest[count] for count in sorted(fastest)]
    found = {one.workers: [1 / (run.seconds or math.inf) for run in one.runs] for one in chosen}
    nodes = {run.per_node or options.workers_per_node for run in runs}
    per_node = max((one for one in nodes if one), default=None) if None not in nodes else None
    repeated = len(runs) > len(points)
    curve = Curve(
        rates_from(found, RUN_TO_TARGET), per_node, options.threshold, "runs/s", table.counted, repeated=repeated,
        prior=RUN_TO_TARGET,
    )  # fmt: skip
    subject = subject_of(name, curve)
    seen = tuple({"workers": one.workers, "minutes": one.seconds / 60} for one in chosen)
    last = chosen[-1]
    if len(chosen) > 1:
        judged = measured(subject, curve)
        notes = (*_worth_it(curve), *_unexplained(chosen), *table.notes, *judged.notes)
        base = _with_halves(replace(judged, notes=notes), chosen, table.needed)
        base = replace(base, notes=(*base.notes, *_published_comparison(name, chosen, table, options, base.causes)))
    else:
        words = f"one count ({last.workers}) says nothing of more {table.counted}"
        base = Finding(
            KIND, subject, words, Verdict.UNDECIDED, evidence="measured",
            ask=(f"a run on {2 * last.workers} {table.counted}",), notes=tuple(table.notes),
        )  # fmt: skip
    minutes, counts = [one.seconds / 60 for one in chosen], ", ".join(f"{one.workers:,}" for one in chosen)
    fits = f"{in_arrows(minutes)} min on {counts}"
    if all(one.needed for one in chosen):
        fits += f"; {table.needed} to the target {in_arrows([one.needed or 0 for one in chosen])}"
    if all(one.batch for one in chosen):
        fits += f", mini-batch {in_arrows([one.batch or 0 for one in chosen])}"
    base = replace(base, kind=KIND, fits=fits, points=seen, **_minutes(last.seconds / 60))
    return _with_predictions(base, points, curve, table, options) if len(chosen) > 1 else base


def _medians(runs: Sequence[TargetRun]) -> list[_AtCount]:
    """Return the runs grouped by worker count and mini-batch; a group's runs are repeats."""
    grouped: defaultdict[tuple[int, float | None], list[TargetRun]] = defaultdict(list)
    for run in runs:
        grouped[run.workers, run.batch].append(run)
    found = []
    for (workers, batch), equal in sorted(grouped.items(), key=lambda one: (one[0][0], one[0][1] or 0)):
        needed = [run.needed for run in equal if run.needed]
        seconds = median(run.seconds or 0 for run in equal)
        found.append(_AtCount(workers, batch, median(needed) if len(needed) == len(equal) else None, seconds, equal))
    return found


def _halves(start: _AtCount, end: _AtCount) -> HalvesOfTarget:
    """Return the losses by samples and by seconds between two points with known samples."""
    needed = (start.needed or 1, end.needed or 1)
    return HalvesOfTarget.of((start.workers, end.workers), needed, (start.seconds, end.seconds))


def _causes(start: _AtCount, end: _AtCount, needed: str) -> Iterator[Cause]:
    """Yield the losses by samples and by seconds, the larger first, each as a fraction of the ideal."""
    halves = _halves(start, end)
    ideal = 1 - math.exp(-halves.samples - halves.seconds)
    total = max(halves.samples, 0.0) + max(halves.seconds, 0.0)
    batches = f" (mini-batch {number(start.batch)} to {number(end.batch)})" if start.batch and end.batch else ""
    texts = {
        "samples": f"samples: {number(start.needed)} {needed} to the target on {start.workers:,}, "
        f"{number(end.needed)} on {end.workers:,}{batches}",
        "seconds": f"seconds: a worker of {end.workers:,} has {100 * math.exp(-halves.seconds):.0f} % of the rate of "
        f"one of {start.workers:,}",
    }
    parts = {"samples": halves.samples, "seconds": halves.seconds}
    for name in sorted(parts, key=lambda name: -parts[name]):
        if parts[name] > _MIN_LOSS and ideal > 0:
            more = "loses more" if name == halves.half else ""
            yield Cause(name, texts[name], round(ideal * parts[name] / total, 3), more)


_REMEDIES = {
    "samples": "of more samples: a smaller mini-batch on as many workers, or an optimiser and a warm-up for large ones",
    "seconds": "of slower samples: what a step does besides computing (communication, waiting, the host); a larger "
    "mini-batch hides it, at the cost of samples",
}


NEEDED = "samples, epochs or steps to the target on each count: whether more samples are needed or each takes longer"


def _with_halves(found: Finding, points: Sequence[_AtCount], needed: str) -> Finding:
    """Return the finding with the larger loss, samples or seconds: over the last doubling, and over all counts."""
    if not all(one.needed for one in points):
        same = len({one.batch for one in points}) == 1 and points[0].batch
        return found if same else replace(found, causes=(), ask=(NEEDED,))
    first, last = points[0], points[-1]
    start = next((one for one in reversed(points) if 2 * one.workers <= last.workers), first)
    late, whole = _halves(start, last), _halves(first, last)
    causes = tuple(_causes(start, last, needed))
    lead = ""
    if causes or late.half != whole.half:
        other = f", over all counts {whole.half}" if late.half != whole.half else ""
        lead = f": {late.half} lose more{other}"
    asks = (_REMEDIES[late.half],) if causes else found.ask[:1]
    return replace(found, words=f"{found.words}; {late.words(needed)}{lead}", causes=causes, ask=asks)


def _worth_it(curve: Curve) -> Iterator[str]:
    """Yield the sentence up to which count workers are worth it: each doubling gains at least half of what it could."""
    good, why = curve.counts[0], "each doubling gains half of what it could, or more"
    for start, end in pairwise(curve.counts):
        if curve.gain(start, end) < WORTH:
            gain = f"{100 * (curve.gain(start, end) - 1):.0f} %"
            why = f"a doubling to {end:,} gains {gain}, less than half of what it could"
            break
        good = end
    yield f"worth it up to {good:,} {curve.counted}: {why}"


def _unexplained(points: Sequence[_AtCount]) -> Iterator[str]:
    """Yield a sentence for each count whose minutes differ from those of its samples at the logged rate."""
    for point in points:
        rests = [rest for run in point.runs if (rest := unexplained(run)) is not None]
        if len(rests) * 2 > len(point.runs):
            rest = median(rests)
            what = "start, evaluation and pauses" if rest > 0 else "the rate is not that of the whole run"
            yield f"{point.workers:,}: samples at the logged rate would take {1 - rest:.2g} times the minutes: {what}"


def _published_comparison(
    name: str, points: Sequence[_AtCount], table: TargetTable, options: Options, causes: Sequence[Cause]
) -> list[str]:
    """Return sentences that compare the samples/s with published rates."""
    if table.needed != "samples" or not all(one.needed for one in points):
        return []
    rates = {one.workers: (one.needed or 0) / one.seconds / one.workers for one in points}
    setup = f"{name} {table.setup} {options.setup}"
    return compared(setup, "samples/s", rates, causes, {one.workers: one.batch for one in points})


def _minutes(value: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Return the fields of a finding whose value is in minutes."""
    return {
        "value": value,
        "low": value if low is None else low,
        "high": value if high is None else high,
        "unit": "min",
    }


def _with_predictions(
    found: Finding, points: Sequence[_AtCount], curve: Curve, table: TargetTable, options: Options
) -> Finding:
    """Return the finding with the predicted minutes at the requested counts, or at twice the largest."""
    import numpy as np

    from stallpoint.models.convergence.time_to_target import MAX_MINUTES_RATIO, RunsToTarget, seconds_to_target

    columns = [[getattr(one, name) or np.nan for one in points] for name in ("workers", "batch", "needed", "seconds")]
    task = points[0].runs[0].task if table.needed == "samples" else ""
    workers, batches, samples, seconds = np.array(columns, float)
    runs = RunsToTarget(workers, batches, samples, seconds, task)
    words, asks = [], list(found.ask)
    predicted: list[dict[str, Any]] = []
    asked = options.at or (NEXT_COUNT * curve.counts[-1],)
    for count in asked:
        batch = options.at_batch or runs.extrapolated_batch(count)
        low, middle, high = np.quantile(seconds_to_target(runs, count, batch), [0.05, 0.5, 0.95]) / 60
        with_batch = "" if np.isnan(batch) else f" with a mini-batch of {number(batch)}"
        if high > MAX_MINUTES_RATIO * low:
            words.append(
                f"{count:,}{with_batch}: not predicted, {number(low)} to {number(high)} min is too wide an interval"
            )
            nearest = curve.counts[-1] if count > curve.counts[-1] else curve.counts[0]
            asks.append(f"a run on {round(math.sqrt(nearest * count)):,} {table.counted}: it would tell")
            continue
        words.append(f"{count:,}{with_batch}: {number(middle)} min ({number(low)} to {number(high)})")
        predicted.append({"workers": count, "predicted": middle, "low": low, "high": high})
    fields = {}
    if options.at and predicted:
        one = predicted[-1]
        fields = _minutes(one["predicted"], one["low"], one["high"])
    return replace(
        found, beyond="; ".join(words), ask=tuple(dict.fromkeys(asks)), points=(*found.points, *predicted), **fields
    )
