"""Every scaling curve with all its numbers."""

from __future__ import annotations

import pandas as pd

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import CURVE_HEAD, curve_in_words, next_in_words
from stallpoint.report.charts.labels import AXES, label
from stallpoint.report.html import Section, paragraph, table

HEAD = ["curve", *CURVE_HEAD, "measure next"]


def curves(conclusions: Conclusions) -> Section:
    """One row for each curve."""
    found = conclusions["curves"]
    if not found:
        return Section("curves", "Every curve", paragraph("None."))
    names = label(pd.DataFrame(found), list(AXES))
    rows = [[name, *curve_in_words(curve), next_in_words(curve)] for name, curve in zip(names, found, strict=True)]
    return Section("curves", "Every curve", table(HEAD, rows, found))
