from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from nightly import by_day
from scipy.optimize import nnls
from scipy.stats import t as student_t

from stallpoint.base.non_negative_fits import non_negative_fit, non_negative_least_squares, quasi_poisson_fit
from stallpoint.base.shrinkage import shrink_to_each_other
from stallpoint.base.statistics import (
    REPLICATES,
    VISIT_PRIOR,
    Reals,
    Scatter,
    bootstrap,
    columns,
    estimate,
    generator,
    scatter,
    scatter_of_parts,
    visits_of,
)


def test_first_entry_is_the_mean_over_visits_of_what_each_says() -> None:
    ensemble = bootstrap([[1.0, 10.0], [2.0, 20.0], [6.0, 60.0], [9.0, 90.0]], [1, 1, 1, 2], generator(0))
    assert ensemble.shape == (1 + REPLICATES, 2)
    assert ensemble[0].tolist() == [5.5, 55.0]
    assert np.allclose(ensemble[:, 1], 10 * ensemble[:, 0])  # quantities of one iteration stay together


@pytest.mark.parametrize(
    ("visits", "unequal"), by_day(product((1, 2, 4, 8), (False, True)), {(1, False), (4, True)}.__contains__)
)
def test_intervals_cover_the_truth_as_often_as_they_say(visits: int, unequal: bool) -> None:
    """Visits differ by 3 % (or 1 to 10 %, each cell by its own), iterations by 2 %; one cell in ten has four."""
    covered = []
    for trial in range(60):
        random = np.random.default_rng(trial)
        counts = [visits] * 9 + [4]
        frame = pd.concat([_cell(name, count, random, unequal) for name, count in enumerate(counts)])
        usual = scatter(frame, ["cell"], "seconds")
        for _, rows in frame[frame["cell"] < 9].groupby("cell"):
            _, low, high = estimate(bootstrap(rows["seconds"], visits_of(rows), random, prior=usual))
            covered.append(low <= 10 <= high)
    assert 0.84 <= np.mean(covered) <= (1.0 if visits == 1 else 0.97)  # one visit: by the prior, which is wide


def _cell(name: int, visits: int, random: np.random.Generator, unequal: bool) -> pd.DataFrame:
    apart = np.exp(random.uniform(np.log(0.01), np.log(0.1))) if unequal else 0.03
    seconds = 10 * np.exp(apart * random.normal(size=(visits, 1)) + 0.02 * random.normal(size=(visits, 5)))
    rows = {"cell": name, "repeat": 1, "visit": np.repeat(range(visits), 5), "seconds": seconds.ravel()}
    return pd.DataFrame(rows)


def test_what_differs_between_visits_makes_the_interval() -> None:
    values = np.concatenate([np.linspace(level, level + 0.1, 50) for level in (1.0, 2.0, 3.0)])
    _, low, high = estimate(bootstrap(values, np.repeat([1, 2, 3], 50), generator(0)))
    assert low < 1.5
    assert high > 2.6


def test_visits_to_other_cells_say_how_far_those_of_a_cell_may_lie_apart() -> None:
    random = np.random.default_rng(1)
    noisy, quiet = (_planted(deviation, random) for deviation in (0.1, 0.01))
    assert scatter(noisy, ["cell"], "seconds").deviation == pytest.approx(0.1, rel=0.15)
    assert scatter(quiet, ["cell"], "seconds").deviation == pytest.approx(0.01, rel=0.15)
    assert scatter(quiet, ["cell"], "seconds").freedom > 5
    mixed = pd.concat([noisy, quiet.assign(cell=quiet["cell"] + 100)])
    assert scatter(mixed, ["cell"], "seconds").freedom < 3
    equal = [2.0] * 4  # by luck
    lucky = bootstrap(equal, range(4), generator(0), prior=scatter(noisy, ["cell"], "seconds"))
    assert np.log(lucky).std() == pytest.approx(0.1 / 2, rel=0.2)


