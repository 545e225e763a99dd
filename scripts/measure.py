"""Measure the cells of an agenda in an interleaved schedule; messages of the processes go to the log.

usage: measure.py AGENDA LOG LAUNCHER [container=TEXT] [interface=NAMES]
"""

import os
import signal
import socket
import sys
from pathlib import Path

from stallpoint.errors import program
from stallpoint.measure.machine import node_addresses
from stallpoint.schedule import one_job
from stallpoint.schedule.agenda import Agenda
from stallpoint.schedule.planning import visit_durations
from stallpoint.schedule.session import measure_cells
from stallpoint.study.commands import CONTAINER_VARIABLE

# like Ctrl-C: the processes save their rows and end
signal.signal(signal.SIGTERM, signal.default_int_handler)

agenda, log, launcher = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
resources = {name: value for name, _, value in (word.partition("=") for word in sys.argv[4:])}
# for the processes, which run commands in the container, and meet on the interface
os.environ |= {CONTAINER_VARIABLE: resources.get("container", "")}
os.environ |= node_addresses.allow_only(resources.get("interface", ""))
job = os.environ.get("SLURM_JOB_ID")
who = f"{f'Slurm job {job}' if job else f'process {os.getpid()}'} on {socket.gethostname()}"
with program(log, "a"):
    try:
        with one_job.hold(one_job.file_of(agenda), who):
            ordered = Agenda.read(agenda)
            measure_cells(ordered, launcher=launcher, log=log, durations_file=visit_durations.file_of(agenda))
            ordered.finish()
    except KeyboardInterrupt:
        sys.exit("interrupted: finished visits are kept, and the next run goes on with them")
