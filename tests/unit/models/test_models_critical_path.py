from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_curves import point
from synthetic import Layer, Truth, study

from stallpoint.base.measured import Measured, Parts
from stallpoint.base.statistics import REPLICATES, Ensemble
from stallpoint.models.answers.causes import PART_CAUSES, cause_seconds, causes, merge_compute, seconds_on_critical_path
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.models.terms.effects import CollectiveTimes, IsolatedTimes

ONE: dict[str, Any] = {"storages": ("local",), "syncs": ("naive",), "prefetches": (0,), "weak": False}
SMALL = Layer("conv", "convolution", 0, 1e-3, 4_000)
LARGE = Layer("fc", "fully-connected", 0, 1e-3, 40_000_000)

seconds = st.floats(0, 1e3, allow_subnormal=False)


def ensemble(value: float) -> Ensemble:
    return np.full(1 + REPLICATES, value)


def curve(
    times: dict[str, float],
    *,
    predicted_only: bool,
    base_time: float = 1.0,
    latency: float = 0.2,
    isolated: IsolatedTimes | None = None,
    more: float | None = None,
) -> CurvePoints:
    """Two node counts, the larger with `times`; on the smaller each is `base_time`."""
    parts = {
        1: Parts.measured(**{name: ensemble(base_time) for name in times}),
        2: Parts.measured(**{name: ensemble(value) for name, value in times.items()}),
    }
    latencies, thread = {1: ensemble(0.2), 2: ensemble(latency)}, None if more is None else ensemble(more)
    predicted = {
        n: Predicted(
            point(n), "eq. 5", "measured at b", parts[n],
            latency_share=latencies[n], isolated=isolated, backward_over_forward=thread,
        )
        for n in parts
    }  # fmt: skip
    measured = {n: Measured(point(n), (), parts[n]) for n in ([1] if predicted_only else [1, 2])}
    return CurvePoints(measured, predicted)


@pytest.fixture(scope="module")
def fitted() -> dict[str, pd.DataFrame]:
    return fit(study(storages=("shared",)), nodes=[1, 2, 4, 8, 16])


def test_parts_add_up_to_the_iteration_time(fitted: dict[str, pd.DataFrame]) -> None:
    path, predictions = fitted["critical_path"], fitted["predictions"]
    key = ["scaling", "sync", "prefetch", "nodes"]
    whole = path.merge(predictions[[*key, "measured_iteration", "predicted_iteration"]], on=key)
    whole["iteration"] = whole["measured_iteration"].where(whole["basis"] == "measured", whole["predicted_iteration"])
    sums = whole.groupby([*key, "basis"]).agg({"seconds": "sum", "share": "sum", "iteration": "first"})
    assert set(whole["basis"]) == {"measured", "predicted"}
    assert len(sums) > 20
    assert sums["seconds"].to_numpy() == pytest.approx(sums["iteration"].to_numpy(), rel=1e-12)
    assert sums["share"].to_numpy() == pytest.approx(np.ones(len(sums)), rel=1e-12)


def test_one_worker_shares_its_hardware_with_none(fitted: dict[str, pd.DataFrame]) -> None:
    path = fitted["critical_path"]
    assert "shared hardware" not in set(path.query("nodes == 1")["cause"])
    assert "shared hardware" in set(path.query("nodes == 2")["cause"])


@given(
    times=st.fixed_dictionaries(
        dict.fromkeys(
            ("forward", "backward", "exposed_communication", "update", "data_wait", "host_to_device", "slack"), seconds
        )
    ),
    matrix=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    latency=st.one_of(st.floats(0, 1), st.just(float("nan"))),
    alone=st.one_of(st.none(), st.tuples(seconds, seconds, st.floats(0.5, 2), st.booleans())),
    predicted_only=st.booleans(),
)
def test_parts_add_up_whatever_the_times_are(
    times: dict[str, float],
    matrix: tuple[float, float],
    latency: float,
    alone: tuple[float, float, float, bool] | None,
    predicted_only: bool,
) -> None:
    slack = times.pop("slack")
    whole = sum(times.values()) + slack
    computing = times["forward"] + times["backward"]
    times |= {
        "iteration_time": whole,
        "matrix": computing * matrix[0],
        "fully_connected": computing * matrix[0] * matrix[1],
    }
    isolated = more = None
    if alone:
        forward, backward, factor, overlaps = alone
        of_matrices = matrix[0] * (forward + backward)
        parts = {"forward": forward, "backward": backward, "update": 0.0}
        parts |= {"matrix": of_matrices, "fully_connected": matrix[1] * of_matrices}
        nothing = CollectiveTimes(np.empty((1, 0)), np.empty((1, 0)), 0)
        isolated = IsolatedTimes(**{name: ensemble(value) for name, value in parts.items()}, collectives=nothing)
        more = factor if overlaps else None
    at_two = curve(times, predicted_only=predicted_only, latency=latency, isolated=isolated, more=more)
    found = seconds_on_critical_path(at_two, 2, "predicted" if predicted_only else "measured")
    close = {"rel": 1e-9, "abs": 1e-9 * (1 + max(abs(seconds[0]) for seconds in found.values()))}
    assert sum(ensemble[0] for ensemble in found.values()) == pytest.approx(whole, **close)
    assert sum(e[0] for e in cause_seconds(found).values()) == pytest.approx(whole, **close)
    assert sum(e[0] for e in merge_compute(found).values()) == pytest.approx(whole, **close)
    interference = {"co-running ranks", "communication thread"}
    assert min(seconds[0] for part, seconds in found.items() if part not in interference) >= -1e-9 * (1 + whole)
    assert ("communication, undivided" in found) == np.isnan(latency)
    assert ("compute, undivided" in found) == (alone is None)
    assert (interference <= set(found)) == (alone is not None)
    if not predicted_only:
        assert found["straggling"][0] == pytest.approx(slack, rel=1e-9, abs=1e-9 * (1 + whole))