def _planted(deviation: float, random: np.random.Generator) -> pd.DataFrame:
    seconds = np.exp(deviation * random.normal(size=40 * 4))
    return pd.DataFrame(
        {"cell": np.repeat(range(40), 4), "repeat": 1, "visit": np.tile(range(4), 40), "seconds": seconds}
    )


def test_without_a_second_visit_anywhere_a_stated_prior_holds() -> None:
    frame = pd.DataFrame({"cell": [1, 2], "repeat": 1, "visit": 1, "seconds": [1.0, 2.0]})
    assert scatter(frame, ["cell"], "seconds") == VISIT_PRIOR
    one = bootstrap([1.0, 1.0, 1.0], [4, 4, 4], generator(0))
    # Student's t with as many degrees of freedom as the prior has.
    _, low, high = estimate(one)
    wanted = VISIT_PRIOR.deviation * student_t.ppf([0.05, 0.95], VISIT_PRIOR.freedom)
    assert np.log([low, high]) == pytest.approx(wanted, rel=0.35)


@pytest.mark.parametrize(("within", "part"), [(0.001, 0.25), (0.01, 0.375), (0.1, 1.0)])
def test_iterations_that_are_alike_make_a_single_visit_surer(within: float, part: float) -> None:
    random = np.random.default_rng(2)
    seconds = np.exp(within * random.standard_normal(20 * 10))
    frame = pd.DataFrame({"cell": np.repeat(range(20), 10), "repeat": 1, "visit": 1, "seconds": seconds})
    found = scatter(frame, ["cell"], "seconds")
    assert found.deviation == pytest.approx(part * VISIT_PRIOR.deviation, rel=0.15)
    assert found.freedom == VISIT_PRIOR.freedom


def test_two_cells_visited_four_times_tell_their_ratio() -> None:
    """They were 0.5 % apart and told to 5 %: a prior of 8 % weighed as much as their six degrees of freedom."""
    random = np.random.default_rng(3)
    widths = []
    for _ in range(40):
        seconds = np.exp(0.005 * random.standard_normal(8))
        frame = pd.DataFrame({"cell": np.repeat([0, 1], 4), "repeat": 1, "visit": [1, 2, 3, 4] * 2, "seconds": seconds})
        usual = scatter(frame, ["cell"], "seconds")
        first, second = (bootstrap(rows["seconds"], rows["visit"], random, prior=usual)
                         for _, rows in frame.groupby("cell"))  # fmt: skip
        value, low, high = estimate(second / first)
        widths.append((high - low) / 2 / value)
    assert 0.006 < np.median(widths) < 0.02


PARTS = ("data_wait", "forward", "exposed_communication")


def parts_of_cells(visits: int, each: float, common: float, random: np.random.Generator) -> pd.DataFrame:
    """Six cells of three parts, of which each deviates by itself and all in common; their truth is 0.2, 1, 0.5 s."""
    rows = []
    for cell in range(6):
        shared = common * random.standard_normal((visits, 1))
        parts = {
            name: seconds
            * np.exp(shared + each * random.standard_normal((visits, 1)) + 0.03 * random.standard_normal((visits, 5)))
            for name, seconds in zip(PARTS, (0.2, 1.0, 0.5), strict=True)
        }
        times = {name: value.ravel() for name, value in parts.items()}
        rows.append(pd.DataFrame({
            "cell": cell, "repeat": 1, "visit": np.repeat(range(visits), 5), **times, "whole": sum(times.values()),
        }))  # fmt: skip
    return pd.concat(rows, ignore_index=True)


