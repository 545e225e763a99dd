"""Runs to a target, by real processes: workers change nothing, interruptions lose nothing, what cannot be is said."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from launching import end_of_job, run_job
from resident_ranks import Ranks
from sample_cells import TO_TARGET

from stallpoint.errors import InputError
from stallpoint.measure.jobs.convergence import split
from stallpoint.measure.training import evaluation
from stallpoint.measure.training.evaluation import OnePassOrder
from stallpoint.measure.world import World
from stallpoint.records import parquet
from stallpoint.records.tables import CONVERGENCE, CONVERGENCE_RUNS, GRADIENT_NOISE, RUNS, STALENESS, Table
from stallpoint.schedule.ledger import Measurement
from stallpoint.strategies.presets import PRESETS, with_options
from stallpoint.strategies.presets import to_values as preset_values
from stallpoint.study.collect import Record
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.recipes import Recipe, to_values

SAMPLES = 250
CLASSES = 5
KILLED = """
import os, signal
from stallpoint.measure.jobs import convergence
save, saved = convergence._save, []
def then_killed(*state):
    save(*state)
    saved.append(1)
    if len(saved) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
convergence._save = then_killed
"""
"""Ends rank 0 when it has written its second checkpoint."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grey images of 28 x 28 pixels, whose class is told by a bright row, and noise."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(1)
    labels = random.integers(0, CLASSES, SAMPLES)
    pixels = random.integers(0, 100, (SAMPLES, 28, 28))
    pixels[np.arange(SAMPLES), 4 + 4 * labels] += 120
    for ending, values in (("images-idx3-ubyte", pixels), ("labels-idx1-ubyte", labels)):
        head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
        (folder / f"made-up-{ending}").write_bytes(head + values.astype(np.uint8).tobytes())
    return folder


@pytest.fixture(scope="module")
def cell(images: Path) -> ConvergenceCell:
    """160 training samples set in tens: an epoch is 16 steps."""
    recipe = Recipe("momentum", "cosine", "linear", step_size=0.005, reference_batch=10, warmup_epochs=0.5)
    return replace(
        TO_TARGET, visits=1, seed=3, storage="made-up", recipe="mine", prefetch=1, storage_path=str(images),
        storage_format="idx", validation_storage="made-up", validation_path=str(images), validation_format="idx",
        validation_share=0.36, preset=preset_values(PRESETS["wfbp"].preset), settings=to_values(recipe), target=None,
        evaluation_epochs=0.25, noise_steps=4, sharpness_samples=100,
    )  # fmt: skip


def rows(folder: Path, table: Table) -> pd.DataFrame:
    return parquet.read(table, folder / f"{table.name}.parquet").to_pandas()


Run = Callable[..., Path]


