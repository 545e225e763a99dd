"""Say what changed from one study to another, each an archive (.zip), a study's folder or its name in results/.

usage: compare.py OLD NEW [--out FOLDER] [--between DEVIATION] [--fail-on slower|moved]

Prints what changed and writes it to FOLDER (results/compare/OLD-NEW): comparison.md, .json, .parquet and .html. Ends
with status 0, or with 1 if it was told to fail on what was found: something slower, or any answer that moved. Status 2:
OLD or NEW cannot be compared, and the message says why.
"""

import argparse
import sys
from pathlib import Path

from stallpoint.archive.comparison.changes import FAIL_ON, compare, fails
from stallpoint.archive.comparison.compared_results import read_results
from stallpoint.archive.comparison.comparison_files import FORMATS, name_of
from stallpoint.archive.comparison.comparison_page import write_comparison
from stallpoint.archive.comparison.comparison_words import summary
from stallpoint.errors import program

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("old")
parser.add_argument("new")
parser.add_argument("--out", type=Path, metavar="FOLDER")
parser.add_argument("--between", type=float, default=0.0, metavar="DEVIATION")
parser.add_argument("--fail-on", choices=FAIL_ON)
arguments = parser.parse_args()
with program():
    comparison = compare(
        read_results(arguments.old, "OLD"), read_results(arguments.new, "NEW"), between=arguments.between
    )
    folder = arguments.out or Path("results/compare", f"{name_of(arguments.old)}-{name_of(arguments.new)}")
    write_comparison(comparison, {name: folder / f"comparison.{name}" for name in FORMATS})
    print(*summary(comparison), folder / "comparison.html", sep="\n")
if fails(comparison.moved, arguments.fail_on):
    sys.exit(1)
