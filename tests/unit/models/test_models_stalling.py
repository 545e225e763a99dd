from typing import Any

import made_up_curves
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_curves import measured, point
from nightly import fewer_examples, first_by_day
from synthetic import Layer, Truth, study

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.answers.controls import trusted
from stallpoint.models.answers.stalling import cost_efficient_ranks, crossing, tables
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.curve_points import CurvePoints

ONE: dict[str, Any] = {"storages": ("local",), "syncs": ("naive",), "prefetches": (0,), "weak": False}
COUNTS = (1, 2, 4, 8)
times = st.lists(st.floats(1e-3, 1e3), min_size=len(COUNTS), max_size=len(COUNTS))


def curve(seconds: list[float], factor: float = 1.0, noise: float = 0.1) -> CurvePoints:
    """Strong scaling over `COUNTS`: all of an iteration forward pass, a tenth of it communication beside."""
    spread = factor * np.concatenate([[1.0], np.linspace(1 - noise, 1 + noise, REPLICATES)])
    return made_up_curves.curve(
        {
            n: measured(point(n), whole * spread, communication=0.3 * n * whole * spread * (n > 1))
            for n, whole in zip(COUNTS, seconds, strict=True)
        }
    )


def row(seconds: list[float], *, threshold: float = 0.1, efficiency: float = 0.5, factor: float = 1.0) -> Any:
    (found,), _ = tables([trusted(curve(seconds, factor))], threshold, efficiency)
    return found


@fewer_examples(6)
@given(times, st.floats(0.01, 0.98), st.floats(0.01, 0.98))
def test_stalling_comes_no_later_when_more_is_asked_for(seconds: list[float], one: float, other: float) -> None:
    less, more = (row(seconds, threshold=asked, efficiency=asked) for asked in sorted([one, other]))
    assert more["stall_ranks"] <= less["stall_ranks"]
    assert more["cost_efficient_ranks"] <= less["cost_efficient_ranks"]


@fewer_examples(6)
@given(times, st.sampled_from([2.0**power for power in (-20, -3, 1, 10)]))
def test_the_unit_of_time_does_not_matter(seconds: list[float], factor: float) -> None:
    before, after = row(seconds), row(seconds, factor=factor)
    for name in ("stall_ranks", "reached", "crossing_ranks", "cost_efficient_ranks", "best_speedup", "dominant_cause"):
        assert before[name] == after[name]


@given(st.lists(st.floats(0, 1e6), min_size=len(COUNTS), max_size=len(COUNTS)))
def test_a_crossing_lies_between_the_counts_that_enclose_it(ratio: list[float]) -> None:
    found = float(crossing(COUNTS, np.array(ratio)))
    reached = [n for n, value in zip(COUNTS, ratio, strict=True) if value >= 1]
    if not reached:
        assert found == np.inf
    else:
        right = COUNTS.index(reached[0])
        assert COUNTS[max(right - 1, 0)] * (1 - 1e-12) <= found <= COUNTS[right] * (1 + 1e-12)


def test_a_crossing_of_two_powers_is_found_exactly() -> None:
    nodes = np.array([1, 2, 4, 8, 16, 32])
    assert crossing(nodes.tolist(), (nodes / 11.0) ** 1.5) == pytest.approx(11)
    several = np.stack([(nodes / place) ** 2 for place in (3, 5, 100)])
    assert crossing(nodes.tolist(), several).tolist() == pytest.approx([3, 5, np.inf])


def test_communication_that_takes_longer_from_the_start_crosses_there() -> None:
    assert float(crossing([2, 4], np.array([3.0, 9.0]))) == 2
    assert np.isnan(float(crossing([2, 4], np.array([np.nan, 9.0]))))
    assert float(crossing([1, 2], np.array([0.0, np.inf]))) == 2


def test_worthwhile_nodes_end_where_the_efficiency_first_falls_short() -> None:
    efficiencies = np.array([[1.0, 0.9, 0.4, 0.6], [1.0, 0.4, 0.9, 0.9], [1.0, 0.9, 0.8, 0.7]])
    assert cost_efficient_ranks(COUNTS, efficiencies, 0.5).tolist() == [2, 1, 8]


@pytest.fixture(scope="module")
def fitted() -> pd.DataFrame:
    # n ranks: compute 3 · 64 / n + 9 ms; all-reduce of 8 MB in 2 (n - 1) (0.2 ms + 8 MB · 2 ns/B / n) ≈ 32 ms
    layers = (Layer("conv", "convolution", 0, 1e-3, 8_000_000), Layer("lrn", "lrn", 3e-3, 0))
    truth = Truth(layers=layers, alpha=0.2e-3, beta=2e-9, read=1e-9, decode=1e-9, update=1e-9, noise=0.002)
    return fit(study(truth, **ONE), nodes=[1, 2, 4, 8, 16, 32])["stalling"]


def test_the_crossing_of_a_made_up_cluster(fitted: pd.DataFrame) -> None:
    found = fitted.iloc[0]
    n = np.arange(1, 33, 0.01)
    compute, communication = 192 / n + 9, 2 * (n - 1) * (0.2 + 16 / n)
    assert found["crossing_ranks"] == pytest.approx(n[np.argmax(communication > compute)], rel=0.05)
    assert found["crossing_ranks_low"] <= found["crossing_ranks"] <= found["crossing_ranks_high"]
    assert found["crossing_after"] == 8


