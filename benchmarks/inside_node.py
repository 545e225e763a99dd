"""Scaling inside a node: 1, 2 and 4 workers of this machine, and 2 x 2 on two nodes of the test cluster.

Each curve is predicted beside what was measured, each point without its own cells. On a machine with fewer cores than
workers these slow each other down; what the model makes of that is what is asked here.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from paired import Figure, Timing
from slow_nodes import NotHere, cluster_up

from stallpoint.records.parquet import read
from stallpoint.records.tables import PREDICTIONS
from stallpoint.study.workers import placement_in_words

COMMON: dict[str, Any] = {
    "seed": 2018, "visits": 4, "iterations": 4, "warmup": 1,
    "storage": {"images": {"path": "results/images/decoded", "format": "raw", "generate": 256}},
    "collectives": {"largest": 67108864, "samples": 2},
    "storage_reads": {"samples": 40},
    "models": {"nodes": [1, 2]},
}  # fmt: skip
BLOCK = {"network": "alexnet", "batch": 4, "storage": "images", "scaling": "weak", "sync": ["naive", "wfbp"]}
STUDIES: dict[str, tuple[tuple[str, ...], dict[str, Any], list[dict[str, Any]]]] = {
    "inside-node-here": (
        (),
        {"device": "cpu", "nodes": 1, "workers_per_node": 4},
        [{"nodes": 1, "workers_per_node": [1, 2, 4]}],
    ),
    "inside-node-cluster": (
        ("--profile", "slurm"),
        {"device": "cpu", "nodes": 2, "workers_per_node": 2},
        [{"nodes": [1, 2], "workers_per_node": [1, 2]}],
    ),
}
"""Study -> what Snakemake is told, the machine, and the places that train."""


def benchmark(scratch: Path, _rounds: int) -> tuple[list[Timing | Figure], list[str]]:
    figures: list[Timing | Figure] = []
    lines = ["inside-node: AlexNet, b = 4, weak scaling; predicted (90 % interval) over measured"]
    for study in STUDIES:
        try:
            rows = _run(study, scratch / f"{study}.yaml")
        except (NotHere, subprocess.CalledProcessError) as error:
            lines.append(f"  {study}: not run, or not to the end: {error}")
            continue
        for row in rows.itertuples():
            ratios = [
                getattr(row, f"held_out_iteration{end}") / row.measured_iteration for end in ("", "_low", "_high")
            ]
            where = f"{row.sync}, {placement_in_words(row.ranks, row.workers_per_node)}"
            figures.append(Figure(study, where, "predicted / measured", *ratios))
            lines.append(
                f"  {study}: {where}: {ratios[0]:.2f} ({ratios[1]:.2f} to {ratios[2]:.2f}), "
                f"speedup {row.measured_speedup:.2f}"
            )
    return figures, lines


def _run(study: str, file: Path) -> pd.DataFrame:
    """Measured rows of the predictions of a study, which is measured unless that was done before."""
    told, machine, places = STUDIES[study]
    blocks = [{**BLOCK, "hardware": "cpu", **place} for place in places]
    file.write_text(yaml.safe_dump({**COMMON, "study": study, "hardware": {"cpu": machine}, "matrix": blocks}))
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    table = f"results/{study}/models/predictions.parquet"
    command = [snakemake, *told, "--configfile", str(file), "--quiet", "all", "--", table]
    with cluster_up("cluster.toml") if told else nullcontext():
        subprocess.run(command, check=True)
    rows = read(PREDICTIONS, Path(table)).to_pandas()
    return rows[rows["measured_iteration"].notna()]
