"""What training costs, and which number of nodes is cheapest for a deadline or fastest for a budget, as planted."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from planted_costs import CURVES, PRICE, WATTS, Planted, chosen, decided, energy_of_visits, planted
from planted_curves import curve
from synthetic import NETWORK, Truth, study

from stallpoint.base.frames import records
from stallpoint.base.statistics import estimate
from stallpoint.models.answers.costs import BUDGET, DEADLINE, ChoiceVerdict, MeasuredPower, choices
from stallpoint.models.fitting import fit
from stallpoint.questions.answers import Answer
from stallpoint.questions.costs_question import cost_in_words


def test_costs_of_an_epoch_follow_from_the_iteration_time() -> None:
    tables = study(Truth(NETWORK, noise=0.0), syncs=("naive",), storages=("local",), prefetches=(0,))
    (hardware,) = tables["iterations"]["hardware"].unique()
    rated = {hardware: {"power": WATTS, "price": PRICE}}
    found = fit(tables, nodes=[8], rated=rated, epoch_samples=500_000)
    rows = found["costs"].query("goal == 'epoch'").merge(found["predictions"])
    assert {*rows["basis"]} == {"measured", "predicted"}
    assert rows.query("basis == 'predicted'")["nodes"].max() == 8
    seconds = rows["measured_iteration"].where(rows["basis"] == "measured", rows["predicted_iteration"])
    hours = 500_000 / rows["global_batch"] * seconds * rows["nodes"] / 3600
    assert rows["node_hours"].tolist() == pytest.approx(hours.tolist())
    assert rows["energy"].tolist() == pytest.approx((hours * WATTS / 1000).tolist())
    assert rows["price"].tolist() == pytest.approx((hours * PRICE).tolist())
    assert (rows["price_low"] <= rows["price"]).all()
    assert (rows["price"] <= rows["price_high"]).all()
    targets = (
        found["costs"].query("goal != 'epoch' and basis == 'measured'").merge(found["time_to_accuracy"], on="ranks")
    )
    same = targets[targets["scaling_x"] == targets["scaling_y"]]
    assert len(same)
    assert same["time_x"].tolist() == pytest.approx(same["time_y"].tolist())


def test_the_power_of_a_node_is_counted_once_for_its_processors_and_for_each_gpu() -> None:
    random = np.random.default_rng(4)
    found = [MeasuredPower(energy_of_visits(WATTS, random), seed).of(["train/a"]) for seed in range(100)]
    intervals = np.array([estimate(one.watts) for one in found if one])
    assert len(intervals) == 100
    assert intervals[:, 0].mean() == pytest.approx(WATTS, rel=0.01)
    assert 0.85 <= ((intervals[:, 1] <= WATTS) & (intervals[:, 2] >= WATTS)).mean() <= 0.97
    assert found[0]
    assert found[0].counted == "processors, memory, GPUs"


@pytest.mark.parametrize("unread", ["node_energy", "gpu_energy"])
def test_no_power_is_made_of_a_part_of_the_counters(unread: str) -> None:
    measured = MeasuredPower(energy_of_visits(WATTS, np.random.default_rng(4), **{unread: np.nan}), 0)
    assert measured.of(["train/a"]) is None
    assert measured.mean_of_hardware("gpu", ["train/a"]) is None


def test_measured_energy_takes_the_place_of_the_watts_that_were_given() -> None:
    tables = study(Truth(NETWORK, noise=0.0), syncs=("naive",), storages=("local",), prefetches=(0,))
    (hardware,) = tables["iterations"]["hardware"].unique()
    runs = tables["runs"].query("kind == 'train' and status == 'ok' and nodes > 1")
    random = np.random.default_rng(1)
    rows = [
        energy_of_visits(WATTS, random, cell=one["cell"], hardware=hardware, nodes=one["nodes"], kernel="same",
                node_energy=20 * WATTS * one["nodes"], gpu_energy=0.0)
        for one in runs.to_dict("records")
    ]  # fmt: skip
    tables["energy"] = pd.concat(rows)
    found = fit(tables, nodes=[16], rated={hardware: {"power": 1.0}})["costs"].query("goal == 'epoch'")
    of_one = found[(found["nodes"] == 1) & (found["basis"] == "measured")]
    others = found.drop(of_one.index)
    assert {*of_one["energy_from"]} == {"node_watts"}
    assert {*others["energy_from"]} == {"counters of processors, memory, GPUs"}
    assert {*others["basis"]} == {"measured", "predicted"}
    assert others["energy"].tolist() == pytest.approx((others["node_hours"] * WATTS / 1000).tolist())
    assert of_one["energy"].tolist() == pytest.approx((of_one["node_hours"] / 1000).tolist())


@pytest.fixture(scope="module")
def curves() -> list[Planted]:
    return list(planted())


@pytest.mark.parametrize("question", [DEADLINE, BUDGET])
def test_the_choice_is_right_where_it_is_decided_and_undecided_where_the_limit_is_within_the_noise(
    question: str, curves: list[Planted]
) -> None:
    clear, close = decided(question, curves)
    right = [truth == row["ranks"] for truth, row in clear if row["verdict"] != ChoiceVerdict.UNDECIDED]
    assert len(right) > CURVES / 2
    assert np.mean(right) >= 0.9
    assert all(
        str(truth or "none") in row["likely"].split(", ") or row["verdict"] != ChoiceVerdict.UNDECIDED
        for truth, row in clear
    )
    assert np.mean([row["verdict"] == ChoiceVerdict.UNDECIDED for _, row in close]) > 0.5


def test_intervals_hold_the_planted_price(curves: list[Planted]) -> None:
    rows = pd.DataFrame([
        {"truth": cost.point.nodes * PRICE * curve.times[cost.point.ranks] / 3600, **cost.columns}
        for curve in curves for cost in curve.costs
    ])  # fmt: skip
    inside = rows["truth"].between(rows["price_low"], rows["price_high"]).mean()
    assert 0.85 <= inside <= 0.95


def test_a_longer_training_takes_more_nodes(curves: list[Planted]) -> None:
    cheapest = [next(choices(curves[0].costs, 80_000.0, None, epochs)) for epochs in (1, 4, 1000)]
    assert [row["verdict"] for row in cheapest] == [ChoiceVerdict.DECIDED, ChoiceVerdict.DECIDED, "none"]
    assert cheapest[0]["ranks"] < cheapest[1]["ranks"]
    assert cheapest[2]["ranks"] == 0


def test_a_choice_in_words(curves: list[Planted]) -> None:
    def said(deadline: float | None, budget: float | None) -> str:
        found = curve(choices=records(pd.DataFrame(choices(curves[0].costs, deadline, budget, 1))))
        return cost_in_words(Answer(found, [found]))

    text = said(1e9, None)
    assert text.startswith("cheapest for the deadline of 277777 h 46 min: 1 node, ")
    assert re.search(r"\) for 35 \([0-9.]+–[0-9.]+\), 4.0 kWh \([0-9.]+–[0-9.]+\) by node_watts$", text)
    assert said(1.0, None).endswith("no number of nodes keeps it")
    assert "undecided between" in said(curves[0].times[8], None)
    assert said(None, 1e9).startswith("fastest for the budget of 1,000,000,000")


def test_a_deadline_that_is_met_by_all_takes_the_fewest_node_hours(curves: list[Planted]) -> None:
    for one in curves[:5]:
        row = chosen(one, DEADLINE, 1e9)
        assert row["ranks"] == 1
        assert all(a.node_hours[0] < b.node_hours[0] for a, b in pairwise(one.costs))
