from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import small_training
import torch
from hypothesis import given
from hypothesis import strategies as st
from launching import run_job
from nightly import by_day
from resident_ranks import RankError, Ranks
from sample_cells import TRAIN
from small_training import EXAMPLES
from torch import nn

from stallpoint.errors import CannotRun, InputError
from stallpoint.measure import STEP_SIZE
from stallpoint.measure.jobs import train
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training import optimisers
from stallpoint.measure.training.input_pipeline import MiniBatch
from stallpoint.measure.training.precision import in_force
from stallpoint.measure.world import World
from stallpoint.networks import find_network
from stallpoint.networks.layers import Loss, layers
from stallpoint.records.parquet import read
from stallpoint.records.tables import (
    ENVIRONMENTS,
    INSTRUMENTATION,
    ITERATIONS,
    LAYERS,
    PEAK_MEMORY,
    PHASES,
    STALENESS,
)
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.strategies.families.sharded_family import ShardedOptions
from stallpoint.strategies.options import forced_scheme
from stallpoint.strategies.presets import PRESETS, Preset, to_values, with_options
from stallpoint.study.kinds.train_kind import TrainCell

pytestmark = pytest.mark.ranks

REPRESENTATIVES = (
    "wfbp", "mg-wfbp", "segmented", "16-bit-copied", "8-bit", "top-k-torch", "checkpointing", "server-fused",
    "two-servers", "ddp-accumulate", "ddp-powersgd", "zero-1-accumulate", "fsdp-accumulate", "hsdp",
)  # fmt: skip
"""Presets that together take every way that gradients go."""
UNFORCED = [name for name, preset in EXAMPLES.items() if not forced_scheme(preset.scheme)]
FORCED = sorted({preset.scheme for preset in EXAMPLES.values() if forced_scheme(preset.scheme)})


@pytest.fixture(scope="module")
def one_rank() -> dict[str, torch.Tensor]:
    """Weights of the small network trained by one rank, with the whole batches."""
    return small_training.train(World.start(1), Preset())[0]


@pytest.mark.parametrize("name", by_day(UNFORCED, REPRESENTATIVES.__contains__))
def test_ranks_with_a_part_of_the_batch_each_train_the_network_one_rank_trains(
    name: str, one_rank: dict[str, torch.Tensor], ranks: Ranks
) -> None:
    check_trained(ranks, [name], one_rank)


@pytest.mark.parametrize("scheme", by_day(FORCED, "ring".__eq__))
def test_ranks_train_the_same_where_the_library_is_told_how_to_reduce(
    scheme: str, one_rank: dict[str, torch.Tensor]
) -> None:
    told = Ranks(scheme)
    try:
        check_trained(told, [name for name, preset in EXAMPLES.items() if preset.scheme == scheme], one_rank)
    finally:
        told.end()


def test_weights_that_differ_between_ranks_are_noticed(ranks: Ranks) -> None:
    with pytest.raises(RankError, match="ArithmeticError: the ranks' weights differ after training"):
        ranks(small_training.train_with_a_weight_that_differs)


def check_trained(ranks: Ranks, names: Collection[str], alone: dict[str, torch.Tensor]) -> None:
    """What all ranks train, and pairs of them, has the weights that one rank `alone` finds."""
    first, _, third, _ = ranks(small_training.train_all, names)
    trained: dict[tuple[str, int], small_training.Trained] = {**third, **first}
    assert set(trained) == {(name, size) for name in names for size in (2, 4)}
    start = small_training.network().state_dict()
    for (name, size), (weights, iterations) in trained.items():
        preset = EXAMPLES[name]
        # Values that travel in fewer bits, or later, leave the weights near those; the bounds are seen ones, doubled.
        tolerance = 1e-3 if preset.lossless else 0.6 if preset.top_k < 1 or preset.hook == "powersgd" else 0.1
        for layer, expected in alone.items():
            moved = (expected - start[layer]).norm()
            assert (weights[layer] - expected).norm() <= tolerance * moved, (name, size, layer)
            assert moved > 1e-4
        check_messages(preset, size, iterations[-1].layers)
        phases = [one.phases for one in iterations]
        for one in phases:
            assert sum(one[name] for name in PHASES) <= one["iteration_time"] + 1e-9, "nothing counts twice"
        if preset.factored:
            exposed, communication = (
                sum(one[of] for one in phases) for of in ("exposed_communication", "communication")
            )
            assert exposed > 0.8 * communication, "the backward pass waits for both buckets"


