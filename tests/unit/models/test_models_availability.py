"""What failures and checkpoints leave of training: closed forms against a simulation and published figures."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from judging import holds
from planted_costs import COUNTED, GIVEN, LLAMA, NODE_DAYS, counted_rates, differences, llama
from planted_curves import curve
from synthetic import NETWORK, Truth, study

from stallpoint.base.frames import records
from stallpoint.models.answers.costs import (
    DAY_SECONDS,
    Failures,
    daly_interval,
    productive_share,
    young_interval,
)
from stallpoint.models.fitting import fit
from stallpoint.questions.answers import Answer
from stallpoint.questions.costs_question import failures_in_words


def test_the_closed_form_agrees_with_a_simulation_within_one_percent() -> None:
    assert max(differences()) < 0.01


@pytest.mark.parametrize("part", [1e-4, 1e-2, 0.3])
def test_dalys_interval_is_best_and_youngs_is_its_first_order(part: float) -> None:
    between = np.array(1e5)
    checkpoint = part * 1e5
    tried = np.geomspace(checkpoint / 10, 1e6, 4000)
    best = tried[productive_share(between, tried, checkpoint, 60.0).argmax()]
    assert daly_interval(checkpoint, between) == pytest.approx(best, rel=0.03)
    assert young_interval(checkpoint, between) == pytest.approx(best, rel=3 * np.sqrt(part))


def test_figures_of_llama_3() -> None:
    count, days, nodes = LLAMA
    failures, rate = llama(), count / (days * nodes)
    assert failures.mtbf(nodes)[0] / 3600 == pytest.approx(54 * 24 / 419)
    low, high = np.quantile(failures.per_node_day[1:], [0.05, 0.95]) / rate
    assert (low, high) == pytest.approx((1 - 1.645 / np.sqrt(419), 1 + 1.645 / np.sqrt(419)), abs=0.02)
    assert 0.9 < failures.share(nodes)[0] < 0.96
    assert daly_interval(5.0, failures.mtbf(nodes))[0] == pytest.approx(330, rel=0.05)


def test_a_counted_rate_is_held_by_its_interval() -> None:
    inside = [holds(one.per_node_day, COUNTED / NODE_DAYS) for one in counted_rates()]
    assert 0.85 <= np.mean(inside) <= 0.95


def test_failures_alone_end_the_gain_where_a_doubling_loses_as_much() -> None:
    failures = Failures.of("gpu", GIVEN, 0)
    limit = float(failures.limit(0.1)[0])
    gain = [2 * failures.share(2 * int(n))[0] / failures.share(int(n))[0] for n in (0.9 * limit, 1.1 * limit)]
    assert gain[0] > 1.1 > gain[1]
    assert failures.limit(0.1)[0] < failures.limit(0.05)[0]
    assert DAY_SECONDS / (GIVEN["per_node_day"] * limit) > GIVEN["checkpoint_seconds"]


def simulated_repairs(nodes: int, spares: int, between: float, repair: float) -> tuple[float, float]:
    """Mean part of `nodes` that are being repaired, and the part of the time in which that is more than `spares`."""
    random = np.random.default_rng(5)
    begun = np.cumsum(random.exponential(between / nodes, 200_000))
    moments = random.uniform(20 * repair, begun[-1], 100_000)
    broken = np.searchsorted(begun, moments) - np.searchsorted(begun, moments - repair)
    return float(broken.mean() / nodes), float((broken > spares).mean())


@pytest.mark.parametrize("nodes", [8, 512, 4096])
def test_spares_are_enough_and_elastic_training_loses_what_is_being_repaired(nodes: int) -> None:
    given = GIVEN | {"per_node_day": 0.02, "reload_seconds": 40.0, "repair_seconds": 2 * 3600.0}
    failures = Failures.of("gpu", given, 0)
    spares = failures.spare_nodes(nodes)
    broken, short = simulated_repairs(nodes, spares, DAY_SECONDS / 0.02, 2 * 3600.0)
    assert short < 0.0105 < simulated_repairs(nodes, spares - 1, DAY_SECONDS / 0.02, 2 * 3600.0)[1]
    at_once = Failures.of("gpu", GIVEN | {"per_node_day": 0.02, "restart_seconds": 40.0}, 0).share(nodes)[0]
    assert failures.elastic_share(nodes)[0] == pytest.approx(at_once * (1 - broken), rel=0.01)
    assert failures.spare_share(nodes)[0] == pytest.approx(at_once * nodes / (nodes + spares))
    assert np.isnan(Failures.of("gpu", GIVEN, 0).elastic_share(nodes)).all()
    assert Failures.of("gpu", GIVEN, 0).spare_nodes(nodes) == 0


def test_a_checkpoint_takes_as_long_as_was_measured_on_the_storage() -> None:
    tables = study(
        Truth(NETWORK, noise=0.0), syncs=("naive",), storages=("local", "shared"), prefetches=(0,), repeats=1
    )
    (hardware,) = tables["iterations"]["hardware"].unique()
    (cell, *_) = tables["runs"].query("kind == 'storage'").to_dict("records")
    random, seconds = np.random.default_rng(3), {"checkpoint write": 20.0, "checkpoint read": 8.0}
    tables["storage_operations"] = pd.DataFrame([
        {
            "cell": cell["cell"], "storage": "local", "hardware": hardware, "nodes": 1, "workers_per_node": 1,
            "ranks": 1, "repeat": 1, "rank": 0, "operation": operation, "metadata": "warm", "origin": "",
            "visit": visit, "sample": visit - 1, "seconds": taken * np.exp(random.normal(0, 0.03)), "bytes": 10**9,
        }
        for operation, taken in seconds.items() for visit in range(1, 5)
    ])  # fmt: skip
    given = {name: value for name, value in GIVEN.items() if name != "checkpoint_seconds"}

    def fitted(given: dict[str, float]) -> Mapping[str, pd.DataFrame]:
        return fit(tables, nodes=[8], failures={hardware: given | {"per_node_day": 1.0}})

    def found(given: dict[str, float]) -> pd.DataFrame:
        return fitted(given)["availability"]

    measured = found(given)
    assert {*measured["storage"]} == {"local"}, "on the other storage nothing was measured"
    assert {*measured["checkpoint_from"]} == {"measured"}
    assert measured["checkpoint_time"].to_numpy() == pytest.approx(20, rel=0.05)
    assert (measured["checkpoint_time_low"] < 20).all()
    assert (measured["checkpoint_time_high"] > 20).all()
    same = found(given | {"checkpoint_seconds": 20.0, "restart_seconds": GIVEN["restart_seconds"] + 8})
    assert {*same["checkpoint_from"]} == {"given"}
    expected = same[same["storage"] == "local"]["productive_share"].to_numpy()
    assert measured["productive_share"].to_numpy() == pytest.approx(expected, rel=0.01)
    variants = fitted(given | {"reload_seconds": 40.0, "repair_seconds": 3600.0})
    words = said(variants["availability"])
    assert re.search(r"every .* that takes [0-9.]+ s \([0-9.–]+\) as measured", words)
    assert re.search(r"without failed nodes [0-9.]+ % .*; with spare nodes, [1-9] in all, [0-9.]+ %", words)


def said(availability: pd.DataFrame) -> str:
    """What is said of the first curve of this table."""
    found = curve(availability=records(availability[:1]))
    return failures_in_words(Answer(found, [found]))


def test_training_stalls_sooner_where_nodes_fail() -> None:
    tables = study(Truth(NETWORK, noise=0.0), syncs=("naive",), storages=("local",), prefetches=(0,), repeats=1)
    (hardware,) = tables["iterations"]["hardware"].unique()

    def found(per_node_day: float) -> pd.DataFrame:
        return fit(tables, nodes=[8], failures={hardware: GIVEN | {"per_node_day": per_node_day}})["availability"]

    rarely, often = found(1e-6), found(400.0)
    assert (rarely["productive_share"] > 0.999).all()
    assert (rarely["verdict"] == rarely["without_failures"]).all()
    assert (rarely["verdict_ranks"] == rarely["without_failures_ranks"]).all()
    assert (often["productive_share"] < 0.8).all()
    assert (often["stall_ranks"] < rarely["stall_ranks"]).any()
    assert (often["failure_limit"] < 8).all()
    assert fit(tables, nodes=[8])["availability"].empty
    words = said(often.query("scaling == 'weak'"))
    assert words.startswith("beyond 1 node failures eat more than a doubling gains (throughput")
    assert "of the time is productive, with a checkpoint every" in words
