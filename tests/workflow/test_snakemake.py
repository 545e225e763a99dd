"""What the workflow takes from Snakemake that has no documented way (workflow/rules/snakemake.smk) is there.

It needs Snakemake alone: CONTRIBUTING.md says how to run it with another version than the installed one.
"""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OURS = Path(__file__).parents[2] / "workflow/rules/snakemake.smk"
SNAKEFILE = f"""
import json
from pathlib import Path

include: "{OURS}"

def first(log):
    told = command_line()
    said = {{name: sorted(map(str, getattr(told, name) or ())) for name in ("targets", "forcerun")}}
    said |= {{"force": told.force, "dryrun": told.dryrun, "executor": told.executor, "run": run_of_executor(),
             "executed": type(workflow.scheduler._executor).__name__, "made": Path("made").exists()}}
    Path("said.json").write_text(json.dumps(said))

before_jobs(first)

rule make:
    output: "made"
    run:
        Path(output[0]).write_text(" ".join(sorted(called(["make", "other"]))) + str(command_line()))

rule other:
    output: "other"
    shell: "touch {{output}}"
"""


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    """What the hook was told; empty where it was not called."""
    command = [sys.executable, "-m", "snakemake", *arguments, "--cores", "1", "--scheduler", "greedy", "--quiet"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = folder / "said.json"
    found: dict[str, Any] = json.loads(said.read_text()) if said.exists() else {}
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    return tmp_path


@pytest.fixture
def deployed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose workflow is that one as a module."""
    other = tmp_path_factory.mktemp("deployed")
    (other / "Snakefile").write_text(f'module ours:\n    snakefile: "{folder}/Snakefile"\n\nuse rule * from ours\n')
    return other


@pytest.mark.parametrize("workflow", ["deployed", pytest.param("folder", marks=pytest.mark.night)])
def test_the_command_line_is_known_the_hook_comes_before_the_first_job_and_a_job_knows_its_rule(
    workflow: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(workflow)
    said = run(folder, "make", "--forcerun", "other")
    assert said == {
        "targets": ["make"], "forcerun": ["other"], "force": False, "dryrun": False, "executor": None, "run": "",
        "executed": "Executor", "made": False,
    }  # fmt: skip
    assert (folder / "made").read_text() == "makeNone", "the command line is the main process's alone"


def test_a_run_that_another_keeps_out_says_who_and_not_how_to_unlock(folder: Path) -> None:
    with (folder / "Snakefile").open("a") as more:
        more.write('\nsay_when_locked("ada measures here")\n')
    (folder / ".snakemake/locks").mkdir(parents=True)
    (folder / ".snakemake/locks/0.output.lock").write_text("made\n")
    command = [sys.executable, "-m", "snakemake", "make", "--cores", "1"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert ran.returncode != 0
    assert "ada measures here" in ran.stderr
    assert "unlock" not in ran.stderr


def test_the_executor_of_slurm_names_its_runs() -> None:
    import snakemake_executor_plugin_slurm as slurm

    assert "self.run_uuid = " in inspect.getsource(slurm.Executor)


def test_a_run_that_ends_closes_the_loops_of_its_threads() -> None:
    from snakemake.api import Workflow

    assert "self._async_runners.values()" in inspect.getsource(Workflow.tear_down)
