"""Training data: whether workers are kept busy, where a storage saturates, and when staging or packing pays off.

*Accelerator utilisation*: the accelerators' computing time over the training time, as in MLPerf Storage (MLCommons,
benchmark rules v2.0, section 3). The benchmark replaces computing by a pause. Here computing is the iteration without
its wait for data.

*Saturation*: the number of concurrent readers at which doubling the readers stops paying.

*Break-even*: Keuper & Pfreundt (2016, section IV) advise to copy a training set to the nodes' own disks (staging), and
to convert it (packing). Each takes time once, and shortens the wait for data in each epoch. It breaks even after
time / (wait before - wait after) epochs; both waits are those of one epoch.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from stallpoint.base.measured import Measured, Parts, Point, trained
from stallpoint.base.stall import Stall, Verdict
from stallpoint.base.statistics import (
    REPLICATES,
    Ensemble,
    bootstrap,
    columns,
    estimate,
    generator,
    groups,
    unknown_ensemble,
)
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.terms.data import ConcurrentReads
from stallpoint.records.tables import BREAK_EVEN, FEEDING, SATURATION
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.workers import counts, curves_of, placement_at

BUSY_SHARE = 0.9
"""Accelerator utilisation above which a worker counts as busy: table 1 of the rules requires this for ResNet-50."""


def feeding(fitted: FittedStudy) -> Iterator[dict[str, object]]:
    """Yield the rows of the feeding table: every placement of every curve."""
    readers = {path: cell.readers if cell.prefetch else 1 for path, cell in trained(fitted.tidy["runs"]).items()}
    for curve in fitted.training_curves:
        readers_of_worker = readers[curve.points[curve.base].cells[0]]
        for placement in curve.known.counts:
            point, predicted_point = curve.at(placement), curve.predicted.get(placement)
            unknown = unknown_ensemble()
            single_reader_seconds = readers_of_worker * predicted_point.reading if predicted_point else unknown
            busy_seconds = point.parts.iteration_time - point.parts.data_wait
            held_out_point = curve.held_out.get(placement, predicted_point)
            yield {
                **point.point.labels("worker_batch"),
                "basis": curve.basis(placement),
                **columns("utilisation", utilisation(point.parts)),
                **columns("predicted_utilisation", utilisation(held_out_point.parts) if held_out_point else unknown),
                "readers": readers_of_worker,
                **columns("read_time", single_reader_seconds),
                **columns("busy_time", busy_seconds),
                **columns("readers_needed", single_reader_seconds / busy_seconds),
            }


def utilisation(parts: Parts) -> Ensemble:
    """Return the share of an iteration in which workers do not wait for data; NaN if unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 - parts.data_wait / parts.iteration_time


MIN_VISITS = 2
"""Visits to a placement needed for a verdict: one visit shows no scatter between visits."""


def saturation(fitted: FittedStudy) -> list[dict[str, object]]:
    """Return the rows of the saturation table, one for each storage and each number of workers on a node.

    A storage saturates where doubling its readers raises their total rate by less than `threshold`. There is
    no verdict if a placement was visited only once.
    """
    asked = fitted.asked
    return [
        row
        for reading in fitted.reading.concurrent_reads()
        for row in _saturation_rows(reading, asked.nodes, asked.threshold, asked.available.get(reading.hardware, 0))
    ]


def _saturation_rows(
    reading: ConcurrentReads, nodes: Collection[int], threshold: float, max_nodes: int
) -> Iterator[dict[str, object]]:
    for per_node, placements in curves_of(reading.visits).items():
        measured = [n * workers for n, workers in placements]
        single_visits = [n * workers for n, workers in placements if reading.visits[n, workers] < MIN_VISITS]
        ranks = sorted({*counts(nodes, per_node), *measured})
        rates = {n: n / reading.slowdown(placement_at(n, per_node)) for n in ranks}
        stall = Stall.of({n: np.log(rate[1:]) for n, rate in rates.items()}, threshold)
        verdict, verdict_ranks = (Verdict.UNDECIDED, 0) if single_visits else stall.verdict
        ends = (stall.columns[f"stall_ranks{end}"] for end in ("", "_low", "_high"))
        yield {
            "hardware": reading.hardware,
            "storage": reading.storage,
            "readers": reading.readers,
            "workers_per_node": per_node,
            **dict(zip(("saturation_ranks", "saturation_ranks_low", "saturation_ranks_high"), ends, strict=True)),
            "reached": stall.reached,
            "verdict": {Verdict.STALLS: "saturates", Verdict.SCALES: "keeps pace"}.get(verdict, verdict),
            "verdict_ranks": verdict_ranks,
            "deciding": _deciders(verdict, single_visits or stall.crucial_counts, max(*measured, max_nodes * per_node)),
            "largest_measured": max(measured),
            "largest_considered": max(ranks),
        }


