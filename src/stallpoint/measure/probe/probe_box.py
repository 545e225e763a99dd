"""Summary of a probe at the end of a script: verdict, reason, and what to do next.

`diagnose` compares the runs of all ranks, read from their records. Waiting makes every rank as slow as the slowest: so
ranks are compared, in each iteration, by their own work without waits. `probe_parts` compares parts of the run with
each other. Ranks do not communicate for the summary: each rank has written its own files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from stallpoint.measure.probe import probe_files
from stallpoint.measure.probe.probe_parts import (
    EXPOSED as _EXPOSED,
)
from stallpoint.measure.probe.probe_parts import (
    MIN_SHARE,
    STEADILY,
    PartialCost,
    RunPart,
    beyond_others,
    partial_costs,
)
from stallpoint.measure.probe.probe_runs import RankRun, Reals, last_run, run_in
from stallpoint.records.tables import PHASES

DATA, BETWEEN, FORWARD, BACKWARD, EXPOSED, UPDATE = PHASES

MIN_ITERATIONS = 5
"""Fewest iterations after warm-up for which there is a summary."""
PATIENCE = 5.0
"""Time that rank 0 waits for the other ranks' last records, s."""
MIN_LAYER_SHARE = 0.2
"""Share of a phase's time from which a layer is named."""
MORE_SAMPLES = 1.1
"""Ratio of samples from which a rank has more than the others."""
COMPUTING = (FORWARD, BACKWARD, UPDATE, BETWEEN)


@dataclass(frozen=True)
class Doubling:
    """Expected gain of twice as many workers, from two recorded worker counts."""

    fewer: int
    workers: int
    low: float
    high: float
    """Upper end of the ratio of samples/s with twice the `workers` to samples/s with `workers`; `low` is the lower."""


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of a script's iterations: their phases, and what delays them."""

    workers: int
    missing_ranks: int
    """Number of ranks that left no records on this machine."""
    iterations: int
    seconds: float
    """Median time of an iteration, s."""
    mean: float
    """Mean time of an iteration, s."""
    phase: str
    """The most costly of `PHASES`."""
    rank: int | None
    """The rank that delays the others by `phase` throughout the run; None if no rank does."""
    behind: tuple[int, str] | None
    """A rank that delays the others by less than `phase` costs, and the phase of its delay; None if no rank does."""
    here: float
    """Median time of `phase` in an iteration, on `rank` or on all ranks, s."""
    others: float
    """Median time of `phase` in an iteration on the ranks other than `rank`, s; NaN without `rank`."""
    ends: tuple[tuple[float, int], tuple[float, int]]
    """The shortest and the longest of the ranks' median times of `phase`, s, each with its rank."""
    layer: str
    """The most costly layer in `phase`; empty if no layer matters."""
    layer_time: float
    """Time of `layer`, or with `rank` its excess over the time on another rank, s."""
    shares: Mapping[str, float]
    """Shares of an iteration on a typical rank: computing, communication, data and waiting for other ranks."""
    samples: tuple[float, float] | None
    """Samples in an iteration of `rank` and of the other ranks, if more samples make `rank` slower; else None."""
    gradients: int
    """Bytes of all gradients."""
    backend: str
    """Backend of the collectives; empty if unknown."""
    parts: Sequence[PartialCost]
    """Excess costs of parts of the run, the most costly first."""
    began: datetime | None
    starts: Reals
    """Start of each iteration, s since `began`."""
    states: Sequence[Mapping[str, Any]]
    """Clock, temperature and memory of rank 0 over the run."""
    doubling: Doubling | None

    @property
    def main(self) -> PartialCost | None:
        """Return the costliest slow part of the run; None without one, or if delays in every iteration cost as much."""
        throughout = 0.0
        if self.rank is not None or self.phase in (DATA, EXPOSED):
            name = {DATA: "data", EXPOSED: "communication"}.get(self.phase, "waiting")
            throughout = self.shares["waiting" if self.rank is not None else name] * self.seconds / self.mean
        return self.parts[0] if self.parts and self.parts[0].share > throughout else None

    @property
    def can_improve(self) -> bool:
        """Return whether something can be improved: a slow rank, a slow part of the run, data or communication."""
        return self.main is not None or self.rank is not None or self.phase in (DATA, EXPOSED)

    @property
    def share(self) -> float | None:
        """Return the share of time that the part `main` costs. Without `main`, return the costliest phase's share."""
        return self.main.share if self.main else self.here / self.seconds if self.seconds else None

    def at(self, position: int) -> datetime | None:
        """Return the start of the iteration at a position among all diagnosed iterations; None if unknown."""
        return self.began + timedelta(seconds=float(self.starts[position])) if self.began else None


