"""Where does each curve stall, and which cell would narrow that down most?"""

from __future__ import annotations

import math

from stallpoint.base.section import Absence, Finding, Section, TableRow, TextTable, about
from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import INTERVAL, SAME_WITHIN
from stallpoint.questions.study_tables import CurveRows, StudyTables
from stallpoint.questions.study_words import (
    at_count,
    chance_in_words,
    deciding_in_words,
    percent,
    probabilities_in_words,
    probability_in_words,
    series,
    stall_interval,
    training,
    verdict_in_short,
    why_no_verdict,
    workers_in_words,
)
from stallpoint.text import interval, number


def section(study: StudyTables) -> Section:
    """Return the section: a row for each curve, and the cell to measure next, which says most for its node-hours."""
    if not study.curves:
        reason = "No scaling curve was measured."
        return Section("curves", "Every curve", "Answer", reason, absence=Absence.NOT_MEASURED)
    grid = TextTable.of({
        "curve": lambda row: f"{training(row)}, {series(row)}",
        "as measured": verdict_in_words, "stalls at n": stall_in_words,
        "dominant cause there (or at the largest n)": "dominant_cause",
        "communication reaches compute at n": crossing_in_words,
        "worth paying for up to n": cost_efficient_in_words,
        "best speedup": lambda row: interval(row.estimate("best_speedup")),
        "waiting for data": _wait_in_words, "measure next": next_in_words,
    }, study.curves, file="models/stalling.parquet")  # fmt: skip
    return Section("curves", "Every curve", "Answer", findings=tuple(_next_cell(study.curves)), grids=(grid,))


def verdict_in_words(curve: CurveRows) -> str:
    """Return a curve's measured verdict with its reasons: speedup and probabilities, or what was not measured."""
    is_decided = curve["verdict"] != Verdict.WITHHELD and curve["verdict_ranks"]
    return f"{verdict_in_short(curve)}{', ' if is_decided else ': '}{_grounds_in_words(curve)}"


def _grounds_in_words(curve: CurveRows) -> str:
    ranks = int(curve["verdict_ranks"])
    if curve.unanswered:
        return curve.unanswered
    if not ranks:
        return why_no_verdict(int(curve["largest_measured"]))
    measured = {at.ranks: at.speedup for at in curve.measured[1:]}
    # The speedup on twice the verdict's number of workers shows whether doubling the workers gains enough.
    if curve["verdict"] == Verdict.UNDECIDED or ranks not in measured:
        ranks *= 2
    if ranks not in measured:
        ranks = int(curve["measured_speedup_ranks"])
        measured = {ranks: speedup} if (speedup := curve.estimate("measured_speedup")) else {}
    withheld = f"; beyond {at_count(curve, int(curve['largest_measured']))} withheld, as {curve.limitation}"
    speedup_words = f"speedup {interval(measured.get(ranks))} on {at_count(curve, ranks)}{_certainty(curve)}"
    return speedup_words + (withheld if curve.limitation else "")


def _certainty(curve: CurveRows) -> str:
    """Return how certain a verdict is. If it is undecided, return the probabilities and what would decide it."""
    stall = curve.stall("measured")
    if not stall:
        return ""
    if curve["verdict"] != Verdict.UNDECIDED:
        remark = f" ({curve['placed']})" if curve["placed"] else ""
        return f", {chance_in_words(max(stall.values()))} sure{remark}"
    return f"; {probabilities_in_words(curve)}; {deciding_in_words(curve)} would decide"


def stall_in_words(curve: CurveRows) -> str:
    """Return where a curve stalls, with the probability if it is low. If this is not known, return why."""
    if curve.unanswered and not curve["reached"]:
        return f"not known: {curve.unanswered}"
    no_stall = curve.no_stall
    is_likely = max(no_stall, 1 - no_stall) >= INTERVAL
    undecided_words = "" if is_likely else "undecided: "
    if curve["reached"]:
        basis = "measured" if curve["basis"] == "measured" else "predicted, not measured"
        chance_words = "" if is_likely else f" ({probability_in_words(1 - no_stall)})"
        return f"{undecided_words}{stall_interval(curve)}, {basis}{chance_words}"
    largest, measured, lowest = (
        int(curve[name]) for name in ("largest_considered", "largest_measured", "stall_ranks_low")
    )
    lower_end = f", interval from {lowest}" if lowest < largest else ""
    remarks = [] if is_likely else [probability_in_words(no_stall)]
    if largest > measured:
        remarks.append(f"beyond {measured} predicted, not measured" if measured else "predicted")
    suffix = f" ({'; '.join(remarks)})" if remarks else ""
    return f"{undecided_words}not reached up to {at_count(curve, largest)}{lower_end}{suffix}"


