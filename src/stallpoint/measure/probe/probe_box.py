"""Summary of a probe, in at most six lines at the end of a script: verdict, reason, and what to do next.

`diagnose` makes a typed row of the records of all ranks, `lines` renders it, `box` reads the last records. Ranks are
compared iteration by iteration, by their own work: waiting for the others makes all of them as slow as the slowest one.
Ranks do not communicate for it: each wrote its own files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stallpoint.measure.probe import probe_files
from stallpoint.measure.probe.probe_files import RankRecords
from stallpoint.records.tables import PHASES
from stallpoint.text import number

Reals: TypeAlias = npt.NDArray[np.float64]
DATA, BETWEEN, FORWARD, BACKWARD, EXPOSED, UPDATE = PHASES

LEAST_SHARE = 0.1
"""Smallest share of an iteration by which a slow rank holds the others up."""
FEWEST = 5
"""Fewest iterations after warm-up for a summary."""
PATIENCE = 5.0
"""Time that rank 0 waits for the other ranks' last records, s."""
PARTS = 2
"""Number of each table's last files that are read: up to 2000 iterations."""
COMPUTING = (FORWARD, BACKWARD, UPDATE, BETWEEN)
WORDS = {
    DATA: "waiting for data",
    BETWEEN: "what it does between data and forward pass",
    FORWARD: "the forward pass",
    BACKWARD: "the backward pass",
    EXPOSED: "communication",
    UPDATE: "the update",
}
ADVICE = {
    DATA: "more DataLoader workers (num_workers, prefetch_factor), or a faster storage or decoding",
    BETWEEN: "time what the loop does between its mini-batch and the model's call: copies, logging, validation",
    FORWARD: "a profile of {layer}: its shapes and kernels, or work of its own on the host",
    BACKWARD: "a profile of {layer}: its shapes and kernels, or work of its own on the host",
    EXPOSED: "measure one all-reduce of {bytes} alone: all_reduce_perf -b {bytes} -e {bytes}; then a larger mini-batch",
    UPDATE: "time the optimizer and what the loop does behind it: logging, checkpoints, collectives of its own",
}
ADVICE_FOR_ONE = {
    DATA: "rank {rank}: its storage, CPU cores, and how much data it has beside the others",
    BETWEEN: "rank {rank}: what it alone does between its mini-batch and the model's call (logging, validation)",
    FORWARD: "rank {rank}: its shapes in {layer}, its clock and temperature, and other processes on its node",
    BACKWARD: "rank {rank}: its shapes in {layer}, its clock and temperature, and other processes on its node",
    EXPOSED: "rank {rank}: what keeps its host from sending (CPU cores, other processes), and its network card",
    UPDATE: "rank {rank}: what it alone does behind the backward pass (logging, checkpoints)",
}


@dataclass(frozen=True)
class Doubling:
    """Expected gain of twice as many workers, from two recorded worker counts."""

    fewer: int
    workers: int
    low: float
    high: float
    """Samples per second with twice the `workers`, over those with `workers`."""


@dataclass(frozen=True)
class Diagnosis:
    """Phases of a script's iterations, and what holds them up."""

    workers: int
    lacking: int
    """Ranks without records here."""
    iterations: int
    seconds: float
    """Median time of an iteration, s."""
    phase: str
    """The most costly of `PHASES`."""
    rank: int | None
    """The rank that takes longest for it; None if all ranks take equally long."""
    here: float
    """Time of that phase on this rank, or on the typical one, s."""
    others: float
    """The same on the typical one of the other ranks; nan if no rank stands out."""
    layer: str
    """The most costly layer in that phase; empty without timed layers."""
    of_layer: float
    """Time of the layer (beyond that on the others), s."""
    shares: Mapping[str, float]
    """Parts of an iteration on the typical rank: computing, communication, data and waiting for the rank."""
    gradients: int
    """Bytes of all gradients."""
    doubling: Doubling | None

    @property
    def mendable(self) -> bool:
        """Whether something holds it up: one rank, or else data or communication."""
        return self.rank is not None or self.phase in (DATA, EXPOSED)


