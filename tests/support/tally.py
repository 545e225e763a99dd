"""What became of trials in which something goes wrong."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass
class Tally:
    """What became of the trials of one kind."""

    of: str
    fault: str
    of_operations: int = 0
    """How many operations there are to go wrong."""
    trials: int = 0
    lost: int = 0
    doubled: int = 0
    half: int = 0
    hangs: int = 0
    refused: int = 0
    """Trials that ended with an exit status, and so owe a message."""
    clear: int = 0
    """Those of them that say what was wrong in one line, without a traceback."""
    red: list[str] = field(default_factory=list)
    """What was wrong, in words."""


def tell(tallies: Iterable[Tally]) -> None:
    """Print each as a line of JSON, as it comes."""
    for tally in tallies:
        print(json.dumps(asdict(tally)), flush=True)


def as_program(run: Callable[..., Iterable[Tally]], about: str | None, **options: int) -> None:
    """Run trials as a program: its options are these, of which the defaults are given, and ``--seed``."""
    parser = argparse.ArgumentParser(description=about)
    for name, default in {**options, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    tell(run(**vars(parser.parse_args())))


def environment(root: Path) -> dict[str, str]:
    """What a module of trials runs in, with the program in the folder `root`: what is traced must have one thread."""
    folders = [str(root / folder) for folder in ("src", "tests/support", "tests/cluster")]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), **threads}


def tallies(module: str, *options: str) -> Iterator[dict[str, Any]]:
    """What a module of trials (``python -m MODULE``) tells (`tell`), as it comes."""
    command = [sys.executable, "-m", module, *options]
    with subprocess.Popen(command, env=environment(ROOT), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        yield from map(json.loads, running.stdout)
    if running.returncode:
        raise SystemExit(f"{module} ended with status {running.returncode}")
