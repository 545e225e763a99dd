"""What people wait for, in this checkout beside another one: seconds, memory and the ratio, paired by round.

``git worktree add /tmp/old v1.0`` gives the other one; ``since.py /tmp/old [NAME ...] [--rounds N]`` compares, with
this environment's packages for both. Answers are compared too: a benchmark of different answers says nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from paired import report, rounds

ROOT = Path(__file__).parents[1]
FITTED = "gpus,batch,img/s\n1,64,100\n2,128,190\n4,256,350\n8,512,610\n16,1024,980\n"
ONE_COUNT = "gpus,img/s\n8,100\n"


def table(folder: Path, rates: str) -> list[str]:
    """The command that explains a table."""
    file = folder / "rates.csv"
    file.write_text(rates)
    return ["-m", "stallpoint.cli", "explain", str(file)]


COMMANDS: dict[str, Callable[[Path], Sequence[str]]] = {
    "table-with-fit": lambda folder: table(folder, FITTED),
    "table-without-fit": lambda folder: table(folder, ONE_COUNT),
}
"""What Python is to run, by names; each gets an empty folder for its files."""


def compared(name: str, other: Path, folder: Path, count: int) -> list[str]:
    """Lines to print."""
    command = [sys.executable, *COMMANDS[name](folder)]
    checkouts = {"here": ROOT, "there": other}
    commands = {
        place: ["env", f"PYTHONPATH={root / 'src'}", "sh", "-c", '"$@" > /dev/null; [ $? -le 3 ]', "sh", *command]
        for place, root in checkouts.items()
    }
    answers = {
        subprocess.run(command, env=os.environ | {"PYTHONPATH": str(root / "src")}, capture_output=True).stdout
        for root in checkouts.values()
    }
    _, lines = report(rounds(name, commands, count), "here", "there", "")
    return [*lines, "" if len(answers) == 1 else "  the answers differ"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("names", nargs="*", choices=[*COMMANDS, []])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for chosen in given.names or COMMANDS:
        with tempfile.TemporaryDirectory() as scratch:
            print(*compared(chosen, given.other.resolve(), Path(scratch), given.rounds), sep="\n", flush=True)
