"""A study run by ``snakemake --profile slurm`` on the cluster, and what it says of hardware where nothing runs."""

import re

import pandas as pd
import pytest
from checkout import ON_SLURM, Checkout, Ran
from cluster import Cluster, queue, run
from site_study import ALGORITHMS, BLOCK, LOCAL, OF_EACH_FAMILY, STORAGES, STUDY, TABLES, TIMED, new_checkout

from stallpoint.records.parquet import read
from stallpoint.records.tables import (
    BREAK_EVEN,
    COLLECTIVES,
    CONVERGENCE_RUNS,
    ENVIRONMENTS,
    ITERATIONS,
    LAYERS,
    MODEL_TABLES,
    PROBES,
    RUNS,
    SLURM_JOBS,
    STAGING,
    STALENESS,
    STALLING,
    STORAGE_PASSES,
    STORAGE_READS,
    VISITS,
    Table,
)
from stallpoint.report.charts import CHARTS
from stallpoint.strategies.families.servers_family import Served
from stallpoint.strategies.presets import PRESETS

pytestmark = pytest.mark.cluster

Presets = tuple[list[str], list[str]]
"""Those that are timed, and those that train to a target."""


@pytest.fixture(scope="session", params=["of each family", pytest.param("all", marks=pytest.mark.night)])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, Presets]:
    """A checkout whose cells are measured, and the presets of its study: those timed, and those trained to a target."""
    finished = request.getfixturevalue("finished")
    if request.param == "of each family":
        return finished, OF_EACH_FAMILY
    training = [{**STUDY["convergence"][0], "sync": ALGORITHMS}]
    timed = [{**BLOCK, "nodes": 2, "sync": TIMED}]
    checkout = new_checkout(tmp_path_factory.mktemp("checkout"), matrix=timed, convergence=training)
    ran = checkout.run_snakemake(*ON_SLURM, TABLES)
    assert ran.status == 0, ran.text
    return checkout, (TIMED, ALGORITHMS)


def table(study: Checkout, which: Table) -> pd.DataFrame:
    """A table of the study's records."""
    return read(which, study.results(f"tables/{which.name}.parquet")).to_pandas()


def runs(study: Checkout, hardware: str) -> pd.DataFrame:
    """The cells of a hardware entry."""
    return table(study, RUNS).query("hardware == @hardware")


def environments(study: Checkout, hardware: str) -> pd.DataFrame:
    """The environment of every rank, and which job it belonged to."""
    cells = runs(study, hardware)[["cell", "kind", "nodes"]]
    return table(study, ENVIRONMENTS).merge(cells, on="cell", validate="many_to_one")


# -- A whole study


def test_every_kind_of_job_ran_on_one_two_and_four_nodes(finished: Checkout) -> None:
    rows = runs(finished, "cpu")
    assert set(rows["status"]) == {"ok"}
    of_storages, of_presets = len(STORAGES), len(OF_EACH_FAMILY[0])
    assert rows.groupby("kind")["nodes"].apply(sorted).to_dict() == {
        "train": [*[1] * (1 + of_storages), *[2] * of_presets, *[4] * of_storages],
        "command": [2],
        "convergence": [4] * len(OF_EACH_FAMILY[1]),
        "sgemm": [1],
        "collectives": [2, 2, 2, 4],  # at 2 nodes: MPI's own choice, one server, and Gloo
        "storage": [*[1] * of_storages, 2, *[4] * of_storages],
    }


def test_all_cells_of_a_hardware_entry_were_measured_by_one_slurm_job(finished: Checkout) -> None:
    jobs = {name: environments(finished, name)["slurm_job_id"].unique().tolist() for name in ("cpu", "slow")}
    for found in jobs.values():
        (job,) = found
        assert re.fullmatch(r"\d+", job)
    assert jobs["cpu"] != jobs["slow"]


def test_large_tables_are_made_by_a_job_of_their_own(finished: Checkout) -> None:
    said = [file.read_text() for file in (finished.folder / ".snakemake/log").glob("*.log")]
    assert any("/slurm_logs/rule_collect/" in text for text in said), "Snakemake names the job's output"


def test_visits_took_turns_one_after_the_other(finished: Checkout) -> None:
    rows = table(finished, VISITS)
    rows = rows[rows["cell"].isin(runs(finished, "cpu")["cell"])]
    visits = rows.groupby("position").agg(cells=("cell", "nunique"), ranks=("rank", "size"), wanted=("ranks", "first"))
    assert visits.index.tolist() == list(range(1, len(visits) + 1))
    assert visits["cells"].eq(1).all()
    assert visits["ranks"].eq(visits["wanted"]).all()


