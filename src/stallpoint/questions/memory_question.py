"""Does training fit into the memory of its workers, and up to which mini-batch?"""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.base.section import Absence, Finding, Section, TableRow, TextTable, about, interval_of
from stallpoint.models.answers.fits import Fits
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import count, series, training
from stallpoint.text import interval, number

TITLE = "Memory"
TEXT = (
    "The largest mini-batch b of a worker that fits into its memory: measured between what was trained and what ran "
    "out of memory, or predicted by fixed + slope · b. Placements are those of every curve, run or not: by an isolated "
    "worker, and what the preset divides and adds."
)


def section(study: StudyTables) -> Section:
    """Return the section: how many placements fit, which may not fit, and the largest mini-batch of each training."""
    fits = [row for row in study.rows("fits") if row["fits"] != Fits.UNKNOWN]
    largest = study.rows("largest_batch")
    if not fits and not largest:
        return Section("memory-fit", TITLE, "Why", "No peak of memory was measured.", absence=Absence.NOT_MEASURED)
    doubtful_rows = list(_doubtful_rows(fits))
    grids = (_placements(doubtful_rows), _largest(largest))
    return Section("memory-fit", TITLE, "Why", TEXT, tuple(_fit(fits)), tuple(grid for grid in grids if grid.rows))


def _fit(rows: list[TableRow]) -> Iterator[Finding]:
    for network, hardware in dict.fromkeys((row["network"], row["hardware"]) for row in rows):
        group = [row for row in rows if (row["network"], row["hardware"]) == (network, hardware)]
        fitting_count = sum(row["fits"] == Fits.YES for row in group)
        placements = count(len(group), "placement")
        words = f"{fitting_count} of {placements} fit" if fitting_count < len(group) else f"all of {placements} fit"
        yield Finding(
            "memory", training(group[0]), words, evidence="predicted", about=about(TableRow(group[0], storage=""))
        )


def _doubtful_rows(rows: list[TableRow]) -> Iterator[TableRow]:
    """Yield the placements that may not fit, grouped by curve and verdict, with the least memory of each group."""
    groups: dict[tuple[object, ...], list[TableRow]] = {}
    for row in rows:
        if row["fits"] != Fits.YES:
            key = (row["network"], row["hardware"], series(row), row["memory"], row["available"], row["fits"])
            groups.setdefault(key, []).append(row)
    for group in groups.values():
        sizes = {name: ", ".join(str(size) for size in sorted({row[name] for row in group}))
                 for name in ("ranks", "worker_batch")}  # fmt: skip
        known = [found for row in group if (found := row.estimate("predicted"))]
        yield TableRow({**group[0], **sizes, "least": interval(min(known, default=None), 2**-30)})


def _placements(rows: list[TableRow]) -> TextTable:
    return TextTable.of({
        "network": "network", "hardware": "hardware", "curve": series, "memory": "memory",
        "GiB available": lambda row: number(row["available"] / 2**30), "fits": "fits", "n": "ranks",
        "b": "worker_batch", "GiB of a worker": "least",
    }, rows, "Placements that may not fit", file="models/fits.parquet")  # fmt: skip


def _largest(rows: list[TableRow]) -> TextTable:
    return TextTable.of({
        "network": "network", "hardware": "hardware", "workers a node": "workers_per_node", "preset": "sync",
        "shards": "shards", "prefetch": "prefetch", "memory": "memory",
        "GiB available": lambda row: number(row["available"] / 2**30) if row["available"] == row["available"] else "",
        "GiB fixed": interval_of("fixed", 2**-30, unknown=""),
        "MiB a sample": interval_of("slope", 2**-20, unknown=""),
        "largest b": interval_of("largest_batch", unknown=""),
        "basis": lambda row: f"{row['basis']}: {row['note']}" if row["note"] else str(row["basis"]),
    }, rows, "Largest mini-batch", file="models/largest_batch.parquet")  # fmt: skip
