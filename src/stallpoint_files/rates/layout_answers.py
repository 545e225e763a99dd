"""Answers on the fastest layout on a number of workers: predicted from all measured layouts, and withheld if a
rehearsal of the same choice within the table fails.

Candidates are the table's rows without a rate, or else all layouts with measured degrees and micro-batches and the
usual batch, on `--workers`, or on twice the largest measured count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from stallpoint.base.section import Finding
from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import Reals
from stallpoint.text import interval, number
from stallpoint_files.file_options import Options
from stallpoint_files.rates import layout_tables
from stallpoint_files.rates.layout_tables import LayoutRow, LayoutTable
from stallpoint_files.rates.layouts import (
    DISTURBED,
    FEWEST_LAYOUTS,
    FURTHEST,
    NEAR,
    RIGHT,
    SHORTLIST,
    LayoutModel,
    Layouts,
    candidates,
    choose,
    fit_memory,
    rehearse,
)

FEWEST_MEMORIES = 6
"""Minimum number of measured memories for predictions of memory."""
_SHOWN = 5
"""Number of listed layouts: one of them was within `NEAR` of the best in 13 of 18 cases of the H100 table."""


def answers(table: LayoutTable, options: Options) -> Iterator[Finding]:
    """Yield a finding for each series and each requested number of workers."""
    for name, rows in layout_tables.series(table):
        measured = [row for row in rows if row.rate]
        asked = [row for row in rows if row.asked]
        if len(measured) < FEWEST_LAYOUTS:
            few = f"{len(measured)} layouts are measured, and at least {FEWEST_LAYOUTS} tell which is fastest elsewhere"
            ask = f"rates of {FEWEST_LAYOUTS} layouts on two worker counts, each degree with two values or more"
            yield Finding(
                "layout", name, few, Verdict.UNDECIDED, evidence="measured", ask=(ask,), notes=tuple(table.notes)
            )
            continue
        yield from _Series(name, table, measured, asked, options).answers()


class _Series:
    """The layouts of one training."""

    def __init__(
        self, name: str, table: LayoutTable, measured: list[LayoutRow], asked: list[LayoutRow], options: Options
    ) -> None:
        self.name, self.table, self.rows, self.options = name, table, measured, options
        self.layouts, self.asked = Layouts.of(measured), Layouts.of(asked)
        self.seconds = self.layouts.batch / np.array([row.rate for row in measured])
        self.model = LayoutModel.fit(self.layouts, self.seconds)
        known = [index for index, row in enumerate(measured) if row.memory]
        self.memory: Reals | None = None
        self.limit = np.inf
        if len(known) >= FEWEST_MEMORIES:
            gigabytes = np.array([measured[index].memory for index in known], float)
            self.memory, self.limit = fit_memory(self.layouts.at(np.array(known)), gigabytes), float(gigabytes.max())

    def answers(self) -> Iterator[Finding]:
        """Yield a finding for each requested number of workers."""
        largest = int(self.layouts.workers.max())
        counts = self.options.workers or tuple(map(int, np.unique(self.asked.workers))) or (2 * largest,)
        for workers in counts:
            yield self._answer(workers, workers / largest)

    def _answer(self, workers: int, ratio: float) -> Finding:
        largest = int(self.layouts.workers.max())
        found = Finding(
            "layout", f"{self.name}, {workers} workers", "", Verdict.UNDECIDED, unit=self.table.unit,
            notes=self._notes(), evidence=f"predicted from {len(self.rows)} layouts on up to {largest} workers",
        )  # fmt: skip
        if ratio > FURTHEST:
            far = f"not predicted: more than {FURTHEST} times the largest measured count"
            return replace(found, words=far, ask=(f"rates on {workers // FURTHEST} workers",))
        given = self.asked.at(self.asked.workers == workers)
        among = given if len(given) else candidates(self.layouts, workers)
        among = among.at(self.model.identifiable(among) & (self._memory(among) <= self.limit))
        among = among if len(given) else among.at(~_needless_zero(among))
        ask = f"rates of {FEWEST_LAYOUTS} layouts on fewer workers, and of as many on some more"
        if not len(among):
            return replace(found, words="no layout of the measured degrees fits", ask=(ask,))
        ratio = max(ratio, 2.0)
        rehearsal = rehearse(self.layouts, self.seconds, ratio, len(among))
        if not len(rehearsal.errors):
            words = f"not predicted: no measured count is {number(ratio)} times another, to rehearse the choice"
            return replace(found, words=words, ask=(ask,))
        choice = choose(self.model, among)
        rates, gigabytes = among.batch / self.model.seconds(among), self._memory(among)
        listed = [f"{_named(among, at)}: {number(rates[at])}" for at in choice.order[:_SHOWN]]
        if self.memory is not None:
            listed = [f"{one}, {number(gigabytes[at], 2)} GB" for one, at in zip(listed, choice.order, strict=False)]
        best = float(rates[choice.best])
        low, high = (best * factor for factor in rehearsal.factors())
        ends = interval((best, low, high))
        right = number(100 * rehearsal.right_if(rehearsal.limit(choice)), 2)
        rehearsed = (
            f"of choices like this one among measured layouts {right} % were within {number(100 * NEAR)} % of the best"
        )
        found = replace(found, fits="; ".join(listed))
        if len(among) > SHORTLIST or not rehearsal.allows(choice):
            asked = "; ".join(_named(among, at) for at in choice.order[:_SHOWN])
            beyond = f"{rehearsed}; {number(100 * RIGHT)} % are asked for"
            if len(among) > SHORTLIST:
                beyond = f"one of {len(among)} candidates is not told from the next ones, but one of {SHORTLIST} may be"
            return replace(
                found,
                words=f"which layout is fastest cannot be told; try these {min(_SHOWN, len(among))} first: {asked}",
                beyond=beyond,
                ask=("their rates, which decide",),
            )
        return replace(
            found, words=f"fastest is {_named(among, choice.best)}: {ends} {self.table.unit}", verdict="", value=best,
            low=low, high=high, evidence=f"{found.evidence}; {rehearsed}",
        )  # fmt: skip

    def _memory(self, among: Layouts) -> Reals:
        """Return the memory of a worker, GB; 0 if unknown."""
        return np.zeros(len(among)) if self.memory is None else among.memory_terms @ self.memory

    def _notes(self) -> tuple[str, ...]:
        slow = [row for row, steady in zip(self.rows, self.model.undisturbed, strict=True) if not steady]
        if not slow:
            return tuple(self.table.notes)
        lines = ", ".join(str(row.line) for row in slow[:3]) + (", ..." if len(slow) > 3 else "")
        return (
            f"{len(slow)} of {len(self.rows)} runs took over {DISTURBED} times what their layout explains "
            f"(lines {lines}): disturbed, and not fitted",
            *self.table.notes,
        )


def _needless_zero(layouts: Layouts) -> npt.NDArray[np.bool_]:
    """Return whether a layout has ZeRO while the same layout without is also a candidate, so that memory suffices."""
    columns = [getattr(layouts, one.name) for one in fields(layouts) if one.name != "zero"]
    others = list(zip(*columns, strict=True))
    without = {other for other, zero in zip(others, layouts.zero, strict=True) if not zero}
    return np.array([bool(zero) and other in without for other, zero in zip(others, layouts.zero, strict=True)])


def _named(layouts: Layouts, at: int) -> str:
    """Return a layout in words, such as ``dp 32, tp 8, ZeRO 1, micro-batch 8 x 1``, without degrees of 1."""
    degrees = (("dp", layouts.data), ("pp", layouts.pipeline), ("tp", layouts.tensor), ("ep", layouts.expert))
    named = [f"{name} {int(of[at])}" for name, of in degrees if of[at] > 1] or ["one worker"]
    zero = [f"ZeRO {int(layouts.zero[at])}"] if layouts.zero[at] else []
    batch, steps = (number(float(of[at])) for of in (layouts.micro_batch, layouts.accumulation))
    return ", ".join([*named, *zero, f"micro-batch {batch} x {steps}"])
