from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic import Layer, Truth, study

from stallpoint.base.statistics import Ensemble
from stallpoint.models.answers.causes import verdicts
from stallpoint.models.fitting import fit

FREE = {"alpha": 1e-9, "beta": 1e-15, "read": 1e-9, "decode": 1e-9, "update": 1e-9}
"""A cluster on which only computing takes time."""
SCALING = (Layer("conv", "convolution", 0, 1e-3, 8_000_000),)
ONE = {"storages": ("local",), "syncs": ("naive",), "prefetches": (0,), "weak": False}


def tables(truth: Truth, nodes: tuple[int, ...] = (1, 2, 4), **options: Any) -> dict[str, pd.DataFrame]:
    return fit(study(truth, nodes=nodes, **{**ONE, **options}), nodes=[1, 2, 4, 8, 16, 32, 64])


def ensemble(value: float, spread: float) -> Ensemble:
    return np.array([value, *np.linspace(value - spread, value + spread, 101)])


@pytest.mark.parametrize(
    ("truth", "cause"),
    [
        (Truth(**{**FREE, "beta": 2e-9}, layers=SCALING), "communication"),
        (Truth(**FREE, layers=(Layer("fc", "fully-connected", 20e-3, 1e-3, 8_000_000),)), "small matrices"),
        (Truth(**FREE, layers=(*SCALING, Layer("lrn", "lrn", 20e-3, 0))), "non-scaling layers"),
        (Truth(**FREE, layers=SCALING, slower=1.5), "shared hardware"),
        (Truth(**{**FREE, "update": 50e-3}, layers=SCALING), "model update"),
        (Truth(**{**FREE, "read": 2e-3, "contention": 1.0}, layers=SCALING), "training data"),
    ],
)
def test_the_cause_that_was_built_in_dominates_measured_and_predicted(truth: Truth, cause: str) -> None:
    storages = ("shared",) if cause == "training data" else ("local",)
    scalings = ("strong", "weak") if cause == "communication" else ("strong",)
    table = tables(truth, storages=storages, weak="weak" in scalings)["causes"]
    for scaling in scalings:
        rows = table[table["scaling"] == scaling]
        assert set(rows["basis"]) == {"measured", "predicted"}
        dominant = rows[rows["verdict"] == "dominant"]
        assert set(dominant["cause"]) == {cause}
        assert len(dominant) == rows["nodes"].nunique()


def test_what_a_message_takes_from_the_backward_pass_is_the_communication_threads() -> None:
    layers = (Layer("conv", "convolution", 0, 1e-3, 80_000), Layer("fc", "fully-connected", 0, 1e-3, 40_000_000))
    records = study(Truth(layers=layers, slower=1.25, noise=0.001), **{**ONE, "syncs": ("naive", "wfbp")})
    extra = {"iterations": 10e-3, "layers": 5e-3}  # of the backward pass, evenly over both layers
    for name, seconds in extra.items():
        beside = (records[name]["sync"] == "wfbp") & (records[name]["ranks"] > 1)
        records[name].loc[beside, [*(("iteration_time",) if name == "iterations" else ()), "backward"]] += seconds
    path = fit(records, nodes=[])["critical_path"].query("nodes == 2").set_index(["sync", "part"])
    isolated = 6 * 32e-3  # three times the forward pass of two layers
    for sync, thread in (("naive", 0.0), ("wfbp", extra["iterations"])):
        seconds = path.loc[sync, "seconds"]
        assert seconds["communication thread"] == pytest.approx(thread, abs=1e-3)
        assert seconds["co-running ranks"] == pytest.approx(0.25 * isolated, rel=0.02)
        assert seconds["fully-connected layers"] == pytest.approx(isolated / 2, rel=0.02)


def test_computing_whose_isolated_time_is_not_known_stays_undivided() -> None:
    records = study(Truth(**FREE, layers=SCALING), nodes=(1, 2), compute_batches=(64,), **ONE)
    found = fit(records, nodes=[])
    path = found["critical_path"].query("nodes == 2").set_index("part")
    assert path.loc["compute, undivided", "seconds"] == pytest.approx(3 * 32e-3, rel=0.05)
    assert not {"small matrices", "shared hardware"} & set(path["cause"])
    lost = found["causes"].query("nodes == 2").set_index("cause")["lost"]
    assert lost["compute, undivided"] == pytest.approx(0, abs=5e-3)
    assert "small matrices" not in lost


