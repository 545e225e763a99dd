"""Pack a study into one zip, without private names unless the study keeps them."""

import getpass
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from stallpoint.archive.making import make_archive
from stallpoint.errors import program
from stallpoint.records.parquet import read
from stallpoint.records.tables import ENVIRONMENTS
from stallpoint.slurm import accounting
from stallpoint.study.configuration import load_file
from stallpoint.study.study import expand


def users() -> set[str]:
    """Return the names of the user, and of the owner of the home directory."""
    return {getpass.getuser(), Path.home().name, os.environ.get("SUDO_USER", "")}


def accounts(environments: Path) -> list[dict[str, Any]]:
    """Return Slurm's accounting records of the study's jobs, as far as it still has them."""
    jobs = sorted(set(read(ENVIRONMENTS, environments)["slurm_job_id"].to_pylist()) - {""})
    if not jobs or not shutil.which("sacct"):
        return []
    asked = subprocess.run(accounting.command(jobs), capture_output=True, text=True)
    if asked.returncode:
        print(f"no Slurm accounting, the jobs' own records stand: {asked.stderr.strip()}", file=sys.stderr)
        return []
    return accounting.from_sacct(asked.stdout)


def draw(folder: Path) -> None:
    """Let the workflow in `folder` redraw omitted results from the records there.

    The workflow imports the source from which the folder was copied, which is already compiled.
    """
    rules, targets = snakemake.params.drawn_by, snakemake.params.drawn
    source = Path(snakemake.params.workflow, "src").resolve()
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    drawing = subprocess.run(
        [sys.executable, "-m", "snakemake", "--allowed-rules", *rules, "--", *targets],
        cwd=folder, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if drawing.returncode:
        sys.exit(f"drawing again without names failed\n{drawing.stdout}")
    for leftover in (".snakemake", "logs"):
        shutil.rmtree(folder / leftover, ignore_errors=True)


with program(Path(snakemake.log[0])):
    found = make_archive(
        expand(snakemake.params.config, load_file(Path(snakemake.input.schema))),
        Path(snakemake.output[0]),
        workflow=Path(snakemake.params.workflow),
        users=users(),
        accounts=accounts(Path(snakemake.input.environments)),
        drawn_files=snakemake.params.drawn,
        draw_results=draw,
    )
    for name, words in found.items():
        print(f"look at {name} before you publish: it says {', '.join(words)}", file=sys.stderr)
