from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sample_cells import TRAIN
from synthetic import NETWORK, Truth, study

from stallpoint.models.fitting import fit

NODES = [1, 2, 4, 8, 16, 64, 128]
AXES = ["scaling", "storage", "sync", "prefetch", "nodes"]


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return study(storages=("shared",))


@pytest.fixture(scope="module")
def fitted(tables: dict[str, pd.DataFrame]) -> Mapping[str, pd.DataFrame]:
    return fit(tables, nodes=NODES)


@pytest.fixture(scope="module")
def predictions(fitted: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return fitted["predictions"]


def true_iteration(row: pd.Series, truth: Truth) -> float:
    axes: Any = {name: row[name] for name in ("network", "hardware", "nodes", "batch", "storage", "scaling", "sync")}
    axes |= {"prefetch": row["prefetch"], "worker_batch": row["worker_batch"], "readers": 2}
    return truth.iteration(replace(TRAIN, **axes, workers_per_node=row["ranks"] // row["nodes"]))


def test_predictions_agree_with_the_truth_measured_or_not(predictions: pd.DataFrame) -> None:
    truth = predictions.apply(true_iteration, axis=1, truth=Truth())
    assert (predictions["predicted_iteration"] / truth).to_numpy() == pytest.approx(1, abs=0.04)
    assert set(predictions["equation"]) == {"eq. 2", "eq. 3", "eq. 5", "eq. 2 with t_c^no"}


def test_errors_against_measured_cells_are_small(predictions: pd.DataFrame) -> None:
    compared = predictions[~predictions["extrapolated"]]
    assert (compared["error"].abs() < 0.03).all()
    assert compared["error"].to_numpy() == pytest.approx(
        compared["held_out_iteration"] / compared["measured_iteration"] - 1
    )
    assert predictions.loc[predictions["extrapolated"], "error"].isna().all()


def test_which_node_counts_are_predicted(predictions: pd.DataFrame) -> None:
    nodes = predictions.groupby("scaling")["nodes"].unique()
    assert nodes["strong"].tolist() == [1, 2, 4, 8, 16, 64]  # B = 64 cannot be split over 128 ranks
    assert nodes["weak"].tolist() == NODES
    assert set(predictions.query("extrapolated")["nodes"]) == {8, 16, 64, 128}


def test_speedup_refers_to_the_fewest_nodes(predictions: pd.DataFrame) -> None:
    table = predictions.set_index(AXES).sort_index()
    strong, weak = table.loc[("strong", "shared", "wfbp", 2)], table.loc[("weak", "shared", "wfbp", 2)]
    assert strong["predicted_speedup"].to_numpy() == pytest.approx(
        strong["predicted_iteration"][1] / strong["predicted_iteration"]
    )
    assert weak["measured_speedup"][4] == pytest.approx(
        4 * weak["measured_iteration"][1] / weak["measured_iteration"][4]
    )
    for basis in ("predicted", "measured"):
        assert (
            strong[f"{basis}_speedup"][1]
            == strong[f"{basis}_speedup_low"][1]
            == strong[f"{basis}_speedup_high"][1]
            == 1
        )


def test_intervals_hold_the_prediction(predictions: pd.DataFrame) -> None:
    for name in ("predicted_iteration", "predicted_speedup"):
        assert (predictions[f"{name}_low"] <= predictions[name]).all()
        assert (predictions[name] <= predictions[f"{name}_high"]).all()


def test_a_cell_takes_no_part_in_its_own_prediction() -> None:
    tables = study(storages=("shared",), syncs=("wfbp",), prefetches=(2,), weak=False)
    before = fit(tables, nodes=[])["predictions"].set_index(AXES)
    for axes in (("strong", "shared", "wfbp", 2, 4), ("strong", "shared", "wfbp", 2, 1)):
        changed = {name: table.copy() for name, table in tables.items()}
        for name in ("iterations", "layers"):
            own = (changed[name][AXES] == list(axes)).all(axis=1)
            times = changed[name].select_dtypes("float").columns
            changed[name].loc[own, times] *= 10
        after = fit(changed, nodes=[])["predictions"].set_index(AXES)
        assert after.loc[axes, "measured_iteration"] == pytest.approx(10 * before.loc[axes, "measured_iteration"])
        assert after.loc[axes, "held_out_iteration"] == before.loc[axes, "held_out_iteration"]
        assert after.loc[axes, "error"] == pytest.approx(
            after.loc[axes, "held_out_iteration"] / after.loc[axes, "measured_iteration"] - 1
        )


def test_one_rank_alone_is_predicted_from_other_repeats() -> None:
    options: dict[str, Any] = {"storages": ("local",), "syncs": ("wfbp",), "prefetches": (2,), "compute_batches": ()}
    tables = study(nodes=(1, 2), repeats=3, **options)
    # The first repeat ran twice as slowly: seen in the error, as the others made the prediction.
    for name in ("iterations", "layers"):
        first = (tables[name][["scaling", "nodes", "repeat"]] == ["strong", 1, 1]).all(axis=1)
        tables[name].loc[first, tables[name].select_dtypes("float").columns] *= 2
    row = fit(tables, nodes=[])["predictions"].set_index(["scaling", "nodes"]).loc[("strong", 1)]
    assert row["error"] == pytest.approx(-0.5, abs=0.03)
    once = fit(study(nodes=(1, 2), repeats=1, **options), nodes=[])["predictions"].set_index(["scaling", "nodes"])
    assert np.isnan(once.loc[("strong", 1), "held_out_iteration"])
    assert once.loc[("strong", 1), "compute_source"] == "measured at b"
    assert once.loc[("strong", 2), "compute_source"] == "interpolated in b"


def test_a_curve_is_predicted_by_one_model() -> None:
    # Training is 30 % slower than its parts alone; that only cells of this curve show, on 2 nodes.
    options: dict[str, Any] = {"storages": ("local",), "syncs": ("naive",), "prefetches": (2,)}
    slower = study(Truth(slower=1.3, noise=0.002), nodes=(1, 2, 4), compute_batches=(64, 32, 16), weak=False, **options)
    found = fit(slower, nodes=[])["predictions"].set_index("nodes")
    for name in ("forward", "backward"):
        ratio = found[f"predicted_{name}"] / found[f"measured_{name}"]
        assert ratio.loc[[2, 4]].to_numpy() == pytest.approx([1, 1], abs=0.03)
    assert found.loc[2, "error"] < -0.1, "held out, nothing tells"
    assert abs(found.loc[4, "error"]) < 0.03


def test_ranks_that_compute_together_are_no_faster_than_one_alone() -> None:
    # A slow spell in all that was measured in isolation: training on 2 nodes looks twice as fast as alone.
    options: dict[str, Any] = {"storages": ("local",), "syncs": ("naive",), "prefetches": (2,)}
    batches = (64, 32, 16, 8)
    tables = study(nodes=(1, 2, 4, 8), compute_batches=batches, weak=False, **options)
    for name in ("iterations", "layers"):
        spell = tables[name]["ranks"] == 1
        tables[name].loc[spell, tables[name].select_dtypes("float").columns] *= 2
    found = fit(tables, nodes=[])
    alone = (
        tables["iterations"]
        .query("scaling == 'compute' and not warmup")
        .groupby("worker_batch")[["forward", "backward"]]
        .mean()
    )
    strong = found["predictions"].query("nodes > 1").set_index("worker_batch")
    for name in ("forward", "backward"):
        assert (strong[f"predicted_{name}"] >= 0.95 * alone[name].reindex(strong.index)).all()
    assert (strong["predicted_speedup"] <= 1.02 * strong["nodes"]).all()


def test_nothing_is_predicted_where_communication_was_not_measured() -> None:
    tables = study(storages=("local",), syncs=("wfbp",), prefetches=(2,), weak=False)
    table = fit({**tables, "collectives": tables["collectives"].iloc[:0]}, nodes=[8])["predictions"]
    assert table.loc[table["ranks"] > 1, "predicted_iteration"].isna().all()
    assert table.loc[table["ranks"] == 1, "predicted_iteration"].notna().all()
    assert table["measured_iteration"].notna().sum() == 3


def test_several_workers_on_a_node() -> None:
    tables = study(nodes=(1, 2, 4), workers_per_node=2, storages=("local",), syncs=("wfbp",), prefetches=(2,))
    table = fit(tables, nodes=[1, 2, 8])["predictions"]
    assert set(table["nodes"]) == {1, 2, 4, 8}, "those that were measured and those that were asked for"
    assert (table["ranks"] == 2 * table["nodes"]).all()
    truth = table.apply(true_iteration, axis=1, truth=Truth())
    assert (table["predicted_iteration"] / truth).to_numpy() == pytest.approx(1, abs=0.04)


def test_layers_are_predicted_where_they_were_measured(fitted: Mapping[str, pd.DataFrame]) -> None:
    layers = fitted["layer_times"].query("scaling != 'compute'")
    assert len(layers) == 15 * len(NETWORK)
    assert (layers["predicted_forward"] / layers["forward"]).to_numpy() == pytest.approx(1, abs=0.08)
    learned = (layers["gradient_bytes"] > 0) & (layers["ranks"] > 1)
    for end in ("all_reduce_start", "all_reduce_end"):
        ratio = layers.loc[learned, f"predicted_{end}"] / layers.loc[learned, end]
        assert ratio.to_numpy() == pytest.approx(1, abs=0.06)
    assert layers.loc[~learned, "predicted_all_reduce_start"].isna().all()


def test_merged_messages_are_predicted_where_latency_is_all_there_is() -> None:
    # Latency alone: one message for all layers is best, and a message for each layer costs an α each.
    options: dict[str, Any] = {"prefetches": (0,), "storages": ("local",), "weak": False}
    made = study(Truth(alpha=0.05, beta=1e-12), syncs=("wfbp", "mg-wfbp"), **options)
    rows = fit(made, nodes=[])["predictions"].query("nodes == 4").set_index("sync")
    exposed = rows["predicted_exposed_communication"]
    assert exposed["mg-wfbp"] < 0.5 * exposed["wfbp"]