def diagnose(ranks: Mapping[int, RankRun], fewer: RankRun | None = None) -> Diagnosis | None:
    """Return the diagnosis of the runs of `ranks`; None if they have too few iterations in common.

    `fewer` is rank 0's run of the same script on fewer workers, if there is one.
    """
    names, runs = list(ranks), list(ranks.values())
    steps = runs[0].steps
    for run in runs[1:]:
        steps = np.intersect1d(steps, run.steps, assume_unique=True)
    if len(steps) < MIN_ITERATIONS:
        return None
    rows = [np.searchsorted(run.steps, steps) for run in runs]
    times = np.array([run.phases[of] for run, of in zip(runs, rows, strict=True)])  # [ranks, iterations, phases]
    work = times.copy()
    work[..., _EXPOSED] = [run.entering[of] for run, of in zip(runs, rows, strict=True)]
    total = times.sum(axis=2)
    seconds = float(np.median(total))
    parts = partial_costs(names, work, times)
    slowest, excess, steady_excess = _slowest(work)
    held_for_a_while = any(one.part is RunPart.HELD and one.ranks == (names[slowest],) for one in parts)
    is_held_up = steady_excess > MIN_SHARE * seconds and not held_for_a_while
    medians = np.median(np.delete(times, slowest, axis=0) if is_held_up else times, axis=(0, 1))
    costs = dict(zip(PHASES, map(float, medians), strict=True))
    if is_held_up:
        waiting = min(float(excess.sum()), costs[EXPOSED])
    else:  # the shortest wait of a rank is the communication itself; what exceeds it is waiting for other ranks
        waiting = max(0.0, costs[EXPOSED] - float(np.median(times[..., _EXPOSED].min(axis=0))))
    costs[EXPOSED] -= waiting
    computing = sum(costs[phase] for phase in COMPUTING)
    costliest = max((DATA, EXPOSED), key=costs.__getitem__)
    rank, others, samples = None, float("nan"), None
    second = (names[slowest], PHASES[int(np.argmax(excess))]) if is_held_up else None
    if second and 2 * excess.sum() >= costs[costliest]:  # half the highest cost suffices: slow ranks are easy to mend
        (rank, phase), second = second, None
        index = PHASES.index(phase)
        here, others = (float(np.median(of[..., index])) for of in (work[slowest], np.delete(work, slowest, axis=0)))
        layer, layer_time = _layer(phase, runs[slowest], runs[slowest - 1])
        if 2 * layer_time < here - others:
            layer, layer_time = "", 0.0
        samples = _more_samples(runs, slowest, work)
    else:
        phase = max(costs, key=costs.__getitem__)
        here = costs[phase]
        layer, layer_time = _layer(phase, runs[0])
        if layer_time < MIN_LAYER_SHARE * here:
            layer, layer_time = "", 0.0
    median = np.median(times[..., PHASES.index(phase)], axis=1)
    shares = {"computing": computing, "communication": costs[EXPOSED], "data": costs[DATA], "waiting": waiting}
    return Diagnosis(
        workers=int(runs[0].probe["script_ranks"]),
        missing_ranks=int(runs[0].probe["script_ranks"]) - len(ranks),
        iterations=len(steps),
        seconds=seconds,
        mean=float(total.mean()),
        phase=phase,
        rank=rank,
        behind=second,
        here=here,
        others=others,
        ends=((float(median.min()), names[int(median.argmin())]), (float(median.max()), names[int(median.argmax())])),
        layer=layer,
        layer_time=layer_time,
        shares={name: value / sum(shares.values()) for name, value in shares.items()},
        samples=samples,
        gradients=runs[0].gradients,
        backend=str(runs[0].states[-1]["backend"]) if runs[0].states else "",
        parts=parts,
        began=runs[0].began,
        starts=runs[0].start[rows[0]],
        states=runs[0].states,
        doubling=_doubling(fewer, runs[0]) if fewer else None,
    )


def _slowest(own: Reals) -> tuple[int, Reals, float]:
    """Return the slowest rank by its own work, and two excesses over the other ranks, s: the median in each phase, and
    what three of five iterations reach. (Fewer prove nothing: other work on the machine slows one rank or another.)"""
    excess = beyond_others(own)
    steady = np.quantile(excess.sum(axis=2), STEADILY, axis=1)
    slowest = int(np.argmax(steady))
    return slowest, np.median(excess[slowest], axis=0), float(steady[slowest])


