"""What ended the processes of a visit: told by evidence, and by nothing else."""

from pathlib import Path

import pytest

from stallpoint.schedule.processes import VisitEnd, oom_kills

OOM_OF_SLURM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=34.0. Some of the step tasks have been OOM Killed."
)


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (
            "prterun noticed that process rank 1 with PID 7 on node vm exited on\nsignal 9 (Killed).",
            "rank 1 was killed",
        ),
        (
            "mpirun noticed that process rank 12 with PID 0 on node n3 exited on signal 9 (Killed).",
            "rank 12 was killed",
        ),
        ("srun: error: node2: task 3: Killed", "rank 3 was killed"),
        ("Killed", "was killed"),
    ],
)
def test_the_rank_that_was_killed_is_named(text: str, who: str) -> None:
    assert (VisitEnd(137, text).died, VisitEnd(137, text).killed) == (f"{who} (signal 9)", True)
    assert VisitEnd(137, text).out_of_memory == ""
    assert VisitEnd(137, text, oom_kills=1).out_of_memory == f"{who} (signal 9): out of memory, the kernel says so"


SRUN_KILLED = """srun: error: node2: task 1: Killed
slurmstepd-node1: error: *** STEP 34.0 ON node1 CANCELLED AT 2030-01-01T00:00:00 ***
interrupted by SIGTERM: the rows of rank 0 so far are in results
srun: error: node1: task 0: Exited with exit code 143
"""


def test_srun_ends_as_the_ranks_it_interrupted() -> None:
    assert VisitEnd(143, SRUN_KILLED).died == "rank 1 was killed (signal 9)"


@pytest.mark.parametrize("said", [OOM_OF_SLURM, "error: Exceeded job memory limit", "Out Of Memory", "OUT_OF_MEMORY"])
def test_slurms_word_is_evidence(said: str) -> None:
    end = VisitEnd(137, f"{said}\n{SRUN_KILLED}")
    assert end.out_of_memory.startswith("rank 1 was killed (signal 9): out of memory, the log says")


LAUNCH_FAILED = """srun: error: task 1 launch failed: Unspecified error
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: node1: task 0: Killed
"""
NODE_LOST = """srun: error: Node failure on node2
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: node1: task 0: Killed
"""
REQUEUED = "slurmstepd: error: *** STEP 3.0 ON node1 CANCELLED AT 2030-01-01T00:00:00 DUE TO NODE FAILURE ***"


@pytest.mark.parametrize("text", [LAUNCH_FAILED, NODE_LOST, f"{REQUEUED}\nsrun: error: node1: task 0: Killed"])
@pytest.mark.parametrize("status", [137, 143])
def test_a_lost_node_is_nothing_that_the_cell_did(status: int, text: str) -> None:
    end = VisitEnd(status, text, oom_kills=1)
    assert (end.died, end.out_of_memory) == ("", "")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (137, "slurmstepd: error: *** STEP 3.0 ON node1 CANCELLED AT noon ***\nsrun: error: node2: task 1: Killed"),
        (2, "error: bad input"),
        (143, "interrupted by SIGTERM: the rows of rank 0 ..."),
        (137, "interrupted by SIGTERM: the rows of rank 0 ..."),
        (137, "slurmstepd: error: *** STEP 3.0 ON node1 CANCELLED AT 2030-01-01T00:00:00 DUE TO TIME LIMIT ***"),
    ],
)
def test_other_ends_are_not_results(status: int, text: str) -> None:
    end = VisitEnd(status, text, oom_kills=1)
    assert (end.died, end.out_of_memory) == ("", "")


@pytest.mark.parametrize(
    ("status", "text", "how"),
    [
        (139, "prterun noticed that process rank 1 with PID 7 on node vm exited on\nsignal 11 (Segmentation fault).",
         "rank 1 crashed: Segmentation fault (signal 11)"),
        (139, "srun: error: node2: task 3: Segmentation fault (core dumped)\nsrun: error: node1: task 0: Terminated",
         "rank 3 crashed: Segmentation fault (signal 11)"),
        (143, "srun: error: node1: task 0: Terminated\nsrun: error: node2: task 1: Aborted",
         "rank 1 crashed: Aborted (signal 6)"),
        (1, "prterun has exited due to process rank 1 with PID 0 on node vm exiting\nimproperly. interrupted by SIG",
         "rank 1 exited early"),
        (-11, "", "crashed: Segmentation fault (signal 11)"),
        (134, "terminate called", "crashed: Aborted (signal 6)"),
        (0, "", "ended with exit status 0"),
        (1, "error: a defect", "ended with exit status 1"),
    ],
)  # fmt: skip
def test_processes_that_die_by_themselves_are_told_from_those_that_were_ended(status: int, text: str, how: str) -> None:
    end = VisitEnd(status, text, oom_kills=1)
    assert (end.died, end.killed, end.out_of_memory) == (how, False, "")


def test_the_kernels_count_is_read(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 12\nnuma_hit 3\n")
    assert oom_kills(tmp_path / "vmstat") == 12
    assert oom_kills(tmp_path / "absent") == 0
    assert oom_kills() >= 0