@pytest.mark.parametrize(
    ("visits", "common"), by_day(product((1, 2, 4), (0.0, 0.03)), {(1, 0.0), (4, 0.03)}.__contains__)
)
def test_a_share_is_as_uncertain_as_its_part_is_by_itself(visits: int, common: float) -> None:
    """Where one factor widens all parts, it cancels in their shares: with one visit one share in four was held."""
    held: dict[str, list[bool]] = {"share": [], "whole": []}
    for trial in range(12):
        random = np.random.default_rng([5, trial])
        frame = parts_of_cells(visits, 0.05, common, random)
        usual = scatter_of_parts(frame, ["cell"], "whole", PARTS, [])
        for _, rows in frame.groupby("cell"):
            drawn = bootstrap(rows[[*PARTS, "whole"]], rows["visit"], random, np.mean, usual)
            assert drawn[:, 3] == pytest.approx(drawn[:, :3].sum(axis=1), rel=1e-12)
            for place, seconds in enumerate((0.2, 1.0, 0.5)):
                _, low, high = estimate(drawn[:, place] / drawn[:, 3])
                held["share"].append(low <= seconds / 1.7 <= high)
            _, low, high = estimate(drawn[:, 3])
            held["whole"].append(low <= 1.7 <= high)
    for of in held.values():
        assert 0.8 <= np.mean(of) <= (1.0 if visits == 1 else 0.98)


def test_parts_that_deviate_as_one_have_shares_that_do_not() -> None:
    random = np.random.default_rng(6)
    frame = parts_of_cells(4, 0.0, 0.1, random)
    usual = scatter_of_parts(frame, ["cell"], "whole", PARTS, [])
    rows = frame[frame["cell"] == 0]
    drawn = bootstrap(rows[[*PARTS, "whole"]], rows["visit"], random, np.mean, usual)
    assert np.log(drawn[:, 3]).std() > 0.03
    assert np.log(drawn[:, 1] / drawn[:, 3]).std() < 0.01


def test_what_moves_with_parts_keeps_its_part_of_them() -> None:
    random = np.random.default_rng(7)
    frame = parts_of_cells(1, 0.1, 0.0, random).assign(also=lambda rows: 0.5 * rows["forward"])
    usual = scatter_of_parts(frame, ["cell"], "whole", PARTS, [("forward",)])
    rows = frame[frame["cell"] == 0]
    drawn = bootstrap(rows[[*PARTS, "whole", "also"]], rows["visit"], random, np.mean, usual)
    assert drawn[:, 4] == pytest.approx(0.5 * drawn[:, 1], rel=1e-9)


def test_what_a_round_slows_is_no_doubt_of_a_ratio() -> None:
    """Rounds 10 % apart and visits 1 %: times are known to some 8 %, ratios to 1 %."""
    held: dict[str, list[bool]] = {"times": [], "ratios": []}
    widths = []
    for trial in range(24):
        random = np.random.default_rng([8, trial])
        logs = 0.1 * random.standard_normal(4) + 0.01 * random.standard_normal((6, 4))
        frame = pd.DataFrame({
            "cell": np.repeat(range(6), 4), "repeat": 1, "visit": np.tile(range(4), 6), "whole": np.exp(logs).ravel(),
        })  # fmt: skip
        frame = frame.assign(forward=frame["whole"])
        usual = scatter_of_parts(frame, ["cell"], "whole", ["forward"], [])
        drawn = [
            bootstrap(rows[["forward", "whole"]], rows["visit"], random, np.mean, usual)[:, 1]
            for _, rows in frame.groupby("cell")
        ]
        for one in drawn[1:]:
            for name, ensemble in (("times", one), ("ratios", one / drawn[0])):
                value, low, high = estimate(ensemble)
                held[name].append(low <= 1 <= high)
            widths.append((high - low) / 2 / value)
    assert np.median(widths) < 0.02
    assert np.mean(held["ratios"]) > 0.84
    assert np.mean(held["times"]) > 0.8


def test_rounds_that_do_not_differ_are_none() -> None:
    found = []
    for trial in range(12):
        frame = _planted(0.05, np.random.default_rng([10, trial])).assign(forward=lambda rows: rows["seconds"])
        usual = scatter_of_parts(frame, ["cell"], "seconds", ["forward"], [])
        found.append(usual.total.rounds.deviation if usual.total.rounds else 0.0)
        assert usual.total.deviation == pytest.approx(0.05, rel=0.3)
    assert np.median(found) < 0.01


