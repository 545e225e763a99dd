"""Does the answer repeat? Default studies in a row, and as many while one core is kept busy now and then.

Printed: how often the 90 % interval of one study holds another's iteration time and speedup, for how many curves the
largest loss is named and the same in all of them, whether answers contradict each other, what setting up and a study
take, which share of the visits' time is measuring, how wide speedups are; and with busy spans planted, which share of
the iterations that they disturb is marked, and which share of the others. A busy span disturbs where the ranks leave it
no core of its own; where they do, it runs beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sentences
from paired import Figure

from stallpoint.base.statistics import generator
from stallpoint.models.answers.causes import LossVerdict
from stallpoint.questions.study_tables import CurveRows, StudyTables

ROOT = Path(__file__).parents[1]
KEY = ["network", "hardware", "storage", "scaling", "sync", "prefetch", "batch"]
SPAN = (2.0, 6.0)
"""Shortest and longest time a core is kept busy, s; then it is left alone for twice as long in the mean."""
OVERLAP = 0.5
"""Share of an iteration from which on it counts as overlapped by a busy span; those without any are the others."""


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print, of `count` studies in a row and as many with busy spans."""
    figures: list[Figure] = list(_set_up(scratch))
    lines = [f"repeatability: {count} default studies in a row", *(figure.line() for figure in figures)]
    for planted in (False, True):
        name = "planted disturbance" if planted else "as it is"
        with _busy_now_and_then() if planted else _nothing() as spans:
            names = [f"repeatability{number}{'-planted' if planted else ''}" for number in range(1, count + 1)]
            studies = [_study(one) for one in names]
        found = [*agreement(name, studies), *(figure for study in studies for figure in _of_study(name, study))]
        found += list(_marks(name, studies, spans)) if planted else []
        figures += found
        lines += [figure.line() for figure in found]
        lines += [f"  {name}: {line}" for study in studies for line in answers(study)]
    return figures, lines


def _set_up(scratch: Path) -> Iterator[Figure]:
    """How long `make run` sets up in a fresh clone, and how much that takes on the disk."""
    clone = scratch / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    begin = time.monotonic()
    subprocess.run(["make", "--silent", "setup"], cwd=clone, check=True, capture_output=True)
    yield _figure("a fresh clone", "seconds of setting up", time.monotonic() - begin, "<= 60")
    size = subprocess.run(["du", "-sk", clone / ".venv"], check=True, capture_output=True, text=True).stdout
    yield _figure("a fresh clone", "GB of the environment", int(size.split()[0]) * 1024 / 1e9, "<= 1.6")


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


def agreement(name: str, studies: Sequence[Path]) -> Iterator[Figure]:
    """How often the interval of each study holds another's value; named losses that agree; answers that contradict."""
    tables = [_table(study, "predictions").set_index([*KEY, "nodes"]) for study in studies]
    for quantity in ("measured_iteration", "measured_speedup"):
        held = []
        for own, other in permutations(tables, 2):
            both = own.join(other[[quantity]], rsuffix="_other").dropna(subset=[quantity, f"{quantity}_other"])
            if quantity == "measured_speedup":
                both = both[both[f"{quantity}_low"] < both[f"{quantity}_high"]]  # on the fewest nodes this is not 1
            value = both[f"{quantity}_other"]
            held += list((both[f"{quantity}_low"] <= value) & (value <= both[f"{quantity}_high"]))
        yield _figure(name, f"{quantity}: in another's 90 % interval ({len(held)})", float(np.mean(held)), ">= 0.85")
    widths = pd.concat(map(_half_widths, studies))
    yield _figure(name, f"half-width of speedups, median ({len(widths)})", float(widths.median()), "<= 0.05")
    curves = [_curves(study) for study in studies]
    losses = [[_largest_loss(of_study[key]) for of_study in curves] for key in curves[0]]
    same = sum("" not in of_curve and len(set(of_curve)) == 1 for of_curve in losses)
    yield _figure(name, f"curves whose largest loss is named, the same in all, of {len(losses)}", same, "all but one")
    for what, states in (
        ("measured", [[curve[key]["verdict"] for curve in curves] for key in curves[0]]),
        ("predicted", [[curve[key].predicted[0] for curve in curves] for key in curves[0]]),
    ):
        against = {"stalls", "scales"}
        contradict = sum(any(set(pair) == against for pair in combinations(of_curve, 2)) for of_curve in states)
        yield _figure(name, f"answers that contradict, {what}, of {len(states)}", contradict, "0")
    pairs = [*combinations(map(sentences.tables_of, studies), 2), *(sentences.halves(study) for study in studies)]
    for what, some in (("another's", pairs[: -len(studies)]), ("those of its other half", pairs[-len(studies) :])):
        found = [one for pair in some for one in sentences.compared(*pair)]
        against, both = sum(len(one.contradictions) for one in found), sum(one.both for one in found)
        yield _figure(name, f"sentences that contradict {what}, of {both}", against, "0")


