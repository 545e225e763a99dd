"""Page for a proposal for compute time: a paragraph, a figure and a table for each curve of rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd

from stallpoint.base.section import Finding
from stallpoint.base.statistics import Estimate, estimate
from stallpoint.errors import InputError
from stallpoint.questions.proposal import HEAD, UNKNOWN, Rate, ScalingRates, SpentResources, paragraph, rows
from stallpoint.report.charts.render import Spec
from stallpoint.report.charts.web_page import grid, page
from stallpoint_files import readers
from stallpoint_files.answer_page import rates_chart
from stallpoint_files.file_options import Options
from stallpoint_files.rates import rate_answers, rate_series
from stallpoint_files.rates.rate_rows import EACH, STRONG, WEAK
from stallpoint_files.rates.rate_series import RateSeries

TITLE = "Scaling and requested compute time"


@dataclass(frozen=True)
class Training:
    """The training for which a proposal requests compute time."""

    amount: float | None = None
    """Amount of training in the unit that throughput counts: samples, tokens."""
    watts: float | None = None
    """Power of a node, W."""
    price: float | None = None
    """Price of a node for an hour."""

    def spent(self, nodes: float, rate: Estimate) -> SpentResources:
        """Return hours, node-hours, energy and price of the training on `nodes` nodes at a rate."""
        hours = rate.inverse((self.amount or math.nan) / 3600)
        node_hours = hours.times(nodes)
        energy = node_hours.times(self.watts / 1000) if self.watts else UNKNOWN
        return SpentResources(hours, node_hours, energy, node_hours.times(self.price) if self.price else UNKNOWN)


def to_html(proposed: Iterable[ScalingRates]) -> str:
    """Return a self-contained page, which opens from disk and loads nothing."""
    return page(TITLE, _parts(proposed))


def _parts(proposed: Iterable[ScalingRates]) -> Iterator[str | Spec]:
    for curve in proposed:
        scaling = f", {curve.scaling} scaling" if curve.scaling else ""
        yield f"<h2>{escape(curve.subject + scaling)}</h2><p>{escape(paragraph(curve))}</p>"
        rates = [{"workers": at.workers, "basis": at.basis, **at.rate._asdict()} for at in curve.rates]
        yield rates_chart(pd.DataFrame(rates), f"throughput [{curve.unit}]", curve.unit)
        yield (
            "<p class='soft'>Points with 90 % intervals, where runs were repeated, are measured; dashed lines with "
            "bands are predicted; the grey line is ideal.</p>"
        )
        yield grid(HEAD, rows(curve))


def curves(names: Sequence[str], options: Options, training: Training) -> Iterator[ScalingRates]:
    """Yield the curve of each series with rates; `InputError` names a file without a clear table of rates."""
    for name in names:
        tables = readers.read(Path(name), options.pattern).get("rates")
        if tables is None:
            raise InputError(f"{name}: a proposal needs a table of rates")
        of_tables = [
            (rates, list(rate_series.series_of(rates, options)), list(rate_answers.answers(rates, options)))
            for rates in tables
        ]
        if none := next((answers for _, every, answers in of_tables if len(answers) < len(every)), None):
            raise InputError(f"{name}: {none[0].words}; {none[0].ask[0]}")
        pairs = ((rates, *pair) for rates, *both in of_tables for pair in zip(*both, strict=True))
        for rates, series, answer in pairs:
            if len(series.readings) > 1:
                raise InputError(f"{name}: {series.name} can be read in two ways; {answer.ask[0]}")
            if series.counted == "nodes" and rates.of == EACH:
                raise InputError(f"{name}: rates are of each worker, counts of nodes; --workers-per-node says the rest")
            if series.readings:
                yield _curve(series, answer, options, training)


def _curve(series: RateSeries, answer: Finding, options: Options, training: Training) -> ScalingRates:
    """Return a series' measured rates, and the rate that laws predict at a larger count."""
    curve = series.first
    per_node = 1.0 if series.counted == "nodes" else curve.per_node or float("nan")

    def at(count: int, rate: Estimate, speedup: Estimate, basis: str) -> Rate:
        nodes = max(count / per_node, 1.0)
        return Rate(count, nodes, rate, speedup, basis, training.spent(nodes, rate))

    rates = [at(count, curve.estimate(count), estimate(curve.speedup(count)), "measured") for count in curve.counts]
    for point in answer.points:
        if point.get("predicted"):
            ends = (point[name] for name in ("predicted", "low", "high"))
            rate = Estimate(*(math.nan if end is None else end for end in ends))
            speedup = rate.times(1 / curve.rate(curve.counts[0]))
            rates.append(at(round(point["workers"] or 0), rate, speedup, "predicted"))
    batches = {row.batch_per_worker for row in series.rows}
    scaling = options.scaling or (WEAK if len(batches) == 1 and None not in batches else "")
    if not scaling and None not in batches:
        totals = {row.workers * (row.batch_per_worker or 0) for row in series.rows}
        scaling = STRONG if len(totals) == 1 else ""
    return ScalingRates(series.name, scaling, curve.unit, rates, curve.verdict, training.amount)