def test_every_cell_wrote_down_what_slurm_gave_its_job(finished: Checkout) -> None:
    jobs = table(finished, SLURM_JOBS).set_index("cell")
    for hardware, nodes, partition in (("cpu", 4, "cpu"), ("slow", 2, "slow")):
        given = jobs.reindex(runs(finished, hardware)["cell"])
        assert given["nodes"].eq(nodes).all(), "as many as the largest cell has"
        assert given["partition"].eq(partition).all()
        assert given["started"].ne("").all()


def test_a_job_on_gpus_of_shared_nodes_asks_for_its_tasks(finished: Checkout) -> None:
    given = table(finished, SLURM_JOBS).set_index("cell").reindex(runs(finished, "slow")["cell"])
    assert given["tasks"].eq(4).all(), "two workers on each of two nodes"
    assert given["cpus"].eq(4).all()
    assert given["requested"].str.contains("gres/gpu=4").all()


def test_every_rank_was_on_a_node_of_its_own(finished: Checkout, cluster: Cluster) -> None:
    ranks = environments(finished, "cpu")
    nodes = ranks.groupby(["cell", "nodes"])["node"].agg(["size", "nunique"]).reset_index()
    assert nodes["size"].eq(nodes["nodes"]).all()
    assert nodes["nunique"].eq(nodes["nodes"]).all()
    assert set(ranks["node"]) == {node.name for node in cluster.nodes}


def test_presets_trained_on_two_nodes_with_their_own_reduction(trained: tuple[Checkout, Presets]) -> None:
    study, (names, _) = trained
    layers = table(study, LAYERS).query("hardware == 'cpu' and network == 'small' and nodes == 2 and visit == 1")
    sent = layers[layers["gradient_bytes"] > 0].groupby("sync")["bucket_bytes"].agg(["size", "min"])
    assert set(sent.index) == set(names)
    assert sent["size"].nunique() == 1
    travelled = {name: bool(least > 0) for name, least in sent["min"].items()}
    presets_of = {name: PRESETS[name].preset for name in names}
    expected = {name: preset.communicates and preset.strategy.independent for name, preset in presets_of.items()}
    assert travelled == expected, (
        "every layer's gradients, on every rank, but for no communication and model parallelism"
    )
    timed = table(study, COLLECTIVES).query("hardware == 'cpu' and nodes == 2")
    assert set(zip(timed["backend"], timed["reduction"], strict=True)) == {
        (preset.communicator, preset.scheme) for preset in presets_of.values() if preset.communicates
    }


def test_a_script_of_the_users_trained_on_two_nodes_under_srun(finished: Checkout) -> None:
    probes = table(finished, PROBES).sort_values("rank")
    assert probes["script_ranks"].tolist() == [2, 2]
    assert probes["parallelism"].tolist() == ["ddp", "ddp"]
    assert probes["rank"].tolist() == [0, 1]
    assert probes["unseen"].eq("").all()


def test_algorithms_trained_on_four_nodes_and_servers_say_how_stale_gradients_were(
    trained: tuple[Checkout, Presets],
) -> None:
    study, (_, names) = trained
    ended = table(study, CONVERGENCE_RUNS)
    assert dict(zip(ended["sync"], ended["ended"], strict=True)) == dict.fromkeys(names, "max steps")
    servers = table(study, STALENESS).query("nodes == 4").groupby("sync")["server"].nunique().to_dict()
    expected = {name: PRESETS[name].preset for name in names if isinstance(PRESETS[name].preset.strategy, Served)}
    assert servers == {name: preset.servers_among(4) for name, preset in expected.items() if preset.own.rounds <= 4}


def test_every_kind_of_storage_is_read_and_trained_from_on_one_and_four_nodes(finished: Checkout) -> None:
    for which in (ITERATIONS, STORAGE_READS):
        rows = table(finished, which).query("hardware == 'cpu' and nodes != 2")
        assert rows.groupby("storage")["nodes"].unique().map(sorted).to_dict() == {name: [1, 4] for name in STORAGES}
    passes = table(finished, STORAGE_PASSES).query("storage == 'database'")
    assert set(zip(passes["filesystem"], passes["locality"], passes["origin"], strict=True)) == {
        ("redis", "shared", "network")
    }


