"""Keeps one core busy while nothing else wants it, and may keep its nodes even:
busy.py CORE [REFERENCE QUOTA MOST FILE...].

A node that has used up its quota leaves its core. If the core were idle then, the node would come back to warm caches
and a rested core, the more so the fewer other nodes compute: a model would find nodes slower in large jobs for a reason
that no real cluster has. So what the nodes leave is filled with copies through the cache closest to memory that is the
core's own.

Virtual machines that share the core's other hardware thread slow it down, from one second to the next. With FILEs, the
copies take turns with equal pieces of computing, and the quota in these files of cgroups (QUOTA µs where a piece takes
REFERENCE seconds of CPU time) follows what a piece takes now, up to MOST times as much: nodes then compute as much in a
second, however slow the core is.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

SIZE = 2**19  # bytes, read and written: together they replace what a core's second cache holds, 1 or 2 MiB
COPIES = 10  # for each piece, so that both take about as long
INTERVAL = 0.1  # s between two changes of the quota; each hands it out anew
FEWEST = 10  # pieces that tell


def piece() -> float:
    """CPU time of a piece of computing, s."""
    begin, total = time.thread_time(), 0
    for number in range(5_000):
        total += number * number
    return time.thread_time() - begin


def fastest(seconds: float) -> float:
    """What a piece takes on this core when nothing slows it down, which may be seldom in so many `seconds`; s."""
    end, taken = time.monotonic() + seconds, []
    while time.monotonic() < end:
        taken.append(piece())
    return sorted(taken)[len(taken) // 20]


def fill(reference: float = 1.0, quota: float = 0.0, most: float = 1.0, *files: Path) -> None:
    """Fill the core for ever; see above."""
    source, target = bytes(SIZE), bytearray(SIZE)
    pieces, taken, then = 0, 0.0, time.monotonic() + INTERVAL
    while True:
        for _ in range(COPIES):
            target[:] = source
        if files:
            pieces, taken = pieces + 1, taken + piece()
            if pieces >= FEWEST and time.monotonic() >= then:
                slower = min(max(taken / pieces / reference, 1.0), most)
                for file in files:
                    file.write_text(str(round(quota * slower)))
                pieces, taken, then = 0, 0.0, time.monotonic() + INTERVAL


if __name__ == "__main__":
    core, *rest = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # where the kernel shares cores among sessions, the least is to be for this one
        os.setsid()
        Path("/proc/self/autogroup").write_text("19")
    fill(*map(float, rest[:3]), *map(Path, rest[3:]))