def crossing_in_words(curve: CurveRows) -> str:
    """Return the number of workers at which communication takes as long as compute, in words."""
    crossing, after = curve.estimate("crossing_ranks"), float(curve["crossing_after"])
    if crossing is None:
        return "not known"
    if math.isinf(crossing.value):
        return f"not up to {at_count(curve, int(curve['largest_considered']))}"
    suffix = "" if math.isnan(after) else f", interpolated from {at_count(curve, round(after))} on"
    return f"{interval(crossing)}{suffix}"


def cost_efficient_in_words(curve: CurveRows) -> str:
    """Return the largest cost-efficient number of workers, with ``or more`` if no larger number was considered."""
    ranks = curve.estimate("cost_efficient_ranks")
    if ranks is None or curve.unanswered:
        return "not known"
    return f"{interval(ranks)}{' or more' if ranks.value == curve['largest_considered'] else ''}"


def _wait_in_words(curve: CurveRows) -> str:
    largest = max(curve.of("data_share"), key=lambda row: int(row["ranks"]), default=None)
    ranks = int(largest["ranks"] if largest else curve["largest_considered"])
    return f"{percent(largest, 'share') if largest else 'not known'} at {at_count(curve, ranks)}"


def _best_cell(curve: CurveRows) -> TableRow | None:
    """Return the cell that narrows a curve's stalling point most per node-hour; None if no cell could be judged."""
    return min(curve.of("next_cells"), key=lambda row: int(row["rank_in_curve"]), default=None)


def next_in_words(curve: CurveRows) -> str:
    """Return the next cell to measure in words, with its expected benefit and its cost."""
    cell = _best_cell(curve)
    if cell is None:
        return f"not known: {curve.unanswered or 'no doubling of the workers is known'}"
    known, then = (2.0 ** float(cell[name]) for name in ("width", "expected_width"))
    factor, expected = number(known, 2), number(then, 2)
    if known <= then * (1 + SAME_WITHIN):
        if Verdict.UNDECIDED in (curve["verdict"], curve.predicted[0]):
            return _beyond_this_hardware(curve)
        is_exact = known <= 1 + SAME_WITHIN
        return (
            f"no cell would tell more; the stalling point is known{'' if is_exact else f' within a factor of {factor}'}"
        )
    measurement = {
        "train": f"training on {workers_in_words(curve, int(cell['ranks']))}",
        "collectives": f"the collectives on {workers_in_words(curve, int(cell['ranks']))}",
        "compute": f"compute at b = {cell['worker_batch']} on one worker",
    }[cell["kind"]]
    cost = f"{number(cell['node_hours'], 2)} node-hours"
    return f"{measurement} ({cost}): stalling point within a factor of {expected}, not {factor}"


def _beyond_this_hardware(curve: CurveRows) -> str:
    """Return the measurement that would decide an undecided curve, if the study's own cells cannot."""
    measured = max(curve["largest_measured"], 1)
    ranks = min((n for n in curve.deciding_ranks if n > measured), default=2 * measured)
    if curve["verdict"] == Verdict.UNDECIDED and curve.deciding_ranks and ranks not in curve.deciding_ranks:
        return deciding_in_words(curve)
    remark = "" if curve["verdict"] == Verdict.UNDECIDED else " whether they gain"
    return f"training on {workers_in_words(curve, ranks)} would decide{remark}, on a hardware entry that has them"


def _next_cell(curves: list[CurveRows]) -> list[Finding]:
    """Return the finding on the next cell: of all curves, the one that narrows a stalling point most per node-hour."""
    interval_factors = {}
    for place, curve in enumerate(curves):
        cell = _best_cell(curve)
        if cell and cell["narrowing"] > 0:
            interval_factors[place] = (cell["width"] - cell["expected_width"]) / cell["node_hours"]
    if not interval_factors:
        return []
    best = curves[max(interval_factors, key=lambda place: interval_factors[place])]
    subject = f"{training(best)}, {best['sync']}"
    return [Finding("next", subject, f"measure next: {next_in_words(best)}", about=about(best))]
