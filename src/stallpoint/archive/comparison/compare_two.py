"""Say what is slower in NEW than it was in OLD: two archives, studies, tables of rates or logs that hold repeats.

Rows of a table of rates with the same series and workers are repeats, as are the all-reduces of one size in a log of
nccl-tests or OSU. Training logs of known programs are read as they are; of any other, `--pattern` says what an
iteration prints: a regular expression with a group named rate, seconds or ms.

Of more than two studies, in any order, it says whether the machine is getting slower, and since when.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from stallpoint.archive.comparison import history_page
from stallpoint.archive.comparison.change import WORSE, paired
from stallpoint.archive.comparison.changes import FAIL_ON, Comparison, compare, fails, rows_of
from stallpoint.archive.comparison.compared_results import Results, read_results
from stallpoint.archive.comparison.comparison_files import ARCHIVE, FORMATS
from stallpoint.archive.comparison.comparison_page import rows_of as typed_rows
from stallpoint.archive.comparison.comparison_page import to_data, write_comparison
from stallpoint.archive.comparison.comparison_words import heads, summary, table, to_markdown
from stallpoint.archive.comparison.history import history
from stallpoint.base.measured import POINT
from stallpoint.errors import EXIT_BAD_INPUT, InputError
from stallpoint.inputs import all_reduce_logs, rate_tables, training_logs
from stallpoint.inputs.documents import Document
from stallpoint.records.atomic import atomic
from stallpoint.records.tables import RUNS

SLOWER = 1
"""Exit status where something is slower (or moved)."""
BLOCKS = 10
"""Successive iterations of a log are correlated: means of so many blocks of them are taken for repeats."""
MIN_ITERATIONS = 2 * BLOCKS
"""Iterations of a log needed for blocks."""


def main(arguments: Sequence[str]) -> int:
    """Run as a program; return the exit status: 0, 1 where something is slower (``--fail-on moved``: moved), 2 where
    the two cannot be compared."""
    parser = argparse.ArgumentParser("stallpoint compare", description=__doc__)
    state = "a study's name or folder, its archive (zip), or a file with repeats: a table of rates, a log"
    parser.add_argument("old", metavar="OLD", help=f"before: {state}")
    parser.add_argument("new", metavar="NEW", help="after: the same kind as OLD")
    parser.add_argument("more", nargs="*", metavar="STUDY", help="further studies: all are followed over time")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--markdown", action="store_true", help="a page for a pull request")
    how.add_argument("--json", action="store_true", help="all numbers")
    parser.add_argument(
        "--pattern",
        metavar="REGEX",
        default="",
        help="what an iteration prints, with (?P<rate>...), seconds or ms",
    )
    parser.add_argument(
        "--between", type=float, default=0.0, metavar="DEVIATION", help="how far equal states lie apart"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write a page, text, numbers and a table there")
    parser.add_argument("--fail-on", choices=FAIL_ON, default="slower", help="what ends with status 1 (%(default)s)")
    given = parser.parse_args(arguments)
    if given.more:
        return _over_time([given.old, given.new, *given.more], given.out, as_json=given.json)
    try:
        found = compare_two(given.old, given.new, pattern=given.pattern, between=given.between)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if given.json:
        print(json.dumps(to_data(found, typed_rows(found)), indent=1, allow_nan=False))
    else:
        print(to_markdown(found) if given.markdown else "\n".join(_text(found)))
    if given.out:
        write_comparison(found, {name: given.out / f"comparison.{name}" for name in FORMATS})
    return SLOWER if fails(found.moved, given.fail_on) else 0


def _over_time(names: Sequence[str], out: Path | None, *, as_json: bool) -> int:
    """Follow machines through studies, and write ``history.html`` and ``history.json`` to `out`."""
    try:
        found = history([read_results(name, name) for name in names])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    print(history_page.to_json(found) if as_json else "\n".join(history_page.summary(found)))
    pages = {"history.html": history_page.to_html, "history.json": history_page.to_json}
    for name, text in pages.items() if out else ():
        with atomic(Path(str(out), name)) as scratch:
            scratch.write_text(text(found), encoding="utf-8")
    return SLOWER if any(machine.word == WORSE for machine in found.machines) else 0


def compare_two(old: str, new: str, *, pattern: str = "", between: float = 0.0) -> Comparison:
    """Compare the contents of two paths (or names of studies); raise `InputError` where they cannot be compared."""
    files = [Path(given).is_file() and not given.endswith(ARCHIVE) for given in (old, new)]
    if not any(files):
        return compare(read_results(old, "OLD"), read_results(new, "NEW"), between)
    if not all(files):
        other = old if files[1] else new
        if not (Path(other).exists() or Path("results", other).is_dir()):
            raise InputError(f"{other}: there is no such file, folder or study")
        raise InputError(f"{old} and {new}: a study or an archive is compared with another one, not with a file")
    (first, unit), (second, other) = (_repeats(Path(given), pattern) for given in (old, new))
    if unit != other and ("s" in (unit, other) or "samples/s" not in (unit, other)):  # samples/s, where no word says it
        raise InputError(f"{old} is in {unit}, {new} in {other}: give both in the same unit")
    both = paired(first, second, POINT)
    if both.empty:
        raise InputError(f"{old} and {new} have nothing in common: {_points(first)}; {_points(second)}")
    if both.groupby([*POINT, "study"]).size().max() < 2:
        raise InputError(
            f"{old} and {new} have one value of each kind, so that their scatter is unknown and no difference is "
            "distinguishable from chance; give repeats, each on its own line"
        )
    known = [set(one[list(POINT)].itertuples(index=False, name=None)) for one in (first, second)]
    return Comparison(
        old=_named(Path(old)),
        new=_named(Path(new)),
        between=between,
        rows=rows_of(both, pd.DataFrame(columns=["hardware"]), between),
        verdicts=[],
        settings=[],
        unmatched={"old": len(known[0] - known[1]), "new": len(known[1] - known[0])},
        unit=unit,
    )


def _named(file: Path) -> Results:
    """Return a file as a study: its name, and when it was written."""
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return Results(file.name, {RUNS.name: pd.DataFrame({"started": [pd.Timestamp(written)]})})


def _points(visits: pd.DataFrame) -> str:
    points = visits[["network", "ranks"]].drop_duplicates()
    texts = [f"{name} on {workers}" for name, workers in points.itertuples(index=False)]
    return ", ".join(texts[:5]) + (" and more" if len(texts) > 5 else "")


def _text(found: Comparison) -> Iterator[str]:
    """Return the summary, and the words on each point."""
    yield from summary(found)
    if rows := table(found, "point"):
        rows.insert(0, heads(found, "point"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


# --- files ----------------------------------------------------------------------------------------


def _repeats(file: Path, pattern: str) -> tuple[pd.DataFrame, str]:
    """Return columns `POINT`, visit and seconds (of a sample for rates, of an iteration, or of an all-reduce), and the
    unit of `Comparison`."""
    document = Document.read(file, pattern)
    if training_logs.recognised(document):
        found, *others = training_logs.read(document)
        if others:
            raise InputError(f"{file}: {1 + len(others)} runs in one log; give a file for each")
        return _visits(list(_logged(document, found))), "s" if found.seconds else found.unit
    if format := all_reduce_logs.recognised(document):
        runs = all_reduce_logs.read_runs(document.raw_lines, str(file), format=format)
        rows = [(run.ranks or 1, one) for run in runs for one in run.rows]
        return _visits([(f"all-reduce of {one.message_bytes:,} B", ranks, one.seconds) for ranks, one in rows]), "s"
    if rate_tables.recognised(document):
        rates, *further = rate_tables.read(document)
        if further:
            raise InputError(f"{file}: {1 + len(further)} tables; give a file for each")
        of_rows = [
            (
                "rates" if row.series == file.stem else row.series,
                row.workers,
                row.value * (row.workers if rates.of == rate_tables.EACH else 1),
            )
            for row in rates.rows
            if row.value is not None
        ]
        times = [(name, workers, value if rates.seconds else 1 / value) for name, workers, value in of_rows]
        return _visits(times), "s" if rates.seconds else rates.unit
    raise InputError(
        f"{file}: neither a table of rates (a column of workers, one of rates or times) nor a log of training, "
        "nccl-tests or OSU; describe what an iteration prints by --pattern, such as "
        "--pattern '(?P<rate>[0-9.]+) images/s'"
    )


def _logged(document: Document, found: training_logs.LoggedRate) -> Iterator[tuple[str, int, float]]:
    """Return the mean times of blocks of iterations."""
    if len(found.values) < MIN_ITERATIONS:
        raise InputError(
            f"{document.path}: {len(found.values)} iterations after the warm-up ({found.program}); {MIN_ITERATIONS} or "
            "more are needed to estimate their scatter"
        )
    for block in np.array_split(found.values, BLOCKS):
        seconds = block if found.seconds else 1 / block
        yield found.program, found.workers or 1, float(seconds.mean())


def _visits(rows: Sequence[tuple[str, int, float]]) -> pd.DataFrame:
    """Return columns `POINT`, visit and seconds of a measurement: its name, its workers and its time."""
    frame = pd.DataFrame(rows, columns=["network", "ranks", "seconds"])
    texts = dict.fromkeys(("hardware", "storage", "scaling", "sync"), "given") | {"hardware": "all"}
    frame = frame.assign(**texts, prefetch=0, batch=1, workers_per_node=1, nodes=frame["ranks"], global_batch=1)
    frame["worker_batch"] = 1
    return frame.assign(visit=frame.groupby(list(POINT)).cumcount() + 1)