def check_messages(preset: Preset, ranks: int, columns: dict[str, Sequence[Any]]) -> None:
    """What rank 0 recorded of its messages is what the preset says."""
    sent = {
        layer: (message, size)
        for layer, message, size in zip(columns["layer"], columns["bucket"], columns["bucket_bytes"], strict=True)
        if message >= 0
    }
    assert list(sent) == ["conv", "wide", "fc"]
    sizes = {"conv": 448, "wide": 34800, "fc": 1464}
    numbers = [message for message, _ in sent.values()]
    assert numbers == sorted(numbers, reverse=True), "the last layer goes first"
    if preset.grouping == "layer":
        assert numbers == [2, 1, 0]
    if preset.backend == "ddp" and preset.fusion_bytes > sum(sizes.values()):
        assert numbers == [0, 0, 0], "less than the first bucket holds"
    elif preset.grouping == "block":
        assert numbers == [2, 1, 0], "without blocks each layer is one"
    elif preset.fusion_bytes > sum(sizes.values()):
        assert numbers == [0, 0, 0]
    elif preset.grouping == "fused":
        assert numbers == [1, 0, 0]
    gathers = {
        side: [at for at, learns in zip(columns[f"{side}_start"], columns["gradient_bytes"], strict=True) if learns]
        for side in ("gather", "gather_again")
    }
    assert all(at is not None for at in gathers["gather"]) == (preset.sharding != "none")
    assert all(at is not None for at in gathers["gather_again"]) == (
        preset.strategy.in_blocks and preset.family(ShardedOptions).reshard
    )
    if preset.strategy.in_blocks:
        assert gathers["gather"] == sorted(gathers["gather"]), "the first block goes first"
    expected = {layer: sent_bytes(preset, ranks, size) for layer, size in sizes.items()}
    for layer, (_, size) in sent.items():
        assert size == pytest.approx(expected[layer], rel=0.1, abs=40)


