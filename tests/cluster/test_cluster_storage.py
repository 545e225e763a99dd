"""The storage node: a real parallel file system, and a study whose training data goes away with it."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import storage_node
from checkout import ON_SLURM, Checkout
from cluster import Cluster, ClusterError, run, wait_until
from hosts import PATIENCE, Host
from site_study import BLOCK, LOCAL
from storage_node import VOLUME

from stallpoint.records.parquet import read
from stallpoint.records.tables import ITERATIONS, RUNS

pytestmark = pytest.mark.cluster

LONG = {**BLOCK, "batch": 8, "nodes": 2, "storage": "volume", "scaling": "weak", "prefetch": 0, "iterations": 2}
VISITS = 60
"""As many as outlast the time until the server is taken away."""


def on(node: str, command: str) -> str:
    return run("srun", f"--nodelist={node}", "--chdir=/", "sh", "-ec", command).strip()


def received(node: Host) -> int:
    """Bytes that have come over the node's link."""
    return int(Path("/sys/class/net", node.port, "statistics/tx_bytes").read_text())


def test_what_one_node_writes_on_the_volume_the_others_read(cluster: Cluster) -> None:
    on("node1", f"echo written >{VOLUME}/one")
    assert [on(node.name, f"cat {VOLUME}/one") for node in cluster.nodes] == ["written"] * 4
    assert list(VOLUME.iterdir()) == [], "this machine is not on the volume"


def test_each_node_has_a_disk_of_its_own(cluster: Cluster) -> None:
    on("node1", f"echo written >{LOCAL}/one")
    assert [on(node.name, f"ls {LOCAL}") for node in cluster.nodes] == ["one", "", "", ""]


def test_the_volume_is_read_over_a_link_that_is_no_faster_than_it_may_be(cluster: Cluster) -> None:
    size = 4_000_000
    on("node1", f"head -c {size} /dev/urandom >{VOLUME}/data")
    cluster.link("40mbit")
    try:
        before = received(cluster.nodes[1])
        timed = f"s=$(date +%s%N); cat {VOLUME}/data >/dev/null; echo $(($(date +%s%N) - s))"
        seconds = 1e-9 * int(on("node2", timed))
        assert received(cluster.nodes[1]) - before >= size
        assert seconds > 0.9 * size * 8 / 40e6
        assert cluster.status().count("link 40mbit") == 5
    finally:
        cluster.link(cluster.node_link)


def test_data_that_is_dropped_from_the_page_cache_comes_over_the_link_again(cluster: Cluster) -> None:
    size = 2_000_000
    on("node1", f"head -c {size} /dev/urandom >{VOLUME}/again")
    on("node2", f"cat {VOLUME}/again >/dev/null")
    before = received(cluster.nodes[1])
    on("node2", f"dd if={VOLUME}/again iflag=nocache count=0; cat {VOLUME}/again >/dev/null")
    assert received(cluster.nodes[1]) - before >= size


def test_the_volume_goes_with_its_server_and_comes_back_with_what_it_held(cluster: Cluster) -> None:
    on("node1", f"echo kept >{VOLUME}/kept")
    assert cluster.storage
    storage_node.stop(cluster.storage)
    try:
        assert "storage  gone" in cluster.status()
        assert not cluster.is_up()
        with pytest.raises(ClusterError):
            on("node2", f"cat {VOLUME}/kept")
    finally:
        storage_node.serve(cluster.storage)
    wait_until(lambda: reads("node2", "kept"), PATIENCE, "the volume does not come back")
    assert cluster.is_up()
    assert "storage  served" in cluster.status()


def reads(node: str, name: str) -> bool:
    try:
        return bool(on(node, f"cat {VOLUME}/{name}"))
    except ClusterError:
        return False


@pytest.mark.night
def test_a_run_whose_volume_goes_away_says_so_and_goes_on_when_it_is_back(finished: Checkout, cluster: Cluster) -> None:
    assert cluster.storage
    log = finished.folder / "logs/small/schedule/cpu.log"
    finished.write_study(include=[LONG], visits=VISITS, matrix=[], convergence=[])
    cell = "train/network~small/hardware~cpu/nodes~2/workers_per_node~1/batch~8/storage~volume"
    folder = finished.results("visits", cell)

    def visits() -> dict[int, list[dict[str, Any]]]:
        """Iterations by the number of their visit."""
        found = sorted(folder.glob("*/*/*/*/*/visit~*/iterations.parquet"))
        return {int(one.parent.name.rpartition("~")[2]): read(ITERATIONS, one).to_pylist() for one in found}

    with ThreadPoolExecutor() as pool:
        ending = pool.submit(finished.run_snakemake, *ON_SLURM, "--until", "measure_cpu")
        wait_until(lambda: len(visits()) > 1, PATIENCE, "no visits before the server is taken away")
        storage_node.stop(cluster.storage)
        try:
            wait_until(lambda: bool(re.search("^error: ", log.read_text(), re.MULTILINE)), PATIENCE, "nobody notices")
            made = visits()
        finally:
            storage_node.serve(cluster.storage)
        ran = ending.result()
        said = ran.text
        if ran.status:  # its last attempt may have come before the volume did
            ran = finished.run_snakemake(*ON_SLURM, "--until", "measure_cpu")
    finished.write_study()
    assert ran.status == 0, ran.text
    assert re.search(rf"{VOLUME}/images.*the storage (is gone|fails)", said), said
    assert "Traceback" not in said + ran.text
    assert made
    (run_,) = finished.results("raw", cell).rglob("scaling~weak/**/runs.parquet")
    assert read(RUNS, run_)["status"].to_pylist() == ["ok"]
    rows = read(ITERATIONS, run_.with_name("iterations.parquet")).to_pylist()
    for visit, before in made.items():
        assert [row for row in rows if row["visit"] == visit] == before, "as it was before the volume went away"
