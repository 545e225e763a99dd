from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic import NETWORK, Layer, Truth, study

from stallpoint.errors import InputError
from stallpoint.models.terms.batch_law import Kernel
from stallpoint.models.terms.compute import Compute, layer_scaling
from stallpoint.models.terms.training_cells import reduced_cells
from stallpoint.records.disturbances import counts

OPTIONS = {"nodes": (1, 2), "storages": ("local",), "syncs": ("naive",), "prefetches": (0,)}
NONE_DISTURBED = pd.DataFrame({"cell": [], "iteration": []})


def compute_of(tables: dict[str, pd.DataFrame]) -> Compute:
    return Compute(reduced_cells(tables["iterations"], [tables["layers"]]), seed=0)


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return study(**OPTIONS)


@pytest.fixture(scope="module")
def compute(tables: dict[str, pd.DataFrame]) -> Compute:
    return compute_of(tables)


@pytest.mark.parametrize(
    ("batch", "source"),
    [(16, "measured at b"), (48, "interpolated in b"), (1, "extrapolated in b"), (256, "extrapolated in b")],
)
def test_layer_times_at_any_mini_batch(compute: Compute, batch: int, source: str) -> None:
    times = compute.times("alexnet", "cpu", batch, prefetch=0)
    assert times is not None
    assert times.source == source
    expected = np.array([layer.fixed + layer.each * batch for layer in NETWORK])
    assert times.layers_forward[0] == pytest.approx(expected, rel=0.06)
    assert times.layers_backward[0] == pytest.approx(2 * expected, rel=0.06)
    assert times.update[0] == pytest.approx(Truth().update, rel=0.05)
    assert times.forward[0] == pytest.approx(expected.sum(), rel=0.03)


def test_time_between_layers_belongs_to_the_backward_pass(tables: dict[str, pd.DataFrame]) -> None:
    longer = tables["iterations"].assign(backward=lambda rows: rows["backward"] + 7e-3)
    times = Compute(reduced_cells(longer, [tables["layers"]]), seed=0).times("alexnet", "cpu", 16, prefetch=0)
    assert times is not None
    steps = times.backward_steps[0]
    assert steps.sum() == pytest.approx(times.backward[0])
    assert steps - times.layers_backward[0] == pytest.approx(np.full(7, 1e-3), rel=0.2)


def test_named_cells_take_no_part(compute: Compute) -> None:
    at_64 = [cell.name for cell in compute.cells["alexnet", "cpu"] if cell.worker_batch == 64]
    assert {name.split("scaling~")[1].split("/")[0] for name in at_64} == {"compute", "strong"}
    without_compute = [name for name in at_64 if "scaling~compute" in name]
    times = compute.times("alexnet", "cpu", 64, prefetch=0, without=without_compute)
    assert times is not None
    assert times.source == "measured at b"
    times = compute.times("alexnet", "cpu", 64, prefetch=0, without=at_64)
    assert times is not None
    assert times.source == "extrapolated in b"


def test_cells_that_read_ahead_likewise_are_preferred() -> None:
    tables = study(**{**OPTIONS, "prefetches": (0, 2)})
    slowed = tables["layers"].assign(forward=lambda rows: rows["forward"] * np.where(rows["prefetch"] > 0, 2, 1))
    compute = Compute(reduced_cells(tables["iterations"], [slowed]), seed=0)
    alone, ahead = (compute.times("alexnet", "cpu", 64, prefetch=prefetch) for prefetch in (0, 2))
    assert alone is not None
    assert ahead is not None
    assert ahead.layers_forward[0] == pytest.approx(2 * alone.layers_forward[0], rel=0.1)


def test_what_was_never_measured_has_no_times(compute: Compute) -> None:
    assert compute.times("resnet50", "cpu", 16, prefetch=0) is None
    only = compute_of(study(**OPTIONS, compute_batches=(16,), repeats=1))
    strong = [cell.name for cell in only.cells["alexnet", "cpu"] if cell.worker_batch == 64]
    assert only.times("alexnet", "cpu", 8, prefetch=0, without=strong) is None  # one point makes no line


