"""A probe in a loop that is not stallpoint's: what it records, what it leaves alone, what survives a crash."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from launching import as_torchrun, copied, stores
from nightly import by_day
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, dataloader

import stallpoint
from stallpoint.errors import InputError
from stallpoint.measure.machine.sensors import cpu_list
from stallpoint.measure.probe import probe_files
from stallpoint.measure.probe.ranks import checksum, rank_and_size
from stallpoint.records.tables import PHASES

EXAMPLES = Path(__file__).parents[3] / "examples"
SLEEP = 0.02


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def loader(batches: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(2 * batches, 4), torch.randint(0, 2, (2 * batches,))), 2)


def found(folder: Path, rank: int = 0) -> probe_files.RankRecords:
    of_rank = probe_files.read(folder, rank)
    assert of_rank is not None
    return of_rank


def rows(of_rank: probe_files.RankRecords, table: str) -> pd.DataFrame:
    frame: pd.DataFrame = of_rank.tables[table].to_pandas()
    return frame


def train(model: nn.Module, folder: Path, batches: int, each: Callable[[int], object] = lambda _: None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stallpoint.probe(model, optimizer, folder=folder) as probe:
        for number, (inputs, classes) in enumerate(loader(batches)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), classes).backward()
            optimizer.step()
            each(number)
            probe.step()


def test_an_iteration_is_its_phases_and_a_pass_its_layers(tmp_path: Path) -> None:
    model = small()
    before = checksum(model)
    train(model, tmp_path, 5)
    of_rank = found(tmp_path)
    assert of_rank.probe["checksum"] != before
    iterations, layers = rows(of_rank, "iterations"), rows(of_rank, "layers")
    assert iterations["iteration"].tolist() == [0, 1, 2, 3, 4]
    assert iterations["warmup"].tolist() == [True, False, False, False, False]
    assert iterations[list(PHASES)].sum(axis=1).tolist() == pytest.approx(iterations["iteration_time"].tolist())
    assert layers["layer"].tolist() == 5 * ["0", "1", "2"]
    sums = layers.groupby("iteration")[["forward", "backward"]].sum()
    assert (sums["forward"] <= iterations["forward"]).all()
    assert (sums["backward"] <= iterations["backward"] + 1e-9).all()
    assert (layers.loc[layers["layer"] == "2", "gradient_bytes"] == 4 * (8 * 2 + 2)).all()
    assert of_rank.probe["busy_threads"] > 0.5
    assert of_rank.probe | {"bookkeeping": 0.0, "busy_threads": 1.0} == {
        "rank": 0, "script_ranks": 1, "parallelism": "none", "model": "Sequential", "layers": 3, "iterations": 5,
        "threads": torch.get_num_threads(), "cpus": cpu_list(sorted(os.sched_getaffinity(0))), "busy_threads": 1.0,
        "collectives": 0, "checksum": checksum(model), "bookkeeping": 0.0, "unseen": "", "ended": "complete",
    }  # fmt: skip
    (memory,) = rows(of_rank, "peak_memory").to_dict("records")
    assert memory["weights"] == memory["gradients"] == 4 * (4 * 8 + 8 + 8 * 2 + 2)
    # The process may give memory back between the two readings: that of the tests before this one.
    assert memory["host_peak"] > 0.9 * memory["process"] > 0


def test_layers_of_short_iterations_are_timed_in_some_of_them(tmp_path: Path) -> None:
    train(small(), tmp_path, 40, lambda number: time.sleep(0.12 if number == 30 else 0.0))
    of_rank = found(tmp_path)
    assert rows(of_rank, "layers")["iteration"].unique().tolist() == [*range(20), 21, 28, 31, 35]
    iterations = rows(of_rank, "iterations")
    assert len(iterations) == 40, "phases of every iteration"
    assert (iterations[["forward", "backward"]] > 0).all(axis=None)


class Slow(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(SLEEP / 2)
        return torch.zeros(4), 0


class Sleeping(nn.Linear):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        time.sleep(SLEEP)
        return super().forward(values)


def test_each_wait_is_in_the_phase_and_the_layer_where_it_was_planted(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Sleeping(4, 2))
    with stallpoint.probe(model, folder=tmp_path) as probe:
        for number, (inputs, classes) in enumerate(DataLoader(Slow(), 2)):
            nn.functional.cross_entropy(model(inputs), classes).backward()
            if number % 3 == 2:  # an update for each three mini-batches
                time.sleep(SLEEP)
                probe.step()
    (iteration,) = rows(found(tmp_path), "iterations").to_dict("records")
    assert iteration["data_wait"] >= 3 * SLEEP
    assert iteration["forward"] >= 3 * SLEEP
    assert iteration["update"] >= SLEEP
    layers = rows(found(tmp_path), "layers").set_index("layer")
    assert layers.loc["1", "forward"] >= 3 * SLEEP, "all passes of the iteration count"


class Synchronising(torch.optim.SGD):
    """Waits as Horovod's ``DistributedOptimizer`` is documented to: in `synchronize`, which `step` calls."""

    def synchronize(self) -> None:
        time.sleep(SLEEP)

    def step(self) -> None:  # type: ignore[override]
        self.synchronize()
        super().step()


