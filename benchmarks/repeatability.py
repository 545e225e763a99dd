"""Does the answer repeat? Two default studies one after the other, and again while one core is kept busy now and then.

Printed: how often the 90 % interval of one study holds the other's iteration time and speedup, whether answers
contradict each other, how long a study takes, which share of the visits' time is measuring, how wide speedups are; and
with busy spans planted, which share of the iterations that they disturb is marked, and which share of the others. A
busy span disturbs where the ranks leave it no core of its own; where they do, it runs beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from paired import Figure

from stallpoint.models.base.statistics import generator

ROOT = Path(__file__).parents[1]
KEY = ["network", "hardware", "storage", "scaling", "sync", "prefetch", "batch"]
SPAN = (2.0, 6.0)
"""Shortest and longest time a core is kept busy, s; then it is left alone for twice as long in the mean."""
OVERLAP = 0.5
"""Share of an iteration from which on it counts as overlapped by a busy span; those without any are the others."""


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; `count` is not used, as a study takes minutes."""
    figures: list[Figure] = []
    lines = ["repeatability: two default studies one after the other"]
    for planted in (False, True):
        name = "planted disturbance" if planted else "as it is"
        with _busy_now_and_then() if planted else _nothing() as spans:
            studies = [_study(f"repeatability{number}{'-planted' if planted else ''}") for number in (1, 2)]
        found = [*_agreement(name, *studies), *(figure for study in studies for figure in _of_study(name, study))]
        found += list(_marks(name, studies, spans)) if planted else []
        figures += found
        lines += [figure.line() for figure in found]
        lines += [f"  {name}: {line}" for study in studies for line in _answers(study)]
    return figures, lines


def _study(name: str) -> Path:
    """Run the default study anew under another name; its results."""
    results = ROOT / "results" / name
    subprocess.run(["rm", "-rf", str(results)], check=True)
    snakemake = [str(Path(sys.executable).with_name("snakemake")), "--quiet", "all", "--config", f"study={name}"]
    begin = time.monotonic()
    subprocess.run(snakemake, cwd=ROOT, check=True, capture_output=True)
    (results / "seconds").write_text(str(time.monotonic() - begin))
    return results


def _table(results: Path, name: str) -> pd.DataFrame:
    stage = "tables" if (results / "tables" / f"{name}.parquet").exists() else "models"
    return pd.read_parquet(results / stage / f"{name}.parquet")


def _agreement(name: str, first: Path, second: Path) -> Iterator[Figure]:
    """How often the interval of each study holds the other's value; how many answers contradict."""
    tables = [_table(study, "predictions").set_index([*KEY, "nodes"]) for study in (first, second)]
    for quantity in ("measured_iteration", "measured_speedup"):
        held = []
        for own, other in (tables, tables[::-1]):
            both = own.join(other[[quantity]], rsuffix="_other").dropna(subset=[quantity, f"{quantity}_other"])
            if quantity == "measured_speedup":
                both = both[both[f"{quantity}_low"] < both[f"{quantity}_high"]]  # not 1 on the fewest nodes
            value = both[f"{quantity}_other"]
            held += list((both[f"{quantity}_low"] <= value) & (value <= both[f"{quantity}_high"]))
        yield _figure(name, f"{quantity}: in the other's 90 % interval ({len(held)})", float(np.mean(held)), ">= 0.85")
    verdicts = [_table(study, "stalling").set_index(KEY)["verdict"] for study in (first, second)]
    contradict = sum({one, other} == {"stalls", "scales"} for one, other in zip(*verdicts, strict=True))
    yield _figure(name, f"answers that contradict, of {len(verdicts[0])}", float(contradict), "0")