def test_layer_scaling_is_that_of_free_communication(compute: Compute, tables: dict[str, pd.DataFrame]) -> None:
    table = pd.DataFrame(layer_scaling(compute, counts(tables["iterations"], NONE_DISTURBED))).set_index(
        ["layer_type", "worker_batch"]
    )
    for kind in ("convolution", "fully-connected"):
        layers = [layer for layer in NETWORK if layer.type == kind]
        time = {b: 3 * sum(layer.fixed + layer.each * b for layer in layers) for b in (64, 4)}
        row = table.loc[(kind, 4)]
        assert row["seconds"] == pytest.approx(time[4], rel=0.03)
        assert row["speedup"] == pytest.approx(time[64] / time[4], rel=0.04)
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    shares = table["share"].drop("all", level="layer_type")
    assert shares.groupby("worker_batch").sum().to_numpy() == pytest.approx(1)
    assert (table.xs(64, level="worker_batch")["speedup"] == 1).all()


def test_disturbed_iterations_of_one_worker_are_counted_at_each_mini_batch(
    compute: Compute, tables: dict[str, pd.DataFrame]
) -> None:
    alone = tables["iterations"].query("ranks == 1 and not warmup")
    some = alone[alone["worker_batch"] == 16].iloc[:3]
    rows = pd.DataFrame(layer_scaling(compute, counts(tables["iterations"], some))).query("layer_type == 'all'")
    rows = rows.set_index("worker_batch")
    assert rows["disturbed"].to_dict() == {batch: 3 if batch == 16 else 0 for batch in rows.index}
    assert rows["iterations"].to_dict() == alone.groupby("worker_batch").size().to_dict()


def test_layers_of_a_type_are_added_up() -> None:
    twice = replace(Truth(), layers=(Layer("a", "relu", 1e-3, 0), Layer("b", "relu", 2e-3, 0)))
    tables = study(twice, **OPTIONS)
    table = pd.DataFrame(layer_scaling(compute_of(tables), counts(tables["iterations"], NONE_DISTURBED)))
    assert table.query("layer_type == 'relu'")["seconds"].to_numpy() == pytest.approx(9e-3, rel=0.03)


def test_layers_that_do_not_scale_come_out_of_the_data(compute: Compute) -> None:
    at_1, at_256 = (compute.times("alexnet", "cpu", b, prefetch=0) for b in (1, 256))
    assert at_1 is not None
    assert at_256 is not None
    growth = dict(
        zip((layer.name for layer in NETWORK), at_256.layers_forward[0] / at_1.layers_forward[0], strict=True)
    )
    assert growth["conv1"] > 100
    assert growth["fc6"] < 4


def test_fully_connected_layers_follow_the_kernel_of_the_matrix_products(tables: dict[str, pd.DataFrame]) -> None:
    blocks = Compute(reduced_cells(tables["iterations"], [tables["layers"]]), seed=0, kernels={"cpu": Kernel(block=8)})
    lines = compute_of(tables)
    names = [layer.name for layer in NETWORK]
    for b, same in ((5, False), (64, True)):
        by_block, by_line = (model.times("alexnet", "cpu", b, prefetch=0) for model in (blocks, lines))
        assert by_block is not None
        assert by_line is not None
        equal = by_block.layers_forward[0] == pytest.approx(by_line.layers_forward[0])
        assert equal == same
        conv = names.index("conv1")
        assert by_block.layers_forward[0, conv] == by_line.layers_forward[0, conv]


@pytest.mark.parametrize("wrong", [-1e-3, np.inf])
def test_impossible_layer_times_are_refused_by_name(tables: dict[str, pd.DataFrame], wrong: float) -> None:
    layers = tables["layers"].copy()
    layers.loc[layers.index[7], "backward"] = wrong
    with pytest.raises(InputError, match=r"layers: backward is .* of cell train/network~alexnet"):
        Compute(reduced_cells(tables["iterations"], [layers]), seed=0)


def test_what_was_not_measured_stays_unknown(tables: dict[str, pd.DataFrame]) -> None:
    layers = tables["layers"].assign(backward=np.nan)
    compute = Compute(reduced_cells(tables["iterations"], [layers]), seed=0)
    assert compute.times("alexnet", "cpu", 16, prefetch=0) is None


def test_layers_of_an_iteration_that_come_apart_are_refused(tables: dict[str, pd.DataFrame]) -> None:
    layers = tables["layers"]
    with pytest.raises(InputError, match=r"layers: rows of iteration \d+ of rank 0 of cell train/.* do not follow"):
        reduced_cells(tables["iterations"], [layers[::2], layers[1::2]])
