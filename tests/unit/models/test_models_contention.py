"""What training adds to its parts is found again in a made-up study, and carried to node counts nobody ran."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from nightly import first_by_day
from synthetic import Layer, Truth, study

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.fitting import fit
from stallpoint.models.terms.effects import NONE, CollectiveTimes, CoRunCost, PerMessage, expected_lead, rounds

ZERO, ONE = np.zeros(1), np.ones(1)
CONTENDED = Truth(slower=1.3, delay=3e-3)
OPTIONS: dict[str, Any] = {
    "nodes": (1, 2, 4, 8),
    "storages": ("local",),
    "prefetches": (2,),
    "compute_batches": (64, 16, 8),
}


@pytest.fixture(scope="module")
def validation() -> pd.DataFrame:
    return fit(study(CONTENDED, **OPTIONS), nodes=[])["validation"]


def test_larger_node_counts_are_predicted_from_the_fewest_two(validation: pd.DataFrame) -> None:
    assert set(validation["nodes"]) == {4, 8}
    assert set(validation["calibration"]) == {"1, 2"}
    assert set(validation["sync"]) == {"naive", "wfbp"}
    assert validation["error"].abs().max() < 0.04


def test_without_training_on_two_nodes_contention_is_not_known() -> None:
    alone = fit(study(CONTENDED, **OPTIONS), nodes=[], calibration_nodes=[1])["validation"]
    assert set(alone["nodes"]) == {2, 4, 8}
    assert (alone["error"] < -0.1).all(), "layers 30 % slower and delays of messages were not seen"


@pytest.mark.parametrize(("sync", "other"), first_by_day([("ddp", "ddp-fp16"), ("naive", "local-sgd")]))
def test_messages_that_nobody_waits_for_or_that_encode_gradients_calibrate_no_others(sync: str, other: str) -> None:
    tables = study(CONTENDED, **OPTIONS | {"syncs": (sync, other), "nodes": (1, 2, 4), "weak": False})
    tables["collectives"] = pd.concat([tables["collectives"], tables["collectives"].assign(backend="torch")])
    before = fit(tables, nodes=[])["predictions"]
    layers = tables["layers"]
    waited = (layers["sync"] == other) & (layers["nodes"] > 1)
    layers.loc[waited, "all_reduce_end"] += 20 * (layers["all_reduce_end"] - layers["all_reduce_start"])[waited]
    after = fit(tables, nodes=[])["predictions"]
    changed = (after["predicted_iteration"] / before["predicted_iteration"] - 1).abs() > 1e-9
    assert set(after["sync"][changed]) == {other}


def test_training_held_out_changes_no_prediction(validation: pd.DataFrame) -> None:
    tables = study(CONTENDED, **OPTIONS)
    for name in ("iterations", "layers"):
        larger = tables[name]["nodes"] > 2
        times = tables[name].select_dtypes("float").columns
        tables[name].loc[larger, times] *= 3
    other = fit(tables, nodes=[])["validation"]
    assert other["predicted"].to_numpy() == pytest.approx(validation["predicted"].to_numpy())
    assert other["measured"].to_numpy() == pytest.approx(3 * validation["measured"].to_numpy())


def test_intervals_hold_most_of_what_was_measured(validation: pd.DataFrame) -> None:
    inside = (validation["predicted_low"] <= validation["measured"]) & (
        validation["measured"] <= validation["predicted_high"]
    )
    assert (validation["covered"] == inside).all()
    assert (validation["predicted_low"] <= validation["predicted"]).all()


def test_an_error_is_put_down_to_what_took_longer_than_predicted(validation: pd.DataFrame) -> None:
    tables = study(CONTENDED, **OPTIONS)
    steps = tables["iterations"]
    steps.loc[steps["nodes"] > 2, ["forward", "iteration_time"]] += 0.05
    slower = fit(tables, nodes=[])["validation"]

    def seconds(rows: pd.DataFrame, name: str) -> pd.Series:
        return rows[name] * rows["measured"]

    assert seconds(slower, "error").to_numpy() == pytest.approx(seconds(validation, "error") - 0.05)
    assert seconds(slower, "error_computing").to_numpy() == pytest.approx(seconds(validation, "error_computing") - 0.05)
    communication = seconds(validation, "error_communication")
    assert seconds(slower, "error_communication").to_numpy() == pytest.approx(communication)


def test_jobs_that_measured_the_same_are_compared(validation: pd.DataFrame) -> None:
    assert (validation["repeats"] == 2).all()
    assert validation["repeats_differ"].between(0, 0.1).all()
    tables = study(CONTENDED, **OPTIONS)
    steps = tables["iterations"]
    steps.loc[(steps["nodes"] == 4) & (steps["repeat"] == 2), "iteration_time"] *= 2
    differ = fit(tables, nodes=[])["validation"].set_index("nodes")["repeats_differ"]
    assert differ[4].between(0.9, 1.2).all()
    once = fit(study(CONTENDED, **OPTIONS, repeats=1), nodes=[])["validation"]
    assert (once["repeats"] == 1).all()
    assert once["repeats_differ"].isna().all()


def test_the_two_passes_may_be_slowed_down_by_different_factors() -> None:
    tables = study(CONTENDED, **OPTIONS, syncs=("naive",))
    steps, layers = tables["iterations"], tables["layers"]
    key = ["cell", "rank", "iteration"]
    later = 0.5 * steps["backward"].where(steps["ranks"] > 1, 0.0)
    rows = layers[key].merge(steps[key].assign(later=later), on=key)["later"].to_numpy()
    for side in ("start", "end"):
        layers[f"all_reduce_{side}"] += rows
    steps["backward"] += later
    steps["iteration_time"] += later
    fitted = fit(tables, nodes=[])
    assert fitted["validation"]["error"].abs().max() < 0.04
    predictions = fitted["predictions"].query("nodes > 2")
    for name in ("forward", "backward"):
        measured = predictions[f"measured_{name}"].to_numpy()
        assert predictions[f"predicted_{name}"].to_numpy() == pytest.approx(measured, rel=0.05)


def merged_into_one(layers: pd.DataFrame, chosen: pd.Series) -> None:
    """All that these rows sent went in one message."""
    sent = chosen & (layers["bucket"] >= 0)
    layers.loc[sent, "bucket"] = 0
    key = ["cell", "rank", "iteration"]
    for side, reduce in (("all_reduce_start", "min"), ("all_reduce_end", "max")):
        layers.loc[sent, side] = layers[sent].groupby(key)[side].transform(reduce)


@pytest.mark.parametrize("of", first_by_day(["iteration", "repeat"]))
def test_what_is_sent_together_may_differ(validation: pd.DataFrame, of: str) -> None:
    tables = study(CONTENDED, **OPTIONS)
    layers = tables["layers"]
    merged_into_one(layers, (layers["sync"] == "wfbp") & (layers[of] == 1))
    other = fit(tables, nodes=[])["validation"]
    assert other["predicted"].to_numpy() == pytest.approx(validation["predicted"].to_numpy(), rel=0.1)


def test_a_study_of_two_node_counts_has_nothing_to_validate() -> None:
    assert fit(study(nodes=(1, 2), storages=("local",), syncs=("wfbp",)), nodes=[])["validation"].empty


def test_a_delay_counts_for_each_round() -> None:
    slowing = PerMessage(np.full(1 + REPLICATES, 0.5), np.full(1 + REPLICATES, 2.0))
    assert [rounds(ranks) for ranks in (1, 2, 3, 8)] == [0, 1, 2, 3]
    alone = np.ones((1 + REPLICATES, 2))
    assert slowing(alone, rounds(8)) == pytest.approx(3.5 * alone)


def test_a_message_takes_work_for_each_round_and_for_its_bytes_up_to_half_of_the_core() -> None:
    effects = replace(NONE, work=PerMessage(np.array([1e-3]), np.array([0.2])), co_running=PerMessage(ZERO, 3 * ONE))
    messages = CollectiveTimes(latency=np.zeros((1, 2)), isolated=np.array([[10e-3, 1e-3]]), rounds=1)
    # 1 ms in each round and a fifth of 10 ms, spread over 30 ms; then all of 1 ms.
    after, beside, slower = (of[:, 0] for of in effects.collective_seconds(messages))
    assert beside == pytest.approx([30e-3, 3e-3])
    assert after == pytest.approx([10e-3, 1e-3])
    assert slower == pytest.approx([1 / (1 - 3 / 30), 1 / (1 - 1.2 / 3)])
    assert effects.collective_seconds(replace(messages, rounds=3))[2][:, 0] == pytest.approx([1 / (1 - 5 / 30), 2.0])


def test_what_was_measured_while_ranks_compute_stands_for_messages_beside_the_pass_alone() -> None:
    effects = replace(NONE, work=PerMessage(ZERO, 0.5 * ONE), co_running=PerMessage(ZERO, 0.8 * ONE))
    co_run = CoRunCost(longer=np.array([[30e-3]]), work=np.array([[16e-3]]))
    messages = CollectiveTimes(latency=np.zeros((1, 1)), isolated=np.array([[10e-3]]), rounds=1, co_run=co_run)
    after, beside, slower = (values[:, 0] for values in effects.collective_seconds(messages))
    assert (beside, after) == (pytest.approx([32e-3]), pytest.approx([10e-3]))
    assert slower == pytest.approx([1 / (1 - 8 / 32)])
    # Links of half the speed make a message 10 ms longer; what computing and it take from each other stays.
    after, beside, slower = (values[:, 0] for values in effects.collective_seconds(messages.scaled(2 * ONE[:, None])))
    assert (beside, after) == (pytest.approx([40e-3]), pytest.approx([20e-3]))
    assert slower == pytest.approx([1 / (1 - 8 / 40)])


def pieces(alone: dict[int, float], *, slowest: dict[int, float] | None = None) -> pd.DataFrame:
    """Records of contention in which messages cost nothing; `alone` and on one rank `slowest` by nodes, s."""
    rows = [
        {"nodes": nodes, "rank": rank, "isolated_computing": (slowest or alone)[nodes] if rank == 0 else alone[nodes]}
        for nodes in alone
        for rank in range(nodes)
    ]
    labels = {
        "hardware": "cpu",
        "backend": "mpi",
        "reduction": "library",
        "operation": "all-reduce",
        "repeat": 1,
        "visit": 1,
        "sample": 1,
    }
    return pd.DataFrame(rows).merge(pd.DataFrame({"message_bytes": [2**10, 2**22]}), how="cross").assign(
        **labels, ranks=lambda rows: rows["nodes"], cell=lambda rows: "collectives/nodes~" + rows["nodes"].astype(str),
        warmup=False, calls=1, seconds=20e-3, operations=20, computing=20e-3, isolated_operations=20,
    )  # fmt: skip


def compared(contention: pd.DataFrame, reference: pd.DataFrame) -> pd.Series:
    """Predicted with these records over predicted without contention records, of preset naive."""
    other = fit({**study(CONTENDED, **OPTIONS), "contention": contention}, nodes=[])["validation"]
    key = ["network", "scaling", "sync", "batch", "nodes"]
    return (other.set_index(key)["predicted"] / reference.set_index(key)["predicted"]).xs("naive", level="sync")


def test_nodes_that_slow_each_other_down_are_predicted_to_do_so_in_training(validation: pd.DataFrame) -> None:
    ratio = compared(pieces({2: 20e-3, 4: 20e-3, 8: 30e-3}), validation)
    assert ratio.xs(4, level="nodes").to_numpy() == pytest.approx(1, abs=0.02)
    # Computing takes half as long again, communication does not.
    assert ratio.xs(8, level="nodes").between(1.05, 1.5).all()


def test_a_slow_node_among_many_is_predicted_to_hold_up_training(validation: pd.DataFrame) -> None:
    alone = {2: 20e-3, 4: 20e-3, 8: 20e-3}
    equal = compared(pieces(alone), validation)
    slow = compared(pieces(alone, slowest={**alone, 8: 25e-3}), validation)
    assert slow.xs(4, level="nodes").to_numpy() == pytest.approx(equal.xs(4, level="nodes").to_numpy())
    assert (slow / equal).xs(8, level="nodes").between(1.05, 1.25).all()


@pytest.mark.parametrize("workers", [1, 2, 10])
def test_the_expected_lead_of_uniform_times(workers: int) -> None:
    values = (np.arange(1000) + 0.5) / 1000  # E max = n / (n + 1)
    assert expected_lead(values, workers) == pytest.approx(workers / (workers + 1), abs=0.002)


def test_one_slow_worker_of_two_is_waited_for_more_by_many() -> None:
    values = np.array([-0.1, 0.1])
    assert expected_lead(values, 2) == pytest.approx(0.05)
    assert expected_lead(values, 64) == pytest.approx(0.1)


def test_what_small_messages_wait_is_not_multiplied_for_large_ones() -> None:
    """With `wfbp` only a small message is left after the backward pass, which waits 12 times its own time."""
    layers = (
        Layer("conv1", "convolution", 0.2e-3, 0.4e-3, 140_000),
        Layer("fc6", "fully-connected", 12e-3, 0.1e-3, 60_000_000),
        Layer("loss", "loss", 0.1e-3, 0.001e-3),
    )
    truth = Truth(layers=layers, delay=10e-3, noise=0.003)
    records = study(truth, nodes=(1, 2), storages=("local",), prefetches=(0,), repeats=1, visits=4)
    predictions = fit(records, nodes=[])["predictions"].query("nodes == 2 and scaling == 'strong'").set_index("sync")
    # Without the wait, which nothing tells apart from a slower network; a factor would double it.
    assert predictions.loc["naive", "error"] == pytest.approx(-0.11, abs=0.05)


def test_of_many_points_the_most_alike_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**OPTIONS, "nodes": (1, 2, 4), "repeats": 1}
    alone = study(CONTENDED, **options)
    other = study(replace(CONTENDED, delay=30e-3), **options, networks=("googlenet",))
    both = dict(alone)
    for name in ("runs", "visits", "iterations", "layers"):
        rows = other[name][other[name]["cell"].str.contains("googlenet")]
        both[name] = pd.concat([rows, alone[name]], ignore_index=True)
    expected, mixed = errors(alone), errors(both)
    monkeypatch.setattr("stallpoint.models.terms.contention.MAX_POINTS", 3)  # the points on 2 nodes of one network
    assert errors(both) == pytest.approx(expected, abs=0.01)
    assert mixed != pytest.approx(expected, abs=0.01), "messages of the other network are delayed ten times as long"


def errors(tables: dict[str, pd.DataFrame]) -> list[float]:
    return fit(tables, nodes=[])["validation"].query("network == 'alexnet'")["error"].tolist()
