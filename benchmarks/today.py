"""How well sharded and accumulated training is predicted on 4 slow nodes of a real Slurm cluster from 1 and 2.

Measures the study today.yaml on the test cluster, in about 15 minutes (on two cores); what was measured before is not
measured again. Prints its table ``validation``.
"""

from __future__ import annotations

from pathlib import Path

import cluster_study
from paired import Figure, Timing


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    return cluster_study.benchmark(
        Path(__file__).with_suffix(".yaml"), "four.toml", scratch, "4 nodes predicted from 1 and 2",
        "wanted: median |error| at most 5 %, 90th percentile at most 10 %",
    )  # fmt: skip
