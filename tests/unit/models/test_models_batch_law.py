import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.models.terms import batch_law
from stallpoint.models.terms.batch_law import LINEAR_KERNEL, BatchTimes, Bend, Kernel, choose_kernel

POWERS = [1, 2, 4, 16, 64, 256]
SECONDS = st.floats(1e-7, 10.0)
KERNEL_CHOICES = st.builds(Kernel, block=st.sampled_from([1, 4, 32]), sharpness=st.sampled_from([1.0, 2.0, 8.0]))


def times(batches: list[int], floor: float, each: float, kernel: Kernel = LINEAR_KERNEL) -> np.ndarray:
    """What the law says, as an ensemble of one quantity."""
    blocks = kernel.block * np.ceil(np.array(batches) / kernel.block)
    seconds = (floor**kernel.sharpness + (each * blocks) ** kernel.sharpness) ** (1 / kernel.sharpness)
    return seconds[None, :, None]


@given(floor=SECONDS, each=SECONDS, kernel=KERNEL_CHOICES)
def test_an_exact_law_is_found_again(floor: float, each: float, kernel: Kernel) -> None:
    measured, asked = [1, 2, 8, 33, 64, 256], [3, 12, 100, 512, 4096]
    law = batch_law.fit(measured, times(measured, floor, each, kernel), kernel)
    assert law(asked)[0, :, 0] == pytest.approx(times(asked, floor, each, kernel)[0, :, 0], rel=1e-3)


@given(floor=SECONDS, each=SECONDS, factors=st.lists(st.floats(0.2, 5.0), min_size=4, max_size=4))
def test_an_exact_law_is_found_again_though_it_is_bent(floor: float, each: float, factors: list[float]) -> None:
    bend = Bend((1.0, 8.0, 64.0, 256.0), tuple(factors))
    measured, asked = [1, 2, 8, 33, 64, 256], [3, 12, 100, 4096]
    law = batch_law.fit(measured, times(measured, floor, each) * bend(np.array(measured))[:, None], Kernel(bend=bend))
    assert law(asked)[0, :, 0] == pytest.approx(times(asked, floor, each)[0, :, 0] * bend(np.array(asked)), rel=1e-3)
    assert bend(np.array([1, 8, 64, 256, 4096])) == pytest.approx([*factors, factors[-1]])


@given(floor=st.floats(0, 1), each=st.floats(0, 1), noise=st.integers(0, 99), kernel=KERNEL_CHOICES)
def test_the_law_is_never_negative_and_never_falls(floor: float, each: float, noise: int, kernel: Kernel) -> None:
    random = np.random.default_rng(noise)
    seconds = times(POWERS, floor, each) * np.exp(0.3 * random.standard_normal((3, len(POWERS), 1)))
    at = batch_law.fit(POWERS, seconds, kernel)(np.arange(1, 600))
    assert (at >= 0).all()
    assert (np.diff(at, axis=1) >= -1e-12 * at[:, 1:]).all()


@given(st.lists(SECONDS, min_size=6, max_size=6), st.integers(1, 1000))
def test_a_curve_through_rising_times_lies_between_its_neighbours(seconds: list[float], batch: int) -> None:
    rising = np.sort(seconds)
    curve = BatchTimes(POWERS, rising[None, :, None])
    value = float(curve(batch)[0, 0])
    assert value >= 0
    if batch in POWERS:
        assert value == rising[POWERS.index(batch)]


def test_left_out_mini_batches_of_a_blocked_kernel() -> None:
    """As measured on one core: products of fewer than 4 rows go one by one, then whole blocks of 4 are computed."""
    true = Kernel(block=4, min_rows=4)

    def measured(batches: list[int]) -> np.ndarray:
        together = times(batches, 11e-3, 0.82e-3, true)
        return np.where(np.array(batches)[None, :, None] < 4, 6e-3 * np.array(batches)[None, :, None], together)

    kernel = choose_kernel([(POWERS, measured(POWERS))], [LINEAR_KERNEL, Kernel(block=4), Kernel(sharpness=4.0), true])
    assert kernel == true
    asked = [3, 5, 6, 8, 12, 24, 33, 96, 128, 384, 512]
    curve = BatchTimes(POWERS, measured(POWERS), kernel)
    assert [float(curve(b)[0, 0]) for b in asked] == pytest.approx(measured(asked)[0, :, 0], rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_a_richer_kernel_needs_more_than_chance(seed: int) -> None:
    random = np.random.default_rng(seed)
    noisy = times(POWERS, 5e-3, 1e-3) * np.exp(0.05 * random.standard_normal((1, len(POWERS), 1)))
    chosen = choose_kernel([(POWERS, noisy)], [LINEAR_KERNEL, Kernel(sharpness=8.0)])
    assert chosen == LINEAR_KERNEL


def test_interpolated_and_extrapolated_are_told_apart() -> None:
    curve = BatchTimes([2, 8], times([2, 8], 3.0, 1.0))
    assert [curve.source(b) for b in (2, 4, 1, 16)] == ["measured", "interpolated", "extrapolated", "extrapolated"]
    assert [float(curve(b)[0, 0]) for b in (2, 4, 1, 16)] == pytest.approx([5, 7, 4, 19])


def test_one_mini_batch_tells_nothing_about_others() -> None:
    curve = BatchTimes([4], np.full((3, 1, 2), 7.0))
    assert (curve(4) == 7.0).all()
    assert np.isnan(curve(2)).all()
    assert np.isnan(curve(8)).all()


@pytest.mark.parametrize("kernel", [LINEAR_KERNEL, Kernel(sharpness=4.0)])
def test_what_takes_no_time_never_does_and_what_is_unknown_stays_unknown(kernel: Kernel) -> None:
    seconds = np.stack([np.zeros((2, 6)), np.full((2, 6), np.nan), np.full((2, 6), 3.0)], axis=-1)
    at = BatchTimes(POWERS, seconds, kernel)
    for b in (3, 1000):
        none, unknown, equal = at(b)[0]
        assert none == 0
        assert np.isnan(unknown)
        assert equal == pytest.approx(3.0, rel=0.02)
