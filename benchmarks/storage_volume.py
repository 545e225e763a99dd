"""Training data local, staged and on a real parallel file system, whose traffic shares the links of the gradients.

On the test cluster with a storage node: reading by 1, 2 and 4 nodes, training, and Fig. 13 of Keuper & Pfreundt (2016).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from paired import Figure, Timing
from slow_nodes import LIKE_HARDWARE, NotHere, cluster_up

CONFIG = "benchmarks/storage_volume.yaml"
RESULTS = Path("results/storage-volume")
TARGETS = ("conclusions.md", "papers/keuper-2016")
CURVE = ["storage", "sync", "prefetch", "nodes"]


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    """Run the study to its conclusions and exhibits; lines say how fast the storages are and how training waits."""
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    targets = [str(RESULTS / target) for target in TARGETS]
    # The cluster's volume is a new one each time; what was measured stays.
    command = [snakemake, "--profile", "slurm", "--configfile", CONFIG, "-R", "prepare_storage", "--", *targets]
    try:
        with cluster_up("storage.toml"):
            subprocess.run(command, env=os.environ | LIKE_HARDWARE, check=True)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"storage-volume: not run, or not to the end: {error}"]
    return [], [*_reading(), *_training(), *_staging(), f"  Fig. 13: {RESULTS}/papers/keuper-2016/fig-13.svg"]


def _table(name: str) -> pd.DataFrame:
    return pd.read_parquet(RESULTS / f"models/{name}.parquet")


def _reading() -> Iterator[str]:
    yield "storage-volume: reading shuffled, cold, MB/s of all nodes together, and where the bytes came from"
    rates = _table("storage_rates").query("order == 'shuffled' and cache == 'cold'").sort_values(["storage", "nodes"])
    for _, row in rates.iterrows():
        ends = f"{1e-6 * row['bytes_per_second_low']:.1f}-{1e-6 * row['bytes_per_second_high']:.1f}"
        rate = f"{1e-6 * row['bytes_per_second']:8.1f} ({ends})"
        yield f"  {row['storage']:<12}{row['nodes']} nodes: {rate}, {row['origin']}"
    for _, row in _table("saturation").iterrows():
        yield f"  {row['storage']:<12}{row['verdict']} ({row['verdict_ranks']} workers)"


def _training() -> Iterator[str]:
    yield "storage-volume: accelerator utilisation (1 - wait / iteration), measured and predicted without its own cells"
    fed = _table("feeding").query("basis == 'measured'").sort_values(CURVE)
    for _, row in fed.iterrows():
        told = [
            f"{what} {100 * row[name]:5.1f} % ({100 * row[f'{name}_low']:.1f}-{100 * row[f'{name}_high']:.1f})"
            for what, name in (("measured", "utilisation"), ("predicted", "predicted_utilisation"))
        ]
        curve = f"{row['network']:<10}{row['storage']:<12}{row['sync']:<6}prefetch {row['prefetch']}"
        needed = f"readers needed {row['readers_needed']:.2f} of {row['readers']}"
        yield f"  {curve} {row['nodes']} nodes: {'; '.join([*told, needed])}"
    several = fed[fed["ranks"] > 1]
    points = 100 * (several["predicted_utilisation"] - several["utilisation"]).abs()
    within = points.median()
    yield f"  several nodes: {within:.1f} points apart in the median (wanted: 2), {points.max():.1f} at most"


def _staging() -> Iterator[str]:
    yield "storage-volume: what staging and packing take, and epochs until they have paid"
    for _, row in _table("break_even").sort_values(CURVE).iterrows():
        epochs = f"{row['epochs']:.1f} epochs ({row['epochs_low']:.1f}-{row['epochs_high']:.1f})"
        told = epochs if row["verdict"] == "pays" else row["verdict"]
        yield f"  {row['storage']:<12}{row['nodes']} nodes: {row['remedy']} {row['seconds']:.2f} s; {told}"
