"""Equal runs beside each other by their logs, and slower ones: what `stallpoint compare` calls them.

As a program: ``equal_logs.py STEPS.csv RUNS.csv [SEED]``. The first table has a row for each iteration of public runs:
submitter, system, run, logged (its number), step_s; all pairs of a system's runs are equal. The second has a row for
each run: round, submitter, system, benchmark, step_s (its median), whose repeats say how far runs are apart. Every
other system is what rules were chosen on; both halves are printed. Simulated pairs have the iterations of a public run,
shifted in time, and the scatter between runs of one entry of the second table, or a given one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from stallpoint.archive.comparison.change import Change
from stallpoint.base.statistics import Reals
from stallpoint_files.compare_files import log_places
from stallpoint_files.log_comparison import LoggedRun, compare_logs
from stallpoint_files.training.logged_rate import WARMUP

PAIRS = 1000
WHERE = log_places(1)
USUAL = 0.0022
"""Scatter between runs of the median system of MLPerf Training 5.1."""


def logged(steps: pd.DataFrame) -> dict[str, list[Reals]]:
    """Iteration times of each system's runs after the warm-up, as a log of them is read."""
    found: dict[str, list[Reals]] = {}
    for (submitter, system, _), rows in steps.sort_values("logged").groupby(["submitter", "system", "run"]):
        times = rows["step_s"].to_numpy(float)
        found.setdefault(f"{submitter} {system}", []).append(times[int(len(times) * WARMUP) + 1 :])
    return found


def scatters(runs: pd.DataFrame) -> Reals:
    """Standard deviation between the runs of each entry, of the logarithm."""
    each = np.log(runs.dropna(subset=["step_s"]).set_index(["round", "submitter", "system", "benchmark"])["step_s"])
    return each.groupby(level=[0, 1, 2, 3]).std().dropna().to_numpy()


def judged(old: Sequence[Reals], new: Sequence[Reals]) -> tuple[set[str], float]:
    """Words for what changed, and the power for 3 % that the comparison says it has."""
    states = [[LoggedRun(times, {}) for times in state] for state in (old, new)]
    found = compare_logs(*states, WHERE, 0.0)
    return set(found.rows["change"]) & {Change.SLOWER, Change.FASTER}, found.power


class Simulated:
    """Runs whose truth is known."""

    def __init__(self, systems: Sequence[Sequence[Reals]], apart: Sequence[float], seed: int) -> None:
        self.systems, self.apart = systems, apart
        self.random = np.random.default_rng(seed)

    def pair(self, count: int, slower: float) -> tuple[set[str], float]:
        """What is said of two groups of so many runs, the second slower by a share."""
        of_system = self.systems[self.random.integers(len(self.systems))]
        apart = self.random.choice(self.apart)
        old, new = ([self._run(of_system, apart, factor) for _ in range(count)] for factor in (1.0, 1 + slower))
        return judged(old, new)

    def _run(self, of_system: Sequence[Reals], apart: float, factor: float) -> Reals:
        times = of_system[self.random.integers(len(of_system))]
        shifted = np.roll(times / np.median(times), self.random.integers(len(times)))
        return factor * shifted * np.exp(apart * self.random.standard_normal())


def packed(random: np.random.Generator, slower: float, same_order: bool) -> tuple[set[str], float]:
    """Two logs whose iterations are 15 % apart by their data, in the same order or another."""
    order = random.uniform(-0.15, 0.15, 200)
    orders = (order, order if same_order else random.uniform(-0.15, 0.15, 200))
    old, new = (np.exp(one + 0.004 * random.standard_normal(200) + USUAL * random.standard_normal()) for one in orders)
    return judged([old], [(1 + slower) * new])


def lines(steps: pd.DataFrame, runs: pd.DataFrame, seed: int) -> Iterator[str]:
    systems, apart = logged(steps), scatters(runs)
    halves = {"chosen on": list(systems.values())[::2], "the other half": list(systems.values())[1::2]}
    for name, half in halves.items():
        pairs = [judged([old], [new])[0] for one in half for old, new in combinations(one, 2)]
        pairs += [judged([new], [old])[0] for one in half for old, new in combinations(one, 2)]
        yield _line(f"equal public pairs, both ways round, {name}", pairs, "<= 0.01")
    every = list(systems.values())
    for name, count, among, slower, wanted in (
        ("equal, two logs, scatter of the table", 1, apart, 0.0, "<= 0.01"),
        ("equal, groups of three, scatter of the table", 3, apart, 0.0, "<= 0.01"),
        ("equal, groups of three, 0.5 % between runs", 3, [0.005], 0.0, "<= 0.01"),
        ("equal, groups of three, 1 % between runs", 3, [0.01], 0.0, "<= 0.01"),
        ("equal, groups of three, 5 % between runs", 3, [0.05], 0.0, "<= 0.01"),
        ("3 % slower, two logs, scatter of the table", 1, apart, 0.03, ""),
        ("3 % slower, two logs, 0.22 % between runs", 1, [USUAL], 0.03, ""),
        ("3 % slower, groups of three, 0.5 % between runs", 3, [0.005], 0.03, ">= 0.80"),
    ):
        simulated = Simulated(every, among, seed)
        found = [simulated.pair(count, slower) for _ in range(PAIRS)]
        said = f", power said {np.mean([one for _, one in found]):.2f}" if slower else ""
        yield _line(name, [words for words, _ in found], wanted) + said
    random = np.random.default_rng(seed + 1)
    for same in (True, False):
        for slower in (0.0, 0.03):
            found = [packed(random, slower, same) for _ in range(PAIRS)]
            name = (
                f"{100 * slower:.0f} % slower, data-dependent by 15 %, {'the same order' if same else 'other orders'}"
            )
            yield _line(name, [words for words, _ in found], "" if slower else "<= 0.01")


def _line(name: str, pairs: Sequence[set[str]], wanted: str) -> str:
    called = [bool(words) for words in pairs]
    worse = [Change.SLOWER in words for words in pairs]
    text = f"{name}: {np.mean(called):.4f} of {len(pairs)} called changed, {np.mean(worse):.4f} slower"
    return text + (f", wanted {wanted}" if wanted else "")


if __name__ == "__main__":
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 62
    for text in lines(*map(pd.read_csv, sys.argv[1:3]), seed=seed):
        print(text, flush=True)
