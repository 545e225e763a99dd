"""Launch one measuring job; its own messages go to the log.

usage: measure.py CELL_JSON FOLDER LOG LAUNCHER
"""

import sys
from pathlib import Path

from stallpoint.cells import cell_from_json
from stallpoint.measure.launch import launch
from stallpoint.program import program

with program():
    cell, folder, log, launcher = sys.argv[1:]
    launch(cell_from_json(cell), Path(folder), launcher=launcher, log=Path(log))
