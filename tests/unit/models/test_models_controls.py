"""Cells that do the same must agree, and no speedup is more than its machine can have: answers that are known."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import made_up_curves
import numpy as np
import pytest
from made_up_curves import measured, point
from scipy.stats import norm
from synthetic import study

from stallpoint.base.measured import Measured, point_key
from stallpoint.base.statistics import REPLICATES, Ensemble
from stallpoint.models.answers.controls import holm, p_value, table, trusted
from stallpoint.models.answers.stalling import tables as stalling
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.terms.effects import IsolatedComputing

SCATTER = 0.02


def ensemble(seconds: float, random: np.random.Generator, scatter: float = SCATTER) -> Ensemble:
    """What would be measured of something that takes `seconds`: off by the scatter that its replicates have."""
    value = seconds * np.exp(scatter * random.standard_normal())
    return value * np.exp(scatter * np.concatenate([[0.0], random.standard_normal(REPLICATES)]))


def alone(seconds: Ensemble, **axes: Any) -> Measured:
    """A point on one worker."""
    return measured(replace(point(1), global_batch=axes.get("worker_batch", 64), **axes), seconds)


def pairs(*factors: float, seed: int = 0, hardware: str = "cpu") -> list[dict[str, object]]:
    """Rows for a compute cell and presets that take so many times as long."""
    random = np.random.default_rng(seed)
    presets = [
        alone(ensemble(factor, random), sync=f"preset {place}", hardware=hardware)
        for place, factor in enumerate(factors)
    ]
    return table([alone(ensemble(1, random), scaling="compute", sync="none", hardware=hardware), *presets])


def test_equal_cells_agree_in_95_of_100_studies() -> None:
    differ = sum(not row["agrees"] for seed in range(400) for row in pairs(1, seed=seed))
    assert 8 <= differ <= 35  # 20 expected


def test_all_pairs_of_a_study_agree_together_as_often() -> None:
    differ = sum(any(not row["agrees"] for row in pairs(*[1] * 6, seed=seed)) for seed in range(200))
    assert differ <= 20


def test_a_pair_that_differs_is_found_among_those_that_agree() -> None:
    rows = pairs(1, 1.3, 1)
    assert [row["agrees"] for row in rows] == [True, False, True]
    assert [(row["first"], row["second"]) for row in rows] == [("compute", f"strong, preset {i}") for i in range(3)]
    assert rows[1]["ratio"] == pytest.approx(1.3, rel=0.1)
    assert float(str(rows[1]["ratio_low"])) > 1.1


def test_only_what_does_the_same_is_compared() -> None:
    one = np.ones(1 + REPLICATES)
    first = alone(one)
    others = [alone(one, worker_batch=32), alone(one, hardware="gpu"), alone(one, ranks=2)]
    assert table([first, *others]) == []
    assert len(table([first, alone(one, sync="naive")])) == 1


@pytest.mark.parametrize("broken", [0.0, np.nan, np.inf])
def test_times_that_cannot_be_are_compared_with_nothing(broken: float) -> None:
    one = np.ones(1 + REPLICATES)
    assert table([alone(one), alone(broken * one, sync="naive")]) == []


def test_pairs_of_other_hardware_do_not_count() -> None:
    rows = pairs(1) + pairs(1.3, hardware="gpu")
    steady = np.ones(1 + REPLICATES)
    assert trusted(curve(1.8 * steady), rows).doubt == ""
    assert "the second takes 1." in trusted(curve(1.8 * steady, hardware="gpu"), rows).doubt


def test_holm_rejects_as_long_as_chances_are_small_enough() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.04]) == [True]
    assert holm([0.04, 0.04]) == [False, False]
    assert holm([]) == []


def test_times_without_scatter_are_equal_or_not() -> None:
    one = np.ones(1 + REPLICATES)
    assert p_value(one) == 1
    assert p_value(1.01 * one) == 0


def curve(speedup: Ensemble, hardware: str = "cpu") -> CurvePoints:
    """Weak scaling from one to two nodes, with this speedup."""
    one = np.ones(1 + REPLICATES)
    times = {1: one, 2: one * 2 / speedup}
    return made_up_curves.curve({n: measured(point(n, hardware=hardware, scaling="weak"), t) for n, t in times.items()})


@pytest.mark.parametrize(("speedup", "spread", "doubted"), [(2.5, 0.01, True), (2.1, 0.01, False), (2.5, 0.3, False)])
def test_a_speedup_beyond_any_machine_is_withheld_if_it_is_sure(speedup: float, spread: float, doubted: bool) -> None:
    found = curve(speedup * np.concatenate([[1.0], np.linspace(1 - spread, 1 + spread, REPLICATES)]))
    reason = trusted(found).doubt
    assert reason == ("a speedup of 2.50 on n = 2 is more than any machine has" if doubted else "")


@pytest.mark.parametrize(("cached", "doubted"), [(0.5, False), (0.95, True)])
def test_a_speedup_that_the_cache_of_an_isolated_worker_explains_is_a_fact(cached: float, doubted: bool) -> None:
    found = curve(2.5 * np.ones(1 + REPLICATES))
    passes = {1: np.ones(1 + REPLICATES), 2: cached / 2 * np.ones(1 + REPLICATES)}
    nothing = np.zeros(1 + REPLICATES)
    predicted = {
        ranks: replace(
            one,
            point=replace(one.point, worker_batch=64 // ranks),
            isolated=IsolatedComputing(passes[ranks], nothing, nothing, nothing, nothing),
        )
        for ranks, one in found.predicted.items()
    }
    assert bool(trusted(replace(found, predicted=predicted)).doubt) == doubted


def long_curve(seconds: Mapping[int, float], visits: int = 4, spread: float = 0.01) -> CurvePoints:
    """Strong scaling with these iteration times, each known to about 1.6 times `spread`."""
    random = np.random.default_rng(1)
    points = {}
    for nodes, value in seconds.items():
        time = value * np.exp(spread * np.append(0.0, random.standard_normal(REPLICATES)))
        points[nodes] = measured(point(nodes), time, f"cell of {nodes}", visits=visits)
    return made_up_curves.curve(points)


@pytest.mark.parametrize(
    ("wrong", "factor", "named", "verdict"),
    [
        (8, 1.5, "measure n = 8, cell of 8 again", ("scales", 4)),  # too slow: to 16 it seems to gain 2.9 times
        (8, 0.5, "a speedup of 14.04 on n = 8", ("withheld", 32)),  # too fast, or the fewest too slow
        (1, 1.4, "a speedup of 2.75 on n = 2", ("withheld", 32)),
        (32, 0.7, "measure n = 32, cell of 32 again", ("scales", 16)),
        (8, 1.0, "", ("scales", 32)),
        (8, 1.1, "", ("scales", 32)),
    ],
)
def test_a_cell_that_makes_a_gain_impossible_ends_the_verdict(
    wrong: int, factor: float, named: str, verdict: tuple[str, int]
) -> None:
    times = {nodes: 0.02 + 0.98 / nodes for nodes in (1, 2, 4, 8, 16, 32)}
    found = long_curve(times | {wrong: factor * times[wrong]})
    reason = trusted(found).doubt
    assert named in reason
    assert bool(reason) == bool(named)
    (row,), _ = stalling([trusted(found)], 0.1, 0.5)
    assert (row["verdict"], row["verdict_ranks"]) == verdict


@pytest.mark.parametrize("visits", [1, 4])
def test_a_step_onto_the_second_node_is_no_stall_where_further_nodes_gain(visits: int) -> None:
    """The second node gains 5 % in place of 70 %."""
    times = {1: 1.0} | {nodes: 1 / 1.05 / 1.8 ** (np.log2(nodes) - 1) for nodes in (2, 4, 8, 16)}
    (row,), _ = stalling([trusted(long_curve(times, visits, spread=0.03))], 0.1, 0.5)
    assert (row["verdict"], row["verdict_ranks"]) == ("scales", 16)
    (row,), _ = stalling(
        [trusted(long_curve({nodes: times[nodes] for nodes in (1, 2)}, visits, spread=0.01))], 0.1, 0.5
    )
    assert (row["verdict"], row["verdict_ranks"]) == ("stalls", 1)


def test_a_verdict_that_is_withheld_says_why() -> None:
    steady = np.ones(1 + REPLICATES)
    (row,), _ = stalling([trusted(curve(2.5 * steady))], 0.1, 0.5)
    assert (row["verdict"], row["note"]) == ("withheld", "a speedup of 2.50 on n = 2 is more than any machine has")
    (row,), _ = stalling([trusted(curve(1.8 * steady), pairs(1.3))], 0.1, 0.5)
    assert row["verdict"] == "withheld"
    assert str(row["note"]).startswith("on one worker compute and strong, preset 0 do the same, but of alexnet, b = 64")
    (row,), _ = stalling([trusted(curve(1.8 * steady), pairs(1))], 0.1, 0.5)
    assert (row["verdict"], row["note"]) == ("scales", "")


def test_a_verdict_from_disturbed_iterations_is_withheld() -> None:
    found = curve(1.8 * np.ones(1 + REPLICATES))
    (row,), _ = stalling([trusted(found, [], [point_key(found.measured[2].point)])], 0.1, 0.5)
    assert row["verdict"] == "withheld"
    assert row["note"] == "most iterations on n = 2 were disturbed and count for want of others"
    other = point_key(curve(1.8 * np.ones(1 + REPLICATES), hardware="gpu").measured[2].point)
    assert trusted(found, [], [other]).doubt == ""


def test_a_disturbed_count_leaves_the_verdict_on_those_below() -> None:
    times = {1: 1.0, 2: 0.55, 4: 0.54, 8: 0.53}
    whole = long_curve(times)
    found = trusted(whole, [], [point_key(whole.measured[4].point)])
    (row,), probabilities = stalling([found], 0.1, 0.5)
    assert (row["verdict"], row["verdict_ranks"], row["largest_measured"]) == ("scales", 2, 2)
    assert row["note"] == "most iterations on n = 4 were disturbed and count for want of others"
    assert {of["ranks"] for of in probabilities if of["basis"] == "measured"} == {1, 2}
    assert {of["ranks"] for of in probabilities if of["basis"] == "known"} == set(times)


@pytest.mark.parametrize(("machines", "one"), [({}, False), ({"cell of 2": 2}, False), ({"cell of 2": 1}, True)])
def test_nodes_of_one_machine_are_known(machines: dict[str, int], one: bool) -> None:
    (row,), _ = stalling([trusted(long_curve({1: 1.0, 2: 0.6}))], 0.1, 0.5, machines=machines)
    assert row["one_machine"] == one


def test_where_every_visit_was_disturbed_the_verdict_is_withheld() -> None:
    records = study(storages=("local",), prefetches=(0,), nodes=(1, 2), compute_batches=(64,), visits=2, repeats=1)
    iterations = records["iterations"]
    hot = (iterations["ranks"] == 2) & (iterations["sync"] == "naive")
    watched = dict.fromkeys(("node_busy", "process_time"), iterations["iteration_time"])
    records["iterations"] = iterations.assign(**watched, thermal_throttles=hot.astype(float))
    found = fit(records, nodes=[])["stalling"].query("scaling == 'strong'").set_index("sync")
    assert found.loc["naive", "verdict"] == "withheld"
    assert set(found.drop("naive")["verdict"]) == {"scales"}


@pytest.mark.parametrize(
    ("speedup", "spread", "verdict"),
    [
        (1.6, 0.02, ("scales", 2)),
        (1.3, 0.14, ("undecided", 1)),  # 1.03 at the end of the interval, and 95 % of it above 1.1
        (1.6, 0.57, ("undecided", 1)),  # 0.63 to 4.1
        (0.8, 0.02, ("stalls", 1)),
        (1.0, 0.06, ("stalls", 1)),  # 94 % of it below 1.1
        (1.0, 0.08, ("undecided", 1)),  # 88 %
    ],
)
def test_a_verdict_takes_nine_tenths_of_the_draws_beside_it(
    speedup: float, spread: float, verdict: tuple[str, int]
) -> None:
    quantiles = norm.ppf((np.arange(REPLICATES) + 0.5) / REPLICATES)
    (row,), probabilities = stalling([trusted(curve(speedup * np.exp(spread * np.array([0, *quantiles]))))], 0.1, 0.5)
    assert (row["verdict"], row["verdict_ranks"]) == verdict
    gains = next(one["probability"] for one in probabilities if one["basis"] == "measured" and not one["stalls"])
    expected = norm.sf((np.log(1.1) - np.log(speedup)) / spread)
    assert gains == pytest.approx(expected, abs=0.01), "what the interval says"


def test_a_preset_that_is_slower_on_one_worker_withholds_all_verdicts() -> None:
    records = study(storages=("local",), prefetches=(0,), nodes=(1, 2), compute_batches=(64,), visits=3, repeats=1)
    slower = (records["iterations"]["sync"] == "naive") & (records["iterations"]["ranks"] == 1)
    records["iterations"].loc[slower, ["forward", "iteration_time"]] *= 1.5
    found = fit(records, nodes=[])
    assert found["controls"].set_index("second")["agrees"].to_dict()["strong, naive"] is False
    strong = found["stalling"].query("scaling == 'strong'")
    assert set(strong["verdict"]) == {"withheld"}
    assert strong["note"].str.contains("do the same").all()
