"""What was not measured: imported cells, cells that could not run, combinations that the study excludes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stallpoint.base.section import NOTE, Absence, Finding, Section, TableRow, TextTable, about
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import count

TITLE = "Cells that were not measured"


def section(study: StudyTables) -> Section:
    """Return the section: imported cells, failed cells, and excluded combinations by reason with an example each."""
    runs = study.rows("runs")
    imported_cells = [_cell(row) for row in runs if row["source"]]
    failed = [_cell(row) for row in runs if row["status"] == "failed"]
    grids = (
        TextTable.of({"cell": "cell", "files": "source"}, imported_cells, "Imported",
                "Where files say what layers took, and not the whole iteration, that is predicted from them."),
        TextTable.of({"cell": "cell", "reason": "reason"}, failed, "Could not run"),
        _excluded_table(study),
    )  # fmt: skip
    shown = tuple(grid for grid in grids if grid.rows)
    if not shown:
        reason = "None: every cell of the study ran, and nothing was excluded."
        return Section("cells", TITLE, "Data", reason, absence=Absence.NONE_FOUND)
    return Section("cells", TITLE, "Data", findings=tuple(_findings(study, imported_cells, failed)), grids=shown)


def _cell(row: TableRow) -> TableRow:
    """Return the row with further columns: the axes in the path of its cell."""
    axes = dict(part.split("~", 1) for part in str(row["cell"]).split("/") if "~" in part)
    return TableRow({**row, **about(TableRow(axes))})


def _findings(study: StudyTables, imported_cells: list[TableRow], failed_cells: list[TableRow]) -> Iterator[Finding]:
    known_hardware = {at.hardware for at in study.machines if at.imported}  # findings on machines name this hardware
    if some := sum(row["hardware"] not in known_hardware for row in imported_cells):
        yield Finding("cells", "", f"{count(some, 'cell')} imported, not measured here", NOTE, first=True)
    if failed_cells:
        yield Finding("cells", "", f"{count(len(failed_cells), 'cell')} could not run", NOTE, first=True)


def _excluded_table(study: StudyTables) -> TextTable:
    examples = {entry.reason: entry.axes for entry in reversed(study.excluded)}
    counts = Counter(entry.reason for entry in study.excluded)
    rows = tuple(
        (reason, str(many), ", ".join(f"{axis} {value}" for axis, value in examples[reason].items()))
        for reason, many in counts.items()
    )
    return TextTable(("reason", "combinations", "such as"), rows, "Excluded from the matrix")
