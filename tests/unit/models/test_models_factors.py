"""PowerSGD: the factors that are sent in place of gradients, by hand and from a made-up study."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic import Truth, study
from test_models_pace import contention, jobs

from stallpoint.base.frames import Tables
from stallpoint.base.statistics import REPLICATES
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.prediction import FACTORS_UNSEEN
from stallpoint.models.iteration.scenarios import Scenario
from stallpoint.models.terms.effects import CollectiveTimes, Factors

OPTIONS: dict[str, Any] = {
    "nodes": (1, 2, 4, 8), "storages": ("local",), "prefetches": (2,), "compute_batches": (64, 16, 8, 4), "weak": False,
    "larger_batches": (), "syncs": ("naive", "ddp-powersgd"),
}  # fmt: skip
TRUTH = Truth()


def records(truth: Truth = TRUTH, **options: Any) -> dict[str, pd.DataFrame]:
    """A study whose all-reduces by torch take as long as those by MPI."""
    tables = study(truth, **{**OPTIONS, **options})
    tables["collectives"] = pd.concat([tables["collectives"], tables["collectives"].assign(backend="torch")])
    return tables


def powersgd(predictions: pd.DataFrame) -> pd.DataFrame:
    return predictions[predictions["sync"] == "ddp-powersgd"].set_index("nodes")


def test_a_bucket_takes_three_all_reduces_of_its_bytes_and_making_them() -> None:
    """A matrix of 1000 x 500 and 1000 biases, of rank 2: 4 (2 (1000 + 500) + 1000) of 4 (500,000 + 1000) bytes."""
    gradients, sent = 2_004_000, 16_000
    factors = Factors(np.array([sent / gradients]), np.full((1 + REPLICATES, 1), 3e-9))

    def ring(sizes: Any) -> CollectiveTimes:
        """Among four: 6 steps of 1 ms, and 1.5 times the bytes at 1 MB/s."""
        latency = np.full((1 + REPLICATES, 1), 6e-3)
        return CollectiveTimes(latency, latency + 1.5e-6 * np.asarray(sizes), 2)

    found = factors.times([gradients], ring)
    assert found.latency[0] == pytest.approx([18e-3])
    assert found.isolated[0] == pytest.approx([18e-3 + 24e-3 + 6.012e-3])
    assert found.rounds == 6


@pytest.fixture(scope="module")
def results() -> Tables:
    return fit(records(), nodes=[16], scenarios=[Scenario(), Scenario(bandwidth=1e3, latency=1e-3, compute_speed=2)])


def test_what_two_nodes_show_of_making_factors_holds_for_more(results: Tables) -> None:
    validation = powersgd(results["validation"])
    assert set(validation.index) == {4, 8}
    assert validation["error"].abs().max() < 0.02


def test_nothing_overlaps_the_backward_pass(results: Tables) -> None:
    """An iteration on 16 nodes by hand: computing, then three all-reduces for each layer and making their content."""
    row = powersgd(results["predictions"]).loc[16]
    computing = sum(3 * TRUTH.layer(layer, 4, 16) for layer in TRUTH.layers) + TRUTH.update
    sent = sum(TRUTH.message(16, layer.gradient_bytes, factored=True) for layer in TRUTH.layers)
    assert row["predicted_exposed_communication"] == pytest.approx(sent, rel=0.03)
    assert row["predicted_iteration"] == pytest.approx(computing + sent, rel=0.03)
    assert row["equation"] == "eq. 3"


def test_faster_links_leave_what_faster_computing_shortens(results: Tables) -> None:
    rows = results["what_if"]
    row = powersgd(rows[rows["bandwidth"] == 1e3]).loc[16]
    making = TRUTH.factors[1] * TRUTH.gradient_bytes
    computing = sum(3 * TRUTH.layer(layer, 4, 16) for layer in TRUTH.layers) + TRUTH.update
    assert row["iteration"] == pytest.approx((making + computing) / 2, rel=0.05)


def test_nodes_that_slow_each_other_down_make_factors_more_slowly(results: Tables) -> None:
    """Eight compute half as fast as two, of which no all-reduce takes notice."""
    tables = records()
    bursts = contention(jobs({2: 1e-3, 8: 2e-3}))
    bursts = bursts.assign(backend="torch", reduction="library", calls=1, seconds=1e-3, operations=20)
    bursts = bursts.assign(computing=bursts["isolated_computing"])
    tables["contention"] = bursts.reindex(columns=tables["contention"].columns)
    before, slower = (powersgd(of["predictions"]).loc[8] for of in (results, fit(tables, nodes=[16])))
    making = TRUTH.factors[1] * TRUTH.gradient_bytes
    more = slower["predicted_exposed_communication"] - before["predicted_exposed_communication"]
    assert more == pytest.approx(making, rel=0.1)


def test_factors_that_take_longer_to_make_delay_no_other_preset(results: Tables) -> None:
    share, making = TRUTH.factors
    slower = fit(records(replace(TRUTH, factors=(share, 10 * making))), nodes=[16])["predictions"]
    before = results["predictions"]
    more = powersgd(slower)["predicted_iteration"] - powersgd(before)["predicted_iteration"]
    assert more[16] == pytest.approx(9 * making * TRUTH.gradient_bytes, rel=0.05)
    others = [of.loc[of["sync"] == "naive", "predicted_iteration"].to_numpy() for of in (before, slower)]
    assert others[0] == pytest.approx(others[1], rel=0.01)


def test_without_a_cell_of_its_own_nothing_is_said(results: Tables) -> None:
    """That of the fewest nodes has none but itself; one worker sends nothing."""
    rows = powersgd(results["predictions"])
    assert rows["held_out_iteration"].notna().to_dict() == {1: True, 2: False, 4: True, 8: True, 16: False}
    other = records()
    for name in ("iterations", "layers"):
        other[name] = other[name].query("sync != 'ddp-powersgd' or nodes == 1")
    rows = powersgd(fit(other, nodes=[16])["predictions"])
    assert rows["compute_source"].to_dict() == {1: "measured at b", 16: FACTORS_UNSEEN}
    assert np.isnan(rows.loc[16, "predicted_iteration"])