def test_what_an_optimizer_waits_for_is_communication(tmp_path: Path) -> None:
    model = small()
    optimizer = Synchronising(model.parameters(), lr=0.1)
    own = Synchronising.synchronize
    with stallpoint.probe(model, optimizer, folder=tmp_path) as probe:
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        probe.step()
    (iteration,) = rows(found(tmp_path), "iterations").to_dict("records")
    assert iteration["exposed_communication"] >= SLEEP
    assert Synchronising.synchronize is own


def test_evaluation_is_marked_like_warm_up(tmp_path: Path) -> None:
    model = small()

    def evaluate(number: int) -> None:
        if number == 2:
            with torch.no_grad():
                model(torch.zeros(1, 4))

    train(model, tmp_path, 4, evaluate)
    assert rows(found(tmp_path), "iterations")["warmup"].tolist() == [True, False, True, False]


def test_what_is_no_dataloader_is_said(tmp_path: Path) -> None:
    model = small()
    with stallpoint.probe(model, folder=tmp_path) as probe:
        model(torch.zeros(1, 4)).sum().backward()
        probe.step()
    assert found(tmp_path).probe["unseen"].startswith("waiting for data: no DataLoader")


def test_a_model_whose_parts_are_called_is_said_to_have_no_forward(tmp_path: Path) -> None:
    model = small()
    with stallpoint.probe(model, folder=tmp_path) as probe:
        for inputs, _ in loader(2):
            model[2](model[0](inputs)).sum().backward()
            probe.step()
    assert found(tmp_path).probe["unseen"].startswith("forward: the model itself is never called")


def test_layers_of_a_compiled_model_are_said_to_be_unseen(tmp_path: Path) -> None:
    compiled = torch.compile(small(), backend="eager")
    assert isinstance(compiled, nn.Module)
    train(compiled, tmp_path, 2)
    assert "is compiled" in found(tmp_path).probe["unseen"]
    assert rows(found(tmp_path), "layers").empty
    assert len(rows(found(tmp_path), "iterations")) == 2


def test_everything_is_put_back(tmp_path: Path) -> None:
    model, before = small(), (torch.autograd.backward, dataloader._BaseDataLoaderIter.__next__)
    train(model, tmp_path, 2)
    assert (torch.autograd.backward, dataloader._BaseDataLoaderIter.__next__) == before
    assert not any("forward" in vars(module) for module in model.modules())
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_an_exception_leaves_every_iteration_and_its_name(tmp_path: Path) -> None:
    def fail(number: int) -> None:
        if number == 3:
            raise ArithmeticError("a loss of nan")

    with pytest.raises(ArithmeticError):
        train(small(), tmp_path, 5, fail)
    assert found(tmp_path).probe["ended"] == "ArithmeticError: a loss of nan"
    assert len(rows(found(tmp_path), "iterations")) == 3