@pytest.fixture(scope="module")
def run(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a cell to its end; the folder of its tables."""

    def run(cell: ConvergenceCell, folder: Path | None = None) -> Path:
        folder = folder or tmp_path_factory.mktemp("visits") / cell.path / "settings~1" / "visit~1"
        status, printed = run_job(ranks, cell, folder)
        assert status == 0, printed
        return folder

    return run


@pytest.fixture(scope="module")
def serial(run: Run, cell: ConvergenceCell) -> Path:
    return run(cell)


@pytest.mark.ranks
def test_a_run_is_evaluated_from_its_first_weights_to_its_last_step(serial: Path) -> None:
    found = rows(serial, CONVERGENCE)
    assert found["step"].tolist() == [0, 4, 8, 12, 16]
    assert found["samples"].tolist() == [0, 40, 80, 120, 160]
    assert found["seconds"].is_monotonic_increasing
    assert found["train_loss"].isna().tolist() == [True, False, False, False, False]
    assert found["validation_accuracy"].iloc[-1] > 2 / CLASSES > found["validation_accuracy"].iloc[0]
    assert (found["validation_accuracy"] * 90 % 1).round(6).isin([0, 1]).all(), "of 90 samples"
    (end,) = rows(serial, CONVERGENCE_RUNS).to_dict("records")
    assert (end["ended"], end["reached"], end["step_size"], end["warmup_steps"]) == ("max steps", False, 0.005, 8)
    assert 0 < end["sharpness"] < np.inf
    assert 0 < found["validation_accuracy"].iloc[-1] + end["accuracy_gap"] <= 1
    assert found["validation_loss"].iloc[-1] > end["loss_gap"]
    assert end["best_accuracy"] == found["validation_accuracy"].max()
    assert not (serial / f"{GRADIENT_NOISE.name}.parquet").exists() or rows(serial, GRADIENT_NOISE).empty


@pytest.mark.ranks
def test_two_workers_do_what_one_does(run: Run, cell: ConvergenceCell, serial: Path) -> None:
    folder = run(replace(cell, nodes=2))
    one, two = rows(serial, CONVERGENCE), rows(folder, CONVERGENCE)
    for column in ("train_loss", "validation_loss"):
        np.testing.assert_allclose(one[column], two[column], rtol=2e-3)
    np.testing.assert_allclose(one["validation_accuracy"], two["validation_accuracy"], atol=1.5 / 90)
    ends = pd.concat([rows(serial, CONVERGENCE_RUNS), rows(folder, CONVERGENCE_RUNS)])
    assert ends["sharpness"].iloc[1] == pytest.approx(ends["sharpness"].iloc[0], rel=0.02)
    noise = rows(folder, GRADIENT_NOISE)
    assert noise["step"].tolist() == [0, 4, 8, 12]
    assert (noise["worker_batch"] == 5).all()
    # The mean of two gradients is never longer than they are on average.
    assert (noise["large"] <= noise["small"] * (1 + 1e-6)).all()
    assert (noise["large"] > 0).all()


@pytest.mark.ranks
def test_a_run_that_was_killed_goes_on_from_its_checkpoint_and_ends_as_if_it_had_not_been(
    tmp_path: Path, run: Run, cell: ConvergenceCell, serial: Path
) -> None:
    folder = tmp_path / cell.path / "settings~1" / "visit~1"
    status, _ = end_of_job(cell, folder, ranks=1, body=KILLED)
    assert status == -signal.SIGKILL
    assert not folder.exists()
    measured = Measurement(cell, folder.parent)
    assert measured.checkpoint.exists()
    run(cell, folder)
    once, again = rows(serial, CONVERGENCE), rows(folder, CONVERGENCE)
    columns = ["step", "samples", "train_loss", "validation_loss", "validation_accuracy"]
    pd.testing.assert_frame_equal(once[columns], again[columns], rtol=1e-5)
    assert again["seconds"].is_monotonic_increasing
    measured.write_record("visits")
    assert not measured.checkpoint.exists()


@pytest.mark.ranks
def test_workers_with_a_server_go_on_where_they_were_killed_and_every_update_has_its_staleness(
    tmp_path: Path, run: Run, cell: ConvergenceCell
) -> None:
    """With a bound of 0 and plain steps, whose weights do not depend on who is first."""
    preset = with_options(PRESETS["stale-synchronous"].preset, {"staleness_bound": 0})
    settings = {**cell.settings, "optimiser": "sgd"}
    served = replace(cell, nodes=2, sync="mine", preset=preset_values(preset), settings=settings)
    whole = run(served)
    folder = tmp_path / cell.path / "settings~1" / "visit~1"
    status, _ = end_of_job(served, folder, ranks=2, body=KILLED)
    assert status != 0
    assert not folder.exists()
    run(served, folder)
    columns = ["step", "train_loss", "validation_loss", "validation_accuracy"]
    pd.testing.assert_frame_equal(rows(whole, CONVERGENCE)[columns], rows(folder, CONVERGENCE)[columns], rtol=1e-4)
    for stale in (rows(whole, STALENESS), rows(folder, STALENESS)):
        assert stale["update"].tolist() == list(range(1, 33))
        assert sorted(stale["staleness"]) == [0] * 16 + [1] * 16
        assert (stale.groupby("worker").size() == 16).all()
    file = folder / f"{STALENESS.name}.parquet"
    Record(folder, served, failed=False).check(STALENESS, pq.ParquetFile(file))


def test_a_checkpoint_that_is_damaged_or_of_other_settings_is_refused_by_name(
    tmp_path: Path, cell: ConvergenceCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, file = World.start(1), tmp_path / "checkpoint"
    assert evaluation.read(file, cell, world) is None

    def refused(cell: ConvergenceCell, because: str) -> None:
        with pytest.raises(InputError) as error:
            evaluation.read(file, cell, world)
        assert str(error.value).startswith(f"{file}: a checkpoint {because}")

    evaluation.write(file, cell, {"step": 5})
    assert evaluation.read(file, cell, world)["step"] == 5
    refused(replace(cell, target=0.5), "of other settings")
    with monkeypatch.context() as before:
        before.setattr(evaluation, "FORMAT", 1)
        evaluation.write(file, cell, {"step": 5})
    refused(cell, "of another version of stallpoint; delete it")
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    refused(cell, "that is damaged")


@pytest.mark.ranks
def test_a_run_that_diverges_is_stopped_and_recorded(run: Run, cell: ConvergenceCell) -> None:
    folder = run(replace(cell, settings=to_values(Recipe("sgd", step_size=1e4)), target=0.99))
    (end,) = rows(folder, CONVERGENCE_RUNS).to_dict("records")
    assert (end["ended"], end["reached"]) == ("diverged", False)
    assert np.isnan(end["sharpness"])
    assert rows(folder, CONVERGENCE)["step"].max() == 4


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"batch": 200}, "B = 200, but storage made-up has 160 training samples"),
        ({"own_network": {"build": "few.py:three", "image_size": 28}, "network": "three"},
         "storage made-up: labels up to 4, but network three has 3 classes"),
        ({"own_network": {"build": "few.py:by_itself", "image_size": 28}, "network": "three"},
         "network three: computes its loss by itself"),
    ],
    ids=["batch", "labels", "loss"],
)  # fmt: skip
def test_what_cannot_run_says_why_in_its_record(
    run: Run, cell: ConvergenceCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], reason: str
) -> None:
    (tmp_path / "few.py").write_text("""
from torch import nn
def three():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 28 * 28, 3))
class ByItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 * 28 * 28, 5)
    def forward(self, inputs, labels):
        return self.layer(inputs.flatten(1)).square().mean()
