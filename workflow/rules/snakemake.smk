# What the workflow takes from Snakemake that has no documented way: all of it stands here, and
# tests/workflow/test_snakemake.py asks the installed version whether it is as expected.
import io
import sys
from contextlib import redirect_stderr
from functools import cache, partial
from pathlib import Path

from snakemake import exceptions
from snakemake.cli import parse_args
from snakemake.exceptions import WorkflowError


@cache
def command_line():
    """What the command line and the profile say: Snakemake tells it to rules only once all of them exist, or never."""
    if not workflow.is_main_process:
        return None
    try:
        with redirect_stderr(io.StringIO()):
            return parse_args(sys.argv[1:])[1]
    except SystemExit:  # started by another program than Snakemake's own
        return None


def given_structures():
    """The lists and mappings of --config, in which Snakemake leaves numbers as texts."""
    given = workflow.config_settings.config or {}
    return {key: value for key, value in given.items() if isinstance(value, (list, dict))}


def locks_folder():
    """The folder in which Snakemake keeps its lock of the working directory, where this run takes one; else None."""
    told = command_line()
    no_run = told is None or told.dryrun or told.unlock or told.nolock or told.executor == "dryrun"
    return None if no_run else Path(".snakemake/locks")


def say_when_locked(text):
    """End with `text` where the lock of another run is in the way: Snakemake advises to unlock."""
    exceptions.LockException = lambda: WorkflowError(text)


def called(rules):
    """Those of the rules that this process, a job's own, was started for."""
    return {name for name in rules if any(f"{name}:" in word for word in sys.argv)}


def before_jobs(call):
    """`call` once before the first job, as `onstart:` does; in the Snakefile of a module Snakemake does not hear that."""
    workflow._onstart = call


def run_of_executor():
    """The name that the executor gives to all jobs of this run, where jobs go to Slurm; empty elsewhere."""
    return getattr(getattr(workflow.scheduler, "_executor", None), "run_uuid", "")


def end_within(seconds):
    """Let a run of a remote executor end within so many seconds: it sleeps for up to 3 minutes between two looks at its jobs,
    and ends only when it wakes up. A job on this node may still run then, in a thread whose loop must not be closed.
    """
    if thread := getattr(getattr(workflow.scheduler, "_executor", None), "wait_thread", None):
        thread.join = partial(thread.join, seconds)
        workflow.tear_down = partial(_tear_down, workflow.tear_down)


def _tear_down(all_else):
    running = [name for name, one in workflow._async_runners.items() if one.get_loop().is_running()]
    for name in running:
        del workflow._async_runners[name]
    all_else()