def test_values_of_one_kind_are_nearer_to_each_other_the_less_they_are_known() -> None:
    alike = shrink_to_each_other(np.array([0.1, -0.1, 0.0, 0.02]), np.full(4, 0.1))
    assert np.abs(alike).max() < 0.05
    apart = np.array([0.0, 1.0, -1.0, 2.0])
    assert shrink_to_each_other(apart, np.full(4, 0.01)) == pytest.approx(apart, abs=1e-3)


def test_a_single_visit_adds_what_its_iterations_differ_by() -> None:
    quiet = Scatter(1e-6, 50)
    ensemble = bootstrap([1.0, 2.0, 3.0], [4, 4, 4], generator(0), prior=quiet)
    assert estimate(ensemble)[1:] == pytest.approx((np.exp(-0.5) * 2, np.exp(0.5) * 2), rel=0.01)


@given(
    st.integers(1, 6),
    arrays(float, 24, elements=st.floats(-10, 10).map(lambda value: round(value, 3))),
    st.integers(0, 5),
)
def test_what_cannot_be_negative_stays_so(visits: int, values: Reals, seed: int) -> None:
    of = np.arange(24) % visits
    assert (bootstrap(np.abs(values), of, generator(seed)) >= 0).all()
    assert np.isfinite(bootstrap(values, of, generator(seed))).all()


def test_with_several_repeats_each_counts_as_one_visit() -> None:
    rows = pd.DataFrame({"repeat": [1, 1, 2, 2, 2], "visit": [1, 2, 1, 2, 2]})
    assert visits_of(rows).tolist() == [1, 1, 2, 2, 2]  # visits of one job share what is the job's own
    assert visits_of(rows[rows["repeat"] == 1]).tolist() == [1, 2]


def test_random_numbers_depend_on_seed_and_key_alone() -> None:
    assert generator(1, "a", 2).random() == generator(1, "a", 2).random()
    assert generator(1, "a", 2).random() != generator(1, "a", 3).random()
    assert generator(1, "a", 2).random() != generator(2, "a", 2).random()


def test_estimate_holds_its_value_and_tells_infinite_from_unknown() -> None:
    value, low, high = estimate(np.array([5.0, *np.linspace(0, 1, 100)]))
    assert (value, high) == (5.0, 5.0)
    assert low == pytest.approx(0.05, abs=0.02)
    assert estimate(np.array([np.inf, 4.0, np.inf, np.inf]))[2] == np.inf
    assert np.isnan(estimate(np.array([1.0, np.nan]))[1])
    assert columns("x", np.array([2.0, 2.0])) == {"x": 2.0, "x_low": 2.0, "x_high": 2.0}


@given(arrays(float, 6, elements=st.floats(0.1, 100), unique=True), arrays(float, 6, elements=st.floats(0.01, 100)))
def test_fit_is_the_non_negative_least_squares_solution(x: Reals, y: Reals) -> None:
    design = np.stack([np.ones(6), x], axis=-1)
    _, distance = nnls(design / np.sqrt(y)[:, None], np.sqrt(y))
    found = non_negative_fit(design, y)
    assert (found >= 0).all()
    assert np.linalg.norm((design @ found - y) / np.sqrt(y)) == pytest.approx(distance, abs=1e-6)


@given(arrays(float, 6, elements=st.floats(0.1, 100), unique=True), arrays(float, 6, elements=st.floats(-100, 100)))
def test_what_is_fitted_may_be_negative(x: Reals, y: Reals) -> None:
    design = np.stack([np.ones(6), x], axis=-1)
    found = non_negative_least_squares(design, y)
    assert (found >= 0).all()
    assert np.linalg.norm(design @ found - y) == pytest.approx(nnls(design, y)[1], abs=1e-6)


def of_columns(design: Reals, *others: Reals) -> Reals:
    return quasi_poisson_fit(design[..., 0], design[..., 1], *others)