def by_itself():
    return ByItself()
""")
    monkeypatch.chdir(tmp_path)
    folder = run(replace(cell, **wrong))
    (row,) = rows(folder, RUNS).to_dict("records")
    assert row["status"] == "failed"
    assert reason in row["reason"]


def test_every_sample_is_trained_with_or_validated_with_and_the_split_is_always_the_same() -> None:
    training, validation = split(100, 0.25)
    assert len(validation) == 25
    assert sorted([*training, *validation]) == list(range(100))
    assert all(map(np.array_equal, split(100, 0.25), (training, validation)))
    assert len(split(100, 0.001)[1]) == 1


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 7, 12])
def test_workers_share_the_validation_samples_each_once_in_each_pass(ranks: int, count: int) -> None:
    chosen = np.arange(100, 100 + count)
    orders = [OnePassOrder(chosen, 2, rank, ranks) for rank in range(ranks)]
    (batches,) = {order.batches for order in orders}
    for first in (0, batches):
        seen = [index for order in orders for at in range(batches) for index in order.indices(first + at)]
        assert sorted(seen) == chosen.tolist()


def test_a_cell_is_told_whole(cell: ConvergenceCell) -> None:
    assert cell_from_json(cell.to_json()) == cell
    assert replace(cell, validation_storage="other").storages == ("made-up", "other")
    assert os.path.basename(cell.path) == "repeat~1"