def sent_bytes(preset: Preset, ranks: int, size: int) -> float:
    """What rank 0 puts into messages for gradients of `size` bytes, but for a few bytes of scales and padding."""
    if preset.reduction == "parameter-server":
        return size * (ranks - 1)  # the weights, to each of the others
    if preset.reduction == "sharded-servers":
        servers = min(preset.servers or ranks, ranks)
        return size * (servers - 1 + ranks - 1) / servers  # shares to the other servers, then its sums to each worker
    if preset.top_k < 1:
        return size / 4 * preset.top_k * (4 + preset.gradient_bits / 8)
    if preset.strategy.in_blocks:  # of each worker as many rows, of which the last ones may be empty
        rows, shards = {448: 4, 34800: 60, 1464: 6}[size], preset.strategy.shards((ranks // 2, 2))
        return size * -(-rows // shards) * shards / rows
    if preset.hook == "powersgd":  # a column and a row of each matrix (4 × 27, 60 × 144 and 6 × 60), and the biases
        return {448: 4 * (4 + 27 + 4), 34800: 4 * (60 + 144 + 60), 1464: 4 * (6 + 60 + 6)}[size]
    if preset.hook != "none":
        return size / 2
    if preset.gradient_bits < 32:
        return size * preset.gradient_bits / 32 * (1 + 1 / ranks)
    return size


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> TrainCell:
    """Two small iterations of GoogLeNet, by one worker."""
    folder = tmp_path_factory.mktemp("storage") / "images"
    write_synthetic(Storage("local", folder, "files"), 6, seed=1)
    return replace(
        TRAIN, visits=1, anonymise=False, network="googlenet", batch=1, worker_batch=1, scaling="weak", sync="wfbp",
        iterations=1, storage="local", storage_path=str(folder), storage_format="files", preset={},
    )  # fmt: skip


@pytest.fixture(scope="module")
def two_workers(cell: TrainCell) -> TrainCell:
    """The same of LeNet, by two: what they send is in question, and not what they compute."""
    return replace(cell, network="lenet", nodes=2)


def measured(ranks: Ranks, cell: TrainCell, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Run the cell as a job; its iterations and layers."""
    status, printed = run_job(ranks, cell, folder)
    assert status == 0, printed
    assert "iteration 2/2" in printed
    frames = [read(table, folder / f"{table.name}.parquet").to_pandas() for table in (ITERATIONS, LAYERS)]
    return frames[0], frames[1]


def check_consistency(cell: TrainCell, iterations: pd.DataFrame, per_layer: pd.DataFrame) -> None:
    """What holds for every job: each row is there, and parts add up to wholes."""
    assert list(iterations["rank"]) == [rank for rank in range(cell.ranks) for _ in range(2)]
    assert list(iterations["warmup"]) == [True, False] * cell.ranks
    parts = ("data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update")
    total = sum(iterations[part] for part in parts)
    assert list(total) == pytest.approx(list(iterations["iteration_time"]), rel=1e-9)
    assert (iterations["data_wait"] >= iterations["read"] + iterations["decode"]).all(), "read in line"
    for _, rows in iterations.groupby("rank"):
        ends = rows["start"] + rows["iteration_time"]
        assert (rows["start"] >= ends.shift(fill_value=0.0)).all(), "iterations follow one another"
    network = layers(find_network(cell.network).outline())
    assert len(per_layer) == len(network) * len(iterations)
    for key, rows in per_layer.groupby(["rank", "iteration"]):
        whole = iterations.set_index(["rank", "iteration"]).loc[key]
        assert list(rows["layer"]) == [layer.name for layer in network]
        assert rows["forward"].sum() <= whole["forward"] * (1 + 1e-9)
        assert rows["backward"].sum() <= whole["backward"] * (1 + 1e-9)
        assert rows["gradient_bytes"].sum() == find_network(cell.network).gradient_bytes
        assert (rows["gradient_ready"].notna() == (rows["gradient_bytes"] > 0)).all()


def test_one_worker_has_nothing_to_communicate(ranks: Ranks, cell: TrainCell, tmp_path: Path) -> None:
    iterations, per_layer = measured(ranks, cell, tmp_path / "cell")
    check_consistency(cell, iterations, per_layer)
    assert list(iterations["communication"]) == [0, 0]
    assert per_layer["all_reduce_start"].isna().all()
    assert per_layer["all_reduce_end"].isna().all()

    (memory,) = read(PEAK_MEMORY, tmp_path / "cell" / "peak_memory.parquet").to_pylist()
    (machine,) = read(ENVIRONMENTS, tmp_path / "cell" / "environments.parquet").to_pylist()
    size = find_network(cell.network).gradient_bytes
    assert memory["gradients"] == memory["optimiser"] == size
    assert memory["weights"] >= size, "buffers count as well"
    known = sum(memory[name] for name in ("process", "weights", "gradients", "optimiser"))
    assert known < memory["host_peak"] < machine["available_memory"] <= machine["memory_bytes"]
    assert memory["device_peak"] is machine["gpu_available_memory"] is None

    (row,) = read(INSTRUMENTATION, tmp_path / "cell" / "instrumentation.parquet").to_pylist()
    assert row["layers"] == row["marks"] == len(layers(find_network(cell.network).outline())), "each is called once"
    assert row["timing_share"] == pytest.approx(row["timing_cost"] * row["marks"] / iterations["iteration_time"][1])
    of_pass = per_layer[per_layer["iteration"] == 1][["forward", "backward"]].sum() / iterations.loc[1]
    assert [row["forward_closure"], row["backward_closure"]] == pytest.approx([of_pass.forward, of_pass.backward])


@pytest.mark.parametrize("sync", by_day(["naive", "wfbp", "ddp"], ("wfbp", "ddp").__contains__))
def test_two_workers_all_reduce_each_layer_after_its_gradients_are_ready(
    ranks: Ranks, two_workers: TrainCell, sync: str, tmp_path: Path
) -> None:
    cell = replace(two_workers, sync=sync, preset=to_values(PRESETS[sync].preset))
    iterations, per_layer = measured(ranks, cell, tmp_path / "cell")
    check_consistency(cell, iterations, per_layer)
    learning = per_layer[per_layer["gradient_bytes"] > 0]
    assert (learning["all_reduce_end"] > learning["all_reduce_start"]).all()
    per_message = learning.groupby(["rank", "iteration", "bucket"])
    end_of_backward = iterations.set_index(["rank", "iteration"])["backward"]
    assert (end_of_backward > 0).all()
    if sync == "ddp":
        assert learning["bucket"].nunique() < len(learning) / len(iterations), "several layers in a bucket"
    else:
        assert (learning["all_reduce_start"] >= learning["gradient_ready"]).all()
        assert (learning["bucket_bytes"] == learning["gradient_bytes"]).all()
        durations = (per_message["all_reduce_end"].first() - per_message["all_reduce_start"].first()).groupby(
            ["rank", "iteration"]
        )
        assert list(iterations["communication"]) == pytest.approx(list(durations.sum()))
    assert (iterations["communication"] < iterations["iteration_time"]).all()
    if sync == "naive":
        assert (iterations["communication"] <= iterations["exposed_communication"]).all()
    silent = per_layer[per_layer["gradient_bytes"] == 0]
    assert silent["all_reduce_start"].isna().all()
    assert (silent["bucket"] == -1).all()


def test_workers_with_weights_of_their_own_exchange_them_after_the_update(
    ranks: Ranks, two_workers: TrainCell, tmp_path: Path
) -> None:
    preset = with_options(PRESETS["elastic-averaging"].preset, {"period": 2})
    cell = replace(two_workers, sync="elastic", preset=to_values(preset))
    iterations, per_layer = measured(ranks, cell, tmp_path / "cell")
    check_consistency(cell, iterations, per_layer)
    of_second = per_layer[(per_layer["gradient_bytes"] > 0) & (per_layer["iteration"] == 1)]
    assert (per_layer.loc[per_layer["iteration"] == 0, "bucket"] == -1).all()
    assert (of_second["bucket"] == 0).all()
    assert list(of_second["bucket_bytes"]) == list(of_second["gradient_bytes"])
    assert (iterations["communication"] <= iterations["exposed_communication"]).all()
    stale = read(STALENESS, tmp_path / "cell" / "staleness.parquet").to_pandas()
    assert sorted(zip(stale["update"], stale["staleness"], strict=True)) == [(1, 0), (2, 1)]
    assert sorted(stale["worker"]) == [0, 1]


def test_sparse_gradients_are_timed_as_after_their_warm_up(
    ranks: Ranks, two_workers: TrainCell, tmp_path: Path
) -> None:
    cell = replace(two_workers, sync="sparse", preset=to_values(Preset(top_k=0.01, sparse_warmup=50)))
    _, per_layer = measured(ranks, cell, tmp_path / "cell")
    large = per_layer[per_layer["gradient_bytes"] > 10_000]
    assert len(large)
    assert (large["bucket_bytes"] < 0.03 * large["gradient_bytes"]).all(), "a hundredth, with its positions"


def test_workers_that_do_not_communicate_train_on_their_own(
    ranks: Ranks, two_workers: TrainCell, tmp_path: Path
) -> None:
    cell = replace(two_workers, sync="none", preset=to_values(PRESETS["none"].preset))
    iterations, per_layer = measured(ranks, cell, tmp_path / "cell")
    check_consistency(cell, iterations, per_layer)
    assert (iterations[["communication"]] == 0).all(axis=None)
    assert (per_layer["bucket"] == -1).all()
    assert per_layer["all_reduce_start"].isna().all()
    losses = iterations.set_index(["rank", "iteration"])["loss"]
    assert losses[0, 1] != losses[1, 1], "each has samples and weights of its own"


def test_a_loss_that_is_no_number_ends_the_job(two_workers: TrainCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimisers, "STEP_SIZE", 1e30)
    cell = replace(two_workers, nodes=1)
    kept = Recorder(cell, 0)
    with pytest.raises(CannotRun, match=r"the loss of iteration 1 is (nan|inf): training diverges"):
        train.measure(cell, World.start(1), kept)
    assert len(kept.arrow(ITERATIONS)) == 2, "what was measured is kept"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple)))
def test_covered_counts_overlaps_once(intervals: list[tuple[int, int]]) -> None:
    points = {point for start, end in intervals for point in range(start, end)}
    assert train.union_length(intervals) == len(points)


def test_covered_of_nothing_is_0() -> None:
    assert train.union_length([]) == 0


class Partly(nn.Module):
    """Learns with one layer, has a frozen one, and one that may stay unused."""

    def __init__(self, *, use: bool) -> None:
        super().__init__()
        self.frozen, self.fc, self.unused = nn.Linear(12, 4), nn.Linear(4, 6), nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.loss = Loss()
        self.use = use

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.fc(self.frozen(images.flatten(1)))
        return self.loss(self.unused(logits) if self.use else logits, labels)


def one_step(*, use: bool) -> dict[str, torch.Tensor]:
    network = Partly(use=use)
    before = {name: weights.clone() for name, weights in network.state_dict().items()}
    batch = MiniBatch(torch.ones(2, 3, 2, 2), torch.tensor([0, 1]), read=0.0, decode=0.0)
    with train.Trainer(network, World.start(1), Preset(), torch.device("cpu"), warmup=0) as trainer:
        trainer.step(lambda: batch)
    return {name: weights - before[name] for name, weights in network.state_dict().items()}


def test_frozen_parameters_stay_as_they_are() -> None:
    moved = {name for name, change in one_step(use=True).items() if change.any()}
    assert moved == {"fc.weight", "fc.bias", "unused.weight", "unused.bias"}


def test_parameters_without_gradient_end_the_training_before_anyone_waits_for_them() -> None:
    with pytest.raises(InputError, match=r"no gradient in this iteration for unused\.weight, unused\.bias"):
        one_step(use=False)


def test_parts_that_do_not_divide_a_mini_batch_are_refused() -> None:
    batch = MiniBatch(torch.ones(2, 3, 2, 2), torch.tensor([0, 1]), read=0.0, decode=0.0)
    preset = Preset(accumulate=3)
    with (
        pytest.raises(InputError, match="accumulate: 3 does not divide the worker's mini-batch of 2"),
        train.Trainer(Partly(use=True), World.start(1), preset, torch.device("cpu")) as trainer,
    ):
        trainer.step(lambda: batch)


class Faint(nn.Module):
    """Half precision takes its gradients, 2e-8, for 0."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, bias=False)
        nn.init.zeros_(self.fc.weight)

    def forward(self, inputs: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        return (self.fc(inputs).float() * 1e-8).sum()


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("preset", ["wfbp", "parameter-server"])
def test_faint_gradients_move_weights_in_every_precision(preset: str, precision: str) -> None:
    network = Faint()
    batch = MiniBatch(torch.ones(2, 4), torch.tensor([0, 1]), read=0.0, decode=0.0)
    with train.Trainer(
        network, World.start(1), PRESETS[preset].preset, torch.device("cpu"), precision=precision
    ) as trainer:
        measured = trainer.step(lambda: batch)
    assert network.fc.weight.detach().numpy() == pytest.approx(-STEP_SIZE * 2e-8, rel=0.01)
    assert measured.phases["loss"] == 0


@pytest.mark.parametrize(
    ("precision", "products"), [("float32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_are_in_the_precision_asked_for_and_weights_in_single(precision: str, products: torch.dtype) -> None:
    network = Partly(use=True)
    seen: list[torch.dtype] = []
    network.fc.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    batch = MiniBatch(torch.ones(2, 3, 2, 2), torch.tensor([0, 1]), read=0.0, decode=0.0)
    with train.Trainer(network, World.start(1), Preset(), torch.device("cpu"), precision=precision) as trainer:
        measured = trainer.step(lambda: batch)
    assert seen == [products]
    assert in_force(precision, torch.device("cpu")) == precision
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert measured.phases["loss"] > 0
