import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import nnls
from scipy.stats import norm
from scipy.stats import t as student_t

from stallpoint.models.statistics import (
    OTHERS_TELL,
    REPLICATES,
    Reals,
    bootstrap,
    columns,
    estimate,
    generator,
    non_negative_fit,
    non_negative_least_squares,
    quasi_poisson_fit,
    visits_of,
)


def test_first_entry_is_the_statistic_of_the_records_themselves() -> None:
    ensemble = bootstrap([[1.0, 10.0], [2.0, 20.0], [9.0, 90.0]], [1, 1, 2], generator(0))
    assert ensemble.shape == (1 + REPLICATES, 2)
    assert ensemble[0].tolist() == [2.0, 20.0]
    assert np.allclose(ensemble[:, 1], 10 * ensemble[:, 0])  # quantities of one iteration stay together


def test_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    covered = 0
    for trial in range(200):
        random = np.random.default_rng(trial)
        jobs = random.normal(10, 1, size=(20, 1))
        values = jobs + random.normal(0, 1, size=(20, 10))
        _, low, high = estimate(bootstrap(values.ravel(), np.repeat(range(20), 10), random))
        covered += low <= 10 <= high
    assert 0.82 <= covered / 200 <= 0.97


def test_differences_between_repeats_widen_the_interval() -> None:
    values = np.concatenate([np.linspace(level, level + 0.1, 50) for level in (1.0, 2.0, 3.0)])
    _, low, high = estimate(bootstrap(values, np.repeat([1, 2, 3], 50), generator(0)))
    _, low_pooled, high_pooled = estimate(bootstrap(values, np.zeros(150), generator(0)))
    assert high - low > 1.5 * (high_pooled - low_pooled)


@pytest.mark.parametrize("visits", [4, 8])
def test_few_visits_of_equal_spread_cover_the_truth_as_often_as_they_say(visits: int) -> None:
    covered = 0
    for trial in range(300):
        random = np.random.default_rng(trial)
        values = random.normal(10, 1, size=(visits, 1)) + random.normal(0, 0.3, size=(visits, 10))
        _, low, high = estimate(bootstrap(values.ravel(), np.repeat(range(visits), 10), random))
        covered += low <= 10 <= high
    assert 0.8 <= covered / 300 <= 0.98


def test_replicates_of_visits_of_different_length_are_drawn_apart() -> None:
    ensemble = bootstrap([1.0] * 3 + [5.0], [7, 7, 7, 9], generator(0))
    # Two visits have half of the variance, and Student's t of 1 + 4 degrees of freedom wider quantiles.
    apart = np.sqrt(2) * student_t.ppf(0.95, 1 + OTHERS_TELL) / norm.ppf(0.95)
    assert np.unique(ensemble.round(9)) == pytest.approx([1.0, 3.0**apart, 5.0**apart])


@given(
    st.integers(2, 6),
    arrays(float, 24, elements=st.floats(-10, 10).map(lambda value: round(value, 3))),
    st.integers(0, 5),
)
def test_drawing_apart_keeps_what_cannot_be_negative_so(visits: int, values: Reals, seed: int) -> None:
    of = np.arange(24) % visits
    assert (bootstrap(np.abs(values), of, generator(seed)) >= 0).all()
    assert np.isfinite(bootstrap(values, of, generator(seed))).all()


def test_a_single_visit_is_drawn_as_it_is() -> None:
    ensemble = bootstrap([1.0, 2.0, 3.0], [4, 4, 4], generator(0))
    assert set(np.unique(ensemble)) <= {1.0, 2.0, 3.0}


def test_a_visit_is_one_of_its_repeat() -> None:
    rows = pd.DataFrame({"repeat": [1, 1, 2, 2, 2], "visit": [1, 2, 1, 2, 2]})
    assert visits_of(rows).tolist() == [0, 1, 2, 3, 3]


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


@settings(deadline=None)
@given(
    arrays(float, 6, elements=st.floats(0.1, 100), unique=True),
    arrays(float, 6, elements=st.floats(0.01, 100)),
)
def test_fit_is_the_non_negative_least_squares_solution(x: Reals, y: Reals) -> None:
    design = np.stack([np.ones(6), x], axis=-1)
    _, distance = nnls(design / np.sqrt(y)[:, None], np.sqrt(y))
    found = non_negative_fit(design, y)
    assert (found >= 0).all()
    assert np.linalg.norm((design @ found - y) / np.sqrt(y)) == pytest.approx(distance, abs=1e-6)


@settings(deadline=None)
@given(
    arrays(float, 6, elements=st.floats(0.1, 100), unique=True),
    arrays(float, 6, elements=st.floats(-100, 100)),
)
def test_what_is_fitted_may_be_negative(x: Reals, y: Reals) -> None:
    design = np.stack([np.ones(6), x], axis=-1)
    found = non_negative_least_squares(design, y)
    assert (found >= 0).all()
    assert np.linalg.norm(design @ found - y) == pytest.approx(nnls(design, y)[1], abs=1e-6)


@settings(deadline=None)
@given(
    arrays(float, 6, elements=st.floats(0.1, 100), unique=True),
    arrays(float, 6, elements=st.floats(0.01, 100)),
    arrays(int, 6, elements=st.integers(1, 3)),
)
def test_what_varies_with_its_mean_is_fitted_with_the_same_sum(x: Reals, y: Reals, count: Reals) -> None:
    design = np.stack([np.ones(6), x], axis=-1)
    found = quasi_poisson_fit(design, y, count)
    assert (found >= 0).all()
    assert (count * (design @ found)).sum() == pytest.approx((count * y).sum(), rel=0.02)
    again = quasi_poisson_fit(np.repeat(design, count, axis=0), np.repeat(y, count))
    assert found == pytest.approx(again, rel=1e-6, abs=1e-9)


def test_times_that_spread_do_not_pull_their_fit_down() -> None:
    random = np.random.default_rng(0)
    sizes = np.tile([1.0, 10.0, 100.0], 2000)
    design = np.stack([np.ones_like(sizes), sizes], axis=-1)
    times = (design @ [3.0, 0.5]) * random.gamma(0.5, 2.0, len(sizes))
    assert quasi_poisson_fit(design, times) == pytest.approx([3.0, 0.5], rel=0.1)
    assert non_negative_fit(design, times)[0] < 1.0


def test_fit_of_many_at_once_and_of_a_part_that_takes_no_time() -> None:
    design = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    truth = np.array([[0.5, 2.0], [3.0, 0.0], [0.0, 1.0]])
    assert non_negative_fit(design, truth @ design.T) == pytest.approx(truth, abs=1e-9)
    assert non_negative_fit(design, np.zeros(3)).tolist() == [0.0, 0.0]


def test_intervals_of_many_observations_are_as_narrow_as_they_are_many() -> None:
    values = np.random.default_rng(0).normal(10.0, 1.0, 40 * 10_000)
    few, many = (
        bootstrap(drawn, np.zeros(len(drawn)), np.random.default_rng(1)) for drawn in (values[:10_000], values)
    )
    # The median of n normal values has the standard error 1.2533 / sqrt(n).
    assert few[1:].std() == pytest.approx(1.2533 / np.sqrt(10_000), rel=0.4)
    assert many[1:].std() == pytest.approx(1.2533 / np.sqrt(400_000), rel=0.4)
