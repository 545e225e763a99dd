import os
import platform
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sample_cells import COLLECTIVES

from stallpoint.errors import CannotRun
from stallpoint.measure.machine.environment import choose_gpu, cpu_model, describe, git_state, operating_system
from stallpoint.measure.world import World
from stallpoint.records.tables import ENVIRONMENTS
from stallpoint.study.kinds.collectives_kind import CollectivesCell


def cell(*, anonymise: bool) -> CollectivesCell:
    return replace(COLLECTIVES, nodes=1, anonymise=anonymise)


@pytest.fixture(scope="module")
def world() -> World:
    return World.start(1)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_every_column_is_described(world: World) -> None:
    described = describe(cell(anonymise=True), world)
    assert {"cell", "rank", *described} == {column.name for column in ENVIRONMENTS.columns}


def test_what_is_used_is_reported_not_what_was_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        described = describe(cell(anonymise=False), world)
    finally:
        torch.set_num_threads(before)
    assert described["threads"] == 3
    assert described["node"] == socket.gethostname()
    assert described["cores_available"] == len(os.sched_getaffinity(0))
    assert described["kernel"].endswith(f"{platform.system()} {platform.release()}")
    assert described["slurm_job_id"] == "4711"
    assert described["mpi_library"].isprintable()
    assert described["memory_bytes"] > 2**28
    assert described["interface"] == described["subnet"] == "", "a single rank meets nobody"


def test_the_operating_system_is_its_release_and_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"PRETTY_NAME": "CentOS Linux 7"})
    kernel = f"{platform.system()} {platform.release()}"
    assert operating_system() == f"CentOS Linux 7, {kernel}"
    monkeypatch.setattr(platform, "freedesktop_os_release", Path("/no/os-release").read_text)
    assert operating_system() == kernel


def test_anonymised_nodes_have_numbers(world: World) -> None:
    assert describe(cell(anonymise=True), world)["node"] == "node0"


def test_the_cpus_model_is_found() -> None:
    text = "processor\t: 0\nvendor_id\t: X\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz\n"
    assert cpu_model(text) == "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"
    assert cpu_model("processor: 0\nBogoMIPS: 50\n") == ""


def test_git_state_follows_the_repository(tmp_path: Path) -> None:
    assert git_state(tmp_path) == ("", False)
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert git_state(tmp_path) == (commit, False)
    (tmp_path / "file").write_text("two")
    assert git_state(tmp_path) == (commit, True)


def test_a_missing_gpu_cannot_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CannotRun, match="no GPU"):
        choose_gpu(world)
