"""A study is measured on sites that lack what most have; those with networks of their own: test_namespaces.py."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fake_slurm
import forked
import pytest
import yaml
from checkout import ON_SLURM, PATIENT_MINUTES, WAITING, Checkout
from kills import NETWORK, STUDY, TARGET, processes_of

from stallpoint.records.parquet import read
from stallpoint.records.tables import ENVIRONMENTS, RUNS


@pytest.mark.usefixtures("one_core")
def test_without_a_home_and_with_one_core_a_study_of_two_is_measured(tmp_path: Path) -> None:
    study = Checkout(tmp_path, STUDY)
    (tmp_path / "mine.py").write_text(NETWORK)
    variables = {"HOME": "/proc/no/home", **forked.environment(study.library)}
    with study.start_snakemake("-n", TARGET, **variables) as planning:
        text, _ = planning.communicate()
    assert "job local computes with 2 threads at once and may use 1 core" in text, text
    with study.start_snakemake(TARGET, **variables) as running:
        text, _ = running.communicate()
    assert running.returncode == 0, text
    assert "Traceback" not in text
    assert list(study.results("tables").parent.parent.glob(".cache/*")), "caches go below the results"
    assert read(RUNS, study.folder / TARGET)["status"].to_pylist() == ["ok", "ok"]
    rows = [read(ENVIRONMENTS, file).to_pylist() for file in study.results("raw").rglob("environments.parquet")]
    assert {(len(one), row["cores_available"], row["interface"]) for one in rows for row in one} == {
        (1, 1, ""), (2, 1, "lo")
    }  # fmt: skip


class Clusters:
    """A checkout on the login node of `fake_slurm`, on whose cluster GPU nodes are shared."""

    def __init__(self, folder: Path) -> None:
        self.sessions = list[int]()
        """Of the runs that were started."""
        self.programs = folder / "slurm-programs"
        fake_slurm.install(self.programs)
        (folder / "checkout").mkdir()
        self.study = Checkout(folder / "checkout", STUDY)
        (self.study.folder / "mine.py").write_text(WAITING)
        with (self.study.folder / "src/stallpoint/slurm/slurm_queue.py").open("a") as queue:
            queue.write("\nGONE = 2.0\n")
        file = self.study.folder / "profiles/slurm/config.yaml"
        profile = yaml.safe_load(file.read_text())
        launcher = "mpirun --bind-to none --oversubscribe -n {ranks}"
        more = {"cluster": f"'{fake_slurm.CLUSTER}'", "launcher": f"'{launcher}'", "slurm_extra": "''",
                "gres": "'gpu:1'"}  # fmt: skip
        defaults = {**profile["default-resources"], **more}
        file.write_text(yaml.safe_dump({**profile, "slurm-status-command": "sacct", "default-resources": defaults}))

    def start(self, iterations: int, *options: str) -> "subprocess.Popen[str]":
        """Start a study of new cells, from the background of a script: Ctrl-C does not reach it."""
        self.study.write_study(iterations=iterations)
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            run = self.study.start_snakemake(
                *ON_SLURM, "--logger-stallpoint-patience", "1", *options, TARGET, own_session=True,
                **{**forked.environment(self.study.library), "PATH": path},
            )  # fmt: skip
        finally:
            signal.signal(signal.SIGINT, before)
        self.sessions.append(run.pid)
        return run

    def calls(self, program: str) -> list[str]:
        """Return the command lines of all calls of a program."""
        file = self.programs / "calls"
        told = file.read_text().splitlines() if file.exists() else []
        return [call for call in told if call.startswith(f"{program} ")]

    def hold_measuring(self, run: "subprocess.Popen[str]") -> Path:
        """Wait until a job that measures has been submitted, which then waits for the end of the returned file.

        Its network is described by then, which would wait, too. The queue has shown the job.
        """
        while run.poll() is None and not any("rule_measure" in call for call in self.calls("sbatch")):
            time.sleep(0.05)
        (wait := self.study.folder / "wait").touch()
        shown = len(self.calls("squeue"))
        while run.poll() is None and len(self.calls("squeue")) < shown + 2:
            time.sleep(0.05)
        assert run.poll() is None
        return wait


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Clusters]:
    """Such a site, whose runs and jobs end with the test."""
    site = Clusters(tmp_path)
    yield site
    (site.programs / "lost").unlink(missing_ok=True)
    jobs = [int(job["pid"]) for job in fake_slurm.jobs(site.programs) if job["pid"]]
    for process in [process for session in (*site.sessions, *jobs) for process in processes_of(session)]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@pytest.mark.night
def test_on_another_cluster_no_healthy_job_is_cancelled(site: Clusters) -> None:
    text, _ = (ran := site.start(3)).communicate(timeout=300)
    assert ran.returncode == 0, text
    assert not re.search("Traceback|left Slurm's queue|does not answer|Measured 0", text), text
    assert not site.calls("scancel")
    (measuring,) = (call for call in site.calls("sbatch") if "rule_measure" in call)
    assert "--clusters gpu" in measuring
    assert "--ntasks=2" in measuring, "shared nodes are asked for tasks"


@pytest.mark.night
def test_jobs_of_a_killed_run_on_another_cluster_are_cancelled_there(site: Clusters) -> None:
    wait = site.hold_measuring(killed := site.start(3))
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    again = site.start(3)
    while again.poll() is None and not site.calls("scancel"):
        time.sleep(0.05)
    wait.unlink()
    text, _ = again.communicate(timeout=300)
    assert again.returncode == 0, text
    assert text.count("was left behind by an earlier run: cancelled") == 1, text
    assert [call.split()[1] for call in site.calls("scancel")] == [f"--clusters={fake_slurm.CLUSTER}"]


@pytest.mark.night
def test_a_run_in_the_background_whose_jobs_slurm_has_lost_ends_itself(site: Clusters) -> None:
    site.hold_measuring(lost := site.start(3))
    (site.programs / "lost").touch()
    text, _ = lost.communicate(timeout=60)
    assert "has left Slurm's queue, and Snakemake has lost it: ending this run" in text
    assert lost.returncode != 0
    assert "Traceback" not in text


def test_ctrl_c_cancels_jobs_by_name_and_ends_while_the_executor_sleeps(site: Clusters) -> None:
    (wait := site.study.folder / "wait").touch()  # for whose end the job on this node waits that describes the network
    run = site.start(3, "--seconds-between-status-checks", "3000")
    while run.poll() is None and not site.calls("squeue"):
        time.sleep(0.05)
    run.send_signal(signal.SIGUSR1)  # as Ctrl-C, in the background, too
    time.sleep(3)  # longer than the run waits for its executor
    wait.unlink()
    text, _ = run.communicate(timeout=300)
    (submitted,) = site.calls("sbatch")
    assert "--job-name stallpoint_" in submitted
    assert f"-t {PATIENT_MINUTES} " in submitted, "the minutes of its work, at least"
    assert "Cancelling job 4711 (prepare_storage).\nStopping: finished visits are kept" in text, text
    assert [call for call in site.calls("scancel") if "4711" in call]
    assert "Traceback" not in text
