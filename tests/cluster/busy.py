"""Keeps one core busy while nothing else wants it: busy.py CORE.

A node that has used up its quota leaves its core. If the core were idle then, the node would come back to warm caches
and a rested core, the more so the fewer other nodes compute: a model would find nodes slower in large jobs for a reason
that no real cluster has. So what the nodes leave is filled with copies through the cache closest to memory that is the
core's own.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

SIZE = 2**19  # bytes, read and written: together they replace what a core's second cache holds, 1 or 2 MiB

os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
with suppress(OSError):  # where the kernel shares cores among sessions, the least is to be for this one
    os.setsid()
    Path("/proc/self/autogroup").write_text("19")

source, target = bytes(SIZE), bytearray(SIZE)
while True:
    target[:] = source
