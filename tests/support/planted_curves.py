"""Scaling curves as questions read them, with planted rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stallpoint.base.measured import SERIES
from stallpoint.base.section import TableRow
from stallpoint.base.statistics import Estimate
from stallpoint.questions.study_tables import CurveRows, MeasuredCount
from stallpoint.questions.study_words import probabilities_in_words


def at(nodes: int, speedup: float) -> MeasuredCount:
    """A measured point that is known to ± 6 %; one node trains 10 samples/s."""
    ends = Estimate(speedup, 0.94 * speedup, 1.06 * speedup)
    over_one = ends if nodes > 1 else Estimate(speedup, speedup, speedup)
    return MeasuredCount(nodes, nodes, ends.inverse(1.0), ends.times(10.0), over_one, over_one.times(1 / nodes))


def spread(name: str, found: Estimate) -> dict[str, float]:
    """An estimate as three columns."""
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def curve(
    verdict: str = "scales", ranks: int = 2, *, measured: Sequence[MeasuredCount] | None = None,
    measured_stall: Mapping[int, float] | None = None, known_stall: Mapping[int, float] | None = None,
    stall_ranks: Estimate | None = None, causes: Sequence[Mapping[str, Any]] = (),
    remedies: Sequence[Mapping[str, Any]] = (), next_cells: Sequence[Mapping[str, Any]] = (),
    choices: Sequence[TableRow] = (), availability: Sequence[TableRow] = (), **changes: Any,
) -> CurveRows:  # fmt: skip
    """A curve that was measured on 1 and 2 nodes."""
    row = TableRow({
        "network": "alexnet", "hardware": "cpu", "storage": "jpeg", "scaling": "strong", "sync": "wfbp", "prefetch": 1,
        "batch": 64, "workers_per_node": 1, "verdict": verdict, "verdict_ranks": ranks, "note": "", "withheld": "",
        "placed": "", "one_machine": False, "reached": False, "basis": "measured", "deciding_time": float("nan"),
        "measured_speedup_ranks": 2,
        "largest_measured": 2, "largest_considered": 2, **spread("stall_ranks", stall_ranks or Estimate(2, 2, 2)),
        **spread("measured_speedup", at(2, 1.8).speedup), **changes,
    })  # fmt: skip
    points = [at(1, 1.0), at(2, 1.8)] if measured is None else measured
    stall = [
        TableRow(basis=basis, ranks=n, probability=probability)
        for basis, found in (("measured", measured_stall), ("known", known_stall))
        for n, probability in (found or {}).items()
    ]
    tables = {
        "predictions": list(map(_prediction, points)), "causes": list(map(TableRow, causes)),
        "remedies": [TableRow(one, rank_in_curve=place) for place, one in enumerate(remedies, start=1)],
        "next_cells": list(map(TableRow, next_cells)), "stall_probabilities": stall,
        "choices": list(choices), "availability": list(availability),
    }  # fmt: skip
    key = tuple(row[name] for name in SERIES)
    return CurveRows(row, lambda table: {key: tables[table]})


def _prediction(point: MeasuredCount) -> TableRow:
    return TableRow({
        "nodes": point.nodes, "ranks": point.ranks, "global_batch": point.rate.value * point.seconds.value,
        **spread("measured_iteration", point.seconds), **spread("measured_speedup", point.speedup),
        **spread("measured_efficiency", point.efficiency),
    })  # fmt: skip


def causes(verdict: str, *, basis: str = "measured", **lost: float) -> list[dict[str, Any]]:
    """Rows of causes on 2 workers by what each takes of an iteration, s: within a factor of two, and 0 may be none."""
    return [
        {"ranks": 2, "basis": basis, "verdict": verdict, "cause": cause, "share": 0.1,
         **spread("lost", Estimate(seconds, seconds / 2 if seconds else -0.1, 2 * seconds if seconds else 0.1))}
        for cause, seconds in lost.items()
    ]  # fmt: skip


def remedy(words: str, low: float, value: float, *, high: float = 2.0, **changes: Any) -> TableRow:
    """A remedy whose interval begins at `low`."""
    nan = float("nan")
    return TableRow({
        "remedy": words, "changes": words, "also": "", "ranks": 2, **spread("gain", Estimate(value, low, high)),
        "upper_bound": False, **spread("memory", Estimate(nan, nan, nan)), "fits": "yes",
        "verdict": "helps" if low > 1 else "undecided", "cell": "", "node_hours": nan, **changes,
    })  # fmt: skip


def stalls(found: Mapping[int, float]) -> str:
    """The words for probabilities of a stall."""
    return probabilities_in_words(curve(measured_stall=found))
