"""How long the tests of the last ``make test`` took, by folder."""

from __future__ import annotations

import sys
from pathlib import Path

from paired import Figure, Timing

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from lanes import LANES, cases, folders

NAME = "durations"


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    """Return seconds of each folder of tests, waiting included; nothing is run."""
    found = folders(case for lane in LANES for case in cases(lane))
    figures = [Figure(NAME, folder, "s", seconds, seconds, seconds) for seconds, _, folder in found]
    lines = [f"  {folder:40}{tests:6} tests{seconds:9.1f} s" for seconds, tests, folder in found]
    return [*figures], [f"{NAME}: of the last make test", *(lines or ["  none was run here"])]
