"""A study as users of a cluster run it, through Slurm on the eight slow nodes: what docs/cluster-report.md reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from paired import Figure, Timing
from slow_nodes import NotHere, slow_nodes

CONFIG = "benchmarks/cluster_report.yaml"
CONCLUSIONS = Path("results/cluster-report/conclusions.md")


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    """Run the study to its report, and show its conclusions."""
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    try:
        with slow_nodes() as environment:
            subprocess.run([snakemake, "--profile", "slurm", "--configfile", CONFIG], env=environment, check=True)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"cluster-report: not run, or not to the end: {error}"]
    return [], CONCLUSIONS.read_text().splitlines()