def _of_study(name: str, results: Path) -> Iterator[Figure]:
    visits = _table(results, "visits").query("rank == 0")
    span = (visits["began"] + pd.to_timedelta(visits["duration"], unit="s")).max() - visits["began"].min()
    speedups = _table(results, "predictions").query("ranks > 1").dropna(subset=["measured_speedup"])
    width = (speedups["measured_speedup_high"] - speedups["measured_speedup_low"]) / 2 / speedups["measured_speedup"]
    yield _figure(name, "minutes of a study", float((results / "seconds").read_text()) / 60, "<= 10 with set-up")
    yield _figure(
        name, "measured share of the visits' time", visits["measuring"].sum() / span.total_seconds(), ">= 0.8"
    )
    yield _figure(name, "half-width of speedups, median", float(width.median()), "<= 0.1 on a quiet machine")


def _answers(results: Path) -> Iterator[str]:
    for row in _table(results, "stalling").to_dict("records"):
        value, low, high = (row[f"measured_speedup{end}"] for end in ("", "_low", "_high"))
        yield (
            f"{row['network']:<10} {row['sync']:<6} {row['verdict']} ({row['verdict_ranks']}), "
            f"speedup {value:.2f} [{low:.2f}, {high:.2f}] on {row['measured_speedup_ranks']}"
        )


def _marks(name: str, studies: list[Path], spans: list[tuple[datetime, datetime]]) -> Iterator[Figure]:
    """Which share of the iterations that busy spans disturb is marked, of those that they run beside, and of others."""
    disturbed, beside, others = [], [], []
    for study in studies:
        iterations, visits = _table(study, "iterations"), _table(study, "visits")
        rows = iterations.merge(visits[["cell", "visit", "rank", "began", "preparing"]], on=["cell", "visit", "rank"])
        marked = set(_table(study, "disturbances")[["cell", "iteration"]].itertuples(index=False, name=None))
        begin = rows["began"] + pd.to_timedelta(rows["preparing"] + rows["start"], unit="s")
        rows = rows.assign(begin=begin, end=begin + pd.to_timedelta(rows["iteration_time"], unit="s"))
        for key, step in rows.groupby(["cell", "iteration"]):
            share = _overlap(step["begin"].min(), step["end"].max(), spans)
            if share > OVERLAP:
                spare = len(step) < len(os.sched_getaffinity(0))
                (beside if spare else disturbed).append(key in marked)
            elif not share:
                others.append(key in marked)
    for what, found, wanted in (
        ("disturbed", disturbed, ">= 0.95"),
        ("overlapped, with a core to spare,", beside, ""),
        ("other", others, "<= 0.05"),
    ):
        yield _figure(
            name, f"{what} iterations that are marked ({len(found)})", float(np.mean(found or [np.nan])), wanted
        )


def _overlap(begin: pd.Timestamp, end: pd.Timestamp, spans: list[tuple[datetime, datetime]]) -> float:
    covered = sum(
        max(0.0, (min(end, pd.Timestamp(last)) - max(begin, pd.Timestamp(first))).total_seconds())
        for first, last in spans
    )
    return covered / (end - begin).total_seconds()


def _figure(candidate: str, quantity: str, value: float, wanted: str) -> Figure:
    return Figure("repeatability", candidate, quantity, value, value, value, wanted)


@contextmanager
def _nothing() -> Iterator[list[tuple[datetime, datetime]]]:
    yield []


@contextmanager
def _busy_now_and_then() -> Iterator[list[tuple[datetime, datetime]]]:
    """Keep one core busy for a third of the time; the spans, which grow."""
    spans: list[tuple[datetime, datetime]] = []
    plan = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        yield spans
    finally:
        plan.terminate()
        assert plan.stdout
        times = [datetime.fromisoformat(line.strip()) for line in plan.stdout]
        spans += list(zip(times[::2], times[1::2], strict=False))


def _keep_busy() -> None:
    """Print when each busy span begins and ends."""
    random = generator(0, "busy spans")
    while True:
        length = random.uniform(*SPAN)
        time.sleep(2 * random.uniform(*SPAN))
        print(datetime.now(UTC).isoformat(), flush=True)
        end = time.monotonic() + length
        while time.monotonic() < end:
            pass
        print(datetime.now(UTC).isoformat(), flush=True)


if __name__ == "__main__":
    _keep_busy()
