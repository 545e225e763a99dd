import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import small_training
import torch
from hypothesis import given
from hypothesis import strategies as st
from launching import ENVIRONMENT, MPIRUN, run_job

from stallpoint.cells import TrainCell
from stallpoint.measure import SYNCHRONISATIONS, train
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.networks import find
from stallpoint.networks.layers import layers
from stallpoint.parquet import read
from stallpoint.records import ITERATIONS, LAYERS
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic

TRAIN = "from stallpoint.measure.train import measure"


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    """Weights of the small network trained by two ranks, in every way to synchronise."""
    target = tmp_path_factory.mktemp("small") / "weights.pt"
    command = [*MPIRUN, "-n", "2", sys.executable, small_training.__file__, str(target)]
    run = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return torch.load(target)


@pytest.mark.parametrize("sync", SYNCHRONISATIONS)
def test_two_ranks_with_half_a_batch_each_train_the_network_one_rank_trains(
    sync: str, two_ranks: dict[str, dict[str, torch.Tensor]]
) -> None:
    start = small_training.network().state_dict()
    for name, expected in small_training.train(World.start(1), sync).items():
        torch.testing.assert_close(two_ranks[sync][name], expected, rtol=1e-5, atol=1e-7)
        assert (expected - start[name]).abs().max() > 1e-4, "training moved the weights by more than is tolerated"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> TrainCell:
    """Two small iterations of GoogLeNet, by one worker."""
    folder = tmp_path_factory.mktemp("storage") / "images"
    write_synthetic(Storage("local", folder, "files"), 6, seed=1)
    return TrainCell(
        hardware="cpu", nodes=1, repeat=1, workers_per_node=1, device="cpu", threads_per_worker=1, seed=5,
        anonymise=False, network="googlenet", batch=1, storage="local", scaling="weak", sync="wfbp", prefetch=0,
        worker_batch=1, iterations=1, warmup=1, readers=1, storage_path=str(folder), storage_format="files",
    )  # fmt: skip


def measured(cell: TrainCell, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Run the cell as a job; its iterations and layers."""
    status, printed = run_job(cell, folder, ranks=cell.ranks, body=TRAIN)
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
    network = layers(find(cell.network).outline())
    assert len(per_layer) == len(network) * len(iterations)
    for key, rows in per_layer.groupby(["rank", "iteration"]):
        whole = iterations.set_index(["rank", "iteration"]).loc[key]
        assert list(rows["layer"]) == [layer.name for layer in network]
        assert rows["forward"].sum() <= whole["forward"]
        assert rows["backward"].sum() <= whole["backward"]
        assert rows["gradient_bytes"].sum() == find(cell.network).gradient_bytes
        assert (rows["gradient_ready"].notna() == (rows["gradient_bytes"] > 0)).all()


def test_one_worker_has_nothing_to_communicate(cell: TrainCell, tmp_path: Path) -> None:
    iterations, per_layer = measured(cell, tmp_path / "cell")
    check_consistency(cell, iterations, per_layer)
    assert list(iterations["communication"]) == [0, 0]
    assert per_layer["all_reduce_start"].isna().all()
    assert per_layer["all_reduce_end"].isna().all()


@pytest.mark.parametrize("sync", SYNCHRONISATIONS)
def test_two_workers_all_reduce_each_layer_after_its_gradients_are_ready(
    cell: TrainCell, sync: str, tmp_path: Path
) -> None:
    cell = replace(cell, nodes=2, sync=sync)
    iterations, per_layer = measured(cell, tmp_path / "cell")
    check_consistency(cell, iterations, per_layer)
    learning = per_layer[per_layer["gradient_bytes"] > 0]
    assert (learning["all_reduce_start"] >= learning["gradient_ready"]).all()
    durations = (learning["all_reduce_end"] - learning["all_reduce_start"]).groupby(
        [learning["rank"], learning["iteration"]]
    )
    assert list(iterations["communication"]) == pytest.approx(list(durations.sum()))
    assert (iterations["communication"] < iterations["iteration_time"]).all()
    if sync == "naive":
        assert (iterations["communication"] <= iterations["exposed_communication"]).all()
    assert per_layer.loc[per_layer["gradient_bytes"] == 0, "all_reduce_start"].isna().all()


def test_a_loss_that_is_no_number_ends_the_job(cell: TrainCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "STEP_SIZE", 1e30)
    kept = Recorder(cell, 0)
    with pytest.raises(ArithmeticError, match=r"the loss of iteration 1 is (nan|inf)"):
        train.measure(cell, World.start(1), kept)
    assert len(kept.arrow(ITERATIONS)) == 2, "what was measured is kept"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple)))
def test_covered_counts_overlaps_once(intervals: list[tuple[int, int]]) -> None:
    points = {point for start, end in intervals for point in range(start, end)}
    assert train.covered(intervals) == len(points)


def test_covered_of_nothing_is_0() -> None:
    assert train.covered([]) == 0
