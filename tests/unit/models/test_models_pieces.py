import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import first_by_day

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.terms import piecewise_line
from stallpoint.models.terms.piecewise_line import Samples

SIZES = 2.0 ** np.arange(8, 28)
ONES = np.ones_like(SIZES)


def samples(seconds: np.ndarray, noise: float = 0.0, seed: int = 0) -> Samples:
    random = np.random.default_rng(seed)
    drawn = seconds * np.exp(noise * random.standard_normal((1, len(seconds))))
    spread = noise / 3 * random.standard_normal((1 + REPLICATES, len(seconds)))
    spread[0] = 0
    return Samples(SIZES[: len(seconds)], ONES[: len(seconds)], ONES[: len(seconds)], drawn * np.exp(spread))


@pytest.mark.parametrize("seed", first_by_day(range(5)))
def test_one_line_stays_one_line(seed: int) -> None:
    curve = piecewise_line.fit(samples(1e-5 + 1e-9 * SIZES, noise=0.05, seed=seed))
    assert len(curve.starts) == 1
    assert curve.alpha[0] == pytest.approx(1e-5, rel=0.1)
    assert curve.betas[0, 0] == pytest.approx(1e-9, rel=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_messages_that_outgrow_the_cache_get_a_piece_of_their_own(noise: float) -> None:
    truth = 1e-5 + 1e-10 * np.minimum(SIZES, 2**20) + 2e-9 * np.maximum(SIZES - 2**20, 0)
    measured = samples(truth, noise)
    curve = piecewise_line.fit(measured)
    assert curve.starts.tolist() == [0, 2**20]
    asked = 3.0 * 2.0 ** np.arange(8, 25)
    expected = 1e-5 + 1e-10 * np.minimum(asked, 2**20) + 2e-9 * np.maximum(asked - 2**20, 0)
    assert curve(asked, 1.0, 1.0)[0] == pytest.approx(expected, rel=max(1e-6, 3 * noise))
    assert piecewise_line.residual(curve, measured) < max(1e-6, 2 * noise)


@given(st.lists(st.floats(1e-6, 1.0), min_size=6, max_size=9))
def test_never_negative_never_falling_and_without_jumps(seconds: list[float]) -> None:
    drawn = samples(np.array(seconds))
    curve = piecewise_line.fit(Samples(drawn.sizes, drawn.latency, drawn.bandwidth, drawn.seconds[:3]))
    at = np.unique(np.concatenate([np.geomspace(1, 2**30, 200), curve.starts[1:] * (1 - 1e-9), curve.starts]))
    values = curve(at, 1.0, 1.0)
    assert (values >= 0).all()
    assert (np.diff(values, axis=1) >= -1e-12).all()
    for start in curve.starts[1:]:
        below, above = curve([start * (1 - 1e-9), start], 1.0, 1.0)[0]
        assert below == pytest.approx(above, rel=1e-6)


def test_one_size_does_not_tell_latency_from_bandwidth() -> None:
    one = samples(np.array([1e-3]))
    assert np.isnan(piecewise_line.fit(one)([512.0, 1024.0], 1.0, 1.0)).all()


def test_equal_times_are_all_latency_however_they_were_rounded() -> None:
    random = np.random.default_rng(0)
    sizes = 4.0 ** np.arange(5, 13)
    for _ in range(20):
        seconds = 1e-3 * (1 + np.finfo(float).eps * random.integers(-2, 3, (3, len(sizes))))
        curve = piecewise_line.fit(Samples(sizes, np.ones_like(sizes), np.ones_like(sizes), seconds))
        assert curve.alpha == pytest.approx(np.full(3, 1e-3))
