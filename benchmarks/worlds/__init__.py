"""Worlds whose traits the models do not know beforehand: how often intervals hold, and verdicts are sure and wrong.

Each world is a file with a cluster and the noise of measuring it. Choices in `stallpoint` were fitted on the worlds of
`FITTED` alone; those of `REPORTED`, of the same kinds and other numbers, say how good they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from judging import at_once, shares
from paired import Figure

from stallpoint.models.fitting import fit
from worlds import (
    cache,
    cells_slow,
    cells_slow_twice,
    costs_beyond,
    equal_causes,
    flat,
    jobs_apart,
    loader,
    loader_of_few,
    plain,
    slow_visits,
    step_beyond,
    strong_cache,
    visits_apart,
)
from worlds.world import World

FITTED = (plain, loader, cache, costs_beyond, jobs_apart, flat, cells_slow)
REPORTED = (visits_apart, loader_of_few, strong_cache, step_beyond, cells_slow_twice, slow_visits)
TRIALS = 12
BEYOND = (2, 4, 8)
"""Times the largest measured count."""
SURE = 0.99
HELD = ">= 0.85"
WANTED = {
    "times held": HELD, "speedups held": HELD, "beyond held": HELD, "gains held": HELD, "memory held": HELD,
    "verdict wrong": "<= 0.05", "sure and wrong": "0", "gain of none": "0", "speedups +-": "<= 0.06, jobs <= 0.12",
    "P": "<= 0.90 where each cell ran in one placement",
}  # fmt: skip


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
    modules = (*FITTED, *REPORTED)
    found = list(at_once([partial(_judged, module.WORLD) for module in modules] + [equal_causes.judged]))
    figures = [figure for one in found for figure in one]
    lines = ["worlds: traits that models do not know beforehand"]
    for title, part in (("chosen on", found[: len(FITTED)]), ("reported on", found[len(FITTED) : -1])):
        rows = pd.DataFrame([asdict(figure) for one in part for figure in one])
        table = rows.pivot_table("value", "candidate", "quantity", sort=False)
        lines += ["", table.rename_axis(title, axis=0).round(2).to_string(na_rep="-")]
    lines += ["", *(f"wanted of {quantity}: {wanted}" for quantity, wanted in WANTED.items())]
    return figures, [*lines, "", *(figure.line() for figure in found[-1])]


def _judged(world: World) -> Iterator[Figure]:
    largest = max(world.nodes)
    counts = [*world.nodes, *(largest * factor for factor in BEYOND)]
    truth = {n: world.iteration(n) for n in counts if world.cell.batch % n == 0}
    found: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {"speedups +-": [], "beyond +-": [], "P": []}
    for trial in range(TRIALS):
        tables = fit(world.measured(trial), nodes=[n for n in truth if n > largest])
        for name, held in _answers(world, truth, tables):
            found.setdefault(name, []).append(held)
        for name, width in _widths(largest, tables):
            widths[name].append(width)
    yield from shares(world.name, found, WANTED, TRIALS)
    for name, all_of in widths.items():
        if all_of:
            low, middle, high = np.quantile(all_of, (0.05, 0.5, 0.95))
            yield Figure("worlds", world.name, name, float(middle), float(low), float(high), WANTED.get(name, ""))


def _answers(world: World, truth: Mapping[int, float], tables: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield what is judged and whether it is so."""
    rows = tables["predictions"].set_index("ranks")
    for ranks, seconds in truth.items():
        if ranks in world.nodes:
            yield "times held", _inside(rows, ranks, "measured_iteration", seconds)
            if ranks > 1:
                yield "speedups held", _inside(rows, ranks, "measured_speedup", truth[1] / seconds)
        else:
            yield (
                "beyond held",
                ranks not in rows.index or _inside(rows, ranks, "predicted_iteration", seconds),
            )
    for remedy in tables["remedies"].itertuples():
        gain = world.gains.get(remedy.remedy)
        if gain is not None and remedy.gain == remedy.gain:
            # Upper bounds hold what lies below them.
            yield "gains held", (remedy.upper_bound or remedy.gain_low <= gain) and gain <= remedy.gain_high
            yield "gain of none", remedy.verdict == "helps" and gain < 1.02
    for row in tables["memory"].itertuples():
        peak = world.truth.fixed_memory + world.truth.memory * row.worker_batch
        yield "memory held", row.peak_low <= peak <= row.peak_high
    stalling = tables["stalling"].iloc[0]
    decided = stalling["verdict"] in ("stalls", "scales")
    wrong = decided and stalling["verdict_ranks"] != world.stall
    yield "withheld", stalling["verdict"] == "withheld"
    yield "verdict wrong", bool(wrong)
    yield "sure and wrong", bool(wrong and _probability(tables) >= SURE)


def _widths(largest: int, tables: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    rows = tables["predictions"]
    for name, of, there in (
        ("speedups +-", "measured_speedup", (rows["ranks"] > 1) & (rows["ranks"] <= largest)),
        ("beyond +-", "predicted_iteration", rows["ranks"] > largest),
    ):
        yield from ((name, float(w)) for w in ((rows[f"{of}_high"] / rows[f"{of}_low"]) ** 0.5 - 1)[there].dropna())
    yield "P", _probability(tables)


def _probability(tables: Mapping[str, Any]) -> float:
    return float(tables["stall_probabilities"].query("basis == 'measured'")["probability"].max())


def _inside(rows: Any, ranks: int, name: str, truth: float) -> bool:
    return bool(rows.at[ranks, f"{name}_low"] <= truth <= rows.at[ranks, f"{name}_high"])
