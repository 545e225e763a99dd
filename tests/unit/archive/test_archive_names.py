"""Names of nodes and users and absolute paths become placeholders."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.archive.anonymising import Names, expand_nodes
from stallpoint.slurm.own_job import own_job

NAMES = {"nodes": ["n10.site", "n2.site"], "users": ["jdoe"], "root": "/home/jdoe/work"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on n2: failed", "on node1: failed"),
        ("n10.site and n10", "node2 and node2"),
        ("n100 is another, xn2 too", "n100 is another, xn2 too"),
        ('File "/home/jdoe/work/src/a.py", line 3', 'File "src/a.py", line 3'),
        ("/opt/lib/a.py /opt/lib/b.py /etc/c", "path1/a.py path1/b.py path2/c"),
        ("package: Open MPI root@builder Distribution", "package: Open MPI user@host Distribution"),
        ("https://example.org/a/b at 3 GB/s and/or src/a.py", "https://example.org/a/b at 3 GB/s and/or src/a.py"),
        ("jdoe_lab of jdoe's", "jdoe_lab of user's"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert Names(**NAMES).text(text) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("images/jpeg", "images/jpeg"),
        ("/home/jdoe/work/images", "images"),
        ("../tables/a.csv", "path1/a.csv"),
        ("/lustre/jdoe", "path1/user"),
        ("/", "path1"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert Names(**NAMES).path(path) == expected


def test_nodes_that_are_numbers_already_keep_them() -> None:
    names = Names(["node0", "node1"])
    assert (names.node("node0"), names.text("on node1"), names.words) == ("node0", "on node1", frozenset())


@given(st.lists(st.from_regex(r"(/[a-z]{1,4}){1,4}", fullmatch=True), min_size=1, unique=True))
def test_different_paths_stay_different_and_none_stays_absolute(paths: list[str]) -> None:
    names = Names(root="/w")
    changed = [names.path(path) for path in paths]
    assert len(set(changed)) == len(paths)
    assert not any(path.startswith("/") for path in changed)
    assert [names.path(path) for path in paths] == changed


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("gpu[08-10,12],login", ["gpu08", "gpu09", "gpu10", "gpu12", "login"]),
        ("n1,n[3-4]", ["n1", "n3", "n4"]),
        ("r[1-2].site", ["r1.site", "r2.site"]),
        ("(null)", []),
        ("", []),
    ],
)
def test_slurms_lists_of_nodes(text: str, nodes: list[str]) -> None:
    assert list(expand_nodes(text)) == nodes


def test_a_list_of_nodes_counts_those_that_nobody_knows() -> None:
    assert Names(["n2.site", "n10.site"]).node_list("n[2-3,10].site") == "node1,node2,1 more"


def test_outside_slurm_there_is_no_job() -> None:
    assert own_job({}) is None


def test_a_job_that_cannot_ask_slurm_tells_what_its_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    job = own_job({"SLURM_JOB_ID": "9", "SLURM_JOB_PARTITION": "gpu", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2"})
    assert job is not None
    assert (job["slurm_job_id"], job["partition"], job["tasks"], job["nodes"], job["cpus"]) == ("9", "gpu", 4, 2, None)


def test_what_slurm_says_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "JobId=9 JobName=x UserId=jdoe(1000) GroupId=a(1) JobState=RUNNING TimeLimit=00:10:00 "
        "SubmitTime=2026-01-02T03:04:05 StartTime=2026-01-02T03:04:06 Partition=cpu NodeList=n[1-2] NumNodes=2 "
        "NumCPUs=4 NumTasks=2 CPUs/Task=2 TRES=cpu=4,mem=8G,node=2,billing=4 WorkDir=/home/jdoe Command=(null)"
    )
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert own_job({"SLURM_JOB_ID": "9"}) == {
        "slurm_job_id": "9", "partition": "cpu", "nodes": 2, "tasks": 2, "cpus_per_task": 2, "cpus": 4,
        "requested": "cpu=4,mem=8G,node=2,billing=4", "time_limit": "00:10:00", "submitted": "2026-01-02T03:04:05",
        "started": "2026-01-02T03:04:06", "node_list": "n[1-2]",
    }  # fmt: skip
