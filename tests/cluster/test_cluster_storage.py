"""The storage node: a real parallel file system, and studies whose training data is on it."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import storage_node
from checkout import ON_SLURM, Checkout
from cluster import HOME, Cluster, ClusterError, processes, run, signal_processes, wait_until
from hosts import PATIENCE, Host
from storage_node import VOLUME
from test_cluster import remains

from stallpoint.records.parquet import read
from stallpoint.records.tables import BREAK_EVEN, ITERATIONS, RUNS, STAGING, STORAGE_READS

pytestmark = pytest.mark.cluster

CONFIG = Path(__file__).with_name("storage.toml")
LOCAL = HOME / "local"
NETWORK = """
from torch import nn


def build():
    layers = [nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 1000)]
    return nn.Sequential(*layers)
"""
RAW = {"format": "raw", "image_size": 64, "generate": 64}
BLOCK: dict[str, Any] = {"network": "small", "hardware": "cpu", "batch": 8, "scaling": "strong", "prefetch": 0}
STUDY: dict[str, Any] = {
    "study": "volume",
    "seed": 1,
    "iterations": 2,
    "warmup": 0,
    "visits": 1,
    "precision": 0,
    "networks": {"small": {"build": "nets/small.py:build", "image_size": 64}},
    "hardware": {"cpu": {"device": "cpu", "nodes": 4}},
    "storage": {
        "local": {"path": "images", **RAW},
        "volume": {"path": str(VOLUME / "images"), "shared_link": True, **RAW},
        "staged": {"path": str(VOLUME / "images"), "stage": True, "stage_to": str(LOCAL), **RAW},
    },
    "matrix": [{**BLOCK, "nodes": [1, 4], "storage": ["local", "volume", "staged"]}],
    "storage_reads": {"samples": 4},
}
LONG = {**BLOCK, "nodes": 2, "storage": "volume", "iterations": 2, "scaling": "weak"}
VISITS = 60
"""As many as outlast the time until the server is taken away."""


@pytest.fixture(scope="module")
def volume(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a storage node, in the place of the one without."""
    cluster.down()
    with_volume = Cluster.read(CONFIG)
    try:
        with_volume.up()
        yield with_volume
    finally:
        with_volume.down()
        cluster.up()


