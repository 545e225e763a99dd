"""Do storages keep workers busy: how fast is each read, where does it saturate, does staging pay?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallpoint.base.frames import records
from stallpoint.base.section import Absence, Finding, Section, TableRow, TextTable, about, interval_of
from stallpoint.base.statistics import Estimate, groups
from stallpoint.models.answers.feeding import BUSY_SHARE
from stallpoint.questions.study_tables import CurveRows, StudyTables
from stallpoint.questions.study_words import at_count, count, percent, series, training
from stallpoint.records.origins import UNCACHED_RATIO, in_words
from stallpoint.study.workers import placement_in_words
from stallpoint.text import interval, number

IMAGENET_BYTES = 150e9
"""Size of ImageNet, bytes (Keuper & Pfreundt, section IV-A)."""
READING = ("hardware", "nodes", "workers_per_node", "order", "cache", "readers")
"""Columns of the table ``storage_rates`` in which compared storages agree."""
FASTEST = "fastest"


def section(study: StudyTables) -> Section:
    """Return the section: a table for each part of the question that has records, and the longest wait for data."""
    rates = rank_storages(study)
    grids = (
        _rates(rates), saturation(study.rows("saturation")),
        _feeding_table(study.curves), break_even(study.rows("break_even")),
    )  # fmt: skip
    shown = tuple(grid for grid in grids if grid.rows)
    if not shown:
        reason = "No storage was read, and no curve was trained."
        return Section("storages", "Training data in numbers", "Why", reason, absence=Absence.NOT_MEASURED)
    findings = (*_longest_wait(study), *_fastest_findings(rates))
    return Section("storages", "Training data in numbers", "Why", findings=findings, grids=shown)


def rank_storages(study: StudyTables) -> list[TableRow]:
    """Return the rows of ``storage_rates``. A ``verdict`` compares each with the fastest row of equal `READING`."""
    found = []
    for _, rows in groups(study.tables["storage_rates"], READING):
        ranked_rows = records(rows.sort_values("samples_per_second", ascending=False))
        for row in ranked_rows:
            is_slower = row["samples_per_second_high"] < ranked_rows[0]["samples_per_second_low"]
            verdict = "slower" if is_slower else "not distinguishable from the fastest"
            found.append(TableRow(row | {"verdict": FASTEST if row is ranked_rows[0] else verdict}))
    return found


def _longest_wait(study: StudyTables) -> Iterator[Finding]:
    """Yield a finding on the curve that waits longest for data at its largest worker count."""
    shares = ((curve, max(rows, key=lambda row: int(row["ranks"])))
              for curve in study.curves if (rows := curve.of("data_share")))  # fmt: skip
    known = [(curve, row) for curve, row in shares if row["share"] == row["share"]]
    if known:
        curve, row = max(known, key=lambda one: float(one[1]["share"]))
        where = at_count(curve, int(row["ranks"]))
        words = f"waiting for data takes {percent(row, 'share')} of an iteration at {where}, the most of any curve"
        yield Finding("waiting for data", f"{training(curve)}, {series(curve)}", words, about=about(curve))


def _fastest_findings(rates: Sequence[TableRow]) -> Iterator[Finding]:
    reads = [row for row in rates if (row["order"], row["cache"]) == ("shuffled", "cold") and row["verdict"] == FASTEST]
    for hardware in dict.fromkeys(row["hardware"] for row in reads):
        row = max((row for row in reads if row["hardware"] == hardware), key=lambda row: int(row["nodes"]))
        came, rate = in_words(row["origin"], row["server_cache"]), interval(row.estimate("samples_per_second"))
        words = f"fastest to read shuffled, page cache cold: {row['storage']}, {rate} samples/s, {came}"
        yield Finding("storage", f"{hardware}, {count(row['nodes'], 'node')}", words, about=about(row))


def _rates(rows: list[TableRow]) -> TextTable:
    text = (
        "Samples per second read by all nodes together, at the largest node count. What came from a cache, or may "
        "have, is not the storage's speed, and is not projected to 150 GB, ImageNet's size: one reading of a set that "
        "no cache holds; a terabyte takes 6.7 times as long."
    )
    if small := sorted({row["storage"] for row in rows if row["set_over_memory"] < UNCACHED_RATIO}):
        text += (
            f" MLPerf Storage asks for sets of {number(UNCACHED_RATIO)} times the memory of the nodes, of which caches "
            f"hold little; smaller: {', '.join(small)}."
        )
    # Rows of shuffled reads come first, as training shuffles.
    shown = sorted(_at_max_nodes(rows), key=lambda row: (row["order"] != "shuffled", row["cache"] != "cold"))
    return TextTable.of({
        "storage": "storage", "read by": _placement,
        "read": lambda row: f"{row['order']}, {row['cache']}, {count(row['readers'], 'reader')}",
        "samples/s": interval_of("samples_per_second"), "beside others": "verdict",
        "the bytes came": source_in_words, "150 GB would take, min": _large_reads_in_words,
    }, shown, "Storages", text, file="models/storage_rates.parquet")  # fmt: skip


def _large_reads_in_words(row: TableRow) -> str:
    rate = row.estimate("bytes_per_second")
    if not row["uncached"] or not rate:
        return "–"
    seconds = (IMAGENET_BYTES / end if end else float("inf") for end in (rate.value, rate.high, rate.low))
    return interval(Estimate(*seconds), 1 / 60)


def _at_max_nodes(rows: list[TableRow]) -> list[TableRow]:
    """Return the rows with the largest node count of their hardware."""
    largest = {row["hardware"]: row["nodes"] for row in sorted(rows, key=lambda row: int(row["nodes"]))}
    return [row for row in rows if row["nodes"] == largest[row["hardware"]]]


def _placement(row: TableRow) -> str:
    """Return the placement of a row and its hardware: ``8 workers (2 nodes) of cpu``."""
    per_node = row["workers_per_node"]
    return f"{placement_in_words(row['nodes'] * per_node, per_node)} of {row['hardware']}"


def source_in_words(row: TableRow) -> str:
    """Return where bytes came from: ``from the network, or from a cache behind it (nfs4, shared)``."""
    return f"{in_words(row['origin'], row['server_cache'])} ({row['filesystem']}, {row['locality']})"


def saturation(rows: list[TableRow]) -> TextTable:
    """Return the table that says where storages saturate; `rows` are from the table ``saturation``."""
    text = (
        "A storage saturates where doubling the workers that read at once brings less than the threshold more samples "
        "in the same time."
    )
    return TextTable.of({
        "storage": "storage", "hardware": "hardware", "workers per node": "workers_per_node",
        "readers of each": "readers", "verdict": _saturation_in_words, "saturates at": _saturating_readers,
        "measured up to": "largest_measured",
    }, rows, "Saturation of storages", text, file="models/saturation.parquet")  # fmt: skip


def _saturation_in_words(row: TableRow) -> str:
    """Return the verdict on saturation: ``saturates at 4``, ``keeps pace up to 8``, ``undecided from 2; ...``."""
    links = {"saturates": "at", "keeps pace": "up to"}
    where = f" {links.get(row['verdict'], 'from')} {row['verdict_ranks']}" if row["verdict_ranks"] else ""
    return f"{row['verdict']}{where}{f'; {deciding} would decide' if (deciding := row['deciding']) else ''}"


def _saturating_readers(row: TableRow) -> str:
    if not row["verdict_ranks"]:
        return "not known"
    return interval(row.estimate("saturation_ranks")) if row["reached"] else f"not up to {row['largest_considered']}"


def _feeding_table(curves: list[CurveRows]) -> TextTable:
    """Return the table of utilisation, with a row for each measured curve at its most workers."""
    text = (
        "The part of an iteration in which workers do not wait for training data, of each curve at the most workers "
        f"measured, and as predicted without these cells; below {100 * BUSY_SHARE:.0f} % workers starve. As many "
        "readers as are needed read as fast as a worker computes."
    )
    feeding_words = []
    for curve in curves:
        if points := [row for row in curve.of("feeding") if row["basis"] == "measured"]:
            starving_words = starving_in_words(curve.of("feeding"))
            feeding_words.append(TableRow({**points[-1], "prefetch": curve["prefetch"], "starves": starving_words}))
    return TextTable.of({
        "network": training, "curve": series, "n": "ranks", "b": "worker_batch",
        "utilisation": lambda row: percent(row, "utilisation"),
        "as predicted": lambda row: percent(row, "predicted_utilisation"), "starves from": "starves",
        "readers": lambda row: str(row["readers"]) if row["prefetch"] else "none, in line",
        "readers needed": interval_of("readers_needed"),
    }, feeding_words, "Accelerator utilisation", text, file="models/feeding.parquet")  # fmt: skip


def starving_in_words(points: Sequence[TableRow]) -> str:
    """Return the fewest workers that surely wait too long for data; `points` are a curve's rows of ``feeding``."""
    for row in points:
        busy = row.estimate("utilisation")
        if busy and busy.high < BUSY_SHARE:
            return f"{at_count(row, int(row['ranks']))}, {row['basis']}"
    return f"not up to {at_count(points[-1], int(points[-1]['ranks']))}"


def break_even(rows: list[TableRow]) -> TextTable:
    """Return the table of costs and savings by staging and packing; `rows` are from the table ``break_even``."""
    text = (
        "Copying a shared set to the nodes' own disks, or converting it into another format, costs its time once, "
        "and saves in each epoch what workers wait less for data. Undecided: an epoch may save nothing."
    )
    return TextTable.of({
        "network": training, "curve": series, "nodes": "nodes", "remedy": "remedy", "instead of": "before",
        "verdict": "verdict", "after epochs": interval_of("epochs", unknown="–"),
        "takes, s": interval_of("seconds"), "an epoch waited, s": interval_of("wait_before"),
        "and waits, s": interval_of("wait_after"),
    }, rows, "Staging and packing", text, file="models/break_even.parquet")  # fmt: skip