def _layer(phase: str, run: RankRun, other: RankRun | None = None) -> tuple[str, float]:
    """Return the layer with the longest time in the pass `phase`, and this time, s. With a run `other`, return the
    layer whose time most exceeds its time in `other`, and the excess, s."""
    if phase not in (FORWARD, BACKWARD):
        return "", 0.0
    column = (FORWARD, BACKWARD).index(phase)
    baseline = other.layers if other else {}
    excess = {name: times[column] - baseline.get(name, (0.0, 0.0))[column] for name, times in run.layers.items()}
    return max(excess.items(), key=lambda item: item[1], default=("", 0.0))


def _more_samples(runs: Sequence[RankRun], slowest: int, work: Reals) -> tuple[float, float] | None:
    """Return the samples in an iteration of the slowest rank, and the median of the other ranks' samples. Return
    None unless the slowest rank has more samples, and its passes are longer in about the same proportion."""
    counts = [[row["samples"] for row in run.states if row["samples"]] for run in runs]
    if not all(counts):
        return None
    count, *others = (float(np.median(counts[place])) for place in (slowest, *_without(slowest, len(runs))))
    baseline = float(np.median(others))
    passes = [PHASES.index(FORWARD), PHASES.index(BACKWARD)]
    times = np.median(work[..., passes].sum(axis=2), axis=1)
    slowdown = times[slowest] / np.median(np.delete(times, slowest)) - 1
    surplus = count / baseline - 1
    return (count, baseline) if count >= MORE_SAMPLES * baseline and surplus / 2 < slowdown < 2 * surplus else None


def _without(index: int, count: int) -> list[int]:
    return [other for other in range(count) if other != index]


def _doubling(fewer: RankRun, found: RankRun) -> Doubling | None:
    """Return the expected gain of twice the workers, from rank 0's runs on two worker counts.

    The time of computing shows whether each worker's mini-batch stayed constant or was divided. The gain is
    highest if the time of communication stays constant, as in a ring, and lowest if it grows as between the two counts.
    """
    old_count, workers = (int(one.probe["script_ranks"]) for one in (fewer, found))
    if not (len(fewer.steps) and len(found.steps)):
        return None
    old_phases, phases = (np.median(one.phases, axis=0) for one in (fewer, found))
    old_exposed, exposed = float(old_phases[_EXPOSED]), float(phases[_EXPOSED])
    old_own, own = float(old_phases.sum()) - old_exposed, float(phases.sum()) - exposed
    is_divided = old_own / own > (workers / old_count) ** 0.5
    growth = max(0.0, exposed - old_exposed) * workers / (workers - old_count)
    samples, portion = (1.0, 0.5) if is_divided else (2.0, 1.0)
    low, high = (samples * (own + exposed) / (own * portion + bound) for bound in (exposed + growth, exposed))
    return Doubling(old_count, workers, low, high)


def wait_and_diagnose(folder: Path, workers: int, patience: float = PATIENCE) -> Diagnosis | None:
    """Return the diagnosis of the last recording below `folder`; None if it is too short.

    Ranks end at about the same time: this function waits up to `patience` s for ranks whose records are unfinished.
    """
    deadline = time.monotonic() + patience
    for rank in range(workers):
        while (found := probe_files.recordings(folder, rank)) and not probe_files.probe_row(found[-1])["ended"]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return last_diagnosis(folder)


def last_diagnosis(folder: Path) -> Diagnosis | None:
    """Return the diagnosis of rank 0's last recording below `folder`; None if it is too short."""
    first = last_run(folder, 0)
    if not first:
        return None
    workers = int(first.probe["script_ranks"])
    found = {0: first} | {rank: one for rank in range(1, workers) if (one := last_run(folder, rank))}
    runs = {rank: one for rank, one in found.items() if one.probe["script_ranks"] == workers}
    return diagnose(runs, _on_fewer(folder, first))


def _on_fewer(folder: Path, found: RankRun) -> RankRun | None:
    """Return rank 0's newest run of the same model on fewer workers; None without such a run."""
    for recording in reversed(probe_files.recordings(folder, rank=0)):
        row = probe_files.probe_row(recording)
        if row["script_ranks"] < found.probe["script_ranks"] and row["layers"] == found.probe["layers"]:
            run = run_in(recording)
            if run.gradients == found.gradients:
                return run
    return None
