"""Answers of a study or its archive: the study's own findings, unchanged; nothing is recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stallpoint.base.section import Finding, first
from stallpoint.base.stall import Verdict
from stallpoint_files.studies.study_results import StudyResults


def answers(study: StudyResults) -> Iterator[Finding]:
    """Yield the study's main findings, then one finding with its warnings."""
    found = list(first(study.sections))
    warned = tuple(one.sentence for one in found if one.qualifies)
    answering = [one for one in found if not one.qualifies]
    yield from (replace(one, subject=f"{study.name}, {one.subject}") for one in answering)
    if not answering:
        yield Finding(
            "study", f"study {study.name}", "no network was trained on several worker counts", Verdict.UNDECIDED,
            ask=("cells of one network on two worker counts or more",), notes=warned,
        )  # fmt: skip
    elif warned:
        yield Finding("study", f"study {study.name}", "to be read with", notes=warned)