def diagnose(ranks: Mapping[int, RankRecords], fewer: RankRecords | None = None) -> Diagnosis | None:
    """Return the diagnosis of some `ranks`' records; None with too few iterations.

    `fewer` are rank 0's records of the same script on fewer workers.
    """
    tables = {rank: _iterations(found) for rank, found in ranks.items()}
    steps = sorted(set.intersection(*map(set, tables.values())))
    if len(steps) < FEWEST:
        return None
    times = np.array([[table[step] for step in steps] for table in tables.values()])  # [rank, iteration, phase]
    own = times.copy()
    own[..., _EXPOSED] = [_entering(found, steps) for found in ranks.values()]
    seconds = float(np.median(times.sum(axis=2)))
    slowest, excess, steadily = _slowest(own)
    held_up = steadily > LEAST_SHARE * seconds
    usual = np.median(np.delete(times, slowest, axis=0) if held_up else times, axis=(0, 1))
    costs = dict(zip(PHASES, map(float, usual), strict=True))
    waiting = min(float(excess.sum()), costs[EXPOSED]) if held_up else 0.0
    costs[EXPOSED] -= waiting
    computing = sum(costs[phase] for phase in COMPUTING)
    largest = max((DATA, EXPOSED), key=costs.__getitem__)
    names, rank, of_rank = list(ranks), None, next(iter(ranks.values()))
    if held_up and 2 * excess.sum() >= costs[largest]:  # a slow rank is easier to mend than a problem of all ranks
        rank, phase = names[slowest], PHASES[int(np.argmax(excess))]
        here, others = (float(np.median(of[..., PHASES.index(phase)])) for of in _apart(own, slowest))
        layer, of_layer = _layer(phase, ranks[rank], ranks[names[slowest - 1]])
        if 2 * of_layer < here - others:
            layer, of_layer = "", 0.0
    else:
        phase = max(costs, key=costs.__getitem__)
        here, others = costs[phase], np.nan
        layer, of_layer = _layer(phase, of_rank)
    shares = {"computing": computing, "communication": costs[EXPOSED], "data": costs[DATA], "waiting": waiting}
    return Diagnosis(
        workers=int(of_rank.probe["script_ranks"]),
        lacking=int(of_rank.probe["script_ranks"]) - len(ranks),
        iterations=len(steps),
        seconds=seconds,
        phase=phase,
        rank=rank,
        here=here,
        others=others,
        layer=layer,
        of_layer=of_layer,
        shares={name: value / sum(shares.values()) for name, value in shares.items()},
        gradients=_gradients(of_rank),
        doubling=_doubling(fewer, of_rank) if fewer else None,
    )


_EXPOSED = PHASES.index(EXPOSED)


def _apart(times: Reals, index: int) -> tuple[Reals, Reals]:
    """Return the times of one rank, and those of the others."""
    return times[index], np.delete(times, index, axis=0)


def _slowest(own: Reals) -> tuple[int, Reals, float]:
    """Return the rank with most work of its own, its excess over the median of the others by phase, and its excess in
    at least three of five iterations: other work on the machine slows varying ranks."""
    if len(own) == 1:
        return 0, np.zeros(len(PHASES)), 0.0
    beyond = np.array([here - np.median(others, axis=0) for here, others in (_apart(own, k) for k in range(len(own)))])
    steadily = np.quantile(beyond.sum(axis=2), 0.4, axis=1)
    slowest = int(np.argmax(steadily))
    return slowest, np.median(beyond[slowest], axis=0), float(steadily[slowest])


def _iterations(found: RankRecords) -> dict[int, Reals]:
    """Return the phases of each iteration after warm-up, by its number."""
    table = found.tables["iterations"]
    table = table.filter(np.logical_not(table["warmup"].to_numpy()))
    steps = table["iteration"].to_pylist()
    if steps and steps[0] == 0:  # within a study no iteration is marked as warm-up
        steps, table = steps[1:], table.slice(1)
    phases = np.stack([table[phase].to_numpy() for phase in PHASES], axis=1)
    return dict(zip(steps, phases, strict=True))


