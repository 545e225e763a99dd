"""What does communication cost an iteration, and how much of it does the backward pass hide?"""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.base.section import Absence, Finding, Section, TableRow, TextTable, about, interval_of
from stallpoint.base.statistics import Estimate
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import at_count, series, training
from stallpoint.text import interval

TITLE = "What communication costs"
TEXT = (
    "What an iteration takes beyond the same training without communication, and what the same messages take on idle "
    "workers: the difference is hidden behind the backward pass, or lost where overlapping costs more than it hides."
)


def section(study: StudyTables) -> Section:
    """Return the section: a finding for each curve at its most workers, and a row for each measured point."""
    rows = [row for row in study.rows("hidden_communication") if row["cost"] == row["cost"]]
    if not rows:
        reason = "No training was measured without communication (intervention no-communication)."
        return Section("communication-cost", TITLE, "Why", reason, absence=Absence.NOT_MEASURED)
    grid = TextTable.of({
        "network": training, "curve": series, "at": lambda row: at_count(row, int(row["ranks"])),
        "costs": interval_of("cost", 1e3, " ms"), "isolated messages": interval_of("isolated", 1e3, " ms"),
        "hidden": interval_of("hidden", 1e3, " ms"),
    }, rows, file="models/hidden_communication.parquet")  # fmt: skip
    return Section("communication-cost", TITLE, "Why", TEXT, tuple(_findings(rows)), (grid,))


def _findings(rows: list[TableRow]) -> Iterator[Finding]:
    last: dict[str, TableRow] = {}
    for row in sorted(rows, key=lambda row: int(row["ranks"])):
        last[f"{training(row)}, {series(row)}"] = row
    for subject, row in last.items():
        cost = row.estimate("cost") or Estimate(0.0)
        yield Finding(
            "communication", subject, cost_in_words(row), value=cost.value, low=cost.low, high=cost.high, unit="s",
            evidence="measured", about=about(row),
        )  # fmt: skip


def cost_in_words(row: TableRow) -> str:
    """Return what communication costs at one point, and how much of the isolated messages' time is hidden."""
    text = f"communicating costs {interval(row.estimate('cost'), 1e3, ' ms')} at {at_count(row, int(row['ranks']))}"
    hidden = row.estimate("hidden")
    if hidden is None:  # The messages were not timed in isolation.
        return text
    isolated = interval(row.estimate("isolated"), 1e3, " ms")
    if hidden.value > 0:
        return f"{text}; its isolated messages take {isolated}, of which {interval(hidden, 1e3, ' ms')} are hidden"
    added = Estimate(-hidden.value, -hidden.high, -hidden.low)
    loss = f": training loses {interval(added, 1e3, ' ms')} more" if added.low > 0 else ""
    return f"{text}; its isolated messages take {isolated}, of which nothing is hidden{loss}"
