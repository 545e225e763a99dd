"""Answers of what probes recorded: the box that a script prints at its end, from its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.measure.probe import probe_box


def answers(folder: Path) -> Iterator[Finding]:
    """Yield what the script that was recorded last spent its iterations on, and what held them up."""
    found = probe_box.found_last(folder)
    if found is None:
        yield Finding(
            "probe", f"probe in {folder}", "too few iterations were recorded by rank 0", Verdict.UNDECIDED,
            evidence="recorded",
            ask=(f"a run of {probe_box.FEWEST + 1} iterations or more",),
        )  # fmt: skip
        return
    texts = probe_box.texts(found)
    cause = Cause(found.phase, texts["why"], round(found.here / found.seconds, 3) if found.seconds else None)
    yield Finding(
        "probe",
        f"probe in {folder}, {probe_box.headed(found)}",
        texts["verdict"],
        evidence="recorded",
        causes=(cause,) if found.mendable else (),
        fits=texts["shares"] if found.mendable else f"{texts['why']}; {texts['shares']}",
        beyond=texts.get("doubling", ""),
        ask=(texts["next"],),
    )
