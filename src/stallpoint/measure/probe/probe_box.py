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
    lacking: int
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
    of_layer: float
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
        """Return the most costly part of the run, if it costs more than the delay in all iterations; else None."""
        throughout = 0.0
        if self.rank is not None or self.phase in (DATA, EXPOSED):
            name = {DATA: "data", EXPOSED: "communication"}.get(self.phase, "waiting")
            throughout = self.shares["waiting" if self.rank is not None else name] * self.seconds / self.mean
        return self.parts[0] if self.parts and self.parts[0].share > throughout else None

    @property
    def mendable(self) -> bool:
        """Return whether something can be improved: a slow rank, a slow part of the run, data or communication."""
        return self.main is not None or self.rank is not None or self.phase in (DATA, EXPOSED)

    @property
    def share(self) -> float | None:
        """Return the share of the run, or of an iteration, that the verdict's part or phase takes."""
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
    own = times.copy()
    own[..., _EXPOSED] = [run.entering[of] for run, of in zip(runs, rows, strict=True)]
    total = times.sum(axis=2)
    seconds = float(np.median(total))
    parts = partial_costs(names, own, times)
    slowest, excess, steadily = _slowest(own)
    held_for_a_while = any(one.part is RunPart.HELD and one.ranks == (names[slowest],) for one in parts)
    held_up = steadily > MIN_SHARE * seconds and not held_for_a_while
    usual = np.median(np.delete(times, slowest, axis=0) if held_up else times, axis=(0, 1))
    costs = dict(zip(PHASES, map(float, usual), strict=True))
    if held_up:
        waiting = min(float(excess.sum()), costs[EXPOSED])
    else:  # the rank that waits least shows the communication itself; more than that is waiting for others
        waiting = max(0.0, costs[EXPOSED] - float(np.median(times[..., _EXPOSED].min(axis=0))))
    costs[EXPOSED] -= waiting
    computing = sum(costs[phase] for phase in COMPUTING)
    largest = max((DATA, EXPOSED), key=costs.__getitem__)
    rank, others, samples = None, float("nan"), None
    behind = (names[slowest], PHASES[int(np.argmax(excess))]) if held_up else None
    if behind and 2 * excess.sum() >= costs[largest]:  # half suffices: one slow rank is easier to mend than all ranks
        (rank, phase), behind = behind, None
        at = PHASES.index(phase)
        here, others = (float(np.median(of[..., at])) for of in (own[slowest], np.delete(own, slowest, axis=0)))
        layer, of_layer = _layer(phase, runs[slowest], runs[slowest - 1])
        if 2 * of_layer < here - others:
            layer, of_layer = "", 0.0
        samples = _more_samples(runs, slowest, own)
    else:
        phase = max(costs, key=costs.__getitem__)
        here = costs[phase]
        layer, of_layer = _layer(phase, runs[0])
        if of_layer < MIN_LAYER_SHARE * here:
            layer, of_layer = "", 0.0
    each = np.median(times[..., PHASES.index(phase)], axis=1)
    shares = {"computing": computing, "communication": costs[EXPOSED], "data": costs[DATA], "waiting": waiting}
    return Diagnosis(
        workers=int(runs[0].probe["script_ranks"]),
        lacking=int(runs[0].probe["script_ranks"]) - len(ranks),
        iterations=len(steps),
        seconds=seconds,
        mean=float(total.mean()),
        phase=phase,
        rank=rank,
        behind=behind,
        here=here,
        others=others,
        ends=((float(each.min()), names[int(each.argmin())]), (float(each.max()), names[int(each.argmax())])),
        layer=layer,
        of_layer=of_layer,
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
    """Return the slowest rank by its own work, its median excess over the other ranks in each phase, s, and the excess
    that it reaches in three of five iterations, s. (Other work on the machine slows now one rank, now another.)"""
    beyond = beyond_others(own)
    steadily = np.quantile(beyond.sum(axis=2), STEADILY, axis=1)
    slowest = int(np.argmax(steadily))
    return slowest, np.median(beyond[slowest], axis=0), float(steadily[slowest])


def _layer(phase: str, here: RankRun, other: RankRun | None = None) -> tuple[str, float]:
    """Return the layer with the longest time in the pass `phase`, and this time, s; with a run `other`, the layer with
    the largest excess over it, and the excess."""
    if phase not in (FORWARD, BACKWARD):
        return "", 0.0
    which = (FORWARD, BACKWARD).index(phase)
    usual = other.layers if other else {}
    beyond = {name: times[which] - usual.get(name, (0.0, 0.0))[which] for name, times in here.layers.items()}
    return max(beyond.items(), key=lambda item: item[1], default=("", 0.0))


def _more_samples(runs: Sequence[RankRun], slowest: int, own: Reals) -> tuple[float, float] | None:
    """Return the samples in an iteration of the slowest rank, and the median of the other ranks. None unless it has
    more samples, and passes that are longer by about as much."""
    counts = [[row["samples"] for row in run.states if row["samples"]] for run in runs]
    if not all(counts):
        return None
    here, *others = (float(np.median(counts[place])) for place in (slowest, *_without(slowest, len(runs))))
    usual = float(np.median(others))
    passes = [PHASES.index(FORWARD), PHASES.index(BACKWARD)]
    times = np.median(own[..., passes].sum(axis=2), axis=1)
    longer = times[slowest] / np.median(np.delete(times, slowest)) - 1
    more = here / usual - 1
    return (here, usual) if here >= MORE_SAMPLES * usual and more / 2 < longer < 2 * more else None


def _without(place: int, count: int) -> list[int]:
    return [one for one in range(count) if one != place]


def _doubling(fewer: RankRun, found: RankRun) -> Doubling | None:
    """Return the expected gain of twice the workers, from rank 0's runs on two worker counts.

    The time of computing shows whether each worker's mini-batch stayed constant or was divided. The time of
    communication may stay constant, as in a ring, or may grow as it did between the two counts: these are the bounds.
    """
    few, workers = (int(one.probe["script_ranks"]) for one in (fewer, found))
    if not (len(fewer.steps) and len(found.steps)):
        return None
    before, now = (np.median(one.phases, axis=0) for one in (fewer, found))
    exposed_before, carried = float(before[_EXPOSED]), float(now[_EXPOSED])
    own_before, own = float(before.sum()) - exposed_before, float(now.sum()) - carried
    strong = own_before / own > (workers / few) ** 0.5
    growth = max(0.0, carried - exposed_before) * workers / (workers - few)
    samples, part = (1.0, 0.5) if strong else (2.0, 1.0)
    low, high = (samples * (own + carried) / (own * part + later) for later in (carried + growth, carried))
    return Doubling(few, workers, low, high)


def wait_and_diagnose(folder: Path, workers: int, patience: float = PATIENCE) -> Diagnosis | None:
    """Return the diagnosis of the last recording below `folder`; None if it is too short.

    Ranks end at about the same time: this function waits up to `patience` s for ranks whose records are unfinished.
    """
    until = time.monotonic() + patience
    for rank in range(workers):
        while (found := probe_files.recordings(folder, rank)) and not probe_files.probe_row(found[-1])["ended"]:
            if time.monotonic() > until:
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
    """Return rank 0's newest run of the same model on fewer workers; None without one."""
    for recording in reversed(probe_files.recordings(folder, rank=0)):
        row = probe_files.probe_row(recording)
        if row["script_ranks"] < found.probe["script_ranks"] and row["layers"] == found.probe["layers"]:
            before = run_in(recording)
            if before.gradients == found.gradients:
                return before
    return None
