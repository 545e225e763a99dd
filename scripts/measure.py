"""Launch one measuring job; its own messages go to the log.

usage: measure.py KIND CELL_JSON FOLDER LOG LAUNCHER
"""

import sys
from pathlib import Path

from stallpoint.cells import KINDS
from stallpoint.measure.launch import launch
from stallpoint.program import program

with program():
    kind, cell, folder, log, launcher = sys.argv[1:]
    launch(KINDS[kind].from_json(cell), Path(folder), launcher=launcher, log=Path(log))
