"""Published tables of rates, each read as its publisher laid it out, as tables for `stallpoint.inputs.rates`.

The tables are not part of the repository; docs/models/scaling-laws.md says where they come from. A folder of tables
has for each publisher a folder of the name in `READERS`, or CSV files that `stallpoint.inputs.rates` reads as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS = ["series", "workers", "workers_per_node", "batch_per_worker", "samples_per_second", "compute_seconds"]
KEPT = 0.6
"""Part of a worker's rate that each doubling keeps at least; the H100 rows after a greater loss are of another kind."""


def tables(folders: list[Path]) -> dict[str, pd.DataFrame]:
    """Tables by name; a publisher's table may be there twice, with and without what else is known of it."""
    found: dict[str, pd.DataFrame] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.csv")):
            found[file.stem] = pd.read_csv(file)
        for name, reader in READERS.items():
            if (folder / name).is_dir():
                found |= dict(reader(folder / name))
    return {name: rates.reindex(columns=COLUMNS) for name, rates in found.items()}


def _ultrascale(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Llama on H100, one to 64 nodes of eight: the global batch is the same in every row, so that b falls."""
    rows = pd.read_csv(folder / "throughput.csv")
    rates = pd.DataFrame({
        "series": _joined(rows, ["model", "mbs", "pp", "tp", "zero"]), "workers": 8 * rows["nodes"],
        "workers_per_node": 8, "batch_per_worker": rows["gbs"] / (8 * rows["nodes"]),
        "samples_per_second": rows["tokens_per_s"],
    })  # fmt: skip
    rates = pd.concat([part[part["workers"] <= _clean_up_to(part)] for _, part in rates.groupby("series")])
    yield "ultrascale-h100", rates.drop(columns="batch_per_worker")
    yield "ultrascale-h100, b known", rates


def _clean_up_to(rows: pd.DataFrame) -> int:
    """Workers before the first doubling that more than doubles, or loses more of a worker's rate than `KEPT` leaves."""
    medians = rows.groupby("workers")["samples_per_second"].median()
    doublings = np.diff(np.log2(medians.index.to_numpy(float)))
    kept = np.diff(np.log2((medians / medians.index).to_numpy())) / doublings
    jumps = (kept < np.log2(KEPT)) | (kept > 0)
    return int(medians.index[int(jumps.argmax()) if jumps.any() else -1])


def _lambda(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """tf_cnn_benchmarks on servers of up to eight GPUs."""
    rows = pd.read_csv(folder / "throughput_summary.csv")
    settings = ["machine_log_dir", "data", "variable_update", "precision", "mode", "model", "batch_per_gpu"]
    rates = pd.DataFrame({
        "series": _joined(rows, settings), "workers": rows["gpus"], "workers_per_node": 8,
        "batch_per_worker": rows["batch_per_gpu"], "samples_per_second": rows["total_images_per_s"],
    })  # fmt: skip
    host = rows["mode"].str.startswith("distortions")
    yield "lambda", rates[~host]
    yield "lambda, distorted on the host", rates[host]


def _tensorflow(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """tf_cnn_benchmarks of 2017 on P100 and K80."""
    wide = pd.read_csv(folder / "throughput.csv")
    settings = ["platform", "gpu", "data", "batch_per_gpu"]
    rows = wide.melt([*settings, "gpus"], var_name="model", value_name="rate").dropna(subset=["rate"])
    yield "tensorflow-2017", pd.DataFrame({
        "series": _joined(rows, [*settings, "model"]), "workers": rows["gpus"], "workers_per_node": 8,
        "batch_per_worker": rows["batch_per_gpu"].str.extract(r"(\d+)", expand=False).astype(float),
        "samples_per_second": rows["rate"],
    })  # fmt: skip


def _pollux(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Nodes of four T4, six to 64 workers, with the part of an iteration that synchronisation adds."""
    files = {name: pd.read_csv(folder / f"{name}-scalability.csv") for name in ("cifar10", "imagenet")}
    rows = pd.concat([part.assign(name=name) for name, part in files.items()], ignore_index=True)
    rates = pd.DataFrame({
        "series": _joined(rows, ["name", "local_bsz"]), "workers": rows["num_replicas"],
        "workers_per_node": rows["num_replicas"] / rows["num_nodes"], "batch_per_worker": rows["local_bsz"],
        "samples_per_second": rows["num_replicas"] * rows["local_bsz"] / rows["step_time"],
        "compute_seconds": rows["step_time"] - rows["sync_time"],
    })  # fmt: skip
    yield "pollux", rates.drop(columns="compute_seconds")
    yield "pollux, computing known", rates


READERS = {
    "lambda-tf-benchmark": _lambda,
    "pollux-traces": _pollux,
    "tf-benchmarks-2017": _tensorflow,
    "ultrascale-h100": _ultrascale,
}


def _joined(rows: pd.DataFrame, columns: list[str]) -> pd.Series[str]:
    return rows[columns].astype(str).agg(" ".join, axis=1)
