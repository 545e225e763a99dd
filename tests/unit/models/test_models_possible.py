"""Computing times that cannot be: a spell at one mini-batch must not look like a superlinear speedup at another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import study

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.terms.compute import Compute, corrections
from stallpoint.models.terms.training_cells import reduced_cells

BATCHES = (1, 2, 4, 8, 16)
ONE = {"nodes": (1, 2), "storages": ("local",), "syncs": ("naive",), "prefetches": (0,)}


def ensemble(seconds: list[float], deviations: list[float]) -> np.ndarray:
    logs = np.random.default_rng(0).standard_normal((1 + REPLICATES, len(seconds))) * deviations
    logs[0] = 0
    return np.array(seconds) * np.exp(logs)


@given(st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=5), st.lists(st.floats(0.001, 0.3), min_size=5, max_size=5))
def test_what_scatter_explains_is_made_plausible_and_what_is_sure_stays(
    seconds: list[float], noise: list[float]
) -> None:
    times = ensemble(seconds, noise)
    measured = np.diff(np.log(times))
    low, high = np.quantile(measured[1:], (0.05, 0.95), axis=0)
    steps = np.diff(np.log(times * corrections(BATCHES, times)))
    plausible = (steps >= -1e-5) & (steps <= np.log(2) + 1e-5)
    assert (plausible | (high < 0) | (low > np.log(2))).all()
    assert np.where((low > 0) & (high < np.log(2)), plausible, True).all()


def test_times_of_samples_that_fit_into_a_cache_are_facts() -> None:
    cached = [0.65, 1.3, 2.6, 8.0, 16.0]
    times = ensemble(cached, [0.01] * 5)
    assert corrections(BATCHES, times)[0] == pytest.approx(1, abs=1e-6)
    unsure = corrections(BATCHES, ensemble(cached, [0.3] * 5))[0]
    assert unsure[2] > 1.05 > 0.95 > unsure[3]


def test_the_uncertain_one_gives_way() -> None:
    law = np.array([1.2, 1.4, 1.8, 2.6, 4.2])
    times = ensemble((law * [1, 1, 1, 1.6, 1]).tolist(), [0.01, 0.01, 0.01, 0.2, 0.01])
    found = corrections(BATCHES, times)[0]
    assert found[[0, 1, 2, 4]] == pytest.approx(1, abs=0.01)
    assert 1.8 < found[3] * times[0, 3] <= 3.61


@pytest.mark.parametrize("broken", [0.0, np.nan, np.inf])
def test_what_is_no_time_is_left_alone(broken: float) -> None:
    times = ensemble([1.0, broken, 9.0, 1.0, 1.0], [0.01] * 5)
    assert (corrections(BATCHES, times) == 1).all()


def test_a_spell_at_one_mini_batch_does_not_pass_into_predictions() -> None:
    tables = study(**ONE, compute_batches=(64, 32, 16, 8), repeats=3)
    for name in ("iterations", "layers"):
        spell = (tables[name]["scaling"] == "compute") & (tables[name]["worker_batch"] == 16)
        spell &= tables[name]["cell"].str.endswith("1")  # one of three repeats
        tables[name].loc[spell, tables[name].select_dtypes("float").columns] *= 0.5
    compute = Compute(reduced_cells(tables["iterations"], [tables["layers"]]), seed=0)
    found = {b: compute.times("alexnet", "cpu", b, prefetch=0) for b in (8, 16, 32)}
    took = {b: float((times.forward + times.backward)[0]) for b, times in found.items() if times is not None}
    assert took[8] <= took[16] * (1 + 1e-5)
    assert took[32] <= 2 * took[16] * (1 + 1e-5)
