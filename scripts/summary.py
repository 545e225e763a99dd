"""Print the conclusions of a study in a few lines.

usage: summary.py RESULTS_FOLDER
"""

import json
import sys
from pathlib import Path

from stallpoint.conclusions.summary import summary

results = Path(sys.argv[1])
print(*summary(json.loads((results / "conclusions.json").read_text())), sep="\n")
print(f"report: {results / 'report.html'}")
