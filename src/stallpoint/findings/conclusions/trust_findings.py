"""Trust in the conclusions: how visits ended, what was disturbed, excluded, imported or could not run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

import pandas as pd

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import count
from stallpoint.findings.finding import Finding
from stallpoint.strategies.presets import Preset, preset_from
from stallpoint.text import listed


def equal_presets(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return ``hardware`` and ``presets``, two or more, for each group measured there; `runs` is the tidy table."""
    measured = runs[(runs["kind"] == "train") & (runs["source"] == "")]
    found: dict[tuple[str, Preset], set[str]] = {}
    for settings in map(json.loads, measured["settings"]):
        if settings["scaling"] != "compute":
            does = preset_from(settings["preset"]).on(settings["device"])
            found.setdefault((settings["hardware"], does), set()).add(settings["sync"])
    groups = sorted((hardware, sorted(presets)) for (hardware, _), presets in found.items() if len(presets) > 1)
    for hardware, presets in groups:
        yield {"hardware": hardware, "presets": presets}


def equal_presets_in_words(entry: Mapping[str, Any]) -> str:
    """Return ``cpu: intelcaffe, mxnet and wfbp do the same; any difference between them is chance``."""
    return f"{entry['hardware']}: {listed(entry['presets'])} do the same; any difference between them is chance"


MACHINE, TIMING, SURE, CELLS = "environment", "timing", "sure", "cells"
"""Kinds of warnings: the parts of the report with more on them."""
WARNING, NOTE = "warning", "note"


def warnings(conclusions: Conclusions) -> Iterator[Finding]:
    """Return what qualifies the answers."""
    for entry in conclusions["instrumentation"]:
        if entry["warnings"]:
            yield _warning(TIMING, f"{entry['network']} on {entry['hardware']}", "; ".join(entry["warnings"]))
    for hardware in mistrusted(conclusions):
        yield _warning(SURE, hardware, "verdicts are withheld, as cells that do the same differ")
    for entry in conclusions["slow_nodes"]:
        yield _warning(SURE, entry["hardware"], slow_node_in_words(entry))
    for entry in conclusions["left_out"]:
        yield _warning(SURE, "", undecodable_in_words(entry))
    for entry in conclusions["ended"]:
        if entry["ended"] in ("budget", "max visits"):
            yield _warning(SURE, entry["hardware"], "the precision was not reached")
    if disturbed := sum(entry["iterations"] for entry in conclusions["disturbances"]):
        kept = sum(entry["kept"] for entry in conclusions["disturbances"])
        counts = f"{kept} of them count for want of others" if kept else "excluded"
        words = f"{count(disturbed, 'iteration')} disturbed, {counts}"
        yield _warning(SURE, "", words, WARNING if kept else NOTE)
    if imported := imported_cell_count(conclusions):
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
"""Reasons why visits ended, in words."""


def ended_in_words(entry: Mapping[str, Any]) -> str:
    """Return how the visits to cells of a hardware entry ended."""
    cells, visits = count(entry["cells"], "cell"), count(entry["visits"], "visit")
    return f"{cells}, {visits}: {ENDED.get(entry['ended'], entry['ended'])}"


def disturbed_in_words(entry: Mapping[str, Any]) -> str:
    """Return how iterations disturbed for one reason were treated."""
    kept, left_out = entry["kept"], entry["iterations"] - entry["kept"]
    if not kept:
        return "excluded"
    return f"{left_out} excluded, {kept} kept for want of others" if left_out else "kept for want of others"


def slow_node_in_words(entry: Mapping[str, Any]) -> str:
    """Return a node that holds up the others."""
    return f"{entry['node']} computes {entry['ratio']:.2g} times as long as the other nodes, which wait for it"


def undecodable_in_words(entry: Mapping[str, Any]) -> str:
    """Return the samples missing from the data of a storage."""
    verb = "is" if entry["samples"] == 1 else "are"
    return f"storage {entry['storage']}: {count(entry['samples'], 'sample')} that cannot be decoded {verb} excluded"


def trust_lines(conclusions: Mapping[str, Any]) -> Iterator[str]:
    """Return how visits ended and how narrow intervals are, what was disturbed, and whether equal cells agree."""
    for entry in conclusions["ended"]:
        yield f"{entry['hardware']}: {ended_in_words(entry)}"
    for hardware in dict.fromkeys(curve["hardware"] for curve in conclusions["curves"]):
        points = [at for curve in conclusions["curves"] if curve["hardware"] == hardware for at in curve["measured"]]
        if widths := [at["half_width"] for at in points if at["half_width"] is not None]:
            several = f" in the median, ± {100 * max(widths):.2g} % at most" if len(widths) > 1 else ""
            what = "speedups" if len(widths) > 1 else "speedup"
            yield f"{hardware}: measured {what} known to ± {100 * median(widths):.2g} %{several}"
    for entry in conclusions["disturbances"]:
        iterations = count(entry["iterations"], "iteration")
        yield f"{entry['hardware']}: {iterations} disturbed by {entry['reason']}, {disturbed_in_words(entry)}"
    for entry in conclusions["slow_nodes"]:
        visits = count(entry["visits"], "visit")
        yield f"{entry['hardware']}: {slow_node_in_words(entry)} (sentinel, median of {visits})"
    yield from map(undecodable_in_words, conclusions["left_out"])
    if controls := conclusions["controls"]:
        agree = sum(bool(entry["agrees"]) for entry in controls)
        verb = "agrees" if len(controls) == 1 else "agree"
        yield f"A/A controls: {agree} of {count(len(controls), 'pair')} of cells that do the same {verb}"
    yield from map(equal_presets_in_words, conclusions["alike"])
    for hardware in mistrusted(conclusions):
        yield f"{hardware}: verdicts are withheld, as cells that do the same differ"


def mistrusted(conclusions: Mapping[str, Any]) -> list[str]:
    """Return hardware entries whose equal cells differ: their verdicts are not to be trusted."""
    return list(dict.fromkeys(entry["hardware"] for entry in conclusions["controls"] if not entry["agrees"]))


def imported_cell_count(conclusions: Mapping[str, Any]) -> int:
    """Return the number of imported cells of hardware entries that also measured; the machine's line has the others."""
    wholly = [f"hardware~{at['hardware']}/" for at in conclusions["machines"] if at["imported"]]
    return sum(not any(part in row["cell"] for part in wholly) for row in conclusions["imported"])


def instrumentation_warnings(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each network and hardware whose layer times are not to be trusted as they are."""
    return [
        f"warning: {entry['network']} on {entry['hardware']}: {'; '.join(entry['warnings'])}"
        for entry in entries
        if entry["warnings"]
    ]
