"""The report of a study with many curves: its size, and how long a browser takes until it can be used."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from statistics import median

import pandas as pd

ROOT = Path(__file__).parents[1]
CURVES, MEGABYTES, SECONDS = 200, 5.0, 2.0


def many(tables: dict[str, pd.DataFrame], copies: int) -> dict[str, pd.DataFrame]:
    """The tables with each network `copies` times, under names of their own."""

    def named(frame: pd.DataFrame, copy: int) -> pd.DataFrame:
        return (
            frame.assign(network=frame["network"] + f"-{copy}") if "network" in frame else frame[: 0 if copy else None]
        )

    return {
        name: pd.concat([named(frame, copy) for copy in range(copies)], ignore_index=True)
        for name, frame in tables.items()
    }


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Figures and lines to print."""
    sys.path.insert(0, str(ROOT / "tests" / "unit"))
    from paired import Figure
    from playwright.sync_api import sync_playwright
    from report_samples import study

    from stallpoint.questions.all_questions import sections
    from stallpoint.questions.study_tables import StudyTables
    from stallpoint.report.report import write_report

    tables = study()
    tables = many(tables, -(-CURVES // len(tables["stalling"])))
    page = scratch / "report.html"
    write_report(list(sections(StudyTables(tables))), tables, page)
    seconds = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(count):
            opened = browser.new_page(viewport={"width": 1280, "height": 800})
            began = time.perf_counter()
            opened.goto(page.as_uri())
            opened.wait_for_selector(".card .chart svg")  # the page scrolls and answers while charts are drawn
            seconds.append(time.perf_counter() - began)
            opened.close()
        browser.close()
    name, size = f"report of {len(tables['stalling'])} curves", page.stat().st_size / 1e6
    figures = [
        Figure(name, "stallpoint", "size [MB]", size, size, size, f"<= {MEGABYTES:g}"),
        Figure(name, "stallpoint", "usable after [s]", median(seconds), min(seconds), max(seconds), f"<= {SECONDS:g}"),
    ]
    return figures, [figure.line() for figure in figures]
