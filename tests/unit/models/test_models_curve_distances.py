import numpy as np
import pytest
from synthetic import Layer, Truth, study

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers.amdahl import curve_distances, distance
from stallpoint.models.terms.compute import Compute
from stallpoint.models.terms.matrix_products import products
from stallpoint.models.terms.training_cells import reduced_cells

FLAT = np.ones((1 + REPLICATES, 1))


def test_the_distance_of_a_curve_from_itself_is_0() -> None:
    curve = FLAT * [2.0, 4.0]
    assert distance(curve, curve) == (0, 0, 0)


def test_the_distance_is_the_mean_of_the_logs() -> None:
    assert distance(FLAT * [2.0, 4.0], FLAT * [4.0, 4.0]) == pytest.approx([np.log(2) / 2] * 3)


def test_noise_alone_is_no_distance() -> None:
    """Two noisy measurements of one curve: the value is above 0, but the interval reaches down to it."""
    random = np.random.default_rng(1)
    first, second = (4.0 * np.exp(0.1 * random.standard_normal((1 + REPLICATES, 3))) for _ in range(2))
    value, low, high = distance(first, second)
    assert low == 0 < value < high < 0.3


def rows_of(truth: Truth) -> dict[str, dict[str, float]]:
    records = study(truth, nodes=(1,), storages=("local",), syncs=("wfbp",), prefetches=(0,), repeats=2)
    compute = Compute(reduced_cells(records["iterations"], [records["layers"]]), 0)
    return {str(row["layer"]): row for row in curve_distances(compute, products(records["sgemm"], 0))}  # type: ignore[misc]


def test_a_network_as_slow_as_its_products_has_their_shape() -> None:
    """The made-up products take 1 ms + 0.2 ms·b, at 1, 4, 16 and 64; the network is measured at 4 to 64."""
    alike = rows_of(Truth(layers=(Layer("fc", "fully-connected", 10e-3, 2e-3),)))["reference"]
    assert (alike["largest_batch"], alike["smallest_batch"], alike["points"]) == (64, 4, 2)
    assert alike["distance_low"] < 0.01
    assert alike["distance_high"] < 0.1
    # A network in proportion to b: at 16 and 4 the products are (1 + 12.8)/(1 + 0.2·b) times faster, it is 4 and 16.
    other = rows_of(Truth(layers=(Layer("conv", "convolution", 0, 2e-3),)))["reference"]
    ideal = np.log([4 / (13.8 / 4.2), 16 / (13.8 / 1.8)]).mean()
    assert other["distance"] == pytest.approx(ideal, abs=0.03)
    assert other["distance_low"] > 0.3
