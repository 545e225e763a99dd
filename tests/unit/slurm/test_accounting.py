"""What ``sacct`` prints becomes rows of the table of accounts."""

from typing import Any

import pytest

from stallpoint.errors import InputError
from stallpoint.records.parquet import to_arrow
from stallpoint.records.tables import ACCOUNTING
from stallpoint.slurm.accounting import command, from_sacct

GPU = {
    "JobID": "7", "Partition": "gpu", "State": "COMPLETED", "ExitCode": "0:0", "Submit": "2026-01-02T03:04:05",
    "Start": "2026-01-02T03:04:06", "End": "2026-01-02T03:34:06", "ElapsedRaw": "1800", "NNodes": "2", "NCPUS": "8",
    "CPUTimeRAW": "14400", "ConsumedEnergyRaw": "720000", "ReqTRES": "cpu=8,mem=4G", "AllocTRES": "cpu=8",
    "Timelimit": "01:00:00", "NodeList": "n[2-3]", "Reason": "Dependency",
}  # fmt: skip
"""What is printed of a job on a site that measures energy; its `Reason` is what it waited for."""
NEVER = {"State": "CANCELLED by 1000", "Start": "None", "ElapsedRaw": "0", "NodeList": "None assigned"}


def row(**fields: str) -> dict[str, Any]:
    """The row of a job of which `fields` are printed, others as of `GPU`."""
    asked = command(["7"])[4].removeprefix("--format=").split(",")
    (found,) = from_sacct("|".join(asked) + "\n" + "|".join({**GPU, **fields}[name] for name in asked) + "\n")
    return found


def test_a_job_is_a_row_of_the_table() -> None:
    assert to_arrow(ACCOUNTING, [row()]).to_pylist() == [row()]
    assert row()["elapsed"] == 1800
    assert row()["node_hours"] == 1.0
    assert row()["energy"] == 720_000
    assert row()["reason"] == ""


@pytest.mark.parametrize("printed", ["", "0", str(2**64 - 2)])
def test_energy_that_was_not_measured_is_not_zero(printed: str) -> None:
    assert row(ConsumedEnergyRaw=printed)["energy"] is None


def test_who_cancelled_a_job_is_not_said() -> None:
    assert row(State="CANCELLED by 1000")["state"] == "CANCELLED"
    assert "1000" not in row(State="CANCELLED by 1000")["reason"]


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ({"State": "FAILED", "ExitCode": "3:0"}, "exit status 3"),
        ({"State": "FAILED", "ExitCode": "0:9"}, "killed (signal 9)"),
        ({"State": "FAILED"}, "failed"),
        ({"State": "TIMEOUT", "ExitCode": "0:15"}, "time limit reached"),
        ({"State": "OUT_OF_MEMORY", "ExitCode": "0:125"}, "out of memory"),
        ({"State": "CANCELLED by 1000"}, "cancelled"),
        ({**NEVER, "Reason": "JobHeldUser"}, "cancelled, not started (JobHeldUser)"),
        ({**NEVER, "Reason": "None"}, "cancelled, not started"),
        ({"State": "NODE_FAIL", "ExitCode": "1:0"}, "a node failed"),
        ({"State": "RUNNING", "End": "Unknown"}, "running"),
    ],
)
def test_why_a_job_did_not_complete(printed: dict[str, str], reason: str) -> None:
    assert row(**printed)["reason"] == reason


def test_a_job_that_never_started_took_no_time_on_no_nodes() -> None:
    never = row(**NEVER)
    assert (never["started"], never["node_list"], never["node_hours"]) == ("", "", 0)


def test_what_is_not_known_is_empty() -> None:
    assert row(NNodes="")["node_hours"] is None


def test_another_answer_is_refused() -> None:
    with pytest.raises(InputError, match="sacct: its first line"):
        from_sacct("JobID|User\n7|jdoe\n")
