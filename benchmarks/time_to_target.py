"""Minutes to the target at the largest count of each series of MLPerf Training, from the smaller counts.

As a program: ``time_to_target.py RUNS.csv [--learn]``. The table has a row for each run: round, submitter, chip,
benchmark, devices, global_batch, train_samples, progress, unit, minutes (docs/models/scaling-laws.md); a series is what
one submitter ran of a benchmark on one chip. With ``--learn`` the priors and what is known of each benchmark are
learned again without each round, and reported on it: some ten minutes. Peers fit minutes alone: the last count carried
forward, a power law, and least squares of A/n + B + C·n.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from stallpoint.models.convergence.time_to_target import (
    MAX_MINUTES_RATIO,
    RUN_PRIOR,
    Benchmark,
    RunPrior,
    RunsToTarget,
    fitted_task,
    seconds_to_target,
)
from stallpoint.models.scaling.laws import Prior

SERIES = ["round", "submitter", "chip", "benchmark"]
TARGET = "wanted: median <= 10 %, 90th percentile <= 30 %, given for 75 %, 85-97 % inside, median width <= 60 %"
_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
_DRAWS = 1024
_STEPS = (0.4, 0.2)
_NEAR = 0.5
"""Spread of the logarithm of a learned number about that at hand: few series tell little."""
_SAME = {"gnn": "rgat", "retinanet": "ssd"}
"""Names of one benchmark in several rounds."""
_OTHER_UNITS = {"gpt3", "transformer"}
"""Benchmarks that count tokens for samples, or in some mini-batches."""
_BETWEEN = np.array([0.4, 0.5])
"""Spread of a task's overhead and critical mini-batch between systems."""


@dataclass(frozen=True)
class Question:
    """A series, whose largest count is asked for."""

    round: str
    series: RunsToTarget

    @property
    def runs(self) -> RunsToTarget:
        return self.series.at(slice(-1))

    @property
    def minutes(self) -> float:
        return float(self.series.seconds[-1] / 60)

    def draws(self, learned: RunPrior, count: int = 8192) -> np.ndarray:
        """Minutes at the largest count."""
        at, batch = self.series.workers[-1], self.series.batch[-1]
        return seconds_to_target(self.runs, at, batch, learned, count) / 60


def samples(runs: pd.DataFrame) -> pd.Series:
    """Samples to the target: progress is in epochs, but in samples where it is large (bert, gpt3, later unet3d), and
    the ``train_samples`` of later ssd and retinanet are iterations of an epoch."""
    progress, epoch = runs["progress"], runs["train_samples"]
    steps = runs["benchmark"].isin(["ssd", "retinanet"]) & (epoch < 100_000)
    found = progress * epoch * np.where(steps, runs["global_batch"], 1)
    found = found.where((runs["unit"] == "epoch_num") & (progress < 20_000), progress)
    early = (runs["benchmark"] == "bert") & (progress < 20_000)  # iterations, or one "epoch"
    return found.where(~early, (progress * runs["global_batch"]).where(progress > 100))


def questions(runs: pd.DataFrame) -> Iterator[Question]:
    runs = runs.assign(samples=samples(runs))[runs["devices"] > 0]
    medians = runs.groupby([*SERIES, "devices"])[["global_batch", "samples", "minutes"]].median().reset_index()
    for (of_round, _, _, benchmark), rows in medians.groupby(SERIES):
        if len(rows) >= 3:
            workers, batch, needed, minutes = rows[["devices", "global_batch", "samples", "minutes"]].to_numpy(float).T
            yield Question(str(of_round), RunsToTarget(workers, batch, needed, 60 * minutes, str(benchmark)))


def carried(asked: Question) -> float:
    workers, minutes = asked.series.workers, asked.series.seconds / 60
    return float(minutes[-2] * workers[-2] / workers[-1])


def power(asked: Question) -> float:
    known, workers = asked.runs, asked.series.workers[-1]
    slope = np.polyfit(np.log(known.workers), np.log(known.seconds / 60), 1)
    return float(np.exp(np.polyval(slope, np.log(workers))))


def three_terms(asked: Question) -> float:
    n, minutes, workers = asked.runs.workers, asked.runs.seconds / 60, asked.series.workers[-1]
    found = nnls(np.stack([1 / n, np.ones_like(n), n], -1) / minutes[:, None], np.ones_like(n))[0]
    return float(found @ [1 / workers, 1, workers])


PEERS: dict[str, Callable[[Question], float]] = {
    "carried forward": carried, "power law": power, "A/n + B + C·n": three_terms
}  # fmt: skip


def row(name: str, asked: Sequence[Question], learned: RunPrior | Sequence[RunPrior]) -> str:
    """What is predicted of the questions, beside the peers on all of them."""
    each = learned if isinstance(learned, Sequence) else [learned] * len(asked)
    ends = np.array([np.quantile(one.draws(by), [0.05, 0.5, 0.95]) for one, by in zip(asked, each, strict=True)])
    truth = np.array([one.minutes for one in asked])
    given = ends[:, 2] <= MAX_MINUTES_RATIO * ends[:, 0]
    inside = ((ends[:, 0] <= truth) & (truth <= ends[:, 2]))[given].mean()
    width = np.median((ends[:, 2] / ends[:, 0] - 1)[given])
    peers = ", ".join(f"{peer} {_errors(np.array([of(one) for one in asked]), truth)}" for peer, of in PEERS.items())
    refused = _errors(np.array([carried(one) for one in asked])[~given], truth[~given])
    return (
        f"  {name:<8} {given.sum():>3} of {len(asked):>3} given, {_errors(ends[given, 1], truth[given])}, "
        f"{inside:.0%} inside, width {width:.0%}; refused, carried forward: {refused}; of all: {peers}"
    )


