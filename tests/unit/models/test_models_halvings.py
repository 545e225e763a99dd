import numpy as np
import pytest
from synthetic import study

from stallpoint.models.answers.amdahl import halving_gains, halvings
from stallpoint.models.terms.compute import Compute
from stallpoint.models.terms.matrix_products import products
from stallpoint.models.terms.training_cells import reduced_cells


def test_gain_of_each_halving() -> None:
    """t = 2 + b: from 14 to 2 time falls by 16/4, twice for each halving of log2(7) of them."""
    ((larger, smaller, gain),) = halving_gains([2, 14], np.array([[4.0, 16.0]]))
    assert (larger, smaller) == (14, 2)
    assert gain[0] ** np.log2(7) == pytest.approx(4)
    (_, first), (_, second) = ((b, g[0]) for b, _, g in halving_gains([1, 2, 4], np.array([[1.0, 2.0, 2.0]])))
    assert (first, second) == pytest.approx((2, 1))


def test_a_time_of_0_has_no_gain() -> None:
    ((*_, gain),) = halving_gains([1, 2], np.array([[0.0, 1.0]]))
    assert np.isnan(gain).all()


def test_layers_and_products_of_the_made_up_study() -> None:
    records = study(nodes=(1,), storages=("local",), syncs=("wfbp",), prefetches=(0,), repeats=1)
    compute = Compute(reduced_cells(records["iterations"], [records["layers"]]), 0)
    rows = {
        (row["basis"], row["layer"], row["layer_type"], row["worker_batch"], row["to_batch"]): row
        for row in halvings(compute, products(records["sgemm"], 0))
    }
    # Fully-connected layers take 3·(18 ms + 0.15 ms·b), the products 1 ms + 0.2 ms·b.
    layers = rows["layers", "", "fully-connected", 64, 32]
    assert layers["gain"] == pytest.approx((18 + 0.15 * 64) / (18 + 0.15 * 32), rel=0.02)
    assert layers["gain_low"] <= layers["gain"] <= layers["gain_high"]
    reference = rows["sgemm", "reference", "fully-connected", 16, 4]
    assert reference["gain"] == pytest.approx(((1 + 0.2 * 16) / (1 + 0.2 * 4)) ** 0.5, rel=0.02)
    assert ("layers", "", "all", 8, 4) in rows
