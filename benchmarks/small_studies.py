"""The papers' studies scaled down, whole, on the four nodes of the test cluster: which exhibits they give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from paired import Figure, Timing
from slow_nodes import LIKE_HARDWARE, NotHere, cluster_up

STUDIES = {"shi-2018-small": "shi-2018", "keuper-2016-small": "keuper-2016"}
"""Their names, and the paper of each."""


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    """Run each to its exhibits; lines say of each exhibit what is missing."""
    try:
        with cluster_up("cluster.toml"):
            for study in STUDIES:
                _run(study)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"small-studies: not run, or not to the end: {error}"]
    return [], [line for study, paper in STUDIES.items() for line in _told(study, paper)]


def _run(study: str) -> None:
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    command = [snakemake, "--profile", "slurm", "--configfile", f"config/studies/{study}.yaml"]
    for targets in ([], ["papers"]):
        subprocess.run([*command, "--", *targets], env=os.environ | LIKE_HARDWARE, check=True)


def _told(study: str, paper: str) -> list[str]:
    index = json.loads(Path(f"results/{study}/papers/{paper}/index.json").read_text())
    return [f"  {study}: {one['number']:<10}{one['status']:<9}{'; '.join(one['missing'])}" for one in index["exhibits"]]
