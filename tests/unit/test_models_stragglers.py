import numpy as np
import pandas as pd
import pytest

from stallpoint.errors import InputError
from stallpoint.models.stragglers import OWN, iteration_times


def iterations(own: np.ndarray, after: float = 0.0) -> pd.DataFrame:
    """Rows of the iterations table for own times [iterations, ranks], each followed by `after` for all."""
    count, ranks = own.shape
    slowest = own.max(axis=1)
    return pd.DataFrame(
        {
            "cell": "a",
            "network": "alexnet",
            "hardware": "cpu",
            "worker_batch": 32,
            "warmup": False,
            "rank": np.tile(np.arange(ranks), count),
            "iteration": np.repeat(np.arange(count), ranks),
            **dict.fromkeys(OWN, 0.0),
            "forward": own.reshape(-1),
            "iteration_time": np.repeat(slowest + after, ranks),
        }
    )


def harmonic(n: int) -> float:
    return float((1 / np.arange(1, n + 1)).sum())


@pytest.mark.parametrize("workers", [1, 4, 16, 64])
@pytest.mark.parametrize("ranks", [1, 4])
def test_the_largest_of_n_exponentials_has_mean_h_n(workers: int, ranks: int) -> None:
    # Rényi 1953: the mean of the maximum of n exponential times of mean 1 is 1 + 1/2 + ... + 1/n.
    own = np.random.default_rng(1).exponential(size=(20_000, ranks))
    found = iteration_times(iterations(own), workers, samples=40_000, seed=2)
    assert found.mean == pytest.approx(harmonic(workers), rel=0.03)


@pytest.mark.parametrize("workers", [2, 9])
def test_the_largest_of_n_uniforms_is_beta_distributed(workers: int) -> None:
    own = np.random.default_rng(1).random((20_000, 1))
    found = iteration_times(iterations(own), workers, samples=40_000)
    shares = np.array([0.05, 0.5, 0.95])
    assert found.quantile(shares) == pytest.approx(shares ** (1 / workers), abs=0.01)


def test_the_largest_of_normals_grows_as_extreme_value_theory_says() -> None:
    # 256 standard normal times: mean of the maximum 2.8269 (numerical integration of x n φ Φ^(n-1)).
    own = 10 + np.random.default_rng(1).normal(size=(100_000, 2))
    assert iteration_times(iterations(own), 256, samples=40_000).mean == pytest.approx(12.827, abs=0.04)


def test_what_slows_all_at_once_is_no_straggling() -> None:
    together = np.random.default_rng(1).exponential(size=(20_000, 1))
    own = 1 + np.repeat(together, 4, axis=1)
    assert iteration_times(iterations(own), 64, samples=40_000).mean == pytest.approx(2, rel=0.02)


def test_half_in_common_half_alone() -> None:
    random = np.random.default_rng(1)
    own = random.normal(size=(50_000, 1)) + random.normal(size=(50_000, 8)) + 10
    found = iteration_times(iterations(own), 64, samples=40_000)
    # 64 standard normal times: mean of the maximum 2.3437, standard deviation 0.451; and 1 for what is common.
    assert found.mean == pytest.approx(12.34, abs=0.06)
    assert found.seconds.std() == pytest.approx(np.hypot(1, 0.451), rel=0.05)


def test_a_slow_rank_stays_slow_and_is_its_share_of_the_workers() -> None:
    own = np.ones((10, 4)) * [1, 1, 1, 3]
    assert (iteration_times(iterations(own), 4).seconds == 3).all()
    assert (iteration_times(iterations(own), 4096).seconds == 3).all()
    assert iteration_times(iterations(own), 1, samples=20_000).mean == pytest.approx(1.5, rel=0.03)


def test_what_follows_the_slowest_is_added() -> None:
    own = np.random.default_rng(1).random((50, 2))
    alone, followed = (iteration_times(iterations(own, after), 8, seed=3) for after in (0.0, 2.0))
    assert followed.seconds == pytest.approx(alone.seconds + 2)
    assert iteration_times(iterations(own, 2.0), 8, rest=5.0, seed=3).seconds == pytest.approx(alone.seconds + 5)


def test_equal_seeds_give_equal_draws_and_order_of_rows_does_not_matter() -> None:
    rows = iterations(np.random.default_rng(1).random((50, 3)))
    one = iteration_times(rows, 8, seed=3).seconds
    assert (iteration_times(rows.sample(frac=1, random_state=0), 8, seed=3).seconds == one).all()
    assert (iteration_times(rows, 8, seed=4).seconds != one).any()


def test_cells_of_different_length_and_ranks_go_together() -> None:
    few, many = iterations(np.ones((3, 1))), iterations(np.full((5, 4), 2.0)).assign(cell="b")
    found = iteration_times(pd.concat([few, many]), 5)
    assert set(found.seconds) == {2.0}


def test_a_million_workers_cost_no_more() -> None:
    own = np.random.default_rng(1).random((100, 1))
    assert iteration_times(iterations(own), 10**6).mean == pytest.approx(own.max())


def test_unusable_rows_are_refused() -> None:
    rows = iterations(np.ones((3, 2)))
    for wrong, message in (
        (rows[:0], "no measured iteration"),
        (rows.assign(warmup=True), "no measured iteration"),
        (rows.assign(worker_batch=range(6)), "6 values of worker_batch"),
        (rows.assign(forward=-1.0), "negative or no number"),
        (rows.assign(backward=np.nan), "negative or no number"),
        (rows.assign(iteration_time=np.nan), "iteration_time: a time that is"),
    ):
        with pytest.raises(InputError, match=message):
            iteration_times(wrong, 4)
    with pytest.raises(InputError, match="0 workers"):
        iteration_times(rows, 0)
    with pytest.raises(InputError, match="rest of -1"):
        iteration_times(rows, 1, rest=-1)
