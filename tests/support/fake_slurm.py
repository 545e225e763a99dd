"""Slurm's programs as on a login node whose jobs all run on another cluster, ``gpu``: what a run asks of them.

`install` puts them into a folder. `sbatch` runs a job on this machine, in processes of its own that have no home. The
queue of the local cluster is empty, and Slurm is older than ``--me``. Each call is a line of the file ``calls``; while
the file ``lost`` is there, neither queue nor accounts know of any job.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CLUSTER = "gpu"
PROGRAMS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr", "srun", "slurmd")


def install(folder: Path) -> None:
    """Put the programs, and what they remember, into `folder`."""
    folder.mkdir()
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text()}")
        program.chmod(0o755)


def options_in(words: list[str]) -> dict[str, str]:
    """Return the long options of a command line, ``--name=value`` or ``--name value``."""
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            found[name] = value if equals else "" if following.startswith("-") else following
    return found


def jobs(folder: Path) -> list[dict[str, str]]:
    """Return the jobs that Slurm knows of."""
    return [] if (folder / "lost").exists() else [json.loads(file.read_text()) for file in folder.glob("*.json")]


def write(folder: Path, job: dict[str, str]) -> None:
    scratch = folder / f"{job['id']}.part"
    scratch.write_text(json.dumps(job))
    scratch.rename(folder / f"{job['id']}.json")


def submit(folder: Path, options: dict[str, str]) -> None:
    """Start a job, and wait until it runs."""
    number = str(4711 + len([*folder.glob("*.json")]))
    job = {"id": number, "name": options["job-name"], "comment": options["comment"], "state": "RUNNING", "pid": ""}
    write(folder, job)
    subprocess.Popen(
        [folder / "slurmd", number, options["wrap"]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "SLURM_JOB_ID": number, "HOME": "/proc/no/home"},
    )  # fmt: skip
    while (folder / f"{number}.json").read_text() == json.dumps(job):
        time.sleep(0.01)
    print(f"{number};{options['clusters']}")


def run_job(folder: Path, number: str, script: str) -> None:
    """Run a job on its node, and note how it ended."""
    job = json.loads((folder / f"{number}.json").read_text())
    program = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    write(folder, {**job, "pid": str(program.pid)})
    status = program.wait()
    state = "COMPLETED" if status == 0 else "CANCELLED" if (folder / f"{number}.cancelled").exists() else "FAILED"
    write(folder, {**job, "state": state})


def main(program: str, words: list[str]) -> None:
    folder, options = Path(sys.argv[0]).parent, options_in(words)
    with (folder / "calls").open("a") as calls:
        calls.write(f"{program} {' '.join(words)}"[:2000].replace("\n", " ") + "\n")
    if "--me" in words:
        sys.exit(f"{program}: unrecognized option '--me'")
    elsewhere = options.get("clusters") in (CLUSTER, "all")
    if program == "slurmd":
        run_job(folder, *words)
    elif program == "sbatch":
        submit(folder, options)
    elif program == "squeue" and elsewhere:
        print(f"CLUSTER: {CLUSTER}")
        for job in jobs(folder):
            if job["state"] == "RUNNING":
                print(f"{job['id']}|RUNNING|{job['name']}|{job['comment']}|None")
    elif program == "sacct" and elsewhere:
        for job in jobs(folder):
            if job["name"] == options.get("name") or job["id"] in options.get("jobs", "").split(","):
                print(f"{job['id']}|{job['state']}")
    elif program == "scancel" and elsewhere:
        for job in jobs(folder):
            if job["id"] in words and job["pid"]:
                (folder / f"{job['id']}.cancelled").touch()
                with suppress(ProcessLookupError):
                    os.killpg(int(job["pid"]), signal.SIGTERM)
    elif program == "scontrol" and "config" in words:
        print("MinJobAge               = 300 sec")
    elif program == "sinfo":
        print("slurm 20.02.7")
    elif program == "srun":
        command = next(index for index, word in enumerate(words) if not word.startswith("-"))
        os.execvp(words[command], words[command:])


if __name__ == "__main__":
    main(Path(sys.argv[0]).name, sys.argv[1:])
