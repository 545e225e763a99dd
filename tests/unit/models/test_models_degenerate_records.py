"""Records that hardly tell anything: an answer whose numbers can be."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from synthetic import study

from stallpoint.models import fitting
from stallpoint.records.tables import TABLES

Tidy = dict[str, pd.DataFrame]
PARTS = ("data_wait", "read", "decode", "forward", "backward", "communication", "exposed_communication", "update")


@pytest.fixture(scope="module")
def small() -> Tidy:
    return study(
        nodes=(1, 2), repeats=1, iterations=2, storages=("local",), syncs=("wfbp",), prefetches=(0,),
        compute_batches=(64, 4),
    )  # fmt: skip


def with_column(table: str, column: str, value: float) -> Callable[[Tidy], Tidy]:
    return lambda tidy: {**tidy, table: tidy[table].assign(**{column: value})}


def without_any_part(tidy: Tidy) -> Tidy:
    zero = dict.fromkeys(PARTS, 0.0)
    layers = tidy["layers"].assign(forward=0.0, backward=0.0)
    return {**tidy, "iterations": tidy["iterations"].assign(**zero), "layers": layers}


def one_row_of_each(tidy: Tidy) -> Tidy:
    single = {name: tidy[name].iloc[-1:] for name in ("sgemm", "collectives", "storage_reads")}
    first = {name: tidy[name].query("iteration == 1 and rank == 0") for name in ("iterations", "layers")}
    return {**tidy, **single, **first}


def only_warm_up(tidy: Tidy) -> Tidy:
    return {**tidy, **{name: tidy[name].assign(warmup=True) for name in ("iterations", "layers", "collectives")}}


BY_DAY = [without_any_part, one_row_of_each, with_column("iterations", "iteration_time", np.nan)]
BY_NIGHT = [
    only_warm_up,
    *(with_column("iterations", "iteration_time", time) for time in (0.0, -1.0, np.inf, 1e12, 1e-12)),
    with_column("layers", "gradient_bytes", 0),
    with_column("layers", "forward", 0.0),
    with_column("sgemm", "seconds", 1e-3),
    with_column("collectives", "seconds", 1e-3),
    with_column("storage_reads", "bytes", 0),
]


@pytest.mark.parametrize("degenerate", [*BY_DAY, *(pytest.param(one, marks=pytest.mark.night) for one in BY_NIGHT)])
def test_numbers_are_possible_whatever_was_measured(small: Tidy, degenerate: Callable[[Tidy], Tidy]) -> None:
    fitted = fitting.fit(degenerate(small), nodes=[1, 2, 4])
    for name, rows in fitted.items():
        for column in TABLES[name].columns:
            if column.unit in ("1/s", "GFLOP/s", "s/B"):
                values = rows[column.name].dropna()
                assert np.isfinite(values).all(), (name, column.name)
                assert (values >= 0).all(), (name, column.name)
        for value in (column.removesuffix("_low") for column in rows if column.endswith("_low")):
            known = rows[rows[f"{value}_low"].notna()]
            assert known[value].between(known[f"{value}_low"], known[f"{value}_high"]).all(), (name, value)