KILLED = """
import os, sys, signal, torch, stallpoint, stallpoint.measure.probe.probe
stallpoint.measure.probe.probe.ITERATIONS_AT_ONCE = 5
model = torch.nn.Linear(2, 2)
with stallpoint.probe(model, folder=sys.argv[1]) as probe:
    for number in range(12):
        model(torch.zeros(1, 2)).sum().backward()
        probe.step()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_script_that_is_killed_leaves_whole_files(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    ended = subprocess.run([sys.executable, script, tmp_path], check=False, env={**os.environ, **copied()})
    assert ended.returncode == -signal.SIGKILL
    assert found(tmp_path).probe["ended"] == ""
    assert rows(found(tmp_path), "iterations")["iteration"].tolist() == list(range(10))


def test_a_script_is_ended_once_it_has_as_many_iterations_as_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLPOINT_PROBE_ITERATIONS", "3")
    with pytest.raises(SystemExit) as end:
        train(small(), tmp_path, 10)
    assert end.value.code == 0
    assert found(tmp_path).probe["iterations"] == 3
    assert found(tmp_path).probe["ended"] == "complete"


def test_a_loop_that_never_steps_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLPOINT_PROBE_ITERATIONS", "3")
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    refused = pytest.raises(InputError, match=r"updated 100 times and probe\.step\(\) was not called")
    with refused, stallpoint.probe(model, optimizer, folder=tmp_path):
        for _ in range(1000):
            model(torch.zeros(1, 4)).sum().backward()
            optimizer.step()
    assert found(tmp_path).probe["iterations"] == 0


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_wrong_number_of_iterations_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLPOINT_PROBE_ITERATIONS", text)
    with pytest.raises(InputError, match=f"STALLPOINT_PROBE_ITERATIONS={text}"):
        stallpoint.probe(small())


def test_what_is_no_model_is_named() -> None:
    with pytest.raises(InputError, match=r"a torch\.nn\.Module is expected, not int"):
        stallpoint.probe(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, (2, 3)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (5, 8)),
    ],
)
def test_the_rank_is_known_under_any_launcher(variables: dict[str, str], expected: tuple[int, int]) -> None:
    assert rank_and_size(variables) == expected


@pytest.mark.parametrize("rank", ["4", "-1", "first"])
def test_a_rank_that_cannot_be_is_refused(rank: str) -> None:
    with pytest.raises(InputError, match=f"RANK={rank}"):
        rank_and_size({"RANK": rank, "WORLD_SIZE": "4"})


SAME = """
import os, time
import torch, torch.distributed as dist, stallpoint
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

def trained(probed):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.manual_seed(1 + dist.get_rank())
    for part in range(3):
        if probed and part != 1:
            with stallpoint.probe(model, optimizer) as probe:
                steps(model, optimizer, probe.stepped)
        else:
            steps(model, optimizer, lambda: None)
    return [weights.detach().clone() for weights in model.parameters()]

def steps(model, optimizer, ended):
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).square().sum().backward()
        optimizer.step()
        ended()

dist.init_process_group("gloo")
for one, other in zip(trained(False), trained(True)):
    torch.testing.assert_close(one, other)

sharded = FullyShardedDataParallel(nn.Linear(3, 5), device_id=torch.device("cpu"))
with stallpoint.probe(sharded, folder=os.environ["STALLPOINT_PROBE"] + "-fsdp1") as probe:
    for _ in range(2):
        time.sleep(0.1 * dist.get_rank())
        sharded(torch.randn(2, 3)).sum().backward()
        probe.step()
"""
"""Trains with a probe, without one, and with another one; all of it without; and a shard of FSDP1, late on rank 1."""
ONE_BY_ONE = """
import os, runpy, sys
import torch.distributed as dist

for script, port in zip(sys.argv[2::2], sys.argv[3::2]):
    name = os.path.basename(script).removesuffix(".py")
    os.environ |= {"STALLPOINT_PROBE": os.path.join(sys.argv[1], name), "MASTER_PORT": port}
    before, sys.argv = sys.argv, [script]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
    sys.argv = before
    if dist.is_initialized():
        dist.destroy_process_group()