def _errors(predicted: np.ndarray, truth: np.ndarray) -> str:
    off = np.abs(predicted / truth - 1)
    return f"{np.median(off):.1%} / {np.quantile(off, 0.9):.1%}" if len(off) else "none"


def tasks(asked: Sequence[Question], learned: RunPrior) -> dict[str, Benchmark]:
    """What complete series say of their benchmarks, those that say more of it first."""
    found: dict[str, list[np.ndarray]] = {}
    for one in asked:
        known = np.isfinite([*one.series.batch, *one.series.samples]).all()
        if known and one.series.task not in _OTHER_UNITS:
            name = _SAME.get(one.series.task, one.series.task)
            found.setdefault(name, []).append(fitted_task(one.series, replace(learned, tasks={})))
    named = {}
    for name, each in found.items():
        logs, deviations = np.moveaxis(each, 1, 0)
        middle = np.exp(np.average(logs, axis=0, weights=1 / (deviations**2 + _BETWEEN**2)))
        named |= {of: Benchmark(*(float(f"{value:.3g}") for value in middle)) for of in (name, *_also(name))}
    return named


def _also(name: str) -> list[str]:
    return [other for other, same in _SAME.items() if same == name]


def others(asked: Sequence[Question], learned: RunPrior) -> dict[str, RunPrior]:
    """By round, `learned` with what the other rounds say of benchmarks."""
    rounds = {one.round for one in asked}
    return {
        name: replace(learned, tasks=tasks([one for one in asked if one.round != name], learned)) for name in rounds
    }


def loss(asked: Sequence[Question], learned: Mapping[str, RunPrior]) -> float:
    """Quantile loss of log minutes, and how far the numbers are from those at hand."""
    total = 0.0
    for one in asked:
        draws = np.log(one.draws(learned[one.round], _DRAWS))
        off = np.log(one.minutes) - np.quantile(draws, _LEVELS)
        total += float(np.maximum(_LEVELS * off, (_LEVELS - 1) * off).mean())
    some = next(iter(learned.values()))
    away = [np.log(value(some) / value(RUN_PRIOR)) for value, _ in _numbers()]
    return total + 0.02 * float(np.square(away).sum()) / _NEAR**2


def _numbers() -> Iterator[tuple[Callable[[RunPrior], float], Callable[[RunPrior, float], RunPrior]]]:
    """How to get each learned number, and how to multiply it."""
    for field in fields(RunPrior):
        if field.name == "tasks":
            continue
        parts = ("median", "spread") if isinstance(getattr(RUN_PRIOR, field.name), Prior) else (None,)
        for part in parts:
            yield partial(_value, field.name, part), partial(_scaled, field.name, part)


def _value(name: str, part: str | None, learned: RunPrior) -> float:
    found = getattr(learned, name)
    return float(getattr(found, part) if part else found)


def _scaled(name: str, part: str | None, learned: RunPrior, factor: float) -> RunPrior:
    found, value = getattr(learned, name), _value(name, part, learned) * factor
    return replace(learned, **{name: replace(found, **{part: value}) if part else value})


def learn(asked: Sequence[Question]) -> RunPrior:
    """The numbers with the least loss, one after the other in steps that get shorter; each round is predicted with what
    the others say of benchmarks."""
    known = others(asked, RUN_PRIOR)

    def judged(tried: RunPrior) -> float:
        by_round = {name: replace(tried, tasks=one.tasks) for name, one in known.items()}
        return loss(asked, others(asked, tried) if tried.rate_power != RUN_PRIOR.rate_power else by_round)

    best, least = RUN_PRIOR, judged(RUN_PRIOR)
    for step in _STEPS:
        for _, scaled in _numbers():
            for factor in (np.exp(step), np.exp(-step)):
                while (found := judged(tried := scaled(best, factor))) < least - 1e-3:
                    best, least = tried, found
    return replace(best, tasks=tasks(asked, best))


def mean(each: Sequence[RunPrior], asked: Sequence[Question]) -> RunPrior:
    """The numbers of the product: no search on all rounds, whose intervals would be too narrow for others."""
    found = RUN_PRIOR
    for value, scaled in _numbers():
        found = scaled(found, float(np.exp(np.mean([np.log(value(one) / value(found)) for one in each]))))
    return replace(found, tasks=tasks(asked, found))


def main(names: Sequence[str]) -> None:
    asked = list(questions(pd.read_csv(Path(names[0]))))
    rounds = sorted({one.round for one in asked})
    print("minutes at the largest count, median / 90th percentile of errors")
    for name in rounds:
        print(row(name, [one for one in asked if one.round == name], RUN_PRIOR))
    print(row("all", asked, RUN_PRIOR))
    known = others(asked, RUN_PRIOR)
    print(row("all, benchmarks as other rounds say", asked, [known[one.round] for one in asked]))
    if "--learn" in names:
        without = {name: learn([one for one in asked if one.round != name]) for name in rounds}
        print("with numbers learned on the other rounds")
        for name in rounds:
            print(row(name, [one for one in asked if one.round == name], without[name]), flush=True)
        print(row("all", asked, [without[one.round] for one in asked]))
        print("geometric means of these numbers, benchmarks as all rounds say:", mean(list(without.values()), asked))
    print(TARGET)


if __name__ == "__main__":
    main(sys.argv[1:])
