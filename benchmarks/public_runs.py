"""Write docs/public-runs.md and its picture: what public runs to a target say of each benchmark.

usage: public_runs.py RUNS.csv [DATA.parquet] (a table as of `time_to_target`; what is drawn, as Parquet)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import altair as alt
import numpy as np
import pandas as pd
from time_to_target import SERIES, samples

from stallpoint.base.section_texts import markdown_table
from stallpoint.report.charts.render import FORMATS, to_spec, write
from stallpoint.text import number
from stallpoint_files.targets.target_answers import WORTH

PAGE = Path("docs/public-runs.md")
PICTURE = Path("docs/images/public-runs.svg")
HEAD = (
    "benchmark", "series", "counts", "mini-batch grows", "efficiency at the largest", "worth it up to", "samples lose",
    "seconds lose",
)  # fmt: skip


def series(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each count of each series of three counts or more, with what it loses since the first."""
    medians = runs.assign(samples=samples(runs))[runs["devices"] > 0].groupby([*SERIES, "devices"])
    rows = medians[["global_batch", "samples", "minutes"]].median().reset_index()
    rows = rows[rows.groupby(SERIES)["devices"].transform("size") > 2].sort_values([*SERIES, "devices"])
    first = rows.groupby(SERIES)[["devices", "global_batch", "samples", "minutes"]].transform("first")
    ratio = rows[first.columns] / first
    return rows.assign(
        doublings=np.log2(ratio["devices"]), batch=ratio["global_batch"], more=ratio["samples"],
        efficiency=1 / (ratio["minutes"] * ratio["devices"]),
        slower=ratio["minutes"] * ratio["devices"] / ratio["samples"],
    )  # fmt: skip


def worth(rows: pd.DataFrame) -> int:
    """The count up to which each doubling gains half of what it could."""
    counts, minutes = rows["devices"].to_numpy(float), rows["minutes"].to_numpy()
    gains = (minutes[:-1] / minutes[1:]) ** (1 / np.diff(np.log2(counts)))
    stops = np.flatnonzero(gains < WORTH)
    return int(counts[stops[0] if len(stops) else -1])


def table(rows: pd.DataFrame) -> Iterator[Sequence[str]]:
    """Medians over the series of each benchmark, at their largest count, for each doubling."""
    for name, of_it in rows.groupby("benchmark"):
        each = [one for _, one in of_it.groupby(SERIES)]
        last = pd.DataFrame([one.iloc[-1] for one in each])
        lost = [(last[column] ** (1 / last["doublings"]) - 1).astype(float).median() for column in ("more", "slower")]
        limits = [worth(one) for one in each]
        batch, kept = (last[column].astype(float).median() for column in ("batch", "efficiency"))
        yield (
            str(name), str(len(each)), f"{of_it['devices'].min():,.0f}-{of_it['devices'].max():,.0f}",
            "–" if np.isnan(batch) else f"{number(batch, 2)} times", f"{100 * kept:.0f} %",
            f"{min(limits):,}-{max(limits):,}" if len(set(limits)) > 1 else f"{limits[0]:,}",
            *("–" if np.isnan(one) else f"{100 * one:.0f} %" for one in lost),
        )  # fmt: skip


def halves(rows: pd.DataFrame) -> str:
    """How often samples lose more than seconds, of series whose mini-batch grows."""
    last = rows.groupby(SERIES).tail(1).dropna(subset=["more"])
    grown = last[last["batch"] > 1]
    by_samples = int((grown["more"] > grown["slower"]).sum())
    return f"Of {len(grown)} series whose mini-batch grows, {by_samples} lose more by samples, the others by seconds."


def chart(rows: pd.DataFrame) -> alt.TopLevelMixin:
    lines = rows.assign(name=rows[SERIES].agg(" ".join, axis=1), percent=100 * rows["efficiency"])
    base = alt.Chart(lines).encode(
        x=alt.X(
            "devices:Q",
            title="accelerators",
            scale=alt.Scale(type="log", base=2, nice=False),
            axis=alt.Axis(values=[1, 8, 64, 512, 4096], format="d", grid=False),
        ),
        y=alt.Y("percent:Q", title="efficiency of the time to the target, %", scale=alt.Scale(domain=[0, 130])),
        detail="name:N",
        color=alt.Color("round:N", title="round"),
    )
    return (base.mark_line(opacity=0.5, clip=True) + base.mark_point(size=14, clip=True)).properties(
        width=640, height=320
    )


def lines(runs: pd.DataFrame, rows: pd.DataFrame) -> Iterator[str]:
    rounds = ", ".join(sorted(runs["round"].unique()))
    yield f"""# What {len(runs):,} public runs say

Runs of MLPerf Training {rounds} (closed division, as published by MLCommons), each to the accuracy of its
benchmark. A series is what one submitter ran of a benchmark on one chip in one round; {rows.groupby(SERIES).ngroups}
have three counts or more. `benchmarks/public_runs.py RUNS.csv` makes this page; `stallpoint explain` gives the same
answer of a table or of result logs ([own numbers](own-numbers.md)).
"""
    yield markdown_table(HEAD, list(table(rows)))
    yield f"""
Medians over the series of a benchmark. Efficiency: accelerators × minutes of the smallest count over those of the
largest. A count is worth it while each doubling gains half of what it could (smallest and largest of the series). What
samples and seconds lose: more samples to the target, and longer seconds of a sample and accelerator, for each doubling.

{halves(rows)}

![Efficiency of the time to the target by accelerators, a line for each series](images/{PICTURE.name})

## Beside the papers

Keuper & Pfreundt (2016) split a fixed mini-batch, and speedups stall as a worker's share gets small (b ≤ 32, Figs. 4 to
8). Shi et al. (2018) keep the share, and lose by communication. Public runs do some of both: the mini-batch grows, but
by less than the accelerators, and more samples are the price of a larger one. [How both halves are
predicted](models/scaling-laws.md#time-to-a-target)."""


if __name__ == "__main__":
    every = pd.read_csv(sys.argv[1])
    found = series(every)
    if len(sys.argv) > 2:
        found.to_parquet(sys.argv[2])
    PAGE.write_text("\n".join(lines(every, found)).rstrip() + "\n")
    with TemporaryDirectory() as folder:
        files = {name: Path(folder, f"chart.{name}") for name in FORMATS}
        write(to_spec(chart(found)), "Efficiency of the time to the target", files)
        copyfile(files["svg"], PICTURE)