def test_each_node_staged_the_set_once_and_kept_no_copy(finished: Checkout, cluster: Cluster) -> None:
    staged = table(finished, STAGING).sort_values("node")
    entry = STUDY["storage"]["staged"]
    assert staged["node"].tolist() == [0, 1, 2, 3]
    assert staged["samples"].tolist() == [entry["generate"]] * 4
    assert staged["bytes"].nunique() == 1
    assert staged["bytes"].min() > entry["generate"] * entry["image_size"] ** 2 * 3
    for node in cluster.nodes:
        assert run("srun", f"--nodelist={node.name}", "--chdir=/", "find", str(LOCAL), "-mindepth", "2") == ""


@pytest.mark.night
def test_the_final_rule_makes_everything(finished: Checkout) -> None:
    ran = finished.run_snakemake(*ON_SLURM)
    assert ran.status == 0, ran.text
    for of_models in MODEL_TABLES:
        read(of_models, finished.results(f"models/{of_models.name}.parquet"))
    for chart in CHARTS:
        files = finished.results("figures").glob(f"{chart}.*")
        assert {file.suffix for file in files} == {".html", ".svg", ".pdf", ".png"}
    assert finished.results("report.html").stat().st_size > 0
    compared = read(BREAK_EVEN, finished.results("models/break_even.parquet")).to_pandas()
    assert sorted(compared["nodes"]) == [1, 4]
    assert set(compared["before"]) == {"volume"}
    stalling = read(STALLING, finished.results("models/stalling.parquet")).to_pandas()
    assert set(stalling[["hardware", "network"]].itertuples(index=False, name=None)) == {
        ("cpu", "small"), ("cpu", "own"), ("slow", "small"),
    }  # fmt: skip


@pytest.mark.parametrize("options", [(), ON_SLURM], ids=["here", "slurm"])
def test_a_second_run_has_nothing_to_do(finished: Checkout, options: tuple[str, ...]) -> None:
    ran = finished.snakemake(*options, TABLES)
    assert ran.status == 0
    assert "Nothing to be done" in ran.text


# -- Hardware where something is wrong


def test_hardware_is_found_in_its_partition_with_two_workers_on_each_node(finished: Checkout) -> None:
    assert set(runs(finished, "slow")["status"]) == {"ok"}, "beside hardware where nothing runs"
    ranks = environments(finished, "slow").query("kind == 'train'").sort_values("rank")
    nodes = {cell: rows["node"].tolist() for cell, rows in ranks.groupby("cell")}
    strong = {cell.split("nodes~")[1][0]: found for cell, found in nodes.items() if "scaling~strong" in cell}
    assert strong == {"1": ["node3", "node3"], "2": ["node3", "node3", "node4", "node4"]}
    assert [found for cell, found in nodes.items() if "scaling~compute" in cell] == [["node3"]]


def test_a_launcher_that_does_not_fit_mpi_is_recorded_with_a_hint(finished: Checkout) -> None:
    cells = runs(finished, "odd")
    assert set(cells["kind"]) == {"train", "collectives", "storage", "sgemm"}
    assert set(cells["status"]) == {"failed"}
    for reason in cells["reason"]:
        assert reason.startswith("the job needs 2 MPI ranks and MPI started 1: srun started every task as an MPI")
        assert "srun --mpi=list" in reason


@pytest.fixture(scope="module")
def refused(finished: Checkout) -> Ran:
    """A run of jobs that Slurm does not start: one for a partition that is not there, and one for too many nodes."""
    finished.write_study(
        hardware={"lost": {"device": "cpu", "nodes": 1}, "large": {"device": "cpu", "nodes": 8}},
        matrix=[{**BLOCK, "hardware": "lost", "nodes": 1}, {**BLOCK, "hardware": "large", "nodes": 8, "batch": 8}],
        convergence=[],
    )
    ran = finished.run_snakemake(
        *ON_SLURM, "--logger-stallpoint-patience", "5", "--until", "measure_lost", "measure_large"
    )
    finished.write_study()
    assert ran.status != 0
    return ran


def test_a_wrong_partition_is_named(refused: Ran) -> None:
    assert "invalid partition specified: nosuch" in refused.text
    assert "Traceback" not in refused.text


def test_a_job_that_can_never_start_is_cancelled_with_the_reason(refused: Ran) -> None:
    assert re.search(r"! job \d+ \(measure_large\) waits: Part\w+: .*its partition", refused.text), refused.text
    assert "will never start" in refused.text
    assert queue() == []
