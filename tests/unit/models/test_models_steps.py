"""Steps to a target against the mini-batch, and the noise scale, where both are known."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import by_day, fewer_examples

from stallpoint.base.statistics import estimate
from stallpoint.models.convergence import noise_scale
from stallpoint.models.convergence.steps import (
    ANY_COUNT,
    USUAL_MISFIT,
    Regime,
    steps_of,
    table,
)
from stallpoint.strategies.presets import PRESETS

PRESETS_KNOWN = {name: known.preset for name, known in PRESETS.items()}
BATCHES = [8, 16, 32, 64, 128, 256, 512, 1024]
LABELS = {"network": "small", "storage": "images", "sync": "wfbp", "recipe": "sgd", "target": 0.8}


def runs(
    least: float = 400, critical: float = 100, *, batches: Sequence[int] = BATCHES, noise: float = 0.05, seed: int = 0,
    deviations: Sequence[float] = (0, 0, 0), slower_trials: Sequence[float] = (1.0,), failing: Sequence[int] = (),
) -> pd.DataFrame:  # fmt: skip
    """Runs whose steps are least (1 + critical / B), each trial so many times as slow; `failing` B never reach it.

    Seeds deviate from them by a factor each, whose logarithm is given, and by `noise`.
    """
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for batch in batches:
        for trial, slower in enumerate(slower_trials):
            for number, off in enumerate(deviations):
                steps = least * (1 + critical / batch) * slower * np.exp(off + noise * random.standard_normal())
                reached = batch not in failing
                rows.append({
                    **LABELS, "ranks": 2, "batch": batch, "trial": trial, "seed": number, "reached": reached,
                    "steps_to_target": steps if reached else np.nan, "best_accuracy": 0.85 if reached else 0.7,
                })  # fmt: skip
    return pd.DataFrame(rows)


def test_the_planted_law_is_found_again() -> None:
    (steps,) = steps_of(runs(), PRESETS_KNOWN, seed=0)
    for found, planted in ((steps.least_steps, 400), (steps.critical, 100), (steps.least_samples, 40_000)):
        value, low, high = estimate(found)
        assert low <= planted <= high
        assert value == pytest.approx(planted, rel=0.15)
    assert steps.at(48)[0] == pytest.approx(400 * (1 + 100 / 48), rel=0.05)  # not measured


def test_regimes_are_those_of_the_planted_law() -> None:
    rows = pd.DataFrame(table(steps_of(runs(critical=128, noise=0.01), PRESETS_KNOWN, seed=0), 0.1)).set_index("batch")
    # Doubling B gains (1 + x) / (1 + x / 2) with x = 128 / B: 1.8 at x = 8, and 1.1 at x = 0.22.
    assert rows["regime"][8] == Regime.PERFECT
    assert (rows["regime"][[32, 64, 128, 256]] == Regime.DIMINISHING).all()
    assert rows["regime"][1024] == Regime.NO_GAIN


def test_a_batch_is_predicted_from_the_others() -> None:
    rows = pd.DataFrame(table(steps_of(runs(), PRESETS_KNOWN, seed=0), 0.1))
    assert rows["error"].abs().median() < 0.10
    held = (rows["held_out_steps_low"] <= rows["steps"]) & (rows["steps"] <= rows["held_out_steps_high"])
    assert held.sum() >= 6


def held(studies: int, off: Callable[[np.random.Generator], float], *, noise: float = 0.03, bend: float = 1.0) -> float:
    """Share of studies at four B whose interval of the steps at one that nobody trained holds them.

    True steps are 400 (1 + (100 / B)^bend)^(1 / bend), by a factor beside it whose logarithm deviates by `off`.
    """
    found = []
    for study in range(studies):
        random = np.random.default_rng([2025, study])
        misfit = off(random)
        true = {
            batch: 400 * (1 + (100 / batch) ** bend) ** (1 / bend) * np.exp(misfit * random.standard_normal())
            for batch in (16, 64, 256, 1024, 128)
        }
        rows = [
            {**LABELS, "ranks": 2, "batch": batch, "trial": 0, "seed": seed, "reached": True, "best_accuracy": 0.85,
             "steps_to_target": true[batch] * np.exp(noise * random.standard_normal())}
            for batch in (16, 64, 256, 1024) for seed in range(3)
        ]  # fmt: skip
        (steps,) = steps_of(pd.DataFrame(rows), PRESETS_KNOWN, seed=study)
        _, low, high = estimate(steps.at(128))
        found.append(low <= true[128] <= high)
    return float(np.mean(found))


def usual(random: np.random.Generator) -> float:
    """A misfit as it is usually: as often above `USUAL_MISFIT` as below, and with heavy tails (DuMouchel 1994)."""
    share = random.uniform()
    return min(1.0, USUAL_MISFIT * share / (1 - share))


def test_nine_of_ten_intervals_hold_steps_at_a_batch_that_nobody_trained_where_laws_are_off_as_usually() -> None:
    assert 0.85 <= held(120, usual) <= 0.97


@pytest.mark.parametrize(
    ("misfit", "noise", "bend"),
    by_day(
        [(0.0, 0.1, 1), (0.1, 0.2, 1), (0.0, 0.03, 2), (0.0, 0.03, 4)], {(0.1, 0.2, 1), (0.0, 0.03, 4)}.__contains__
    ),
)
def test_intervals_hold_steps_of_the_law_of_one_twice_as_far_off_and_of_other_bends(
    misfit: float, noise: float, bend: float
) -> None:
    assert held(30, lambda _: misfit, noise=noise, bend=bend) >= 0.8


def test_steps_on_the_law_by_chance_do_not_make_it_certain() -> None:
    """Four B whose means lie on the law exactly, of seeds that are far apart: the misfit is not taken to be none."""
    (steps,) = steps_of(runs(batches=[16, 64, 256, 1024], noise=0.0), PRESETS_KNOWN, seed=0)
    (apart,) = steps_of(runs(batches=[16, 64, 256, 1024], noise=0.0, deviations=(-0.2, 0, 0.2)), PRESETS_KNOWN, seed=0)
    assert 0 < np.median(steps.misfit) < USUAL_MISFIT < np.quantile(apart.misfit, 0.9)


def test_the_best_tuned_trial_counts() -> None:
    tuned = runs(slower_trials=(3.0, 1.0, 1.5))
    (steps,) = steps_of(tuned, PRESETS_KNOWN, seed=0)
    assert {at.trial for at in steps.batches.values()} == {1}
    assert estimate(steps.least_steps)[0] == pytest.approx(400, rel=0.15)
    assert steps.batches[8].runs == 9


def test_a_batch_that_never_reaches_the_target_is_not_extrapolated() -> None:
    (steps,) = steps_of(runs(failing=(512, 1024)), PRESETS_KNOWN, seed=0)
    assert steps.reaching[-1] == 256
    assert np.isnan(steps.at(512)).all()
    assert np.isnan(steps.at(300)).all()
    row = pd.DataFrame(table([steps], 0.1)).set_index("batch").loc[1024]
    assert (row["runs"], row["runs_reached"], row["trial"], row["best_accuracy"]) == (3, 0, -1, 0.7)
    assert np.isnan(row["steps"])


def test_one_seed_that_fails_disqualifies_its_trial() -> None:
    found = runs(slower_trials=(1.0, 2.0))
    lost = (found["batch"] == 64) & (found["trial"] == 0) & (found["seed"] == 2)
    found.loc[lost, ["reached", "steps_to_target"]] = [False, np.nan]
    (steps,) = steps_of(found, PRESETS_KNOWN, seed=0)
    assert steps.batches[64].trial == 1


def test_two_batches_do_not_say_how_sure_the_critical_one_is() -> None:
    (steps,) = steps_of(runs(batches=[16, 1024], noise=0.001), PRESETS_KNOWN, seed=0)
    value, low, high = estimate(steps.critical)
    assert value == pytest.approx(100, rel=0.05)
    assert np.isnan([low, high]).all()
    assert {steps.regime(batch, 0.1) for batch in (16, 1024)} == {Regime.UNDECIDED}


def by_workers(sync: str) -> pd.DataFrame:
    """Runs of two and of four workers; the four take twice the steps."""
    both = [runs(least, noise=0.01).assign(sync=sync, ranks=ranks) for least, ranks in ((400, 2), (800, 4))]
    return pd.concat(both)


def test_steps_of_workers_with_gradients_of_their_own_are_those_of_as_many_workers() -> None:
    two, four = steps_of(by_workers("asynchronous"), PRESETS_KNOWN, seed=0)
    assert (two.ranks, four.ranks) == (2, 4)
    assert four.least_steps[0] == pytest.approx(2 * two.least_steps[0], rel=0.05)


def test_steps_of_workers_that_share_a_batch_are_one_law() -> None:
    for sync in ("wfbp", "parameter-server", "delayed-gradients"):
        (steps,) = steps_of(by_workers(sync), PRESETS_KNOWN, seed=0)
        assert steps.ranks == ANY_COUNT
        assert steps.batches[64].runs == 6


def test_one_batch_tells_no_law() -> None:
    (steps,) = steps_of(runs(batches=[64]), PRESETS_KNOWN, seed=0)
    assert np.isnan(steps.critical).all()
    assert steps.at(64)[0] == pytest.approx(400 * (1 + 100 / 64), rel=0.1)
    assert steps.regime(64, 0.1) == Regime.UNDECIDED


@fewer_examples(5)
@given(least=st.floats(20, 1e5), critical=st.floats(10, 5000), scale=st.sampled_from([0.5, 2.0, 10.0]))
def test_steps_scale_with_the_training(least: float, critical: float, scale: float) -> None:
    one, other = (steps_of(runs(factor * least, critical), PRESETS_KNOWN, seed=0)[0] for factor in (1.0, scale))
    assert other.least_steps[0] == pytest.approx(scale * one.least_steps[0], rel=1e-6)
    assert other.critical[0] == pytest.approx(one.critical[0], rel=1e-6)


# A noisy quadratic (Zhang et al. 2019, "Which Algorithmic Choices Matter at Which Batch Sizes?"): curvatures h, and a
# gradient whose noise is SIGMA2 times its own square in every direction, so that B_simple = B_crit = SIGMA2 all along.
CURVATURES = 1.0 / np.arange(1, 51)
SIGMA2 = 60.0


def quadratic_steps(batch: float) -> float:
    """Steps until the expected loss is a thousandth, each of the best size (McCandlish et al., eq. (2.6))."""
    moments, steps = np.ones(len(CURVATURES)), 0
    start = (CURVATURES * moments).sum()
    while (CURVATURES * moments).sum() > start / 1000:
        gradient, curved = (CURVATURES**2 * moments).sum(), (CURVATURES**3 * moments).sum()
        size = gradient / (curved * (1 + SIGMA2 / batch))
        moments = moments * ((1 - size * CURVATURES) ** 2 + (size * CURVATURES) ** 2 * SIGMA2 / batch)
        steps += 1
    return steps


def test_a_noisy_quadratic_has_the_critical_batch_of_its_noise() -> None:
    found = pd.DataFrame([
        {**LABELS, "ranks": 2, "batch": batch, "trial": 0, "seed": seed, "reached": True, "best_accuracy": 0.9,
         "steps_to_target": quadratic_steps(batch)}
        for batch in (2, 8, 32, 128, 512, 4096) for seed in range(3)
    ])  # fmt: skip
    (steps,) = steps_of(found, PRESETS_KNOWN, seed=0)
    assert steps.critical[0] == pytest.approx(SIGMA2, rel=0.15)
    assert steps.least_steps[0] == pytest.approx(quadratic_steps(1e9), rel=0.15)


def gradients(workers: int = 4, worker_batch: int = 8, *, steps: int = 200, seeds: int = 3) -> pd.DataFrame:
    """Squared norms of workers' gradients of that quadratic, and of their mean."""
    random = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        for step in range(1, steps + 1):
            gradient = CURVATURES * random.standard_normal(len(CURVATURES))
            noise = gradient * np.sqrt(SIGMA2 / worker_batch) * random.standard_normal((workers, len(CURVATURES)))
            own = gradient + noise
            rows.append({
                **LABELS, "step": step, "seed": seed, "worker_batch": worker_batch, "batch": workers * worker_batch,
                "small": (own**2).sum(-1).mean(), "large": (own.mean(0) ** 2).sum(),
            })  # fmt: skip
    return pd.DataFrame(rows).drop(columns="target")