def test_compute_is_split_by_layer_type(fitted: dict[str, pd.DataFrame]) -> None:
    truth = Truth()
    row = fitted["critical_path"].query("scaling == 'strong' and sync == 'naive' and prefetch == 0 and nodes == 4")
    found = row.set_index("part")["seconds"]
    for part, types in {
        "fully-connected layers": {"fully-connected"},
        "other matrix layers": {"convolution"},
        "non-scaling layers": {"relu", "pooling", "loss"},
    }.items():
        expected = sum(3 * (layer.fixed + 16 * layer.each) for layer in truth.layers if layer.type in types)
        assert found[part] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("sync", "exposed"), [("naive", (SMALL, LARGE)), ("wfbp", (SMALL,))])
def test_latency_and_bandwidth_are_those_of_the_exposed_messages(sync: str, exposed: tuple[Layer, ...]) -> None:
    """
    wfbp:   |-- backward fc --|-- backward conv --|
                              |- all-reduce fc -|  |- all-reduce conv -|  only this one is exposed
    """
    truth = Truth(layers=(SMALL, LARGE), alpha=200e-6, beta=0.1e-9, noise=0.001)
    path = fit(study(truth, **{**ONE, "syncs": (sync,)}), nodes=[8])["critical_path"].query("scaling == 'strong'")
    for nodes in (4, 8):
        found = path[path["nodes"] == nodes].set_index("part")["seconds"]
        latency = sum(2 * (nodes - 1) * truth.alpha for _ in exposed)
        bandwidth = sum(2 * (nodes - 1) / nodes * layer.gradient_bytes * truth.beta for layer in exposed)
        assert found["communication latency"] == pytest.approx(latency, rel=0.05)
        assert found["communication bandwidth"] == pytest.approx(bandwidth, rel=0.05, abs=2e-5)


def test_without_collectives_communication_stays_undivided() -> None:
    records = study(**ONE)
    records["collectives"] = records["collectives"].iloc[:0]
    path = fit(records, nodes=[])["critical_path"].query("scaling == 'strong' and nodes == 4").set_index("part")
    assert path.loc["communication, undivided", "seconds"] > 0
    assert "communication latency" not in path.index
    assert path["share"].sum() == pytest.approx(1)


def test_causes_and_parts_are_one_vocabulary(fitted: dict[str, pd.DataFrame]) -> None:
    path = fitted["critical_path"]
    assert (path["cause"] == path["part"].map(PART_CAUSES)).all()
    assert set(fitted["causes"]["cause"]) == set(path["cause"])


@given(
    st.lists(st.floats(0.01, 100), min_size=8, max_size=8), st.sampled_from([2.0**power for power in (-20, -1, 1, 20)])
)
def test_shares_and_verdicts_do_not_depend_on_the_unit_of_time(values: list[float], factor: float) -> None:
    names = ("forward", "backward", "exposed_communication", "update", "data_wait", "host_to_device", "slack")
    times = dict(zip(names, values, strict=False))
    times |= {"iteration_time": sum(times.values()), "matrix": times["forward"], "fully_connected": 0.5 * values[0]}
    del times["slack"]

    def judged(unit: float) -> list[tuple[object, ...]]:
        scaled = {name: value * unit for name, value in times.items()}
        found = causes([curve(scaled, predicted_only=False, base_time=values[-1] * unit)])
        return [(row["cause"], row["verdict"], row["share"]) for row in found]

    assert judged(factor) == judged(1.0)
