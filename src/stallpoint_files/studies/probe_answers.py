"""Answers to records of a probe: the summary box that a script prints at its end, from the recorded files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.measure.probe import probe_box, probe_words


def answers(folder: Path) -> Iterator[Finding]:
    """Yield the finding on the script recorded last: where its iterations' time went, and what delayed them."""
    found = probe_box.last_diagnosis(folder)
    if found is None:
        yield Finding(
            "probe", f"probe in {folder}", "too few iterations were recorded by rank 0", Verdict.UNDECIDED,
            evidence="recorded",
            ask=(f"a run of {probe_box.MIN_ITERATIONS + 1} iterations or more",),
        )  # fmt: skip
        return
    texts = probe_words.texts(found)
    part = found.main
    share = found.share
    cause = Cause(part.phase if part else found.phase, texts["why"], None if share is None else round(share, 3))
    yield Finding(
        "probe",
        f"probe in {folder}, {probe_words.headline(found)}",
        texts["verdict"],
        evidence="recorded",
        causes=(cause,) if found.can_improve else (),
        fits=texts["shares"] if found.can_improve else f"{texts['why']}; {texts['shares']}",
        beyond="; ".join(texts[label] for label in ("also", "doubling") if label in texts),
        ask=(texts["next"],),
    )