def critical(runs: pd.DataFrame, gradients: pd.DataFrame) -> dict[str, Any]:
    noise = partial(noise_scale.noise_scale_of_training, gradient_noise=gradients, seed=0)
    (row,) = noise_scale.critical_batches(steps_of(runs, PRESETS_KNOWN, seed=0), noise, 0.1)
    return row


def test_the_noise_scale_of_a_noisy_quadratic_is_found_from_its_workers() -> None:
    (row, *others) = noise_scale.table(gradients(), seed=0)
    assert [row["part"], *(other["part"] for other in others)] == [1, 2, 3, 4]
    assert row["steps"] == 150
    whole = critical(runs(critical=SIGMA2), gradients())
    assert whole["noise_scale_low"] <= SIGMA2 <= whole["noise_scale_high"]
    assert whole["noise_scale"] == pytest.approx(SIGMA2, rel=0.15)
    assert whole["noise_over_critical_low"] <= 1 <= whole["noise_over_critical_high"]


def test_one_worker_tells_no_noise() -> None:
    alone = gradients(workers=1)
    assert list(noise_scale.table(alone, seed=0)) == []
    whole = critical(runs(), alone)
    assert np.isnan(whole["noise_scale"])
    assert whole["critical_batch"] > 0


def test_norms_of_the_first_step_alone_are_the_first_part() -> None:
    first = gradients(steps=1).assign(step=0)
    (row,) = noise_scale.table(first, seed=0)
    assert (row["part"], row["steps"]) == (1, 3)


def test_a_run_that_diverged_says_nothing_of_the_noise() -> None:
    whole, exploded = gradients().assign(cell="whole"), gradients(seeds=1).assign(cell="exploded", seed=3)
    exploded.loc[exploded["step"] > 100, ["small", "large"]] = [1e20, 0.99e20]
    exploded.loc[exploded["step"] > 150, ["small", "large"]] = np.inf
    ended = pd.DataFrame({"cell": ["whole", "exploded"], "ended": ["target", "diverged"]})
    kept = noise_scale.rows_without_divergence(pd.concat([whole, exploded]), ended)
    assert critical(runs(critical=SIGMA2), kept)["noise_scale"] == pytest.approx(SIGMA2, rel=0.15)
    assert list(noise_scale.table(kept, seed=0)) == list(noise_scale.table(whole, seed=0))


def test_pure_noise_has_no_end() -> None:
    noise = gradients(worker_batch=8).assign(small=4.0, large=1.0)  # a mean of four is a quarter: no signal
    (row, *_) = noise_scale.table(noise, seed=0)
    assert row["noise_scale"] == np.inf
