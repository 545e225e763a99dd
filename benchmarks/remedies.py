"""How often the first remedy of a planted problem is the right one, and how near its predicted gain is to the truth.

Printed: shares of the studies with intervals, and a table for docs/truth.md. Times are made up: a busy machine changes
nothing but how long it takes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from judging import shares
from paired import Figure

from stallpoint.models.answers.remedies import HELPS
from stallpoint.models.fitting import fit

NOISES = (0.01, 0.05, 0.15)
"""Standard deviations of the logarithm of every measured time."""
TRIALS = 10
"""Studies of each problem with each noise."""
RIGHT, HELD, GAIN, TRUE = "right remedy first", "its interval holds the true gain", "predicted gain", "true gain"


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / part) for part in ("unit", "support")]
    from planted_problems import PROBLEMS

    figures = [figure for name, problem in PROBLEMS.items() for figure in _judged(name, problem)]
    lines = ["remedies: planted problems on four workers", *(figure.line() for figure in figures), ""]
    return figures, [*lines, *_table(figures)]


def _judged(name: str, problem: Any) -> Iterator[Figure]:
    true = problem.gain
    for noise in NOISES:
        case = f"{name}, {noise:.0%}"
        firsts = [_first(problem.records(noise, seed)) for seed in range(TRIALS)]
        right = [first["changes"] == problem.right and first["verdict"] == HELPS for first in firsts]
        held = [first["gain_low"] <= true <= first["gain_high"] for first in firsts]
        yield from shares(case, {RIGHT: right, HELD: held}, {RIGHT: ">= 0.9"}, TRIALS, "remedies")
        gains = [first["gain"] for first in firsts]
        yield Figure("remedies", case, GAIN, float(np.median(gains)), min(gains), max(gains), "")
        yield Figure("remedies", case, TRUE, true, true, true, "")


def _first(records: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """The remedy that is told first of the strong curve."""
    rows = fit(records, nodes=[1, 2, 4])["remedies"]
    return rows.query("scaling == 'strong' and rank_in_curve == 1").iloc[0].to_dict()


def _table(figures: list[Figure]) -> Iterator[str]:
    """Markdown for docs/truth.md: a row for each problem and noise."""
    found = {(one.candidate, one.quantity): one for one in figures}
    yield f"| problem, scatter of times | {RIGHT} | {HELD} | {GAIN}, median (least to most) | {TRUE} |"
    yield "| --- | --- | --- | --- | --- |"
    for case in dict.fromkeys(one.candidate for one in figures):
        right, held, gain, true = (found[case, quantity] for quantity in (RIGHT, HELD, GAIN, TRUE))
        gained = f"{gain.value:.2f} ({gain.low:.2f} to {gain.high:.2f})"
        yield f"| {case} | {right.value:.2f} | {held.value:.2f} | {gained} | {true.value:.2f} |"
