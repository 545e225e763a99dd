"""Measure the cells of an agenda in turns; messages of the processes that measure go to the log.

usage: take_turns.py AGENDA LOG LAUNCHER
"""

import signal
import sys
from pathlib import Path

from stallpoint.planning import durations
from stallpoint.program import program
from stallpoint.turns.agenda import Agenda
from stallpoint.turns.session import take_turns

# As Ctrl-C does: the processes are told to end, and save what they have.
signal.signal(signal.SIGTERM, signal.default_int_handler)

agenda, log, launcher = sys.argv[1:]
with program(Path(log), "a"):
    took = durations.file_of(Path(agenda))
    try:
        take_turns(Agenda.read(Path(agenda)), launcher=launcher, log=Path(log), took=took)
    except KeyboardInterrupt:
        sys.exit("interrupted: finished visits are kept, and the next run goes on with them")