def _deciders(verdict: Verdict, ranks: Sequence[int], largest: int) -> str:
    """Return in words what has to be measured to decide; empty if decided. No visit has more than `largest` workers."""
    if verdict != Verdict.UNDECIDED:
        return ""
    here, beyond = [n for n in ranks if n <= largest], [n for n in ranks if n > largest]
    visits = [f"more visits to {', '.join(map(str, here))} workers"] if here else []
    larger_entry_words = [f"a hardware entry of {beyond[0]} workers"] if beyond else []
    return " and ".join(visits + larger_entry_words) or "a number of workers and its double"


class BreakEven(StrEnum):
    """Whether staging or packing saves time in each epoch."""

    PAYS = "pays"
    NEVER = "never pays"
    UNDECIDED = "undecided"


STAGING, PACKING = "staging", "packing"


@dataclass(frozen=True)
class _Remedy:
    """A one-time change of a storage's data set: staging or packing."""

    name: str
    samples: int
    seconds: Ensemble
    source: str = ""
    """Path of the packed data set."""

    def is_between(self, before: TrainCell, after: TrainCell) -> bool:
        """Return whether this remedy turns the data that `before` reads into the data that `after` reads."""
        if before.stage_to:
            return False
        if self.name == STAGING:
            here, there = ((one.storage_path, one.storage_format) for one in (before, after))
            return bool(after.stage_to) and here == there
        return not after.stage_to and os.path.normpath(before.storage_path) == os.path.normpath(self.source)


def break_even(
    points: Sequence[Measured], runs: pd.DataFrame, staging: pd.DataFrame, conversions: pd.DataFrame, seed: int
) -> list[dict[str, object]]:
    """Return the rows of the break_even table: points with staging or packing, compared with points without.

    Compared points differ only in the storage. `staging` has the seconds of copies by node.
    """
    cells = trained(runs)
    remedies_by_storage: dict[tuple[str, str], list[_Remedy]] = {}
    for placement, rows in groups(staging, ["hardware", "storage"]):
        remedies_by_storage.setdefault(placement, []).append(_staging_remedy(placement, rows, seed))
    for placement, rows in groups(conversions, ["hardware", "storage"]):
        remedies_by_storage.setdefault(placement, []).append(_packing_remedy(rows))
    points_by_training: dict[Point, list[Measured]] = {}
    for one in points:
        points_by_training.setdefault(replace(one.point, storage=""), []).append(one)
    return [
        _break_even_row(remedy, after, before)
        for after in points
        if (remedies := remedies_by_storage.get((after.point.hardware, after.point.storage)))
        for before in points_by_training[replace(after.point, storage="")]
        if after is not before
        for remedy in remedies
        if remedy.is_between(cells[before.cells[0]], cells[after.cells[0]])
    ]


def _staging_remedy(placement: tuple[str, str], rows: pd.DataFrame, seed: int) -> _Remedy:
    rows = rows[rows["job_nodes"] == rows["job_nodes"].max()]
    times = rows.groupby(["cell", "visit"])
    # A job's staging ends when its slowest node has the copy.
    seconds = bootstrap(rows["seconds"], times.ngroup(), generator(seed, "staging", *placement), np.max)
    return _Remedy(STAGING, int(rows["samples"].iloc[-1]), seconds)


def _packing_remedy(rows: pd.DataFrame) -> _Remedy:
    row = rows.iloc[-1]
    return _Remedy(PACKING, int(row["samples"]), np.full(1 + REPLICATES, float(row["seconds"])), str(row["source"]))


def _break_even_row(remedy: _Remedy, measured: Measured, unchanged: Measured) -> dict[str, object]:
    iterations = remedy.samples / measured.point.global_batch
    after, before = (iterations * one.parts.data_wait for one in (measured, unchanged))
    gain = before - after
    verdict = break_even_verdict(gain)
    epochs = remedy.seconds / gain if verdict == BreakEven.PAYS else unknown_ensemble()
    return {
        **measured.point.labels(),
        "remedy": remedy.name,
        "before": unchanged.point.storage,
        **columns("seconds", remedy.seconds),
        **columns("wait_before", before),
        **columns("wait_after", after),
        "verdict": verdict,
        **columns("epochs", np.where(epochs > 0, epochs, np.inf) if verdict == BreakEven.PAYS else epochs),
    }


def break_even_verdict(gain: Ensemble) -> BreakEven:
    """Return whether a remedy pays; `gain` is the wait that it saves in an epoch, s, negative if the wait grows."""
    _, low, high = estimate(gain)
    return BreakEven.PAYS if low > 0 else BreakEven.NEVER if high < 0 else BreakEven.UNDECIDED


QUESTIONS = (
    Question(FEEDING, feeding),
    Question(SATURATION, saturation),
    Question(
        BREAK_EVEN,
        lambda fitted: break_even(
            fitted.measured, fitted.tidy["runs"], fitted.tidy["staging"], fitted.tidy["conversions"], fitted.asked.seed
        ),
    ),
)
