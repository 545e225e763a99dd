"""The scaling part of a proposal for compute time: a table and a paragraph, with predicted values set apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallpoint.base.section import TableRow
from stallpoint.base.stall import VERDICTS, Verdict
from stallpoint.base.statistics import Estimate
from stallpoint.models.answers.costs import EPOCH
from stallpoint.questions.answers import leading
from stallpoint.questions.study_tables import CurveRows, StudyTables
from stallpoint.text import listed, number

MIN_EFFICIENCY = 0.5
"""Smallest efficiency at which nodes are requested, unless the study sets ``models.efficiency``."""
UNKNOWN = Estimate(np.nan)
HEAD = ("nodes", "workers", "throughput", "speedup", "efficiency", "time [h]", "node-hours", "kWh", "price", "basis")


@dataclass(frozen=True)
class SpentResources:
    """Resources that the proposed training takes; NaN if unknown."""

    hours: Estimate = UNKNOWN
    node_hours: Estimate = UNKNOWN
    energy: Estimate = UNKNOWN
    """kWh."""
    price: Estimate = UNKNOWN
    energy_from: str = ""
    """Source of the nodes' power."""


@dataclass(frozen=True)
class Rate:
    """Throughput at one number of workers, and what the proposed training costs there."""

    workers: int
    nodes: float
    """Number of nodes; NaN if the workers of a node are unknown."""
    rate: Estimate
    speedup: Estimate
    basis: str
    """``measured`` or ``predicted``."""
    spent: SpentResources


@dataclass(frozen=True)
class ScalingRates:
    """A scaling curve for a proposal."""

    subject: str
    scaling: str
    """``strong``, ``weak``, or empty if unknown."""
    unit: str
    rates: Sequence[Rate]
    """Rates by rising number of workers; speedups refer to the first."""
    verdict: tuple[str, int]
    """`Curve.verdict` of the measured rates."""
    amount: float | None = None
    """Length of the proposed training in the unit of throughput: samples, tokens."""
    min_efficiency: float = MIN_EFFICIENCY

    def efficiency(self, at: Rate) -> Estimate:
        """Return the speedup divided by the ratio of workers."""
        return at.speedup.times(self.rates[0].workers / at.workers)


def rows(curve: ScalingRates) -> Iterator[list[str]]:
    """Yield the cells of the table with heading `HEAD`: a row for each number of nodes."""
    for at in curve.rates:
        quantities = (at.spent.hours, at.spent.node_hours, at.spent.energy, at.spent.price)
        yield [
            _known(at.nodes), str(at.workers), f"{at.rate} {curve.unit}", str(at.speedup),
            _percent(curve.efficiency(at)), *(str(one) if one.value == one.value else "–" for one in quantities),
            at.basis,
        ]  # fmt: skip


def _known(value: float) -> str:
    return number(value) if value == value else "–"


def _percent(share: Estimate) -> str:
    return f"{share.times(100)} %"


def requested_rate(curve: ScalingRates) -> Rate:
    """Return the last measured placement before the first that stalls or is not efficient enough."""
    best, (verdict, count) = curve.rates[0], curve.verdict
    for at in curve.rates:
        if at.basis == "measured":
            is_stalled = verdict == Verdict.STALLS and at.workers > count
            if is_stalled or curve.efficiency(at).value < curve.min_efficiency:
                break
            best = at
    return best