def _curves(results: Path) -> dict[tuple[Any, ...], CurveRows]:
    """The scaling curves of a study."""
    names = ("stalling", "stall_probabilities", "causes")
    study = StudyTables({name: _table(results, name) for name in names})
    return {tuple(curve[name] for name in KEY): curve for curve in study.curves}


def _largest_loss(curve: CurveRows) -> str:
    """The cause that is named on the most workers that were measured; empty where none is."""
    measured = [row for row in curve.of("causes") if row["basis"] == "measured"]
    largest = max((int(row["ranks"]) for row in measured), default=0)
    named = [row["cause"] for row in measured if row["ranks"] == largest and row["verdict"] == LossVerdict.DOMINANT]
    return str(named[0]) if named else ""


def _half_widths(results: Path) -> pd.Series[float]:
    """Of the speedups that were measured, relative."""
    speedups = _table(results, "predictions").query("ranks > 1").dropna(subset=["measured_speedup"])
    return (speedups["measured_speedup_high"] - speedups["measured_speedup_low"]) / 2 / speedups["measured_speedup"]


def _of_study(name: str, results: Path) -> Iterator[Figure]:
    visits = _table(results, "visits").query("rank == 0")
    span = (visits["started"] + pd.to_timedelta(visits["duration"], unit="s")).max() - visits["started"].min()
    yield _figure(name, "minutes of a study", float((results / "seconds").read_text()) / 60, "<= 7 beside setting up")
    yield _figure(
        name, "measured share of the visits' time", visits["measuring"].sum() / span.total_seconds(), ">= 0.85"
    )


def answers(results: Path) -> Iterator[str]:
    """A line for each curve."""
    curves = _curves(results)
    for row in _table(results, "stalling").to_dict("records"):
        curve = curves[tuple(row[name] for name in KEY)]
        value, low, high = (row[f"measured_speedup{end}"] for end in ("", "_low", "_high"))
        yield (
            f"{row['network']:<10} {row['sync']:<6} {row['batch']:>3} {row['verdict']} ({row['verdict_ranks']}), "
            f"speedup {value:.2f} [{low:.2f}, {high:.2f}] on {row['measured_speedup_ranks']}; "
            f"{_largest_loss(curve) or 'no loss named'}; beyond: {curve.predicted[0]}"
        )


def _marks(name: str, studies: Sequence[Path], spans: list[tuple[datetime, datetime]]) -> Iterator[Figure]:
    """Which share of the iterations that busy spans disturb is marked, of those that they run beside, and of others."""
    disturbed, beside, others = [], [], []
    for study in studies:
        iterations, visits = _table(study, "iterations"), _table(study, "visits")
        rows = iterations.merge(visits[["cell", "visit", "rank", "started", "preparing"]], on=["cell", "visit", "rank"])
        marked = set(_table(study, "disturbances")[["cell", "iteration"]].itertuples(index=False, name=None))
        begin = rows["started"] + pd.to_timedelta(rows["preparing"] + rows["start"], unit="s")
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
