"""Studies run by ``snakemake --profile slurm`` on the cluster: whole, and with the errors users make there."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from checkout import ON_SLURM, Checkout, Ran
from cluster import Cluster, queue, run, wait_until
from hosts import PATIENCE

from stallpoint.records.parquet import read
from stallpoint.records.tables import (
    COLLECTIVES,
    CONVERGENCE_RUNS,
    ENVIRONMENTS,
    ITERATIONS,
    LAYERS,
    MODEL_TABLES,
    PROBES,
    RUNS,
    SLURM_JOBS,
    STALENESS,
    VISITS,
)
from stallpoint.report.charts import CHARTS
from stallpoint.strategies.algorithms import rounds
from stallpoint.strategies.presets import PRESETS

pytestmark = pytest.mark.cluster

BLOCK: dict[str, Any] = {"network": "googlenet", "hardware": "cpu", "batch": 4, "storage": "jpeg", "scaling": "strong"}
TIMED = [
    name
    for name, one in PRESETS.items()
    if rounds(one.preset) == 1 and not one.preset.synchronous_steps and one.preset.sharding != "node"
]
"""Presets that do the same in each iteration; the others train to a target, or need several workers on a node."""
ALGORITHMS = [name for name, one in PRESETS.items() if one.preset.communicates and not one.preset.exact]
OF_EACH_FAMILY = (
    ["wfbp", "ddp", "fsdp", "pipeline", "one-weird-trick", "gossip", "asynchronous"],
    ["local-sgd", "dist-async"],
)
"""One preset of each family that is timed: data parallel by MPI and by PyTorch, sharded, pipeline, split outputs,
averaging, servers; and of those that train to a target."""
SMALL: dict[str, Any] = {
    "study": "small",
    "seed": 1,
    "iterations": 1,
    "warmup": 0,
    "visits": 1,
    "precision": 0,
    "hardware": {"cpu": {"device": "cpu", "nodes": 4}},
    "storage": {
        "jpeg": {"path": "images", "format": "files", "generate": 16},
        "digits": {"path": "digits", "format": "idx", "generate": 80},
    },
    "convergence": [
        {
            "network": "lenet",
            "hardware": "cpu",
            "nodes": 4,
            "batch": 16,
            "storage": "digits",
            "sync": OF_EACH_FAMILY[1],
            "recipe": "sgd",
            "most_epochs": 1,
            "seeds": 1,
        },
    ],
    "networks": {"sleeper": {"build": "nets/sleeper.py:build", "image_size": 32}},
    "commands": {
        "own": {
            "run": "sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python examples/ddp.py'",
            "launch": "srun",
        },
    },
    "matrix": [
        {"network": "own", "hardware": "cpu", "nodes": 2, "batch": 16, "scaling": "weak", "sync": "ddp"},
        {**BLOCK, "nodes": 1, "sync": "wfbp"},
        {**BLOCK, "nodes": 2, "sync": OF_EACH_FAMILY[0]},
        {**BLOCK, "nodes": 4, "sync": "naive"},
        {**BLOCK, "nodes": 4, "scaling": "compute"},
    ],
    "sgemm": {"batches": [1, 2], "samples": 1},
    "collectives": {"largest": 1048576, "samples": 2},
    "storage_reads": {"samples": 4},
}
ELSEWHERE: dict[str, Any] = {
    **{key: SMALL[key] for key in ("study", "iterations", "warmup", "precision", "storage", "collectives")},
    "networks": SMALL["networks"],
    "visits": 1,
    "hardware": {
        "slow": {"device": "cpu", "nodes": 2, "workers_per_node": 2},
        "odd": {"device": "cpu", "nodes": 2, "workers_per_node": 2},
        "gpu": {"device": "cuda", "nodes": 1},
    },
    "matrix": [
        {**BLOCK, "network": "sleeper", "hardware": "slow", "nodes": [1, 2]},
        {**BLOCK, "network": "sleeper", "hardware": "slow", "nodes": 1, "scaling": "compute"},
        {**BLOCK, "network": "sleeper", "hardware": "odd", "nodes": 2},
        {**BLOCK, "network": "sleeper", "hardware": "gpu", "nodes": 1, "scaling": "compute"},
    ],
}
SLEEPER = """
import time