def test_the_worthwhile_nodes_of_a_made_up_cluster(fitted: pd.DataFrame) -> None:
    n = np.array([1, 2, 4, 8, 16, 32])
    iteration = 192 / n + 9 + 2 * (n - 1) * (0.2 + 16 / n)
    efficiency = iteration[0] / iteration / n
    assert fitted.iloc[0]["cost_efficient_ranks"] == n[efficiency >= 0.5].max() == 4


@pytest.mark.parametrize("broken", first_by_day([np.nan, 0.0, -1.0, np.inf]))
def test_times_that_cannot_be_are_refused(broken: float) -> None:
    records = study(nodes=(1, 2), compute_batches=(64,), repeats=1, iterations=3, **ONE)
    single = records["iterations"]["ranks"] == 1
    records["iterations"].loc[single, "iteration_time"] = broken
    found = fit(records, nodes=[8])
    for note in found["stalling"]["note"]:
        assert note == "the iteration time on n = 1 is not a positive number"
    assert not found["stalling"]["reached"].any()
    assert (
        found["stalling"][["stall_ranks", "crossing_ranks", "cost_efficient_ranks", "best_speedup"]]
        .isna()
        .all(axis=None)
    )
    assert found["critical_path"].empty
    assert found["next_cells"].empty


def test_a_broken_larger_count_is_left_out() -> None:
    records = study(**ONE)
    records["iterations"].loc[records["iterations"]["nodes"] == 4, "iteration_time"] = np.nan
    found = fit(records, nodes=[])
    assert set(found["critical_path"].query("basis == 'measured'")["nodes"]) == {1, 2}
    assert (found["stalling"]["note"] == "").all()


def test_one_node_count_says_what_is_missing() -> None:
    found = fit(study(nodes=(1,), **ONE), nodes=[])["stalling"].iloc[0]
    assert found["note"] == "needs two worker counts that were measured or can be predicted"
    assert (found["verdict"], found["verdict_ranks"], found["reached"]) == ("undecided", 0, False)
    assert (found["largest_considered"], found["dominant_cause"]) == (1, "not distinguishable")
    apart = study(nodes=(1, 4), **ONE)
    apart["collectives"] = apart["collectives"].iloc[:0]
    assert fit(apart, nodes=[])["stalling"].iloc[0]["note"] == ""


# --- the verdict: of what was measured alone ------------------------------------------------------


def test_predictions_do_not_count_for_the_verdict() -> None:
    whole = curve([8.0, 4.5, 2.5, 2.45], noise=0.01)
    measured = {n: whole.measured[n] for n in (1, 2, 4)}
    (found,), probabilities = tables([trusted(CurvePoints(measured, whole.predicted))], 0.1, 0.5)
    assert [(p["basis"], p["nodes"], p["stalls"]) for p in probabilities] == [
        *[("measured", 1, True), ("measured", 2, True), ("measured", 4, False)],
        *[("known", 1, True), ("known", 2, True), ("known", 4, True), ("known", 8, False)],
    ]
    assert sum(p["probability"] for p in probabilities) == pytest.approx(2)
    assert (found["reached"], found["stall_ranks"], found["basis"]) == (True, 4, "predicted")
    assert (found["verdict"], found["verdict_ranks"]) == ("scales", 4)
    assert (found["measured_speedup"], found["measured_speedup_ranks"]) == (pytest.approx(3.2), 4)
    (found,), _ = tables([trusted(whole)], 0.1, 0.5)
    assert (found["verdict"], found["verdict_ranks"]) == ("stalls", 4)
    assert (found["measured_speedup"], found["measured_speedup_ranks"]) == (pytest.approx(8 / 2.45), 8)


# --- disturbed iterations -------------------------------------------------------------------------


def test_disturbed_iterations_do_not_change_what_is_found() -> None:
    records = study(nodes=(1, 2), compute_batches=(64,), visits=3, repeats=1, **ONE)
    iterations = records["iterations"]
    time = iterations["iteration_time"]
    quiet = {"steal": 0.0, "throttled": 0.0, "runnable_wait": 0.0, "frequency": 2e9, "thermal_throttles": 0.0}
    records["iterations"] = iterations = iterations.assign(node_busy=time, process_time=time, **quiet)
    undisturbed = {name: table.copy() for name, table in records.items()}
    planted = (iterations["visit"] == 2) & (iterations["iteration"] % 7 > 3)
    iterations.loc[planted, ["iteration_time", "forward"]] *= 5
    iterations.loc[planted, "node_busy"] += 0.8 * iterations["iteration_time"]
    iterations.loc[planted, "runnable_wait"] = 0.8 * iterations["iteration_time"]
    found = fit(records, nodes=[])
    disturbed = found["disturbances"]
    assert len(disturbed) == len(iterations[planted].drop_duplicates(["cell", "iteration"]))
    assert disturbed["excluded"].all()
    gone = pd.MultiIndex.from_frame(disturbed[["cell", "iteration"]])
    for name in ("iterations", "layers"):
        table = undisturbed[name]
        undisturbed[name] = table[~pd.MultiIndex.from_frame(table[["cell", "iteration"]]).isin(gone)]
    expected = fit(undisturbed, nodes=[])
    assert expected["disturbances"].empty
    for name in ("predictions", "stalling", "causes"):
        pd.testing.assert_frame_equal(found[name], expected[name])
