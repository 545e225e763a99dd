"""What Slurm's accounts of the cluster say of jobs, through ``sacct`` and the library, however the jobs ended."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, run, wait_until
from hosts import PATIENCE

from stallpoint.slurm.accounting import command, from_sacct

pytestmark = pytest.mark.cluster

LONG = "sleep 600"  # outlives the test, unless it is ended
SCRIPTS: dict[str, tuple[str, ...]] = {
    "two nodes": ("srun sleep 2", "--nodes=2", "--ntasks=2"),
    "exit status": ("exit 3",),
    "signal": ("kill -KILL $$",),
    "time limit": (LONG, "--time=10"),
    "cancelled": (LONG,),
    "held": (LONG, "--nodes=4", "--hold"),
}
"""Script and options of each job."""


@pytest.fixture(scope="module")
def accounts(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """The rows of the jobs of `SCRIPTS`, all of which have ended."""
    folder = tmp_path_factory.mktemp("jobs")
    jobs = {name: submit(folder, *words) for name, words in SCRIPTS.items()}

    def rows() -> dict[str, dict[str, Any]]:
        found = {row["slurm_job_id"]: row for row in from_sacct(run(*command(jobs.values())))}
        return {name: found[job] for name, job in jobs.items() if job in found}

    def running(name: str) -> bool:
        return rows().get(name, {}).get("state") == "RUNNING"

    try:
        wait_until(lambda: running("time limit") and running("cancelled"), PATIENCE, "the jobs do not run")
        time.sleep(1)  # to be seen in accounts that count seconds
        run("scancel", jobs["cancelled"], jobs["held"])
        # The shortest time limit is a minute, but the end of a job may be moved; ten, as starting may take as long.
        run("scontrol", "update", f"JobId={jobs['time limit']}", "EndTime=now+1")
        wait_until(
            lambda: len(rows()) == len(jobs) and all(row["ended"] for row in rows().values()), PATIENCE, "jobs go on"
        )
        yield rows()
    finally:
        run("scancel", *jobs.values())


def submit(folder: Path, script: str, *options: str) -> str:
    """Submit a batch job; returns its id."""
    file = folder / "job.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    return run(
        "sbatch", "--parsable", "--mem=100", "--output=/dev/null", f"--chdir={folder}", *options, str(file)
    ).strip()


@pytest.mark.parametrize(
    ("job", "state", "reason"),
    [
        ("two nodes", "COMPLETED", ""),
        ("exit status", "FAILED", "exit status 3"),
        ("signal", "FAILED", "killed (signal 9)"),
        ("time limit", "TIMEOUT", "time limit reached"),
        ("cancelled", "CANCELLED", "cancelled"),
        ("held", "CANCELLED", "cancelled, not started (JobHeldUser)"),
    ],
)
def test_how_a_job_ended(accounts: dict[str, dict[str, Any]], job: str, state: str, reason: str) -> None:
    found = accounts[job]
    # Accounts say what a job waited for once the scheduler has looked at it, which it may not have before the end.
    known = reason if found["reason"] != "cancelled, not started" else reason.partition(" (")[0]
    assert (found["state"], found["reason"]) == (state, known)


def test_node_hours_are_those_of_all_nodes(accounts: dict[str, dict[str, Any]]) -> None:
    job = accounts["two nodes"]
    assert job["nodes"] == 2
    assert 2 * 2 / 3600 <= job["node_hours"] == 2 * job["elapsed"] / 3600


def test_jobs_that_were_ended_are_charged_until_then(accounts: dict[str, dict[str, Any]]) -> None:
    assert 1 / 3600 <= accounts["cancelled"]["node_hours"] < 600 / 3600
    assert 1 / 3600 <= accounts["time limit"]["node_hours"] < 600 / 3600
    assert accounts["held"]["node_hours"] == 0


def test_no_energy_is_made_up(accounts: dict[str, dict[str, Any]]) -> None:
    assert {row["energy"] for row in accounts.values()} == {None}


def test_jobs_of_root_are_charged_to_the_account(accounts: dict[str, dict[str, Any]]) -> None:
    job = accounts["two nodes"]["slurm_job_id"]
    said = run("sacct", "--allocations", "--noheader", "--parsable2", "--format=Cluster,Account,User", f"--jobs={job}")
    assert said.strip() == "stallpoint|stallpoint|root"
