"""Scaling laws: fitted up to a quarter of the largest count, how far off are they at the largest?

Tables of rates (`public_tables`) are read from the folders that SCALING_TABLES names, else from resources/published
(what the papers print: one series). Peers: the last rate per worker carried forward; the best of six bases, T(n) = a +
b·f(n) by least squares, chosen by the error of the fit itself; and least squares of A/n + B + C·n, the seconds of one
sample, none below 0. No law, prior or weight is fitted to a table. As a program: ``scaling_laws.py FOLDER...``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import public_tables
from scipy.optimize import nnls

ROOT = Path(__file__).parents[1]
UP_TO = 0.25
BASES = {
    "constant": np.zeros_like,
    "log n": np.log2,
    "square root of n": np.sqrt,
    "n": np.asarray,
    "n log n": lambda n: n * np.log2(n),
    "(n-1)/n": lambda n: (n - 1) / n,
}
TARGET = "wanted: median <= 5 %, 90th percentile <= 15 %, 85-95 % covered; H100: 8 %, 30 %, given for 75 %"


def fitted(rates: pd.Series) -> pd.Series:
    """The part of a series, median rates by workers, that is fitted."""
    within = int((rates.index <= UP_TO * rates.index[-1]).sum())
    return rates.iloc[: max(within, 3)]


def carried(known: pd.Series, workers: int) -> float:
    return float(known.iloc[-1] / known.index[-1] * workers)


def best_in_sample(known: pd.Series, workers: int) -> float:
    n, seconds = known.index.to_numpy(float), (known.index / known).to_numpy()
    best = np.inf, np.nan
    for base in BASES.values():
        design = np.stack([np.ones_like(n), base(n)], axis=-1) / seconds[:, None]
        coefficients = np.linalg.lstsq(design, np.ones_like(n))[0]
        off = float(((design @ coefficients - 1) ** 2).sum())
        if off < best[0]:
            best = off, workers / float(coefficients @ [1.0, base(np.array([float(workers)]))[0]])
    return best[1]


def three_terms(known: pd.Series, workers: int) -> float:
    n = known.index.to_numpy(float)
    coefficients = nnls(np.stack([1 / n, np.ones_like(n), n], axis=-1) * known.to_numpy()[:, None], np.ones_like(n))[0]
    return 1 / float(coefficients @ [1 / workers, 1, workers])


PEERS = {"carried forward": carried, "best of six in sample": best_in_sample, "A/n + B + C·n": three_terms}


def compared(measured: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """One row for each series that has a count to predict: measured and predicted rates at the largest."""
    measured = measured.dropna(subset=["samples_per_second"])
    ours = predicted.set_index(["series", "workers"])
    rows = []
    for series, part in measured.groupby(measured["series"].astype(str)):
        rates = part.groupby("workers")["samples_per_second"].median()
        known, largest = fitted(rates), rates.index[-1]
        if len(known) == len(rates):
            continue
        here = ours.loc[(series, largest)]
        rows.append({
            "series": series, "measured": rates.iloc[-1], "scaling laws": here["predicted"], "lower": here["lower"],
            "upper": here["upper"], "law": here["law"], **{name: peer(known, largest) for name, peer in PEERS.items()},
        })  # fmt: skip
    return pd.DataFrame(rows)


def report(name: str, rows: pd.DataFrame) -> list[str]:
    """Median error, 90th percentile and coverage of `rows` where there is an answer, with the peers' beside."""
    given = rows.dropna(subset=["scaling laws"])
    inside = given["measured"].between(given["lower"], given["upper"]).mean()
    below = (given["measured"] < given["lower"]).mean()
    width = np.log(given["upper"] / given["lower"]).median()
    lines = [
        f"  {name}: {len(given)} of {len(rows)} series given, {inside:.0%} in the 90 % interval"
        f" ({below:.0%} below), whose ends are {np.expm1(width):.0%} apart"
    ]
    for peer in ("scaling laws", *PEERS):
        error = (given[peer] / given["measured"] - 1).abs()
        lines.append(f"    {peer:<24}{error.median():>8.1%}{error.quantile(0.9):>10.1%}")
    return lines


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print; every table is fitted once, as the result does not vary."""
    from paired import rounds

    folders = os.environ.get("SCALING_TABLES", str(ROOT / "resources/published")).split(os.pathsep)
    tables = public_tables.tables([Path(folder) for folder in folders])
    program = [sys.executable, str(ROOT / "scripts/extrapolate.py")]
    commands = {}
    for name, rates in tables.items():
        rates.to_csv(scratch / f"{name}.csv", index=False)
        out = str(scratch / f"{name}.parquet")
        commands[name] = [*program, str(scratch / f"{name}.csv"), "--fit-up-to", str(UP_TO), "--out", out]
    timings = rounds("scaling laws, extrapolated to the largest count", commands, 1)
    every = {name: compared(rates, pd.read_parquet(scratch / f"{name}.parquet")) for name, rates in tables.items()}
    every = {name: rows for name, rows in every.items() if len(rows)}
    lines = ["  median and 90th percentile of |error|"]
    for name, rows in every.items():
        lines += report(name, rows)
    lines += report("all", pd.concat(every.values())) if len(every) > 1 else []
    for folder in folders:
        if (of_layouts := Path(folder, "ultrascale-h100")).is_dir():
            lines += public_tables.layout_errors(of_layouts)
    return timings, [*lines, f"  {sum(timing.seconds for timing in timings):.1f} s in all; {TARGET}"]


if __name__ == "__main__":
    if sys.argv[1:]:
        os.environ["SCALING_TABLES"] = os.pathsep.join(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        print(*benchmark(Path(folder), 1)[1], sep="\n")