def test_waiting_for_the_slowest_rank_is_straggling() -> None:
    records = study(Truth(**FREE, layers=SCALING), **ONE)
    slow = records["iterations"]["rank"] == 1
    extra = records["iterations"].loc[slow, "forward"]
    records["iterations"].loc[slow, ["forward", "iteration_time"]] += np.stack([extra, extra], axis=-1)
    # The other ranks spend that time waiting in their all-reduce.
    of_slow = extra.groupby(records["iterations"].loc[slow, "cell"]).median()
    waits = records["iterations"]["cell"].map(of_slow).where(~slow & (records["iterations"]["ranks"] > 1), 0.0)
    for name in ("exposed_communication", "communication", "iteration_time"):
        records["iterations"][name] += waits
    causes = fit(records, nodes=[])["causes"].query("nodes == 4")
    lost = causes.set_index("cause")["lost"]
    assert lost["communication"] == pytest.approx(0, abs=1e-3)
    assert lost["straggling"] == pytest.approx(extra[records["iterations"]["nodes"] == 4].median(), rel=0.05)
    assert lost["shared hardware"] == pytest.approx(0, abs=1e-3)


def test_losses_add_up_to_the_distance_from_ideal_scaling() -> None:
    found = tables(Truth(), weak=True)
    predictions = found["predictions"].set_index(["scaling", "nodes"])
    for (scaling, nodes, basis), rows in found["causes"].groupby(["scaling", "nodes", "basis"]):
        seconds = predictions.loc[scaling, f"{basis}_iteration"]
        ideal = seconds[1] / nodes if scaling == "strong" else seconds[1]
        assert rows["lost"].sum() == pytest.approx(seconds[nodes] - ideal)
        assert (rows["lost"] / rows["share"]).dropna().to_numpy() == pytest.approx(seconds[nodes])


def test_verdicts_go_by_intervals() -> None:
    clear = verdicts({"a": ensemble(5, 1), "b": ensemble(1, 0.5), "c": ensemble(0, 0)}, 10.0)
    assert clear == {"a": "dominant", "b": "minor", "c": "minor"}
    overlapping = verdicts({"a": ensemble(5, 1), "b": ensemble(4.5, -1), "c": ensemble(1, 0.1)}, 10.0)
    assert overlapping == {"a": "not distinguishable", "b": "not distinguishable", "c": "minor"}
    common = np.linspace(-2, 2, 1001)
    paired = verdicts({"a": 5 + common, "b": 4 + common}, 10.0)
    assert paired == {"a": "dominant", "b": "minor"}, "what slows both down cancels"
    equal = verdicts({"a": ensemble(5, 0), "b": ensemble(4.6, 0)}, 10.0)
    assert set(equal.values()) == {"not distinguishable"}, "equal studies differ by as much"
    nothing = verdicts({"a": ensemble(0.1, 0.2), "b": ensemble(-3, 0.1)}, 10.0)
    assert nothing == {"a": "not distinguishable", "b": "minor"}


@pytest.mark.parametrize(
    ("fixed", "each", "noise", "stall", "verdict"),
    [
        (256, 1, 0.001, (True, 2, "measured"), ("stalls", 2)),  # 64/n + 256 ms: doubling 1 gains 11 %, doubling 2 6 %
        (48, 3, 0.02, (True, 32, "predicted"), ("scales", 4)),  # 192/n + 48 ms: less than 10 % from n = 18 on
        (12, 3, 0.02, (False, 64, "predicted"), ("scales", 4)),  # 192/n + 12 ms: from n = 72 on, beyond B = 64
    ],
)
def test_a_stall_is_measured_or_predicted_or_not_reached(
    fixed: int, each: int, noise: float, stall: tuple[bool, int, str], verdict: tuple[str, int]
) -> None:
    layers = (Layer("fc", "fully-connected", fixed * 1e-3 / 3, each * 1e-3 / 3, 4),)
    row = tables(Truth(**FREE, layers=layers, noise=noise))["stalling"].iloc[0]
    assert (row["reached"], row["stall_ranks"], row["basis"]) == stall
    assert (row["verdict"], row["verdict_ranks"]) == verdict  # as far as was measured
    assert (row["largest_measured"], row["largest_considered"]) == (4, 64)
    seconds = [each * 64 / n + fixed for n in (1, 4)]
    assert (row["measured_speedup"], row["measured_speedup_ranks"]) == (pytest.approx(seconds[0] / seconds[1], 0.05), 4)
    assert row["best_speedup"] == pytest.approx(seconds[0] / (each + fixed), rel=0.05)
    assert row["dominant_cause"] == "small matrices"


def test_a_stall_between_two_node_counts_has_an_interval() -> None:
    # t = 115/n + 461 ms: doubling one node gains 11 %, so with this noise it may as well be less than 10 %
    layers = (Layer("fc", "fully-connected", 256e-3 / 3 * 1.8, 1e-3 / 3 * 1.8, 4),)
    noisy = study(Truth(**FREE, layers=layers, noise=0.1), repeats=3, **ONE)
    row = fit(noisy, nodes=[1, 2, 4, 8])["stalling"].iloc[0]
    assert row["stall_ranks_low"] < row["stall_ranks_high"]
    assert {row["stall_ranks_low"], row["stall_ranks_high"]} <= {1, 2, 4, 8}
    assert (row["verdict"], row["verdict_ranks"]) == ("undecided", 1)
