"""Fitting long records: seconds, CPU seconds and memory of `fit` against the rows of layers, at equal cells.

A made-up study of 60 layers on 1 to 32 ranks, whose iterations are written as often as is asked for; and the same with
one of its cells on 1,024 ranks. Run as a program it fits what lies in a folder, ``scale.py FOLDER``, or first writes it
there with so many times the iterations: ``scale.py FOLDER 2000`` has a billion rows of layers.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd

LONGER = (1, 10, 40)
"""Times as many iterations as the made-up study has."""
MORE_RANKS = 32
"""One cell gets so many times its 32 ranks."""
ROW_GROUP = 1_000_000
"""Rows written at once."""
CPU = "cpu"
"""File for the CPU time of a fit, s: other work on the machine changes it less than the time."""
ROUNDS = 1
"""Of each: memory hardly differs between rounds, and the longest takes minutes."""


def study() -> dict:
    """Tidy tables by name."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("unit", "support")]
    import synthetic

    *layers, loss = synthetic.NETWORK
    names = [replace(layer, name=f"{layer.name}_{copy}") for copy in range(10) for layer in layers]
    truth = synthetic.Truth(layers=(*names[:59], loss))
    nodes = (1, 2, 4, 8)
    tidy = synthetic.study(truth, nodes=nodes, workers_per_node=4, storages=("local",), repeats=1, visits=4)
    return tidy | {"runs": tidy["runs"].drop_duplicates("cell", ignore_index=True)}


def write(tidy: dict, folder: Path, times: int) -> int:
    """Write the tables with each cell's iterations `times` times, as `collect` would; returns rows of layers."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from stallpoint.models.terms.training_cells import COLUMNS
    from stallpoint.records import parquet
    from stallpoint.records.seal import seal
    from stallpoint.records.tables import TABLES

    folder.mkdir()
    for name, every in tidy.items():
        table, path = TABLES[name], folder / f"{name}.parquet"
        if table not in COLUMNS:
            parquet.write(table, pa.Table.from_pandas(every, table.schema, preserve_index=False), path)
            continue
        with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
            for cell in tidy["runs"]["cell"]:
                mine = every[every["cell"] == cell]
                if mine.empty:
                    continue
                rows = pa.Table.from_pandas(mine, table.schema, preserve_index=False)
                place, field = table.names.index("iteration"), table.schema.field("iteration")
                count, at_once = 1 + mine["iteration"].max(), 1 + ROW_GROUP // len(mine)
                for first in range(0, times, at_once):
                    again = [
                        rows.set_column(place, field, pc.add(rows["iteration"], count * copy))
                        for copy in range(first, min(first + at_once, times))
                    ]
                    writer.write_table(pa.concat_tables(again))
        seal(path)
    return times * len(tidy["layers"])


def on_many_ranks(tidy: dict, times: int) -> dict:
    """The tables with the weak-scaling cell on most ranks on `times` as many."""
    weak = tidy["iterations"].query("scaling == 'weak'")
    cell = weak.loc[weak["ranks"].idxmax(), "cell"]
    name = cell.replace("nodes~8", f"nodes~{8 * times}")

    def of_cell(rows: pd.DataFrame) -> pd.DataFrame:
        wider = {column: rows[column] * times for column in ("ranks", "nodes", "global_batch") if column in rows}
        copies = range(times) if "rank" in rows else [0]
        rows = pd.concat([rows.assign(rank=rows["rank"] + 32 * copy) if copy else rows for copy in copies])
        if "settings" in rows:
            wider["settings"] = rows["settings"].str.replace('"nodes":8,', f'"nodes":{8 * times},')
        return rows.assign(cell=name, **wider)

    tables = {}
    for table, rows in tidy.items():
        mine = rows["cell"] == cell
        tables[table] = pd.concat([rows[~mine], of_cell(rows[mine])], ignore_index=True) if mine.any() else rows
    return tables


def fit(folder: Path) -> dict:
    """Model tables of the tidy ones in a folder, read as the rule fit reads them."""
    from stallpoint.models import fitting
    from stallpoint.models.terms.training_cells import COLUMNS, PART_KEYS
    from stallpoint.records.parquet import frames_of_cells, read_frames
    from stallpoint.records.tables import TIDY_TABLES

    files = {table.name: folder / f"{table.name}.parquet" for table in TIDY_TABLES}
    tidy = read_frames([table for table in TIDY_TABLES if table not in COLUMNS], files)
    fitted = fitting.fit(tidy, frames_of_cells(COLUMNS, files, tidy["runs"]["cell"], PART_KEYS), nodes=[1, 2, 4, 8, 16])
    return dict(fitted)  # each is computed when it is first read


def prepare(scratch: Path) -> dict[str, str]:
    """Write all tables; returns their folders by the names that are printed."""
    tidy = study()
    counts = {f"{write(tidy, scratch / str(times), times):,} rows": str(scratch / str(times)) for times in LONGER}
    rows = write(on_many_ranks(tidy, MORE_RANKS), scratch / "ranks", LONGER[1])
    return counts | {f"{rows:,} rows, {32 * MORE_RANKS:,} ranks": str(scratch / "ranks")}


def benchmark(scratch: Path, count: int) -> tuple[list, list[str]]:
    """Timings and lines to print."""
    from paired import of, rounds

    # In another process: a program's largest memory counts from that of the one that started it.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as other:
        counts = other.submit(prepare, scratch).result()
    commands = {name: [sys.executable, __file__, folder] for name, folder in counts.items()}
    timings = rounds("fit of long records", commands, min(count, ROUNDS))
    lines = []
    for name in counts:
        seconds = statistics.median(timing.seconds for timing in of(timings, name))
        peak = max(timing.peak_bytes for timing in of(timings, name))
        cpu = float(Path(counts[name], CPU).read_text())
        lines.append(f"  {name:<32}{seconds:8.1f} s {cpu:8.1f} s of CPU {peak / 1e6:8.0f} MB")
    return timings, lines


if __name__ == "__main__":
    for times in sys.argv[2:]:
        print(f"{write(study(), Path(sys.argv[1]), int(times)):,} rows")
    fit(Path(sys.argv[1]))
    Path(sys.argv[1], CPU).write_text(str(time.process_time()))
