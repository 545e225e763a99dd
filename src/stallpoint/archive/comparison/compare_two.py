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
from pathlib import Path

from stallpoint.archive.comparison.changes import FAIL_ON, Comparison, compare, is_failure
from stallpoint.archive.comparison.compared_results import read_results
from stallpoint.archive.comparison.comparison_data import rows_of as typed_rows
from stallpoint.archive.comparison.comparison_data import to_data, write_comparison
from stallpoint.archive.comparison.comparison_files import ARCHIVE_SUFFIX, FORMATS
from stallpoint.archive.comparison.comparison_words import headings, summary, table, to_markdown
from stallpoint.archive.comparison.history import history
from stallpoint.archive.comparison.history_words import summary as summary_over_time
from stallpoint.archive.comparison.history_words import to_json
from stallpoint.base.section import Change
from stallpoint.errors import EXIT_BAD_INPUT, InputError
from stallpoint.extras import load_named
from stallpoint.records.atomic import atomic

EXIT_SLOWER = 1
"""Exit status if something is slower (or moved)."""


def main(arguments: Sequence[str]) -> int:
    """Run as a program. The exit status is 0 if nothing is slower, 1 if anything is slower, and 2 if the inputs cannot
    be compared. With ``--fail-on moved``, it is 1 if anything changed."""
    parser = argparse.ArgumentParser("stallpoint compare", description=__doc__)
    operand_help = "a study's name or folder, its archive (zip), or a file with repeats: a table of rates, a log"
    parser.add_argument("old", metavar="OLD", help=f"before: {operand_help}; alone: a folder of studies or archives")
    parser.add_argument("new", metavar="NEW", nargs="?", help="after: the same kind as OLD")
    parser.add_argument("more", nargs="*", metavar="STUDY", help="further studies: all are followed over time")
    output_formats = parser.add_mutually_exclusive_group()
    output_formats.add_argument("--markdown", action="store_true", help="a page for a pull request")
    output_formats.add_argument("--json", action="store_true", help="all numbers")
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
    parser.add_argument(
        "--fail-on", choices=FAIL_ON, default=str(Change.SLOWER), help="what ends with status 1 (%(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        old, new, *more = [options.old, options.new, *options.more] if options.new else _studies(Path(options.old))
        if more:
            return _write_history([old, new, *more], options.out, as_json=options.json)
        found = compare_two(old, new, pattern=options.pattern, study_deviation=options.between)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if options.json:
        print(json.dumps(to_data(found, typed_rows(found)), indent=1, allow_nan=False))
    else:
        print(to_markdown(found) if options.markdown else "\n".join(_text(found)))
    if options.out:
        write_comparison(found, {name: options.out / f"comparison.{name}" for name in FORMATS})
    return EXIT_SLOWER if is_failure(found.moved, options.fail_on) else 0


def _write_history(names: Sequence[str], folder: Path | None, *, as_json: bool) -> int:
    """Print the history of machines over several studies, and write it to `folder`, if any; return the exit status."""
    found = history([read_results(name, name) for name in names])
    print(to_json(found) if as_json else "\n".join(summary_over_time(found)))
    if folder:
        from stallpoint.archive.comparison.history_page import to_html  # a late import: charts need stallpoint[report]

        for name, text in (("history.html", to_html), ("history.json", to_json)):
            with atomic(folder / name) as scratch:
                scratch.write_text(text(found), encoding="utf-8")
    return EXIT_SLOWER if any(machine.verdict == Change.SLOWER for machine in found.machines) else 0


def _studies(folder: Path) -> list[str]:
    """Return the archives and studies in a folder; raise `InputError` if there are fewer than two."""
    entries = folder.iterdir() if folder.is_dir() else ()
    found = sorted(str(one) for one in entries if one.suffix == ARCHIVE_SUFFIX or (one / "tables").is_dir())
    if len(found) < 2:
        raise InputError(f"{folder}: name NEW too, or a folder with two studies or archives; here are {len(found)}")
    return found


def compare_two(old: str, new: str, *, pattern: str = "", study_deviation: float = 0.0) -> Comparison:
    """Return the comparison of two paths or names of studies; raise `InputError` if they cannot be compared."""
    files = [_files(given) for given in (old, new)]
    if not any(files):
        return compare(read_results(old, "OLD"), read_results(new, "NEW"), study_deviation)
    if not all(files):
        other = old if files[1] else new
        if not (Path(other).exists() or Path("results", other).is_dir()):
            raise InputError(f"{other}: there is no such file, folder or study")
        raise InputError(f"{old} and {new}: a study or an archive is compared with another one, not with a file")
    found: Comparison = load_named("comparisons", "files")(*files, pattern=pattern, between=study_deviation)
    return found


def _files(source: str) -> list[Path]:
    """Return the files that `source` names: one file, several separated by commas, or a folder's ``*.log``. Return no
    files if `source` is a study or an archive."""
    paths = [Path(source)] if Path(source).exists() else [Path(part) for part in source.split(",")]
    if paths[0].is_dir() and not (paths[0] / "tables").is_dir():
        paths = sorted(paths[0].glob("*.log"))
    return paths if all(path.is_file() and path.suffix != ARCHIVE_SUFFIX for path in paths) else []


def _text(found: Comparison) -> Iterator[str]:
    """Yield the lines of a comparison's text: the summary, then a table of points."""
    yield from summary(found)
    if rows := table(found, "point"):
        rows.insert(0, headings(found, "point"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
