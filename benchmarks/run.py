"""The project's benchmarks: ``make bench`` or ``python benchmarks/run.py [NAME ...] [--rounds N]``.

Prints medians, spreads and paired ratios, and keeps every timing (`paired.Timing`) and result (`paired.Figure`) in
results/benchmarks.parquet.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import cluster_study
import collect
import compare
import cost_models
import decoders
import dry_run
import durations
import inside_node
import layer_timing
import listing
import many_cells
import memory
import message_bursts
import own_scripts
import own_traces
import pandas as pd
import pipeline
import predictions
import presets
import probe
import reading
import repeatability
import report_page
import scale
import scaling_laws
import sensitivity
import small_studies
import storage_volume
import time_to_accuracy
import traces
import truth
import worlds

BENCHMARKS = {
    "truth": truth.benchmark,
    "worlds": worlds.benchmark,
    "time-to-accuracy": time_to_accuracy.benchmark,
    "repeatability": repeatability.benchmark,
    "collect": collect.benchmark,
    "scale": scale.benchmark,
    "many-cells": many_cells.benchmark,
    "dry-run": dry_run.benchmark,
    "layer-timing": layer_timing.benchmark,
    "memory": memory.benchmark,
    "presets": presets.benchmark,
    "probe": probe.benchmark,
    "own-scripts": own_scripts.benchmark,
    "predictions": predictions.benchmark,
    "cost-models": cost_models.benchmark,
    "scaling-laws": scaling_laws.benchmark,
    "message-bursts": message_bursts.benchmark,
    "sensitivity": sensitivity.benchmark,
    "cluster-accuracy": cluster_study.cluster_accuracy,
    "cluster-report": cluster_study.cluster_report,
    "today": cluster_study.today,
    "inside-node": inside_node.benchmark,
    "small-studies": small_studies.benchmark,
    "storage-volume": storage_volume.benchmark,
    "compare": compare.benchmark,
    "report": report_page.benchmark,
    "traces": traces.benchmark,
    "own-traces": own_traces.benchmark,
    "durations": durations.benchmark,
    "listing": listing.benchmark,
    "decoders": decoders.benchmark,
    "pipeline": pipeline.benchmark,
    "reading": reading.benchmark,
}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="all, unless some are named")
parser.add_argument("--rounds", type=int, default=5)
arguments = parser.parse_args()
rows = []
for name in arguments.names or BENCHMARKS:
    with tempfile.TemporaryDirectory() as scratch:
        measured, lines = BENCHMARKS[name](Path(scratch), arguments.rounds)
    rows += measured
    print(*lines, sep="\n", flush=True)
Path("results").mkdir(exist_ok=True)
pd.DataFrame([asdict(row) for row in rows]).to_parquet("results/benchmarks.parquet")
