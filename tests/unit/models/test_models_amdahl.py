import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import Layer, Truth, study

from stallpoint.models.answers.amdahl import serial_fraction, speedup_limit, stall_ranks
from stallpoint.models.fitting import fit

OPTIONS = {"storages": ("local",), "syncs": ("naive",), "prefetches": (0,), "weak": False}


@given(st.floats(0, 1), st.floats(0.001, 1000))
def test_the_serial_fraction_of_exact_times_is_found(serial: float, single: float) -> None:
    n = np.array([1, 2, 4, 16])
    assert serial_fraction(n, single * (serial + (1 - serial) / n)) == pytest.approx(serial, abs=1e-6)


def test_times_that_rise_with_the_nodes_are_wholly_serial() -> None:
    assert serial_fraction([1, 2, 4], np.array([1.0, 1.1, 1.3])) == 1


def test_times_that_fall_faster_than_the_nodes_rise_have_no_serial_part() -> None:
    serial = serial_fraction([1, 2, 4], np.array([1.0, 0.45, 0.2]))
    assert serial == 0
    assert stall_ranks(serial, 0.1) == speedup_limit(serial) == np.inf


def test_known_stalling_points() -> None:
    # s = 1/10: S(n) = 10n / (n + 9), S(2n)/S(n) = 2(n + 9) / (2n + 9) = 1.1 at n = 40.5
    assert stall_ranks(np.array(0.1), 0.1) == pytest.approx(40.5)
    assert stall_ranks(np.array(1.0), 0.1) == 1
    assert speedup_limit(np.array(0.1)) == pytest.approx(10)


@given(st.floats(0.001, 0.4), st.floats(0.02, 0.5))
def test_doubling_at_the_stalling_point_gains_the_threshold(serial: float, threshold: float) -> None:
    def speedup(nodes: float) -> float:
        return 1 / (serial + (1 - serial) / nodes)

    nodes = float(stall_ranks(np.array(serial), threshold))
    if nodes > 1:
        assert speedup(2 * nodes) / speedup(nodes) == pytest.approx(1 + threshold)


def test_layer_types_have_their_true_serial_fraction() -> None:
    layers = (Layer("a", "convolution", 1e-3, 1e-3), Layer("b", "relu", 8e-3, 0.125e-3))
    table = fit(study(Truth(layers=layers), **OPTIONS), nodes=[])["amdahl"].query("basis == 'compute'")
    found = table.set_index("layer_type")
    for kind, fixed, each in (("convolution", 1, 1), ("relu", 8, 0.125), ("all", 9, 1.125)):
        row = found.loc[kind]
        assert row["serial_fraction"] == pytest.approx(fixed / (fixed + 64 * each), rel=0.1)
        assert row["serial_fraction_low"] <= row["serial_fraction"] <= row["serial_fraction_high"]
        assert row["speedup_limit"] == pytest.approx(1 / row["serial_fraction"])
        assert (row["points"], row["note"]) == (5, "")


def test_measured_strong_scaling() -> None:
    # Free communication and no input: s is the serial part of computing and the update.
    truth = Truth(alpha=1e-9, beta=1e-15, read=1e-9, decode=1e-9)
    table = fit(study(truth, **OPTIONS | {"weak": True}), nodes=[])["amdahl"].query("basis == 'measured'")
    serial = 3 * sum(layer.fixed for layer in truth.layers) + truth.update
    parallel = 3 * 64 * sum(layer.each for layer in truth.layers)
    row = table.iloc[0]
    assert len(table) == 1  # weak scaling has no serial fraction
    assert row["series"] == "local/naive/0/64"
    assert row["serial_fraction"] == pytest.approx(serial / (serial + parallel), rel=0.05)


def test_two_node_counts_are_needed() -> None:
    table = fit(study(nodes=(2,), compute_batches=(16,), **OPTIONS), nodes=[])["amdahl"]
    notes = table.groupby("basis")["note"].unique()
    assert notes["measured"].tolist() == ["fewer than two different worker counts"]
    assert notes["compute"].tolist() == ["fewer than two different mini-batches"]
    assert table["serial_fraction"].isna().all()


def test_a_curve_without_one_node_counts_from_its_fewest() -> None:
    options = OPTIONS | {"nodes": (2, 4)}
    row: pd.Series = fit(study(**options), nodes=[])["amdahl"].query("basis == 'measured'").iloc[0]
    serial = row["serial_fraction"]
    assert row["stall_ranks"] == pytest.approx(2 * max(1, float(stall_ranks(np.array(serial), 0.1))))
