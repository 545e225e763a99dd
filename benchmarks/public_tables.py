"""Published tables of rates, each read as its publisher laid it out, as tables for `stallpoint_files.rates.rates`.

As a program (``public_tables.py FOLDER...``) it predicts layouts of the H100 table that a fit has not seen.

The tables are not part of the repository; docs/models/scaling-laws.md says where they come from. A folder of tables
has for each publisher a folder of the name in `READERS`, or CSV files that `stallpoint_files.rates.rates`
reads as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from stallpoint.inputs.documents import Document
from stallpoint_files.rates import layout_tables
from stallpoint_files.rates import layouts as model

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


LAYOUT_TARGET = "wanted: throughput and memory <= 10 % (median); choices right >= 70 %; 85 to 95 % in the interval"


def layout_errors(folder: Path) -> Iterator[str]:
    """Yield lines on layouts whose parallel degrees a fit has not seen, and on choices at counts that it has not."""
    (table,) = layout_tables.read(Document.read(folder / "throughput.csv"))
    answered: list[bool] = []
    for name, rows in layout_tables.series(table):
        every = model.Layouts.of(rows)
        rates, gigabytes = np.array([row.rate for row in rows], float), np.array([row.memory for row in rows], float)
        seconds = every.batch / rates
        off, memory = np.zeros(len(rows)), np.zeros(len(rows))
        for out in model.held_out(every):
            known, unseen = every.at(~out), every.at(out)
            off[out] = model.LayoutModel.fit(known, seconds[~out]).seconds(unseen) / seconds[out] - 1
            memory[out] = unseen.memory_terms @ model.fit_memory(known, gigabytes[~out]) / gigabytes[out] - 1
        best = np.array([rates[every.workers == count].max() for count in every.workers])
        good = rates >= model.USABLE * best
        throughput, all_of_it, gb = (np.median(np.abs(of)) for of in (off[good], off, memory))
        yield (
            f"  {name}, unseen degrees: throughput of {good.sum()} layouts with half of the best rate or more "
            f"{throughput:.1%}, of all {len(off)} {all_of_it:.1%}; memory {gb:.1%}"
        )
        right, inside, wide = zip(*_choices(every, seconds), strict=True)
        answered += [one for of in right for one in of]
        told = [bool(one) for of in right for one in of if one is not None]
        yield (
            f"    choices of {model.SHORTLIST} at up to {model.FURTHEST} times the largest count: {len(told)} of "
            f"{sum(map(len, right))} given, {np.mean(told):.0%} right; {np.mean(np.concatenate(inside)):.0%} of rates "
            f"in the 90 % interval, whose ends are a factor of {np.nanmedian(wide):.1f} apart where half of the best "
            "rate or more is predicted"
        )
    told = [one for one in answered if one is not None]
    yield f"  all choices: {len(told)} of {len(answered)} given, {np.mean(told):.0%} right; {LAYOUT_TARGET}"


def _choices(every: model.Layouts, seconds: np.ndarray) -> Iterator[tuple[list[bool | None], np.ndarray, float]]:
    """Yield for each pair of counts which choices are right (None: refused), which rates are in their interval, and
    how far the ends of that of usable layouts are apart."""
    for largest, count in combinations(np.unique(every.workers), 2):
        known, asked = every.workers <= largest, np.flatnonzero(every.workers == count)
        if count > model.FURTHEST * largest or known.sum() < 3 * model.FEWEST_LAYOUTS:
            continue
        fitted = model.LayoutModel.fit(every.at(known), seconds[known])
        rehearsal = model.rehearse(every.at(known), seconds[known], count / largest)
        asked = asked[fitted.identifiable(every.at(asked))]
        right: list[bool | None] = []
        for shortlist in model.shortlists(len(asked)):
            own = asked[shortlist]
            rates, choice = every.batch[own] / seconds[own], model.choose(fitted, every.at(own))
            near = bool(rates[choice.best] >= (1 - model.NEAR) * rates.max())
            right.append(near if rehearsal.allows(choice) else None)
        inside, wide = np.empty(0, np.bool_), np.nan
        if len(rehearsal.errors) and len(asked):
            took = fitted.seconds(every.at(asked))
            predicted = every.batch[asked] / took
            usable = predicted >= model.USABLE * predicted.max()
            ends = np.array([rehearsal.factors(usable=bool(one)) for one in usable]).T
            inside = (took / seconds[asked] >= ends[0]) & (took / seconds[asked] <= ends[1])
            wide = float((ends[1] / ends[0])[usable][0])
        yield right, inside, wide


def _joined(rows: pd.DataFrame, columns: list[str]) -> pd.Series[str]:
    return rows[columns].astype(str).agg(" ".join, axis=1)


if __name__ == "__main__":
    for named in sys.argv[1:]:
        print(*layout_errors(Path(named)), sep="\n")