def paragraph(curve: ScalingRates) -> str:
    """Return the paragraph that reviewers ask for: what was measured, how it scales, what is requested and why."""
    measured = [at for at in curve.rates if at.basis == "measured"]
    first, last, best = measured[0], measured[-1], requested_rate(curve)
    scaling = f"{curve.scaling.capitalize()} scaling" if curve.scaling else "Scaling"
    sentences = [f"{scaling} of {curve.subject} was measured on {_counts(measured)}"]
    if len(measured) > 1:
        sentences.append(
            f"Throughput rises from {first.rate} {curve.unit} on {_place(first)} to {last.rate} {curve.unit} on "
            f"{_place(last)}, {last.speedup} times as much, at an efficiency of {_percent(curve.efficiency(last))}"
        )
        sentences.append(_verdict_in_words(*curve.verdict))
    if predicted := [at for at in curve.rates if at.basis != "measured"]:
        largest = predicted[-1]
        sentences.append(
            f"On {_place(largest)} {largest.rate} {curve.unit} are predicted, an efficiency of "
            f"{_percent(curve.efficiency(largest))}; this was not measured"
        )
    efficiency = f"efficiency is {_percent(curve.efficiency(best))}"
    if curve.amount:
        spent, counted = best.spent, curve.unit.split("/")[0]
        by = f" (by {spent.energy_from})" if spent.energy_from else ""
        known = (
            (f"{spent.node_hours} node-hours", spent.node_hours),
            (f"{spent.energy} kWh{by}", spent.energy),
            (f"a price of {spent.price}", spent.price),
        )
        costs = listed([words for words, of in known if of.value == of.value])
        sentences.append(
            f"We ask for {_place(best)}, where {efficiency}: training on {number(curve.amount)} {counted} takes "
            f"{spent.hours} h there{f', which is {costs}' if costs else ''}"
        )
    else:
        sentences.append(f"We ask for {_place(best)}, where {efficiency}")
    if not np.isnan(last.rate.low):
        sentences.append("Intervals in parentheses cover 90 %")
    return ". ".join(sentences) + "."


def _verdict_in_words(verdict: str, count: int) -> str:
    if verdict in (Verdict.STALLS, Verdict.SCALES):
        return f"It {VERDICTS[Verdict(verdict)]} {count} workers"
    return f"Whether more than {count} workers are faster is undecided"


def _place(at: Rate) -> str:
    workers = f"{at.workers} worker{'s' if at.workers > 1 else ''}"
    if at.nodes != at.nodes:
        return workers
    nodes = f"{number(at.nodes)} node{'s' if at.nodes != 1 else ''}"
    return nodes if at.nodes == at.workers else f"{nodes} ({workers})"


def _counts(rates: Sequence[Rate]) -> str:
    """Return ``1, 2 and 4 nodes``, or with several workers per node, ``1, 2, 4 and 8 workers, up to 2 nodes``."""
    if all(at.nodes == at.workers for at in rates):
        return listed([number(at.nodes) for at in rates[:-1]] + [_place(rates[-1])])
    workers = f"{listed([str(at.workers) for at in rates])} workers"
    nodes = rates[-1].nodes
    return workers if nodes != nodes else f"{workers}, up to {number(nodes)} node{'s' if nodes != 1 else ''}"


def proposed_curves(study: StudyTables, samples: float, epochs: float, min_efficiency: float) -> Iterator[ScalingRates]:
    """Yield the fastest measured curve of each network, hardware and scaling, with its costs from the table
    ``costs``. The proposed training takes `epochs` epochs, or `samples` samples in all."""
    rivals: dict[tuple[str, str, str], list[CurveRows]] = {}
    for curve in study.curves:
        if curve.measured:
            rivals.setdefault((curve["network"], curve["hardware"], curve["scaling"]), []).append(curve)
    for (network, hardware, scaling), curves in sorted(rivals.items()):
        best = leading(curves)
        spent = {(row["ranks"], row["basis"]): _totals(row, epochs) for row in best.of("costs") if row["goal"] == EPOCH}
        known = sorted(best.of("predictions"), key=lambda row: int(row["ranks"]))
        rates = [rate for row in known if (rate := _rate(row, spent))]
        subject = f"{network} on {hardware} ({best['sync']}, {best['storage']})"
        verdict = str(best["verdict"]), int(best["verdict_ranks"])
        yield ScalingRates(subject, scaling, "samples/s", rates, verdict, samples, min_efficiency)


def _totals(row: TableRow, epochs: float) -> SpentResources:
    hours, node_hours, energy, price = (
        (row.estimate(name) or UNKNOWN).times(factor)
        for name, factor in (("time", epochs / 3600), ("node_hours", epochs), ("energy", epochs), ("price", epochs))
    )
    return SpentResources(hours, node_hours, energy, price, row["energy_from"])


def _rate(row: TableRow, resources: Mapping[tuple[int, str], SpentResources]) -> Rate | None:
    basis = "measured" if row.estimate("measured_iteration") else "predicted"
    seconds, speedup = row.estimate(f"{basis}_iteration"), row.estimate(f"{basis}_speedup")
    if not seconds or not speedup or not seconds.value > 0:
        return None
    ranks, rate = int(row["ranks"]), seconds.inverse(row["global_batch"])
    return Rate(ranks, float(row["nodes"]), rate, speedup, basis, resources.get((ranks, basis), SpentResources()))
