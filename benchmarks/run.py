"""The project's benchmarks: ``make bench`` or ``python benchmarks/run.py [NAME ...] [--rounds N]``.

Prints medians, spreads and paired ratios, and keeps every timing in results/benchmarks.parquet.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import collect
import dry_run
import pandas as pd
import scaling_laws

BENCHMARKS = {"collect": collect.benchmark, "dry-run": dry_run.benchmark, "scaling-laws": scaling_laws.benchmark}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="all, unless some are named")
parser.add_argument("--rounds", type=int, default=5)
arguments = parser.parse_args()
timings = []
for name in arguments.names or BENCHMARKS:
    with tempfile.TemporaryDirectory() as scratch:
        measured, lines = BENCHMARKS[name](Path(scratch), arguments.rounds)
    timings += measured
    print(f"{measured[0].benchmark}, {arguments.rounds} interleaved rounds", *lines, sep="\n", flush=True)
Path("results").mkdir(exist_ok=True)
pd.DataFrame([asdict(timing) for timing in timings]).to_parquet("results/benchmarks.parquet")
