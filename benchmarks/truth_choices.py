"""Answers that rest on a choice, or on one cell: the best of equal presets, and a cell that is wrong in all visits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from judging import COVERAGE, Study, shares
from paired import Figure
from planted import THRESHOLD, Noise, amdahl, curves, steps

from stallpoint.base.measured import Measured, measured
from stallpoint.base.statistics import estimate
from stallpoint.models.answers.controls import trusted
from stallpoint.models.answers.stalling import tables
from stallpoint.questions.answers import correct_points
from stallpoint.questions.study_tables import MeasuredCount

TRIALS = 40
PRESETS = 9
NOISES = (
    Noise("four visits 3 %", visits=0.03),
    Noise("four visits 10 %", visits=0.1, iterations=0.05),
    Noise("one visit 3 %", visits=0.03, of_job=1),
)
UNEQUAL = (0.0, 0.03, 0.3)
"""Standard deviations of the logarithm of the presets' rates."""
NODES, WRONG = (1, 2, 4, 8, 16, 32), 8
FACTORS = {"1.45 times too long": 1.45, "half as long as it is": 0.5}
"""What the wrong cell takes over what is true."""
CELL_NOISES = (Noise("1 %, one cell wrong", visits=0.01, iterations=0.01), Noise("3 %, one cell wrong", visits=0.03))
STEPS = {"a step that gains 5 %": 1.05, "a step that gains 15 %": 1.15}
"""What the second node gains over the first one; each further doubling gains 80 %."""
ONCE = Noise("one visit, 5 %", visits=0.05, of_job=1)


def studies() -> Iterator[Study]:
    """Coverage and bias of the chosen rate; verdicts with a wrong cell, and at a step near the threshold."""
    for noise in NOISES:
        for apart in UNEQUAL:
            yield partial(_chosen, noise, apart)
    for noise in CELL_NOISES:
        for name, factor in FACTORS.items():
            yield partial(_wrong, noise, name, factor)
    for name, gain in STEPS.items():
        yield partial(_at_step, name, gain)


def _chosen(noise: Noise, apart: float) -> Iterator[Figure]:
    held, errors = [], []
    for trial in range(TRIALS):
        random = np.random.default_rng([9, trial])
        rates = np.exp(apart * random.standard_normal(PRESETS))
        truths = {str(place): lambda n, rate=rate: 1 / n / rate for place, rate in enumerate(rates)}
        points = measured(steps(truths, (1, 8), noise, random), seed=trial)
        found = [_counts(points, place) for place in range(PRESETS)]
        best = max(range(PRESETS), key=lambda place: max(at.rate.value for at in found[place]))
        chosen = correct_points(found[best], [one for place, one in enumerate(found) if place != best])[-1].rate
        truth = 32 * 8 * rates[best]
        held.append(chosen.low <= truth <= chosen.high)
        errors.append(np.log(chosen.value / truth))
    case = f"{noise.name}, {PRESETS} presets {apart:.0%} apart"
    yield from shares(case, {"chosen rate": held}, {"chosen rate": COVERAGE}, TRIALS)
    mean, error = float(np.mean(errors)), 1.645 * float(np.std(errors)) / np.sqrt(TRIALS)
    yield Figure("truth", case, "bias of the chosen rate", mean, mean - error, mean + error, "0")


def _counts(points: list[Measured], place: int) -> list[MeasuredCount]:
    """The measured counts of a preset's curve."""
    here = [one for one in points if one.point.sync == f"preset {place}"]
    (base,) = (one for one in here if one.point.nodes == 1)
    return [
        MeasuredCount(
            one.point.nodes, one.point.ranks, estimate(one.parts.iteration_time),
            estimate(one.point.global_batch / one.parts.iteration_time),
            speedup := estimate(base.parts.iteration_time / one.parts.iteration_time), speedup,
        )
        for one in here
    ]  # fmt: skip


def _wrong(noise: Noise, name: str, factor: float) -> Iterator[Figure]:
    """Of a curve that scales to 32, with one cell that takes another time in all of its visits."""
    truth = amdahl(stall=1000)
    decisive, named = [], []
    for trial in range(TRIALS):
        table = steps({"": truth}, NODES, noise, np.random.default_rng([2900, trial]))
        wrong = table["nodes"] == WRONG
        table.loc[wrong, ["forward", "iteration_time"]] *= factor
        (row,), _ = tables(map(trusted, curves(measured(table, trial))), THRESHOLD, 0.5)
        decisive.append(row["verdict"] == "stalls")
        named.append(f"n = {WRONG}" in str(row["note"]))
    wanted = {f"{name}: wrong": "<= 0.05"}
    yield from shares(noise.name, {f"{name}: wrong": decisive, f"{name}: named": named}, wanted, TRIALS)


def _at_step(name: str, gain: float) -> Iterator[Figure]:
    stalls = gain < 1 + THRESHOLD
    wrong = []
    for trial in range(TRIALS):
        truth = {"": lambda n: 1.0 if n == 1 else 1 / gain / 1.8 ** np.log2(n / 2)}
        points = measured(steps(truth, NODES, ONCE, np.random.default_rng([1015, trial])), trial)
        (row,), _ = tables(map(trusted, curves(points)), THRESHOLD, 0.5)
        true = ("stalls", 1) if stalls else ("scales", 32)
        said = (row["verdict"], row["verdict_ranks"])
        wrong.append(said != true and said[0] in ("stalls", "scales"))
    yield from shares(ONCE.name, {f"{name}: wrong": wrong}, {f"{name}: wrong": "<= 0.05"}, TRIALS)
