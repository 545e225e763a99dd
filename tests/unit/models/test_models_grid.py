"""The grid of the report's sliders agrees with the model that it is asked of."""

from itertools import product
from typing import Any

import pandas as pd
import pytest
from grid import interpolated
from synthetic import Truth, study

from stallpoint.models.answers.what_if import INTERPOLATED
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.records.tables import WHAT_IF_GRID

OFF_GRID = {
    "bandwidth": [3, 0.3],
    "latency": 0.3,
    "compute_speed": [1, 3.3],
    "gradient_bytes": [1, 0.7],
    "batch": [1, 2],
}
CURVE = ["network", "hardware", "storage", "scaling", "sync", "prefetch", "batch"]


@pytest.fixture(scope="module")
def fitted() -> dict[str, pd.DataFrame]:
    one: dict[str, Any] = {"storages": ("local",), "prefetches": (0,), "compute_batches": (64, 32, 16, 8, 4, 2, 1)}
    records = study(Truth(noise=0.001), syncs=("wfbp",), **one)
    return fit(records, nodes=[1, 2, 4, 8], scenarios=scenarios([OFF_GRID]))


def test_between_its_points_the_grid_is_near_the_model(fitted: dict[str, pd.DataFrame]) -> None:
    grid = fitted["what_if_grid"]
    told = fitted["what_if"].merge(grid[CURVE].drop_duplicates(), on=CURVE).query("scenario != 'as measured'")
    assert len(told) >= 4 * 16
    off = []
    for row in told.itertuples():
        at = grid[(grid["nodes"] == row.nodes) & (grid["batch_factor"] == row.batch_factor)]
        factors = {
            "gradient_bytes": row.gradient_bytes, "compute": 1 / row.compute_speed, "latency": row.latency,
            "transfer": 1 / row.bandwidth,
        }  # fmt: skip
        off.append(abs(interpolated(at, factors) / row.iteration - 1))
    assert max(off) < 0.1
    assert sorted(off)[len(off) // 2] < 0.02


def test_one_curve_of_each_place_has_every_point_once(fitted: dict[str, pd.DataFrame]) -> None:
    grid = fitted["what_if_grid"]
    assert list(grid) == WHAT_IF_GRID.names
    assert len(grid[CURVE].drop_duplicates()) == 1
    points = grid.groupby(["nodes", "batch_factor"])[list(INTERPOLATED)].apply(lambda at: len(at.drop_duplicates()))
    every = len(list(product(*(grid[name].unique() for name in INTERPOLATED))))
    assert (points == every).all()
    assert not grid.duplicated([*CURVE, "nodes", "batch_factor", *INTERPOLATED]).any()
