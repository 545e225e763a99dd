"""Every scaling curve with all its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import (
    at_count,
    crossing_in_words,
    next_in_words,
    stall_in_words,
    verdict_in_words,
    worthwhile_in_words,
)
from stallpoint.report.charts.labels import AXES, label
from stallpoint.report.html import Section, paragraph, table
from stallpoint.text import interval

HEAD = [
    "curve", "as measured", "stalls at n", "why there (or at the largest n)", "communication reaches compute at n",
    "worth paying for up to n", "best speedup", "waiting for data", "measure next",
]  # fmt: skip


def curves(conclusions: Conclusions) -> Section:
    """One row for each curve."""
    found = conclusions["curves"]
    if not found:
        return Section("curves", "Every curve", paragraph("None."))
    names = label(pd.DataFrame(found), list(AXES))
    rows = [[name, *_row(curve)] for name, curve in zip(names, found, strict=True)]
    return Section("curves", "Every curve", table(HEAD, rows, found))


def _row(curve: Mapping[str, Any]) -> list[str]:
    return [
        verdict_in_words(curve), stall_in_words(curve), curve["dominant_cause"], crossing_in_words(curve),
        worthwhile_in_words(curve), interval(curve["best_speedup"]), _wait(curve), next_in_words(curve),
    ]  # fmt: skip


def _wait(curve: Mapping[str, Any]) -> str:
    wait = curve["data_wait"]
    return f"{interval(wait['share'], 100, ' %')} at {at_count(curve, wait['ranks'])}"
