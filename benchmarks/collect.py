"""Collecting raw records: 10 M rows in 2,000 files, ours against Polars, DuckDB, pyarrow and pandas.

Run as a program it is one candidate: ``collect.py CANDIDATE RAW_FOLDER OUTPUT``.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

FILES, ROWS = 2_000, 5_000


def write_records(folder: Path, files: int) -> None:
    """`files` cells with `ROWS` layer rows each, values at random."""
    import numpy as np

    from stallpoint.records.parquet import write_cell
    from stallpoint.records.tables import FLAG, INT, LAYERS, TEXT

    generator = np.random.default_rng(0)
    names = np.array(["conv1", "relu1", "pool1", "fc6"] * (ROWS // 4))
    for number in range(files):
        rows = {}
        for column in LAYERS.columns:
            if column.type == TEXT:
                rows[column.name] = names
            elif column.type == INT:
                rows[column.name] = generator.integers(0, 100, ROWS)
            elif column.type == FLAG:
                rows[column.name] = generator.random(ROWS) < 0.1
            else:
                rows[column.name] = generator.random(ROWS)
        write_cell(folder / f"cell~{number:04}", {LAYERS.name: rows})


def stallpoint(folder: Path, output: Path) -> None:
    from stallpoint.records.tables import LAYERS
    from stallpoint.study.collect import collect

    collect(LAYERS, sorted(folder.iterdir()), output)


def polars(folder: Path, output: Path) -> None:
    import polars as pl

    pl.scan_parquet(f"{folder}/*/layers.parquet").sink_parquet(output)


def duckdb(folder: Path, output: Path) -> None:
    import duckdb as db

    db.execute(f"COPY (FROM '{folder}/*/layers.parquet') TO '{output}' (FORMAT parquet, COMPRESSION zstd)")


def pyarrow(folder: Path, output: Path) -> None:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    dataset = ds.dataset(sorted(folder.glob("*/layers.parquet")), format="parquet")
    with pq.ParquetWriter(output, dataset.schema, compression="zstd") as writer:
        for batch in dataset.to_batches():
            writer.write_batch(batch)


def pandas(folder: Path, output: Path) -> None:
    import pandas as pd

    frames = [pd.read_parquet(file) for file in sorted(folder.glob("*/layers.parquet"))]
    pd.concat(frames).to_parquet(output, compression="zstd")


CANDIDATES = (stallpoint, polars, duckdb, pyarrow, pandas)


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print."""
    from paired import of, report, rounds

    write_records(scratch / "raw", FILES)
    commands = {
        candidate.__name__: [sys.executable, __file__, candidate.__name__, str(scratch / "raw"), str(scratch / "out")]
        for candidate in CANDIDATES
    }
    timings = rounds("collect 10 M rows in 2,000 files", commands, count)
    peers = [name for name in commands if name != "stallpoint"]
    best = min(peers, key=lambda name: statistics.median(timing.seconds for timing in of(timings, name)))
    figures, lines = report(timings, "stallpoint", best, "<= 1.5")

    write_records(scratch / "half", FILES // 2)
    halved = {"half the rows": [*commands["stallpoint"][:3], str(scratch / "half"), str(scratch / "out")]}
    smaller = rounds("collect 5 M rows in 1,000 files", halved, 3)
    whole, half = (max(timing.peak_bytes for timing in part) for part in (of(timings, "stallpoint"), smaller))
    lines.append(
        f"  memory: {half / 1e6:.0f} MB at half the rows, {whole / 1e6:.0f} MB at all, ratio {whole / half:.2f}"
    )
    return [*timings, *smaller, *figures], lines


if __name__ == "__main__":
    name, raw, out = sys.argv[1:]
    next(candidate for candidate in CANDIDATES if candidate.__name__ == name)(Path(raw), Path(out))