from torch import nn


class Sleeper(nn.Sequential):
    def forward(self, images):
        time.sleep(0.4)
        return super().forward(images)


def build():
    return Sleeper(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 1000))
"""
LONG = {**BLOCK, "network": "sleeper", "nodes": 2, "sync": "wfbp", "prefetch": 0, "iterations": 1000}
"""A cell that takes many minutes and leaves the cores to those who wait for it, to be added to the study."""
LONG_PATH = (
    "train/network~sleeper/hardware~cpu/nodes~2/workers_per_node~1/batch~4/storage~jpeg/"
    "scaling~strong/sync~wfbp/prefetch~0/repeat~1"
)

MANY, ITERATIONS_OF_VISIT = 4, 30
"""Visits that take longer than a test needs to end their job, and how many iterations make one visit so long."""
LONG_TARGET = f"results/small/raw/{LONG_PATH}"
CONCLUSIONS = "results/small/conclusions.json"
Presets = tuple[list[str], list[str]]
"""Those that are timed, and those that train to a target."""


@pytest.fixture(scope="session")
def new_checkout(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checkout]:
    """Makes checkouts, each with the study it is given."""

    def made(study: dict[str, Any]) -> Checkout:
        checkout = Checkout(tmp_path_factory.mktemp("checkout"), study)
        (checkout.folder / "nets").mkdir()
        (checkout.folder / "nets/sleeper.py").write_text(SLEEPER)
        return checkout

    return made


@pytest.fixture(scope="session")
def finished(new_checkout: Callable[..., Checkout]) -> Checkout:
    """A checkout whose study has been run until it has its answer, with the profile as it is shipped."""
    checkout = new_checkout(SMALL)
    ran = checkout.run_snakemake(*ON_SLURM, CONCLUSIONS)
    assert ran.status == 0, ran.text
    return checkout


@pytest.fixture(scope="session", params=["of each family", pytest.param("all", marks=pytest.mark.night)])
def trained(request: pytest.FixtureRequest, new_checkout: Callable[..., Checkout]) -> tuple[Checkout, Presets]:
    """A checkout whose cells are measured, and the presets of its study: those timed, and those trained to a target."""
    if request.param == "of each family":
        return request.getfixturevalue("finished"), OF_EACH_FAMILY
    timed = [{**BLOCK, "nodes": 2, "sync": TIMED}]
    study = {**SMALL, "matrix": timed, "convergence": [{**SMALL["convergence"][0], "sync": ALGORITHMS}]}
    checkout = new_checkout(study)
    ran = checkout.run_snakemake(*ON_SLURM, "--until", "collect")
    assert ran.status == 0, ran.text
    return checkout, (TIMED, ALGORITHMS)


@pytest.fixture
def with_long_cell(finished: Checkout) -> Iterator[Checkout]:
    """The finished study with one cell more, which is taken out again."""
    finished.write_study(include=[LONG])
    yield finished
    finished.write_study()


@pytest.fixture(scope="session")
def adapted(new_checkout: Callable[..., Checkout]) -> Checkout:
    """A checkout with the hardware and the profile of another site, run until its records are collected.

    Its profile is right about the partitions, and wrong about how MPI is launched on one of them; and its nodes have no
    GPU.
    """
    checkout = new_checkout(ELSEWHERE)
    file = checkout.folder / "profiles/slurm/config.yaml"
    profile = yaml.safe_load(file.read_text())
    defaults = profile["default-resources"]
    defaults["slurm_partition"] = "{'slow': 'slow'}.get(wildcards.get('hardware'), 'cpu')"
    right = defaults["launcher"]
    wrong = right.replace("--mpi=pmix", "--mpi=none")
    defaults["launcher"] = f"{{'odd': {wrong}}}.get(wildcards.get('hardware'), {right})"
    file.write_text(yaml.safe_dump(profile))
    ran = checkout.run_snakemake(*ON_SLURM, "--until", "collect")
    assert ran.status == 0, ran.text
    return checkout


def runs(study: Checkout) -> pd.DataFrame:
    return read(RUNS, study.results("tables/runs.parquet")).to_pandas()


def environments(study: Checkout) -> pd.DataFrame:
    """The environment of every rank, and which job it belonged to."""
    rows = read(ENVIRONMENTS, study.results("tables/environments.parquet")).to_pandas()
    return rows.merge(runs(study)[["cell", "kind", "hardware", "nodes"]], on="cell", validate="many_to_one")


# -- A whole study


def test_every_kind_of_job_ran_on_one_two_and_four_nodes(finished: Checkout) -> None:
    rows = runs(finished)
    assert set(rows["status"]) == {"ok"}
    assert rows.groupby("kind")["nodes"].apply(sorted).to_dict() == {
        "train": [1, 1, *[2] * len(OF_EACH_FAMILY[0]), 4],
        "command": [2],
        "convergence": [4] * len(OF_EACH_FAMILY[1]),
        "sgemm": [1],
        "collectives": [2, 2, 2, 4],  # at 2 nodes: MPI's own choice, one server, and Gloo
        "storage": [1, 2, 4],
    }


def test_all_cells_of_a_hardware_entry_were_measured_by_one_slurm_job(finished: Checkout) -> None:
    (job,) = environments(finished)["slurm_job_id"].unique()
    assert re.fullmatch(r"\d+", job)


def test_visits_took_turns_one_after_the_other(finished: Checkout) -> None:
    rows = read(VISITS, finished.results("tables/visits.parquet")).to_pandas()
    visits = rows.groupby("turn").agg(cells=("cell", "nunique"), ranks=("rank", "size"), wanted=("ranks", "first"))
    assert visits.index.tolist() == list(range(1, len(visits) + 1))
    assert visits["cells"].eq(1).all()
    assert visits["ranks"].eq(visits["wanted"]).all()


def test_every_cell_wrote_down_what_slurm_gave_its_job(finished: Checkout) -> None:
    jobs = read(SLURM_JOBS, finished.results("tables/slurm_jobs.parquet")).to_pandas().set_index("cell")
    ran = runs(finished).set_index("cell")
    assert set(jobs.index) == set(ran.index)
    assert jobs["nodes"].eq(4).all(), "as many as the largest cell has"
    assert jobs["partition"].ne("").all()
    assert jobs["started"].ne("").all()


def test_every_rank_was_on_a_node_of_its_own(finished: Checkout, cluster: Cluster) -> None:
    ranks = environments(finished)
    nodes = ranks.groupby(["cell", "nodes"])["node"].agg(["size", "nunique"]).reset_index()
    assert nodes["size"].eq(nodes["nodes"]).all()
    assert nodes["nunique"].eq(nodes["nodes"]).all()
    assert set(ranks["node"]) == {node.name for node in cluster.nodes}


def test_presets_trained_on_two_nodes_with_their_own_reduction(trained: tuple[Checkout, Presets]) -> None:
    study, (names, _) = trained
    layers = read(LAYERS, study.results("tables/layers.parquet")).to_pandas()
    layers = layers.query("network == 'googlenet' and nodes == 2 and visit == 1")
    sent = layers[layers["gradient_bytes"] > 0].groupby("sync")["message_bytes"].agg(["size", "min"])
    assert set(sent.index) == set(names)
    assert sent["size"].nunique() == 1
    travelled = {name: bool(least > 0) for name, least in sent["min"].items()}
    presets_of = {name: PRESETS[name].preset for name in names}
    expected = {name: preset.communicates and not preset.model_parallel for name, preset in presets_of.items()}
    assert travelled == expected, (
        "every layer's gradients, on every rank, but for no communication and model parallelism"
    )
    timed = read(COLLECTIVES, study.results("tables/collectives.parquet")).to_pandas().query("nodes == 2")
    assert set(zip(timed["backend"], timed["reduction"], strict=True)) == {
        (preset.communicator, preset.scheme) for preset in presets_of.values() if preset.communicates
    }


def test_a_script_of_the_users_trained_on_two_nodes_under_srun(finished: Checkout) -> None:
    probes = read(PROBES, finished.results("tables/probes.parquet")).to_pandas().sort_values("rank")
    assert probes["script_ranks"].tolist() == [2, 2]
    assert probes["parallelism"].tolist() == ["ddp", "ddp"]
    assert probes["rank"].tolist() == [0, 1]
    assert probes["unseen"].eq("").all()


def test_algorithms_trained_on_four_nodes_and_servers_say_how_stale_gradients_were(
    trained: tuple[Checkout, Presets],
) -> None:
    study, (_, names) = trained
    ended = read(CONVERGENCE_RUNS, study.results("tables/convergence_runs.parquet")).to_pandas()
    assert dict(zip(ended["sync"], ended["ended"], strict=True)) == dict.fromkeys(names, "most steps")
    stale = read(STALENESS, study.results("tables/staleness.parquet")).to_pandas()
    servers = stale.query("nodes == 4").groupby("sync")["server"].nunique().to_dict()
    expected = {name: PRESETS[name].preset for name in names if PRESETS[name].preset.served}
    assert servers == {name: preset.servers_among(4) for name, preset in expected.items() if rounds(preset) <= 4}


def test_what_was_measured_has_an_answer(finished: Checkout) -> None:
    conclusions = json.loads((finished.folder / CONCLUSIONS).read_text())
    assert {curve["network"] for curve in conclusions["curves"]} == {"googlenet", "own"}


@pytest.mark.night
def test_the_final_rule_makes_everything(finished: Checkout) -> None:
    ran = finished.run_snakemake(*ON_SLURM)
    assert ran.status == 0, ran.text
    for table in MODEL_TABLES:
        read(table, finished.results(f"models/{table.name}.parquet"))
    for chart in CHARTS:
        files = finished.results("figures").glob(f"{chart}.*")
        assert {file.suffix for file in files} == {".html", ".svg", ".pdf", ".png"}
    assert finished.results("report.html").stat().st_size > 0


@pytest.mark.parametrize("options", [(), ON_SLURM], ids=["here", "slurm"])
def test_a_second_run_has_nothing_to_do(finished: Checkout, options: tuple[str, ...]) -> None:
    ran = finished.snakemake(*options, CONCLUSIONS)
    assert ran.status == 0
    assert "Nothing to be done" in ran.text


# -- Other sites


def test_hardware_is_found_in_its_partition_with_two_workers_on_each_node(adapted: Checkout) -> None:
    ranks = environments(adapted).query("hardware == 'slow' and kind == 'train'").sort_values("rank")
    nodes = {cell: rows["node"].tolist() for cell, rows in ranks.groupby("cell")}
    strong = {cell.split("nodes~")[1][0]: found for cell, found in nodes.items() if "scaling~strong" in cell}
    assert strong == {"1": ["node3", "node3"], "2": ["node3", "node3", "node4", "node4"]}
    assert [found for cell, found in nodes.items() if "scaling~compute" in cell] == [["node3"]]
    assert ranks["slurm_job_id"].nunique() == 1


def test_a_launcher_that_does_not_fit_mpi_is_recorded_with_a_hint(adapted: Checkout) -> None:
    cells = runs(adapted).query("hardware == 'odd'")
    assert set(cells["kind"]) == {"train", "collectives"}
    assert set(cells["status"]) == {"failed"}
    for reason in cells["reason"]:
        assert reason.startswith("the job needs 4 MPI ranks and MPI started 1: srun started every task as an MPI")
        assert "srun --mpi=list" in reason


def test_a_missing_gpu_is_recorded(adapted: Checkout) -> None:
    (cell,) = runs(adapted).query("hardware == 'gpu'").to_dict("records")
    assert cell["status"] == "failed"
    assert cell["reason"] == "no GPU that PyTorch can use (device: cuda)"


def test_hardware_beside_that_where_nothing_runs_is_measured(adapted: Checkout) -> None:
    assert set(runs(adapted).query("hardware == 'slow'")["status"]) == {"ok"}


def test_a_wrong_partition_is_named(with_long_cell: Checkout) -> None:
    ran = with_long_cell.run_snakemake(*ON_SLURM, "--default-resources", "slurm_partition=nosuch", "--", LONG_TARGET)
    assert ran.status != 0
    assert "invalid partition specified: nosuch" in ran.text
    assert "Traceback" not in ran.text
    assert queue() == []


def has_begun(log: Path, times: int) -> bool:
    """Whether so many visits have begun."""
    return log.exists() and log.read_text().count("iteration 1/") == times


def test_a_job_that_can_never_start_is_cancelled_with_the_reason(with_long_cell: Checkout) -> None:
    with_long_cell.write_study(
        hardware={"cpu": {"device": "cpu", "nodes": 8}}, matrix=[{**LONG, "nodes": 8, "batch": 8}]
    )
    target = LONG_TARGET.replace("nodes~2", "nodes~8").replace("batch~4", "batch~8")
    ran = with_long_cell.run_snakemake(*ON_SLURM, "--logger-stallpoint-patience", "5", "--", target)
    assert ran.status != 0
    assert re.search(r"! job \d+ \(take_turns_cpu\) waits: Part\w+: .*its partition", ran.text), ran.text
    assert "will never start" in ran.text
    assert queue() == []


# -- Jobs that end early


def test_a_rank_that_dies_ends_its_job_and_the_others_rows_are_kept(with_long_cell: Checkout) -> None:
    folder = with_long_cell.results("raw", LONG_PATH)
    with running(with_long_cell) as (log, ending):
        for times in (1, 2):
            wait_until(partial(has_begun, log, times), PATIENCE, "no iteration was logged")
            os.kill(process_of_rank(1), signal.SIGKILL)
        wait_until(lambda: queue() == [], PATIENCE, "the job went on without its second rank")
    assert "nobody says why: once more" in log.read_text()
    assert ending.result().status == 0, "a cell that was killed twice is a result: the study goes on"
    (row,) = read(RUNS, folder / f"{RUNS.name}.parquet").to_pylist()
    assert row["status"] == "failed"
    assert row["reason"].startswith("rank 1 was killed (signal 9) twice")
    saved = with_long_cell.results("interrupted", LONG_PATH, f"rank~0.{ITERATIONS.name}.parquet")
    assert 0 < len(read(ITERATIONS, saved)) < LONG["iterations"]
    shutil.rmtree(folder)
    shutil.rmtree(with_long_cell.results("visits", LONG_PATH))


def test_a_job_that_ended_early_goes_on_and_makes_no_finished_visit_again(with_long_cell: Checkout) -> None:
    with_long_cell.write_study(include=[{**LONG, "iterations": ITERATIONS_OF_VISIT}], visits=MANY)
    made: list[dict[str, int]] = [{}]
    with running(with_long_cell) as (log, ending):
        wait_until(lambda: len(visits(with_long_cell)) > 0, PATIENCE, "no visit before it is cancelled")
        (job,) = queue()
        begun = log.read_text().count("iteration 1/")
        wait_until(lambda: log.read_text().count("iteration 1/") > begun, PATIENCE, "no other visit")
        run("scancel", job)
        wait_until(lambda: not runs_now(job), PATIENCE, "the job that was cancelled goes on")
        made.append(visits(with_long_cell))
        for rank in range(2):
            saved = with_long_cell.results("interrupted", LONG_PATH, f"rank~{rank}.iterations.parquet")
            # Slurm calls a job cancelled while its processes still write what they have.
            wait_until(saved.exists, PATIENCE, f"rank {rank} saved nothing")
            assert 0 < len(read(ITERATIONS, saved)) <= ITERATIONS_OF_VISIT
    ran = ending.result()
    assert ran.status == 0, ran.text
    for nobody_acts_on in ("Traceback", "SLURM account", "RuntimeWarning"):
        assert nobody_acts_on not in ran.text
    assert re.findall("SLURM status is: '(.*?)'", ran.text) == ["CANCELLED"]
    for before, after in pairwise(made):
        assert before.items() < after.items(), "visits of the job before are as they were"
    rows = read(VISITS, with_long_cell.results("raw", LONG_PATH, f"{VISITS.name}.parquet")).to_pandas()
    ranks = rows[rows["rank"] == 0]
    assert ranks["visit"].tolist() == list(range(1, len(ranks) + 1))
    assert len(ranks) >= MANY
    assert ranks["began"].is_monotonic_increasing
    assert rows["beside"].eq(0).all()
    jobs = read(SLURM_JOBS, with_long_cell.results("raw", LONG_PATH, f"{SLURM_JOBS.name}.parquet")).to_pandas()
    assert jobs["slurm_job_id"].nunique() == 2, "one was cancelled, and one went to the end"
    for folder in ("raw", "visits"):
        shutil.rmtree(with_long_cell.results(folder, LONG_PATH))


def test_jobs_of_a_run_that_was_killed_are_cancelled_by_the_next_one(with_long_cell: Checkout) -> None:
    with_long_cell.write_study(include=[{**LONG, "iterations": ITERATIONS_OF_VISIT}], visits=1000)
    jobs: list[list[str]] = []

    def another_one_runs() -> bool:
        jobs.append(queue())
        return jobs[-1] not in ([], jobs[0])

    try:
        with with_long_cell.start_snakemake(*ON_SLURM, LONG_TARGET) as killed:
            wait_until(lambda: len(visits(with_long_cell)) > 0, PATIENCE, "no visit before Snakemake is killed")
            jobs.append(queue())
            killed.kill()
        made = visits(with_long_cell)
        said = subprocess.check_output([sys.executable, "scripts/progress.py"], cwd=with_long_cell.folder, text=True)
        assert f"  cpu: job {jobs[0][0]} is running; " in said
        assert with_long_cell.snakemake("--unlock").status == 0
        with with_long_cell.start_snakemake(*ON_SLURM, LONG_TARGET) as second:
            wait_until(another_one_runs, PATIENCE, "no other job")
            second.send_signal(signal.SIGINT)
            text, _ = second.communicate()
    finally:
        cancel()
    assert f"job {jobs[0][0]} (take_turns_cpu) was left behind by an earlier run: cancelled" in text
    assert max(map(len, jobs)) == 1, "never two at once"
    assert made.items() <= visits(with_long_cell).items(), "finished visits are as they were"
    shutil.rmtree(with_long_cell.results("visits", LONG_PATH))


@contextmanager
def running(study: Checkout) -> Iterator[tuple[Path, Future[Ran]]]:
    """The long cell alone is measured: the log of its job, and how Snakemake will end. No job is left in the end."""
    log = study.folder / "logs/small/turns/cpu.log"
    log.unlink(missing_ok=True)
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(study.run_snakemake, *ON_SLURM, LONG_TARGET)
        try:
            yield log, ending
            ending.result()
        finally:
            cancel()


def visits(study: Checkout) -> dict[str, int]:
    """When each finished visit to the long cell was written, in ns, by its folder."""
    return {str(one): one.stat().st_mtime_ns for one in study.results("visits", LONG_PATH).glob("*/visit~*")}


def cancel() -> bool:
    """Cancel all jobs, those that Snakemake submits again too; False, so that one can wait for an end of that."""
    if jobs := queue():
        run("scancel", *jobs)
    return False


def runs_now(job: str) -> bool:
    """Whether the job runs."""
    return run("squeue", "--noheader", "--format=%T", "--states=all", f"--jobs={job}").strip() == "RUNNING"


def process_of_rank(rank: int) -> int:
    """The measuring process that Slurm counts as this task."""
    (found,) = (
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if b"stallpoint.measure\0" in _proc(process, "cmdline")
        and f"SLURM_PROCID={rank}".encode() in _proc(process, "environ").split(b"\0")
        and b"srun" not in _proc(process, "cmdline")
    )
    return found


def _proc(process: Path, file: str) -> bytes:
    try:
        return (process / file).read_bytes()
    except OSError:  # it has ended
        return b""
