"""What becomes of a study when things go wrong: ``make chaos``.

Every program of the workflow is killed, or refused by the file system, at every so-many-th operation on a file
(tests/support/crash_points.py), and whole studies are drawn at random (tests/support/histories.py). Prints one table;
the exit status is 1 where anything in it is red. --every 1 tries every operation, which takes hours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests/support", "tests/unit")),
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1"),
}
COUNTS = ("trials", "lost", "doubled", "half", "hangs", "clear", "refused")


def tallies(module: str, *options: str) -> Iterator[dict[str, Any]]:
    """One for each line that the module prints."""
    command = [sys.executable, "-m", module, *options]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        yield from map(json.loads, running.stdout)
    if running.returncode:
        raise SystemExit(f"{module} ended with status {running.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=100, help="try every so-many-th operation of each program")
    parser.add_argument("--histories", type=int, default=30, help="studies drawn at random")
    arguments = parser.parse_args()
    rows: dict[str, dict[str, int]] = {}
    red: list[str] = []
    told = {
        "operation": tallies("crash_points", "--every", str(arguments.every)),
        "history": tallies("histories", "--examples", str(arguments.histories)),
    }
    for where, found in told.items():
        for tally in found:
            row = rows.setdefault(f"{where}: {tally['fault']}", dict.fromkeys(COUNTS, 0))
            for name in COUNTS:
                row[name] += tally[name]
            red += tally["red"]
    head = ("fault", "trials", "lost", "doubled", "half-accepted", "hangs", "clear messages")
    print("| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |", sep="\n")
    for fault, row in rows.items():
        clear = f"{row['clear']} of {row['refused']}" if row["refused"] else "none owed"
        print("| " + " | ".join([fault, *(str(row[name]) for name in COUNTS[:5]), clear]) + " |")
    print(*red, sep="\n")
    sys.exit(bool(red))


if __name__ == "__main__":
    main()
