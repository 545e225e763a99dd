"""What Slurm's queue says of a run's jobs is told once, and what cannot end well is noticed."""

import re

from stallpoint.slurm.accounting import active, states_command
from stallpoint.slurm.slurm_queue import GONE_SECONDS, NO_NODES, SILENT_SECONDS, Queue, all_clusters, command


def queue() -> Queue:
    found = Queue()
    found.add_submitted("7", "measure_k80")
    return found


def said(of: Queue, answer: str | None, now: float) -> list[str]:
    """Lines about an answer: short ones (id, state, reason), with the name and the comment of each job left out."""
    full = answer and re.sub(
        r"^(\d+\|\w+)\|(?=[^|]*(\|node\S*)?$)", r"\1|run|rule_measure_k80_wildcards_k80|", answer, flags=re.M
    )
    return list(of.read(full, now))


def test_what_a_job_waits_for_is_said_when_it_changes() -> None:
    jobs = queue()
    assert said(jobs, "7|PENDING|None\n9|PENDING|Resources\n", 0) == []
    assert said(jobs, "7|PENDING|Resources\n", 20) == ["job 7 (measure_k80) waits: Resources"]
    assert said(jobs, "7|PENDING|Priority\n", 40) == [], "Slurm exchanges the two with each look at its queue"
    unavailable = "7|PENDING|ReqNodeNotAvail, UnavailableNodes:node3\n"
    assert said(jobs, unavailable, 60) == [f"! job 7 (measure_k80) waits: {NO_NODES}"]
    drained = "7|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions\n"
    assert said(queue(), drained, 60) == [f"! job 7 (measure_k80) waits: {NO_NODES}"], "Slurm's two words for it"
    assert said(jobs, "7|RUNNING|None|node[1-4]\n", 80) == ["job 7 (measure_k80) runs on node[1-4]"]
    assert said(jobs, "7|COMPLETING|None|node[1-4]\n", 90) == []
    assert jobs.hopeless_jobs(1000, 60) == {}


def test_a_job_that_can_never_start_is_hopeless_after_a_while() -> None:
    jobs = queue()
    (line,) = said(jobs, "7|PENDING|PartitionTimeLimit\n", 0)
    assert line.endswith("PartitionTimeLimit: it asks for more time than its partition allows (resource runtime)")
    assert jobs.hopeless_jobs(59, 60) == {}
    assert jobs.hopeless_jobs(60, 60) == {"7": "PartitionTimeLimit"}
    said(jobs, "7|PENDING|Resources\n", 70)
    assert jobs.hopeless_jobs(200, 60) == {}, "an administrator has changed the partition"
    jobs.ended("7")
    jobs.add_submitted("8", "measure_k80")
    said(jobs, "8|PENDING|PartitionTimeLimit\n", 210)
    assert jobs.hopeless_jobs(210, 60) == {"8": "PartitionTimeLimit"}, "Snakemake submitted it again, as it was"


def test_the_end_of_a_job_is_said_before_snakemake_notices_it() -> None:
    jobs = queue()
    assert said(jobs, "", 0) == [], "Slurm does not show it yet"
    assert said(jobs, "7|RUNNING|None\n", 20) == ["job 7 (measure_k80) runs"]
    assert said(jobs, None, 30) == []
    ended = ["! job 7 (measure_k80) has ended; Snakemake finds out how within 3 minutes"]
    assert said(jobs, "", 40) == ended
    assert said(jobs, "", 60) == []
    assert said(jobs, "7|PENDING|Resources\n", 80) == ["job 7 (measure_k80) waits: Resources"], "it was put back"
    assert said(jobs, "", 100) == ended
    jobs.ended("7")
    assert said(jobs, "", 120) == []


def test_a_job_is_gone_when_the_queue_has_not_known_it_for_long() -> None:
    jobs = queue()
    said(jobs, "7|RUNNING|None\n", 0)
    said(jobs, "", 20)
    assert jobs.gone_jobs(20 + GONE_SECONDS - 1) == []
    said(jobs, "7|COMPLETING|None\n", 30)
    said(jobs, "", 40)
    assert jobs.gone_jobs(20 + GONE_SECONDS) == [], "it was there again"
    assert jobs.gone_jobs(40 + GONE_SECONDS) == ["7"]
    jobs.ended("7")
    assert jobs.gone_jobs(40 + GONE_SECONDS) == []


def test_a_controller_that_is_away_is_named_once_and_nothing_is_gone_for_it() -> None:
    jobs = queue()
    said(jobs, "7|RUNNING|None\n", 0)
    assert said(jobs, None, SILENT_SECONDS / 2) == []
    assert said(jobs, None, SILENT_SECONDS) == ["! Slurm's controller does not answer; jobs that run go on"]
    assert said(jobs, None, 10 * SILENT_SECONDS) == []
    assert jobs.gone_jobs(10 * SILENT_SECONDS) == []
    assert said(jobs, "7|RUNNING|None\n", 11 * SILENT_SECONDS) == ["Slurm's controller answers again"]


def test_a_job_that_this_view_never_showed_is_not_gone_from_it() -> None:
    jobs = queue()
    for now in (0, GONE_SECONDS, 10 * GONE_SECONDS):
        assert said(jobs, "", now) == []
    assert jobs.gone_jobs(10 * GONE_SECONDS) == [], "another cluster's queue would list it"


def test_the_clusters_that_jobs_went_to_are_asked() -> None:
    jobs = queue()
    assert not any(word.startswith("--clusters") for word in jobs.command)
    jobs.add_submitted("8", "measure_gpu", "gpu")
    assert "--clusters=gpu" in jobs.command
    assert said(jobs, "CLUSTER: gpu\n8|PENDING|run|rule_measure_gpu|Resources\n", 0) == [
        "job 8 (measure_gpu) waits: Resources"
    ]


def test_all_clusters_are_asked_where_slurm_knows_of_any() -> None:
    assert all_clusters(lambda asked: "all" if "--clusters=all" in asked else "local") == "all"
    assert all_clusters(lambda asked: None if "--clusters=all" in asked else "local") == "local"
    assert "--me" not in command(), "Slurm 20.02 does not know it"


def test_accounts_say_which_jobs_go_on() -> None:
    assert "--clusters=gpu" in states_command(["7"], ["gpu"])
    assert active("7|RUNNING\n8|CANCELLED by 1000\n9|COMPLETED\n10|PENDING\n") == {"7", "10"}
    assert active(None) == set()