def _entering(found: RankRecords, steps: Sequence[int]) -> Reals:
    """Return a rank's time in each iteration from complete gradients until it had entered their collectives."""
    table = found.tables["layers"]
    carried = table.filter(table["bucket"].to_numpy() >= 0)
    late = np.zeros(len(steps))
    if not len(carried):
        return late
    step, message = (carried[name].to_numpy() for name in ("iteration", "bucket"))
    ready, start = (carried[name].to_numpy(zero_copy_only=False) for name in ("gradient_ready", "all_reduce_start"))
    keys, which = np.unique(np.stack([step, message]), axis=1, return_inverse=True)
    last, begun = np.full(keys.shape[1], -np.inf), np.full(keys.shape[1], -np.inf)
    np.maximum.at(last, which.ravel(), np.nan_to_num(ready, nan=-np.inf))
    np.maximum.at(begun, which.ravel(), start)
    waited = np.where(np.isfinite(last), np.maximum(0.0, begun - last), 0.0)
    index = np.searchsorted(steps, keys[0]).clip(max=len(steps) - 1)
    known = np.asarray(steps)[index] == keys[0]
    np.add.at(late, index[known], waited[known])
    return late


def _layer(phase: str, here: RankRecords, other: RankRecords | None = None) -> tuple[str, float]:
    """Return the layer with the longest time in a pass, or the largest excess over the other rank if there is one."""
    if phase not in (FORWARD, BACKWARD):
        return "", 0.0
    usual = _of_layers(other, phase) if other else {}
    beyond = {name: seconds - usual.get(name, 0.0) for name, seconds in _of_layers(here, phase).items()}
    return max(beyond.items(), key=lambda item: item[1], default=("", 0.0))


