"""How well 4 and 8 nodes are predicted from 1 and 2, for every preset, on eight slow nodes of a real Slurm cluster.

Measures the study cluster_accuracy.yaml on the test cluster in rounds of about 25 minutes (on two cores), each of which
takes every cell on several nodes once; what was measured before is not measured again. Prints its table ``validation``.
"""

from __future__ import annotations

from pathlib import Path

import cluster_study
from paired import Figure, Timing


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    return cluster_study.benchmark(
        Path(__file__).with_suffix(".yaml"), "eight.toml", scratch, "4 and 8 nodes predicted from 1 and 2",
        "wanted: median |error| at most 3 %, 90th percentile at most 8 %",
    )  # fmt: skip
