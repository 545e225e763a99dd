"""How sure the conclusions are: how visits ended, what was disturbed, left out, imported or could not run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from stallpoint.findings.conclusions.alike import alike_in_words
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import (
    count,
)
from stallpoint.findings.finding import Finding

MACHINE, TIMING, SURE, CELLS = "environment", "timing", "sure", "cells"
"""Kinds of warnings: the parts of the report that say more."""
WARNING, NOTE = "warning", "note"


def warnings(conclusions: Conclusions) -> Iterator[Finding]:
    """What a reader has to know before trusting the answers."""
    for entry in conclusions["instrumentation"]:
        if entry["warnings"]:
            yield _warning(TIMING, f"{entry['network']} on {entry['hardware']}", "; ".join(entry["warnings"]))
    for hardware in mistrusted(conclusions):
        yield _warning(SURE, hardware, "verdicts are withheld, as cells that do the same differ")
    for entry in conclusions["slow_nodes"]:
        yield _warning(SURE, entry["hardware"], slow_node_in_words(entry))
    for entry in conclusions["left_out"]:
        yield _warning(SURE, "", left_out_in_words(entry))
    for entry in conclusions["ended"]:
        if entry["ended"] in ("budget", "max visits"):
            yield _warning(SURE, entry["hardware"], "the precision was not reached")
    if disturbed := sum(entry["iterations"] for entry in conclusions["disturbances"]):
        kept = sum(entry["kept"] for entry in conclusions["disturbances"])
        counts = f"{kept} of them count for want of others" if kept else "left out"
        words = f"{count(disturbed, 'iteration')} disturbed, {counts}"
        yield _warning(SURE, "", words, WARNING if kept else NOTE)
    if imported := imported_beside(conclusions):
        yield _warning(CELLS, "", f"{count(imported, 'cell')} imported, not measured here", NOTE)
    if failed := conclusions["failed"]:
        yield _warning(CELLS, "", f"{count(len(failed), 'cell')} could not run", NOTE)


def _warning(kind: str, subject: str, words: str, verdict: str = WARNING) -> Finding:
    return Finding(kind, subject, f"{subject}: {words}" if subject else words, verdict)


ENDED = {
    "precision": "precision reached",
    "budget": "budget used up",
    "visits": "fixed number of visits reached",
    "max visits": "no cell is to be visited more often",
}
"""Why there was no further visit, as readers are told."""


def ended_in_words(entry: Mapping[str, Any]) -> str:
    """How the visits to cells of a hardware entry ended."""
    cells, visits = count(entry["cells"], "cell"), count(entry["visits"], "visit")
    return f"{cells}, {visits}: {ENDED.get(entry['ended'], entry['ended'])}"


def disturbed_in_words(entry: Mapping[str, Any]) -> str:
    """What became of iterations that were disturbed for one reason."""
    kept, left_out = entry["kept"], entry["iterations"] - entry["kept"]
    if not kept:
        return "left out"
    return f"{left_out} left out, {kept} kept for want of others" if left_out else "kept for want of others"


def slow_node_in_words(entry: Mapping[str, Any]) -> str:
    """A node that holds up the others."""
    return f"{entry['node']} computes {entry['ratio']:.2g} times as long as the other nodes, which wait for it"


def left_out_in_words(entry: Mapping[str, Any]) -> str:
    """What the data of a storage lacks."""
    verb = "is" if entry["samples"] == 1 else "are"
    return f"storage {entry['storage']}: {count(entry['samples'], 'sample')} that cannot be decoded {verb} left out"


def trust_lines(conclusions: Mapping[str, Any]) -> Iterator[str]:
    """How sure that is: how visits ended and how narrow intervals are, what was disturbed, and whether cells agree."""
    for entry in conclusions["ended"]:
        yield f"{entry['hardware']}: {ended_in_words(entry)}"
    for hardware in dict.fromkeys(curve["hardware"] for curve in conclusions["curves"]):
        if widths := half_widths(curve for curve in conclusions["curves"] if curve["hardware"] == hardware):
            several = f" in the median, ± {100 * max(widths):.2g} % at most" if len(widths) > 1 else ""
            what = "speedups" if len(widths) > 1 else "speedup"
            yield f"{hardware}: measured {what} known to ± {100 * median(widths):.2g} %{several}"
    for entry in conclusions["disturbances"]:
        iterations = count(entry["iterations"], "iteration")
        yield f"{entry['hardware']}: {iterations} disturbed by {entry['reason']}, {disturbed_in_words(entry)}"
    for entry in conclusions["slow_nodes"]:
        visits = count(entry["visits"], "visit")
        yield f"{entry['hardware']}: {slow_node_in_words(entry)} (sentinel, median of {visits})"
    yield from map(left_out_in_words, conclusions["left_out"])
    if controls := conclusions["controls"]:
        agree = sum(bool(entry["agrees"]) for entry in controls)
        verb = "agrees" if len(controls) == 1 else "agree"
        yield f"A/A controls: {agree} of {count(len(controls), 'pair')} of cells that do the same {verb}"
    yield from map(alike_in_words, conclusions["alike"])
    for hardware in mistrusted(conclusions):
        yield f"{hardware}: verdicts are withheld, as cells that do the same differ"


def half_widths(curves: Iterable[Mapping[str, Any]]) -> list[float]:
    """Half-widths of the intervals of all measured speedups, over their values."""
    return [at["half_width"] for curve in curves for at in curve["measured"] if at["half_width"] is not None]


def mistrusted(conclusions: Mapping[str, Any]) -> list[str]:
    """Hardware entries on which cells that do the same differ: no verdict of theirs is to be trusted."""
    return list(dict.fromkeys(entry["hardware"] for entry in conclusions["controls"] if not entry["agrees"]))


def imported_beside(conclusions: Mapping[str, Any]) -> int:
    """Imported cells of hardware entries that also measured here; of the others the machine says it."""
    wholly = [f"hardware~{at['hardware']}/" for at in conclusions["machines"] if at["imported"]]
    return sum(not any(part in row["cell"] for part in wholly) for row in conclusions["imported"])


def instrumentation_warnings(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each network and hardware whose layer times are not to be trusted as they are."""
    return [
        f"warning: {entry['network']} on {entry['hardware']}: {'; '.join(entry['warnings'])}"
        for entry in entries
        if entry["warnings"]
    ]