def _of_layers(found: RankRecords, phase: str) -> dict[str, float]:
    table = found.tables["layers"]
    table = table.filter(table["iteration"].to_numpy() > 0)
    names, which = np.unique(table["layer"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    seconds = table[phase].to_numpy()
    return {str(name): float(np.median(seconds[which == index])) for index, name in enumerate(names)}


def _gradients(found: RankRecords) -> int:
    table = found.tables["layers"]
    if not len(table):
        return 0
    step = table["iteration"].to_numpy()
    return int(table["gradient_bytes"].to_numpy()[step == step[-1]].sum())


def _doubling(fewer: RankRecords, found: RankRecords) -> Doubling | None:
    """Estimate the gain from rank 0's records on two worker counts.

    Its own work shows whether its mini-batch stayed as it was or became smaller. Communication at least stays constant,
    as in a ring, and at most grows as it did between the two counts.
    """
    few, workers = (int(one.probe["script_ranks"]) for one in (fewer, found))
    tables = [_iterations(one) for one in (fewer, found)]
    if not all(tables):
        return None
    before, now = (np.median(list(table.values()), axis=0) for table in tables)
    exposed_before, carried = float(before[_EXPOSED]), float(now[_EXPOSED])
    own_before, own = float(before.sum()) - exposed_before, float(now.sum()) - carried
    strong = own_before / own > (workers / few) ** 0.5
    growth = max(0.0, carried - exposed_before) * workers / (workers - few)
    samples, part = (1.0, 0.5) if strong else (2.0, 1.0)
    low, high = (samples * (own + carried) / (own * part + later) for later in (carried + growth, carried))
    return Doubling(few, workers, low, high)


# --- words ----------------------------------------------------------------------------------------


def lines(found: Diagnosis) -> list[str]:
    """Return the summary: at most six lines."""
    return [f"stallpoint: {headed(found)}", *(f"  {name:<9}{text}" for name, text in texts(found).items())]


def headed(found: Diagnosis) -> str:
    """Return ``2 workers, 30 iterations of 20 ms``."""
    milliseconds = f"{number(1e3 * found.seconds)} ms"
    head = f"{found.workers} worker{'s' * (found.workers > 1)}, {found.iterations} iterations of {milliseconds}"
    return head + (f" ({found.lacking} ranks left no records here)" if found.lacking else "")


def texts(found: Diagnosis) -> dict[str, str]:
    """Return the lines below the head by their labels; none that has nothing to say."""
    texts_of = {
        "verdict": _verdict(found),
        "why": _why(found),
        "shares": ", ".join(_shares(found)),
        "doubling": _gain(found.doubling) if found.doubling else "",
        "next": _next(found),
    }
    return {label: text for label, text in texts_of.items() if text}


def _verdict(found: Diagnosis) -> str:
    layer = f", layer {found.layer}" if found.layer else ""
    if found.rank is not None:
        return f"rank {found.rank} holds the others up: {WORDS[found.phase]}{layer}"
    if found.phase in (DATA, EXPOSED):
        return (
            f"mostly {WORDS[found.phase]}, on every rank alike" if found.workers > 1 else f"mostly {WORDS[found.phase]}"
        )
    return f"mostly computing: {WORDS[found.phase]} takes longest{layer}"


def _why(found: Diagnosis) -> str:
    def in_ms(seconds: float) -> str:
        return f"{number(1e3 * seconds)} ms"

    cause = f"{WORDS[found.phase]} takes {in_ms(found.here)} of {in_ms(found.seconds)}"
    if found.phase == EXPOSED and found.rank is not None:
        cause = f"it enters its all-reduces {in_ms(found.here)} behind its gradients, the others {in_ms(found.others)}"
    elif found.rank is not None:
        cause = f"{WORDS[found.phase]} takes {in_ms(found.here)} there, {in_ms(found.others)} on the others"
    return f"{cause}; {in_ms(found.of_layer)} of it in layer {found.layer}" if found.layer else cause


def _shares(found: Diagnosis) -> Iterator[str]:
    for name, share in found.shares.items():
        whom = f" for rank {found.rank}" if name == "waiting" and found.rank is not None else ""
        if name != "waiting" or round(100 * share):
            yield f"{name}{whom} {100 * share:.0f} %"


def _gain(found: Doubling) -> str:
    return (
        f"{found.workers} -> {2 * found.workers} workers: {number(found.low, 2)} to {number(found.high, 2)} times the "
        f"samples/s (from {found.fewer} and {found.workers})"
    )


def _next(found: Diagnosis) -> str:
    advice = ADVICE if found.rank is None else ADVICE_FOR_ONE
    size = f"{max(1, round(found.gradients / 2**20))}M"
    return advice[found.phase].format(
        rank=found.rank, layer=f"layer {found.layer}" if found.layer else "the model", bytes=size
    )


# --- files ----------------------------------------------------------------------------------------


def box(folder: Path, workers: int, patience: float = PATIENCE) -> list[str]:
    """Return the summary of the last records below `folder`; nothing if these are too few.

    Waits for ranks whose records are not finished, as they end about when this one does.
    """
    until = time.monotonic() + patience
    ranks: dict[int, RankRecords] = {}
    for rank in range(workers):
        while (of_rank := probe_files.read(folder, rank, parts=PARTS)) and not of_rank.probe["ended"]:
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        if of_rank and of_rank.probe["script_ranks"] == workers:
            ranks[rank] = of_rank
    found = _diagnosed(folder, ranks)
    return lines(found) if found else []


def found_last(folder: Path) -> Diagnosis | None:
    """What the script that rank 0 recorded last below `folder` did; None where too little was recorded."""
    first = probe_files.read(folder, 0, parts=PARTS)
    workers = int(first.probe["script_ranks"]) if first else 0
    found = {rank: probe_files.read(folder, rank, parts=PARTS) for rank in range(workers)}
    return _diagnosed(
        folder, {rank: one for rank, one in found.items() if one and one.probe["script_ranks"] == workers}
    )


def _diagnosed(folder: Path, ranks: Mapping[int, RankRecords]) -> Diagnosis | None:
    return diagnose(ranks, _on_fewer(folder, ranks[0])) if 0 in ranks else None


def _on_fewer(folder: Path, found: RankRecords) -> RankRecords | None:
    """Return the newest records of rank 0 of the same model on fewer workers."""
    for recording in reversed(probe_files.recordings(folder, rank=0)):
        of_rank = probe_files.read_recording(recording, parts=PARTS)
        same = of_rank.probe["layers"] == found.probe["layers"] and _gradients(of_rank) == _gradients(found)
        if same and of_rank.probe["script_ranks"] < found.probe["script_ranks"]:
            return of_rank
    return None
