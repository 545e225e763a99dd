"""The sources' studies scaled down, complete, on four nodes of the test cluster: exhibits and verdicts they give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
from paired import Figure, Timing
from slow_nodes import LIKE_HARDWARE, NotHere, cluster_up, slow_nodes

PAPERS = {"shi-2018-small": "shi-2018", "keuper-2016-small": "keuper-2016"}
"""Studies that give exhibits, and the paper of each."""
SOURCES = {
    "guide-small": "An introductory guide on distributed training of neural networks",
    "dlbs-small": "Serebryakov (2017)",
}
"""Studies of sources without exhibits, whose claims they judge."""


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    """Run each to its exhibits; lines say of each exhibit what is missing, and of each claim what was found."""
    try:
        with cluster_up("cluster.toml"):
            for study in PAPERS:
                _run(study, os.environ | LIKE_HARDWARE)
        with slow_nodes("four.toml") as environment:
            for study in SOURCES:
                _run(study, environment)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"small-studies: not run, or not to the end: {error}"]
    return [], [*_exhibits(), *_verdicts()]


def _run(study: str, environment: Mapping[str, str]) -> None:
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    for targets in ([], ["papers"]):
        command = [snakemake, "--profile", "slurm", "--configfile", f"config/studies/{study}.yaml", "--", *targets]
        subprocess.run(command, env=environment, check=True)


def _exhibits() -> Iterator[str]:
    for study, paper in PAPERS.items():
        index = json.loads(Path(f"results/{study}/papers/{paper}/index.json").read_text())
        for one in index["exhibits"]:
            yield f"  {study}: {one['number']:<10}{one['status']:<9}{'; '.join(one['missing'])}"


def _verdicts() -> Iterator[str]:
    for study, source in SOURCES.items():
        claims = pd.read_parquet(f"results/{study}/claims.parquet")
        of_source = claims[claims["paper"] == source].drop_duplicates("claim")
        for name, verdict in of_source[["claim", "verdict"]].itertuples(index=False):
            yield f"  {study}: {name:<44}{verdict}"
