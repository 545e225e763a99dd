"""A study of 10,000 training cells, from raw records to its report: seconds and memory of each step, size of the page.

Made-up records of many networks that differ by name alone. Run as a program it is one step:
``many_cells.py collect|fit|report FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

NETWORKS = (24, 240)
"""Each has 42 training cells and 13 others."""
MEGABYTES = 5.0
STEPS = ("collect", "fit", "report")


def write(folder: Path, networks: int) -> int:
    """Write the cells' folders below ``raw``; returns how many training cells there are."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / part) for part in ("unit", "support")]
    import synthetic

    tidy = synthetic.study(nodes=(1, 2, 4, 16), repeats=1, iterations=3, visits=2)
    of_networks = tidy["runs"].query("kind in ('train', 'sgemm')")["cell"]
    shared = tidy["runs"].query("kind not in ('train', 'sgemm')")["cell"]
    for cell in shared:
        synthetic.write_raw(tidy, cell, folder / "raw" / cell)
    for cell in of_networks:
        mine = {name: rows[rows["cell"] == cell] for name, rows in tidy.items()}
        for copy in range(networks):
            named = {name: _renamed(rows, f"network-{copy:03}") for name, rows in mine.items()}
            path = cell.replace("alexnet", f"network-{copy:03}")
            synthetic.write_raw(named, path, folder / "raw" / path)
    return int((tidy["runs"]["kind"] == "train").sum()) * networks


def _renamed(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    rows = rows.assign(cell=rows["cell"].str.replace("alexnet", name))
    if "network" in rows:
        rows = rows.assign(network=name)
    return rows.assign(settings=rows["settings"].str.replace("alexnet", name)) if "settings" in rows else rows


def collect(folder: Path) -> None:
    """As the rule collect does."""
    from stallpoint.records.tables import RUNS, TIDY_TABLES
    from stallpoint.study.collect import collect_all

    cells = sorted(file.parent for file in (folder / "raw").rglob(f"{RUNS.name}.parquet"))
    collect_all(cells, {table.name: folder / f"{table.name}.parquet" for table in TIDY_TABLES})


def fit(folder: Path) -> None:
    """As the rule fit does."""
    import scale

    from stallpoint.records.parquet import write
    from stallpoint.records.tables import MODEL_TABLES

    fitted = scale.fit(folder)
    for table in MODEL_TABLES:
        write(table, fitted[table.name], folder / f"{table.name}.parquet")


def report(folder: Path) -> None:
    """As the rules conclude and report_page do."""
    from stallpoint.models.scaling.extrapolation import OWN_RATES, extrapolated
    from stallpoint.questions.all_questions import sections
    from stallpoint.questions.study_tables import StudyTables
    from stallpoint.records.parquet import read_frames
    from stallpoint.records.tables import (
        COLLECTIVES,
        CONTENTION,
        ENVIRONMENTS,
        INSTRUMENTATION,
        MODEL_TABLES,
        RUNS,
        SGEMM,
        VISITS,
    )
    from stallpoint.report.report import write_report

    names = (*MODEL_TABLES, RUNS, ENVIRONMENTS, INSTRUMENTATION, COLLECTIVES, CONTENTION, VISITS, SGEMM)
    tables = read_frames(names, {table.name: folder / f"{table.name}.parquet" for table in names})
    tables |= extrapolated({OWN_RATES: tables["rates"]})
    write_report(list(sections(StudyTables(tables))), tables, folder / "report.html")


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print."""
    from paired import of, rounds

    timings, lines = [], []
    for networks in NETWORKS:
        folder = scratch / str(networks)
        cells = write(folder, networks)
        for step in STEPS:
            name = f"{step} {cells:,} training cells"
            timings += rounds(name, {step: [sys.executable, __file__, step, str(folder)]}, 1)
            (timing,) = of(timings[-1:], step)
            lines.append(f"  {name:<40}{timing.seconds:8.1f} s {timing.peak_bytes / 1e6:8.0f} MB")
        size = (folder / "report.html").stat().st_size / 1e6
        lines.append(f"  {'its page':<40}{size:8.1f} MB, wanted <= {MEGABYTES:g}")
    return timings, lines


if __name__ == "__main__":
    step, folder = sys.argv[1:]
    {"collect": collect, "fit": fit, "report": report}[step](Path(folder))