@given(
    arrays(float, 6, elements=st.floats(0.1, 100), unique=True),
    arrays(float, 6, elements=st.floats(0.01, 100)),
    arrays(int, 6, elements=st.integers(1, 3)),
)
def test_what_varies_with_its_mean_is_fitted_with_the_same_sum(x: Reals, y: Reals, count: Reals) -> None:
    design = np.stack([np.ones(6), x], axis=-1)
    found = of_columns(design, y, count)
    assert (found >= 0).all()
    assert (count * (design @ found)).sum() == pytest.approx((count * y).sum(), rel=0.02)
    again = of_columns(np.repeat(design, count, axis=0), np.repeat(y, count))
    assert found == pytest.approx(again, rel=1e-6, abs=1e-9)


def test_times_that_spread_do_not_pull_their_fit_down() -> None:
    random = np.random.default_rng(0)
    sizes = np.tile([1.0, 10.0, 100.0], 2000)
    design = np.stack([np.ones_like(sizes), sizes], axis=-1)
    times = (design @ [3.0, 0.5]) * random.gamma(0.5, 2.0, len(sizes))
    assert of_columns(design, times) == pytest.approx([3.0, 0.5], rel=0.1)
    assert non_negative_fit(design, times)[0] < 1.0


def test_a_large_fit_is_what_its_replicates_are_one_by_one() -> None:
    random = np.random.default_rng(0)
    known = random.uniform(0.1, 10.0, (300, 200))
    coefficients = np.column_stack([np.tile([2.0, 0.0, 1.0], 100), np.tile([1.0, 1.0, 0.0], 100)])  # two lie on an axis
    times = np.einsum("rk,rpk->rp", coefficients, np.stack([np.ones_like(known), known], axis=-1))
    times = np.maximum(times + random.normal(0, 0.5, times.shape), 0.0)
    design, count = np.stack([np.ones_like(known), known], axis=-1), random.integers(0, 3, known.shape)
    alone = [of_columns(design[at : at + 1], times[at : at + 1], count[at : at + 1]) for at in range(300)]
    assert of_columns(design, times, count) == pytest.approx(np.concatenate(alone), rel=1e-9, abs=1e-9)


def test_fit_of_many_at_once_and_of_a_part_that_takes_no_time() -> None:
    design = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    truth = np.array([[0.5, 2.0], [3.0, 0.0], [0.0, 1.0]])
    assert non_negative_fit(design, truth @ design.T) == pytest.approx(truth, abs=1e-9)
    assert non_negative_fit(design, np.zeros(3)).tolist() == [0.0, 0.0]


def test_intervals_of_many_observations_are_as_narrow_as_they_are_many() -> None:
    values = np.random.default_rng(0).normal(10.0, 1.0, 40 * 10_000)
    few, many = (
        bootstrap(drawn, np.zeros(len(drawn)), np.random.default_rng(1), prior=Scatter(0.0, 50))
        for drawn in (values[:10_000], values)
    )
    # The median of n normal values has the standard error 1.2533 / sqrt(n).
    assert few[1:].std() == pytest.approx(1.2533 / np.sqrt(10_000), rel=0.4)
    assert many[1:].std() == pytest.approx(1.2533 / np.sqrt(400_000), rel=0.4)


@pytest.mark.parametrize("missing", [False, True])
def test_many_values_are_fitted_as_few_are(missing: bool) -> None:
    """Above some number a compiled loop fits them, which takes finite numbers for granted."""
    random = np.random.default_rng(0)
    design = random.uniform(0.5, 2.0, (300, 200, 2))
    times = (design @ [0.3, 0.7]) * random.uniform(0.9, 1.1, (300, 200))
    if missing:
        times[3, 5] = np.nan
    apart = np.concatenate([of_columns(design[part], times[part]) for part in np.array_split(range(300), 20)])
    assert of_columns(design, times) == pytest.approx(apart, rel=1e-9)