@pytest.fixture(scope="module")
def finished(volume: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose study has been run until its models are fitted."""
    checkout = Checkout(tmp_path_factory.mktemp("checkout"), STUDY)
    (checkout.folder / "nets").mkdir()
    (checkout.folder / "nets/small.py").write_text(NETWORK)
    ran = checkout.run_snakemake(*ON_SLURM, "--until", "fit")
    assert ran.status == 0, ran.text
    return checkout


def on(node: str, command: str) -> str:
    return run("srun", f"--nodelist={node}", "--chdir=/", "sh", "-ec", command).strip()


def received(node: Host) -> int:
    """Bytes that have come over the node's link."""
    return int(Path("/sys/class/net", node.port, "statistics/tx_bytes").read_text())


def test_what_one_node_writes_on_the_volume_the_others_read(volume: Cluster) -> None:
    on("node1", f"echo written >{VOLUME}/one")
    assert [on(node.name, f"cat {VOLUME}/one") for node in volume.nodes] == ["written"] * 4
    assert list(VOLUME.iterdir()) == [], "this machine is not on the volume"


def test_each_node_has_a_disk_of_its_own(volume: Cluster) -> None:
    on("node1", f"echo written >{LOCAL}/one")
    assert [on(node.name, f"ls {LOCAL}") for node in volume.nodes] == ["one", "", "", ""]


def test_the_volume_is_read_over_a_link_that_is_no_faster_than_it_may_be(volume: Cluster) -> None:
    size = 4_000_000
    on("node1", f"head -c {size} /dev/urandom >{VOLUME}/data")
    volume.link("40mbit")
    try:
        before = received(volume.nodes[1])
        timed = f"s=$(date +%s%N); cat {VOLUME}/data >/dev/null; echo $(($(date +%s%N) - s))"
        seconds = 1e-9 * int(on("node2", timed))
        assert received(volume.nodes[1]) - before >= size
        assert seconds > 0.9 * size * 8 / 40e6
        assert volume.status().count("link 40mbit") == 5
    finally:
        volume.link(volume.node_link)


def test_data_that_is_dropped_from_the_page_cache_comes_over_the_link_again(volume: Cluster) -> None:
    size = 2_000_000
    on("node1", f"head -c {size} /dev/urandom >{VOLUME}/again")
    on("node2", f"cat {VOLUME}/again >/dev/null")
    before = received(volume.nodes[1])
    on("node2", f"dd if={VOLUME}/again iflag=nocache count=0; cat {VOLUME}/again >/dev/null")
    assert received(volume.nodes[1]) - before >= size


def test_the_volume_goes_with_its_server_and_comes_back_with_what_it_held(volume: Cluster) -> None:
    on("node1", f"echo kept >{VOLUME}/kept")
    assert volume.storage
    storage_node.stop(volume.storage)
    try:
        assert "storage  gone" in volume.status()
        assert not volume.is_up()
        with pytest.raises(ClusterError):
            on("node2", f"cat {VOLUME}/kept")
    finally:
        storage_node.serve(volume.storage)
    wait_until(lambda: reads("node2", "kept"), PATIENCE, "the volume does not come back")
    assert volume.is_up()
    assert "storage  served" in volume.status()


def reads(node: str, name: str) -> bool:
    try:
        return bool(on(node, f"cat {VOLUME}/{name}"))
    except ClusterError:
        return False


def test_every_kind_of_storage_is_read_and_trained_from_on_one_and_four_nodes(finished: Checkout) -> None:
    rows = read(RUNS, finished.results("tables/runs.parquet")).to_pandas()
    assert set(rows["status"]) == {"ok"}
    trained = read(ITERATIONS, finished.results("tables/iterations.parquet")).to_pandas()
    reading = read(STORAGE_READS, finished.results("tables/storage_reads.parquet")).to_pandas()
    for table in (trained, reading):
        nodes = table.groupby("storage")["nodes"].unique().map(sorted).to_dict()
        assert nodes == {name: [1, 4] for name in ("local", "volume", "staged")}


def test_each_node_staged_the_set_once_and_kept_no_copy(finished: Checkout, volume: Cluster) -> None:
    staged = read(STAGING, finished.results("tables/staging.parquet")).to_pandas().sort_values("node")
    assert staged["node"].tolist() == [0, 1, 2, 3]
    assert staged["samples"].tolist() == [64] * 4
    assert staged["bytes"].nunique() == 1
    assert staged["bytes"].min() > 64 * 64 * 64 * 3
    compared = read(BREAK_EVEN, finished.results("models/break_even.parquet")).to_pandas()
    assert sorted(compared["nodes"]) == [1, 4]
    assert set(compared["before"]) == {"volume"}
    for node in volume.nodes:
        assert on(node.name, f"find {LOCAL} -mindepth 2") == ""


@pytest.mark.night
def test_a_run_whose_volume_goes_away_says_so_and_goes_on_when_it_is_back(finished: Checkout, volume: Cluster) -> None:
    assert volume.storage
    log = finished.folder / "logs/volume/turns/cpu.log"
    finished.write_study(include=[LONG], visits=VISITS, matrix=[])
    folder = finished.results(
        "visits/train/network~small/hardware~cpu/nodes~2/workers_per_node~1/batch~8/storage~volume"
    )

    def visits() -> dict[int, list[dict[str, Any]]]:
        """Iterations by the number of their visit."""
        found = sorted(folder.glob("*/*/*/*/*/visit~*/iterations.parquet"))
        return {int(one.parent.name.rpartition("~")[2]): read(ITERATIONS, one).to_pylist() for one in found}

    with ThreadPoolExecutor() as pool:
        ending = pool.submit(finished.run_snakemake, *ON_SLURM, "--until", "train")
        wait_until(lambda: len(visits()) > 1, PATIENCE, "no visits before the server is taken away")
        storage_node.stop(volume.storage)
        try:
            wait_until(lambda: bool(re.search("^error: ", log.read_text(), re.MULTILINE)), PATIENCE, "nobody notices")
            made = visits()
        finally:
            storage_node.serve(volume.storage)
        ran = ending.result()
        said = ran.text
        if ran.status:  # its last attempt may have come before the volume did
            ran = finished.run_snakemake(*ON_SLURM, "--until", "train")
    assert ran.status == 0, ran.text
    assert re.search(rf"{VOLUME}/images.*the storage (is gone|fails)", said), said
    assert "Traceback" not in said + ran.text
    assert made
    recorded = finished.results(
        "raw/train/network~small/hardware~cpu/nodes~2/workers_per_node~1/batch~8/storage~volume"
    )
    (run_,) = recorded.rglob("scaling~weak/**/runs.parquet")
    assert read(RUNS, run_)["status"].to_pylist() == ["ok"]
    rows = read(ITERATIONS, run_.with_name("iterations.parquet")).to_pylist()
    for visit, before in made.items():
        assert [row for row in rows if row["visit"] == visit] == before, "as it was before the volume went away"


def test_down_leaves_nothing_of_it_also_after_a_crash(volume: Cluster) -> None:
    wait_until(lambda: not signal_processes(signal.SIGKILL), PATIENCE, "the processes did not end")
    volume.down()
    try:
        assert remains() == []
        assert not [name for name in os.listdir(HOME) if name != "log"]
    finally:
        volume.up()
    assert volume.is_up()
    assert processes()
