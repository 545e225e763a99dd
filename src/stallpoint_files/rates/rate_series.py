"""Series of a table's rows: the curve of each, in every possible reading of its rates.

Rates may be per worker or totals; times of an iteration may be of weak or strong scaling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stallpoint.base.curve import Curve, rates_from
from stallpoint_files.file_options import Options
from stallpoint_files.rates.rate_rows import ALL, EACH, STRONG, WEAK, RateRow, Rates

FASTER_STEPS = 1.2
"""Speedup of an iteration with more workers that only strong scaling reaches, never weak scaling."""
CLEAR = 0.05
"""Maximum relative difference of single rates that noise may explain."""
Runs = Sequence[tuple[RateRow, float]]
"""Rows, each with its total rate."""
ASKED = {
    ALL: "say whether these rates are of all workers (--rates all) or of each (--rates each)",
    WEAK: "say whether each worker's mini-batch stays (--scaling weak) or one is split (--scaling strong), or give "
    "samples_per_second",
}
"""Question that decides between two readings, by the first of them."""


@dataclass(frozen=True)
class RateReading:
    """Rates of a series in one reading."""

    curve: Curve
    runs: Runs


@dataclass(frozen=True)
class RateSeries:
    """One series of a table, with its possible readings."""

    name: str
    rows: Sequence[RateRow]
    counted: str
    readings: Mapping[str, RateReading] = field(default_factory=dict)
    """Readings by the option's value that selects them: ``all``, ``each``, ``weak``, ``strong``."""

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
                for of, one in _readings(_on_fewest_nodes(measured), rates, options).items()
            }
            yield RateSeries(name, measured, counted, readings)
        else:
            yield RateSeries(name, rows, counted)


def _completed(row: RateRow, options: Options, *, nodes: bool) -> RateRow:
    """Return a row completed by the options; with `nodes`, its count of nodes becomes one of workers."""
    workers = round(row.workers * (options.workers_per_node or 1)) if nodes else row.workers
    split = row.global_batch / workers if row.global_batch else None
    return replace(
        row,
        workers=workers,
        workers_per_node=row.workers_per_node or options.workers_per_node,
        batch_per_worker=row.batch_per_worker or split or options.batch,
    )


def _on_fewest_nodes(rows: Sequence[RateRow]) -> list[RateRow]:
    """Return the rows on the fewest nodes for each number of workers; rows on more nodes are not repeats of them."""
    packed: defaultdict[int, float] = defaultdict(float)
    for row in rows:
        packed[row.workers] = max(packed[row.workers], row.workers_per_node or 0.0)
    return [row for row in rows if not row.workers_per_node or row.workers_per_node == packed[row.workers]]


def _readings(rows: Sequence[RateRow], rates: Rates, options: Options) -> dict[str, RateReading]:
    def read(rate: Callable[[RateRow], float], unit: str = "samples/s") -> RateReading:
        return _reading([(row, float(rate(row))) for row in rows], unit, options)

    of, scaling = options.of or rates.of, options.scaling
    if rates.seconds == "epoch":
        return {ALL: read(lambda row: 3600 / (row.value or 1), rates.unit)}
    if rates.seconds == "iteration":
        if None not in {row.batch_per_worker for row in rows}:
            return {ALL: read(lambda row: row.workers * (row.batch_per_worker or 1) / (row.value or 1))}
        weak = read(lambda row: row.workers / (row.value or 1), "mini-batches/s")
        strong = read(lambda row: 1 / (row.value or 1), "iterations/s")
        first, *_, last = [*weak.curve.counts, weak.curve.counts[-1]]
        # Shorter steps on more workers are taken as strong scaling, unless the speedup exceeds the workers' ratio.
        shorter = first < last and weak.curve.gain(first, last) > 2 * FASTER_STEPS
        possible = strong.curve.rate(last) * first <= FASTER_STEPS * strong.curve.rate(first) * last
        scaling = scaling or (STRONG if shorter and possible else "")
        return {name: one for name, one in {WEAK: weak, STRONG: strong}.items() if scaling in ("", name)}
    every = read(lambda row: row.value or 1, rates.unit)
    each = read(lambda row: (row.value or 1) * row.workers, rates.unit)
    if of:
        return {of: each if of == EACH else every}
    values = [every.curve.rate(count) for count in every.curve.counts]
    flat = len(values) > 1 and max(values) <= (1 + CLEAR) * values[0]
    return {ALL: every, EACH: each} if flat else {ALL: every}


def _reading(runs: Runs, unit: str, options: Options) -> RateReading:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for row, rate in runs:
        found[row.workers] += (
            [rate / (1 + row.deviation), rate, rate * (1 + row.deviation)] if row.deviation else [rate]
        )
    nodes = {row.workers_per_node for row, _ in runs}
    per_node = max((one for one in nodes if one), default=None) if None not in nodes else None
    repeated = len(runs) > len(found) or any(row.deviation for row, _ in runs)
    return RateReading(Curve(rates_from(found), per_node, options.threshold, unit, repeated=repeated), runs)
