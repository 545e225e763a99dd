"""Two users' studies at once on eight nodes of which one is drained: what each is told, and that both end."""

import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ON_SLURM, Checkout
from cluster import HOME, Cluster, processes_in, run, wait_until
from hosts import PATIENCE
from site_study import BLOCK, STUDY, TABLES, new_checkout

from stallpoint.records.parquet import read
from stallpoint.records.tables import RUNS
from stallpoint.slurm.slurm_queue import NO_NODES

pytestmark = [pytest.mark.cluster, pytest.mark.night]

EIGHT = Path(__file__).with_name("eight.toml")
GUEST = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
CLOSED = [folder for folder in Path(sys.base_prefix).parents if not folder.stat().st_mode & 0o001]
"""Folders above Python's own that other users may not enter, such as root's home, the outermost last."""
OPENED = f"""set -e
mount --bind {CLOSED[-1]} {HOME}/opened
mount -t tmpfs -o mode=755 tmpfs {CLOSED[-1]}
mkdir -p {sys.base_prefix}
mount --bind {HOME}/opened/{Path(sys.base_prefix).relative_to(CLOSED[-1])} {sys.base_prefix}
""" if CLOSED else ""  # fmt: skip
"""Shell commands after which others can run Python, in a mount namespace of its own."""


@pytest.fixture
def eight(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Eight nodes with all of this machine's cores, of which the last is drained, in place of the cluster."""
    file = tmp_path / "eight.toml"
    file.write_text(re.sub(r"(?m)^(cores|link) = \S+", r'\1 = "unlimited"', EIGHT.read_text()))
    cluster.down()
    nodes = Cluster.read(file)
    try:
        nodes.up()
        (HOME / "opened").mkdir()
        for node in nodes.nodes:
            daemon = min(processes_in(node.namespace))
            run("nsenter", f"--target={daemon}", "--mount", "sh", "-c", OPENED)
        run("scontrol", "update", "NodeName=node8", "State=DRAIN", "Reason=fans")
        yield nodes
    finally:
        nodes.down()
        cluster.up()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users may enter, as pytest's own is not."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def checkout(folder: Path, **nodes: int) -> Checkout:
    """A study with a curve on each of these hardware entries."""
    folder.mkdir()
    return new_checkout(
        folder,
        hardware={name: {"device": "cpu", "nodes": count} for name, count in nodes.items()},
        matrix=[{**BLOCK, "hardware": name, "nodes": [1, count], "batch": 8} for name, count in nodes.items()],
        storage={"digits": STUDY["storage"]["digits"]},
        convergence=[],
        commands={},
    )


def users_of_jobs() -> dict[str, str]:
    """The user of each job in the queue."""
    return dict(line.split() for line in run("squeue", "--noheader", "--format=%A %u").splitlines())


@pytest.mark.usefixtures("eight")
def test_both_end_though_one_waits_for_a_node_that_is_drained(folder: Path) -> None:
    mine, theirs = checkout(folder / "mine", all=8, half=4), checkout(folder / "theirs", cpu=4)
    run("chown", "-R", "nobody:nogroup", str(theirs.folder))
    here = ("unshare", "--mount", "sh", "-c", f'{OPENED}exec "$@"', "sh", *GUEST)
    said, of_guest = folder / "said", folder / "of_guest"
    with said.open("w") as out, of_guest.open("w") as out_of_guest:
        guest = theirs.start_snakemake(
            *ON_SLURM, TABLES, said=out_of_guest, through=here, HOME="/nonexistent", TMPDIR="/tmp"
        )
        wait_until(lambda: guest.poll() is not None or "nobody" in users_of_jobs().values(), PATIENCE)
        assert guest.poll() is None, of_guest.read_text()
        stopped = mine.start_snakemake(*ON_SLURM, TABLES, said=out, own_session=True)
        wait_until(lambda: stopped.poll() is not None or NO_NODES in said.read_text(), PATIENCE)
        assert stopped.poll() is None, said.read_text()
        os.killpg(stopped.pid, signal.SIGINT)
        assert stopped.wait(PATIENCE) != 0
    text = said.read_text()
    job = re.search(r"! job (\d+) \(measure_all\) waits: ", text)
    assert job, text
    assert re.search(rf"Cancelling .*job {job[1]} \(measure_all\)", text)
    assert "Stopping: finished visits are kept" in text
    wait_until(lambda: "root" not in users_of_jobs().values(), PATIENCE, "jobs of the run that was stopped are left")

    with mine.start_snakemake(*ON_SLURM, TABLES) as again:
        assert guest.wait(PATIENCE) == 0, of_guest.read_text()
        time.sleep(1)
        run("scontrol", "update", "NodeName=node8", "State=RESUME")
        text, _ = again.communicate()
    assert again.returncode == 0, text
    for own, whose in ((text, mine), (of_guest.read_text(), theirs)):
        assert "Done in" in own
        assert "Traceback" not in own
        rows = read(RUNS, whose.results("tables/runs.parquet")).to_pandas()
        assert set(rows["status"]) == {"ok"}
    ids = [set(re.findall(r"job (\d+) \(", own)) for own in (text, of_guest.read_text())]
    assert ids[0].isdisjoint(ids[1]), "nobody is told of another's jobs"