"""
"""Runs scripts in one process, which loads the libraries once: each has a folder and a port of its own."""


PARALLELISM = {"ddp": "ddp", "fsdp": "fsdp2", "trainer": "ddp", "lightning_ddp": "ddp"}
"""Of each example, as a probe sees it."""


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two workers recorded of `SAME` and the chosen examples, with the variables that torchrun gives."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "same.py").write_text(SAME)
    (folder / "one_by_one.py").write_text(ONE_BY_ONE)
    cases = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    chosen = {case["example"] for case in cases if "parallelism" in case}
    scripts = [folder / "same.py", *(EXAMPLES / f"{name}.py" for name in PARALLELISM if name in chosen)]
    held = stores(len(scripts))
    arguments = [part for script, store in zip(scripts, held, strict=True) for part in (script, store.port)]
    as_torchrun(2, folder / "one_by_one.py", folder, *arguments, STALLPOINT_PROBE_ITERATIONS="4")
    return folder


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("example", "parallelism"), by_day(PARALLELISM.items(), lambda case: "lightning" not in case[0])
)
def test_messages_of_two_workers_carry_every_gradient(example: str, parallelism: str, recorded: Path) -> None:
    for rank in range(2):
        of_rank = found(recorded / example, rank)
        assert (of_rank.probe["parallelism"], of_rank.probe["script_ranks"]) == (parallelism, 2)
        assert (of_rank.probe["iterations"], of_rank.probe["unseen"]) == (4, "")
        assert of_rank.probe["collectives"] >= 4
        iterations, layers = rows(of_rank, "iterations"), rows(of_rank, "layers")
        assert (iterations["communication"] > 0).all()
        backward = layers.groupby("iteration")["backward"].sum()
        assert (backward <= iterations["backward"] + 1e-9).all(), "waiting for messages is no layer's time"
        assert (layers[["forward", "backward"]] >= 0).all(axis=None)
        learned = layers[layers["gradient_bytes"] > 0]
        assert (learned["bucket"] >= 0).all()
        assert (learned["all_reduce_end"] >= learned["all_reduce_start"]).all()
        assert (learned["gradient_ready"] <= learned["all_reduce_start"]).all(), "nothing is sent before it is there"
        phases = iterations[list(PHASES)].sum(axis=1)
        assert phases.tolist() == pytest.approx(iterations["iteration_time"].tolist())
        blocks = learned[learned["layer"].str.contains(r"\.")] if parallelism == "fsdp2" else learned.iloc[:0]
        assert learned["gather_end"].notna().all() == (parallelism == "fsdp2")
        assert (blocks["gather_start"] < blocks["gather_end"]).all()
        assert (blocks["gather_end"] <= blocks["gather_again_start"]).all(), "freed after the forward pass"
        assert (blocks["gather_again_end"] <= blocks["all_reduce_start"]).all()
        waited = iterations["exposed_communication"] >= iterations["communication"] - 1e-9
        assert waited.all() or parallelism == "ddp", "on a CPU everything is waited for where it is called"
        if parallelism == "ddp":
            assert (learned["bucket_bytes"] == learned["gradient_bytes"]).all()
    both = {found(recorded / example, rank).probe["checksum"] for rank in range(2)}
    assert len(both) == 1, "workers that exchange gradients have the same weights"
    assert (None in both) == (parallelism == "fsdp2"), "of which a worker has but a shard"


@pytest.mark.ranks
def test_waiting_for_shards_of_fsdp1_is_communication(recorded: Path) -> None:
    waited, late = (rows(found(recorded / "same-fsdp1", rank), "iterations").iloc[-1] for rank in range(2))
    assert waited["exposed_communication"] > waited["forward"]
    assert late["host_to_device"] >= 0.1


@pytest.mark.ranks
def test_training_is_the_same_with_a_probe_and_behind_it(recorded: Path) -> None:
    second = found(recorded / "same")  # that it learns the same is asserted by the script
    assert second.probe["unseen"].startswith("waiting for data"), "messages are seen by a second probe too"
    assert (rows(second, "iterations")["communication"] > 0).all()


LIGHTNING = """
import sys, lightning, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from stallpoint.measure.probe.pytorch_lightning import ProbeCallback

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices=1, accumulate_grad_batches=2,
    callbacks=[ProbeCallback(folder=sys.argv[1])], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(10, 4), torch.randint(0, 2, (10,))), 2))
"""


def test_lightning_is_recorded_by_a_callback(tmp_path: Path) -> None:
    # In a process of its own: Lightning looks for MPI, which other tests have started in this one. As one of two of
    # torchrun's, which it does not know of with devices=1.
    script = tmp_path / "script.py"
    script.write_text(LIGHTNING)
    of_torchrun = {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "::1", "MASTER_PORT": "1",
    }  # fmt: skip
    environment = {**os.environ, **copied(), **of_torchrun}
    subprocess.run([sys.executable, script, tmp_path], env=environment, check=True, capture_output=True)
    of_rank = found(tmp_path)
    assert (of_rank.probe["iterations"], of_rank.probe["ended"]) == (3, "complete"), (
        "updates of 2, 2 and 1 mini-batches"
    )
    assert (of_rank.probe["script_ranks"], of_rank.probe["collectives"]) == (2, 0), "it trains a model of its own"
    assert (rows(of_rank, "iterations")[["forward", "backward", "data_wait"]] > 0).all(axis=None)
    assert set(rows(of_rank, "layers")["layer"]) == {"network.0", "network.1", "network.2"}
