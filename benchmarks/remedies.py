"""How often the first remedy of a planted problem is the right one, and how near its predicted gain is to the truth."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
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


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
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
        right = [row["changes"] == problem.right and row["verdict"] == HELPS for row in firsts]
        held = [row["gain_low"] <= true <= row["gain_high"] for row in firsts]
        for figure in shares(case, {RIGHT: right, HELD: held}, {RIGHT: ">= 0.9"}, TRIALS):
            yield replace(figure, benchmark="remedies")
        gains = [row["gain"] for row in firsts]
        yield Figure("remedies", case, GAIN, float(np.median(gains)), min(gains), max(gains), "")
        yield Figure("remedies", case, TRUE, true, true, true, "")


def _first(records: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """The remedy that is told first of the strong curve."""
    rows = fit(records, nodes=[1, 2, 4])["remedies"]
    return rows[(rows["scaling"] == "strong") & (rows["rank_in_curve"] == 1)].iloc[0].to_dict()


def _table(figures: list[Figure]) -> Iterator[str]:
    """Markdown for docs/truth.md: a row for each problem and noise."""
    found = {(one.candidate, one.quantity): one.value for one in figures}
    yield f"| problem, scatter of times | {RIGHT} | {HELD} | {GAIN} | {TRUE} |"
    yield "| --- | --- | --- | --- | --- |"
    for case in dict.fromkeys(one.candidate for one in figures):
        numbers = [f"{found[case, quantity]:.2f}" for quantity in (RIGHT, HELD, GAIN, TRUE)]
        yield "| " + " | ".join([case, *numbers]) + " |"
