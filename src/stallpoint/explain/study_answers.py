"""Answers of a study or its archive: its own findings, in the lines that rates have; nothing is computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stallpoint.base.stall import Verdict
from stallpoint.findings.conclusions.answer_findings import (
    BEYOND,
    GAIN,
    HELP,
    LIKELY,
    LOSS,
    MACHINE,
    RATE,
    TRUST,
    VERDICT,
)
from stallpoint.findings.conclusions.external_findings import EXTERNAL
from stallpoint.findings.finding import Cause, Finding
from stallpoint.inputs.study_results import StudyResults


def answers(study: StudyResults) -> Iterator[Finding]:
    """Yield an answer for each of the study's, then one that holds what it warns of."""
    subjects: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in study.findings:
        subjects.setdefault(row["subject"], {})[row["kind"]] = row
    answered = {subject: rows for subject, rows in subjects.items() if VERDICT in rows}
    for subject, rows in answered.items():
        yield _answer(study.name, subject, rows)
    external = [row for row in study.findings if row["kind"] == EXTERNAL]
    for row in external:
        shown = {name: row[name] for name in ("verdict", "value", "low", "high", "unit", "evidence", "fits", "beyond")}
        to_mend = bool(row.get("to_mend"))  # conclusions of before dips had none
        yield Finding("rates", f"{study.name}, {row['subject']}", row["words"], **shown, to_mend=to_mend)
    warned = tuple(row["words"] for row in study.findings if row["subject"] not in answered and row not in external)
    if not answered and not external:
        yield Finding(
            "study", f"study {study.name}", "no network was trained on several worker counts", Verdict.UNDECIDED,
            ask=("cells of one network on two worker counts or more",), notes=warned,
        )  # fmt: skip
    elif warned:
        yield Finding("study", f"study {study.name}", "to be read with", notes=warned)


def _answer(study: str, subject: str, rows: Mapping[str, Mapping[str, Any]]) -> Finding:
    def words(kind: str) -> str:
        return str(rows[kind]["words"]) if kind in rows else ""

    verdict, beyond = rows[VERDICT], rows.get(BEYOND)
    notes = (f"would help: {words(HELP)}" if words(HELP) else "", words(MACHINE))
    return Finding(
        "rates",
        f"{study}, {subject}",
        words(VERDICT),
        verdict["verdict"],
        causes=(Cause("largest_loss", words(LOSS)),) if words(LOSS) else (),
        evidence=", ".join(filter(None, (verdict["evidence"], words(TRUST)))),
        fits="; ".join(filter(None, (words(RATE), words(GAIN), words(LIKELY)))),
        beyond=f"{beyond['label']}: {beyond['words']}" if beyond else "",
        ask=tuple(verdict["ask"]),
        notes=tuple(filter(None, notes)),
    )
