"""How well more workers were predicted from fewer."""

from __future__ import annotations

from stallpoint.models.answers import accuracy
from stallpoint.report.charts import Tables
from stallpoint.report.html import Section, paragraph, table

FILE = "models/validation.parquet"


def validation(tables: Tables) -> Section:
    """Errors of the predictions from fewer workers, beside published ones."""
    rows = tables.get("validation")
    if rows is None or rows.empty:
        text = paragraph("No training on more workers than the fewest two counts was measured.")
    else:
        known = ", ".join(sorted(set(rows["calibration"])))
        words = f"Predicted with the training on {known} workers known, and nothing of the training on more."
        lines = accuracy.rows(rows)
        about = [{} if network == accuracy.EVERY else {"network": network} for network, *_ in lines]
        text = paragraph(" ".join([words, accuracy.repeatability(rows), f"{accuracy.PUBLISHED}."]))
        text += table(accuracy.HEAD, lines, about, file=FILE)
    return Section("validation-table", "Validation", text)
