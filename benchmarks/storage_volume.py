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
PARTS = ("forward", "backward", "exposed_communication", "update", "straggling")
CURVE = ["storage", "sync", "prefetch", "nodes"]


def benchmark(_scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    """Run the study to its conclusions and exhibits; lines say how fast the storages are and how training waits."""
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    targets = [str(RESULTS / target) for target in TARGETS]
    command = [snakemake, "--profile", "slurm", "--configfile", CONFIG, "--", *targets]
    try:
        with cluster_up("storage.toml"):
            subprocess.run(command, env=os.environ | LIKE_HARDWARE, check=True)
    except (NotHere, subprocess.CalledProcessError) as error:
        return [], [f"storage-volume: not run, or not to the end: {error}"]
    return [], [*_reading(), *_training(), *_staging(), f"  Fig. 13: {RESULTS}/papers/keuper-2016/fig-13.svg"]


def _table(name: str) -> pd.DataFrame:
    return pd.read_parquet(RESULTS / f"models/{name}.parquet")


def _reading() -> Iterator[str]:
    yield "storage-volume: reading at random, cold, MB/s of all nodes together"
    rates = _table("storage_rates").query("order == 'random' and cache == 'cold'").set_index(["storage", "nodes"])
    for (storage, nodes), row in rates.sort_index().iterrows():
        ends = f"{1e-6 * row['bytes_per_second_low']:.1f}-{1e-6 * row['bytes_per_second_high']:.1f}"
        yield f"  {storage:<12}{nodes} nodes: {1e-6 * row['bytes_per_second']:8.1f} ({ends})"


def _training() -> Iterator[str]:
    yield "storage-volume: wait for data in an iteration and utilisation (1 - wait / iteration), predicted and measured"
    for _, row in _table("predictions").sort_values(CURVE).iterrows():
        # What is read ahead is waited for only as far as the rest of the iteration does not hide it.
        rest = sum(row[f"predicted_{part}"] for part in PARTS)
        waits = {"predicted": row["predicted_iteration"] - rest, "measured": row["measured_data"]}
        words = [
            f"{what} {1e3 * wait:7.1f} ms, {100 * (1 - wait / row[f'{what}_iteration']):5.1f} %"
            for what, wait in waits.items()
        ]
        curve = f"{row['storage']:<12}{row['sync']:<6}prefetch {row['prefetch']}"
        yield f"  {curve} {row['nodes']} nodes: {'; '.join(words)}"


def _staging() -> Iterator[str]:
    yield "storage-volume: staging, s on the slowest node, and epochs until it has paid"
    for _, row in _table("break_even").sort_values(CURVE).iterrows():
        epochs = f"{row['epochs']:.1f} epochs ({row['epochs_low']:.1f}-{row['epochs_high']:.1f})"
        told = epochs if row["verdict"] == "pays" else row["verdict"]
        yield f"  {row['storage']:<12}{row['nodes']} nodes: {row['staging']:.2f} s; {told}"
