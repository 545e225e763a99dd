"""Follow a machine through many studies: is it getting slower, and since when?

usage: history.py STUDY STUDY ... --out FOLDER

Each STUDY is an archive (.zip), a study's folder or its name in results/, in any order. Writes history.html and
history.json to FOLDER. Ends with status 0, or with 2 and a message that says why a STUDY cannot be followed.
"""

import argparse
from pathlib import Path

from stallpoint.archive.comparison.compared_results import read_results
from stallpoint.archive.comparison.history import history
from stallpoint.archive.comparison.history_page import summary, to_html, to_json
from stallpoint.errors import program
from stallpoint.records.atomic import atomic

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("studies", nargs="+", metavar="STUDY")
parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
arguments = parser.parse_args()
with program():
    found = history([read_results(given, given) for given in arguments.studies])
    for name, text in (("history.html", to_html(found)), ("history.json", to_json(found))):
        with atomic(arguments.out / name) as scratch:
            scratch.write_text(text, encoding="utf-8")
    print(*summary(found), arguments.out / "history.html", sep="\n")
