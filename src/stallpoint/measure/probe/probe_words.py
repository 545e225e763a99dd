"""A probe's diagnosis in words, printed at the end of a script, and by `stallpoint explain`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

from stallpoint.measure.probe.probe_box import (
    BACKWARD,
    BETWEEN,
    DATA,
    EXPOSED,
    FORWARD,
    UPDATE,
    Diagnosis,
    Doubling,
    wait_and_diagnose,
)
from stallpoint.measure.probe.probe_parts import MIN_SHARE, PartialCost, RunPart
from stallpoint.text import number

MEAN_BESIDE = 1.1
"""Ratio of an iteration's mean time to its median from which the head reports both."""
NCCL = "nccl"
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
    EXPOSED: "measure one all-reduce of {bytes} alone{tool}; then a larger mini-batch",
    UPDATE: "time the optimizer and what the loop does behind it: logging, checkpoints",
}
ADVICE_FOR_ONE = {
    DATA: "rank {rank}: its storage, CPU cores, and how much data it has beside the others",
    BETWEEN: "rank {rank}: what it alone does between its mini-batch and the model's call (logging, validation)",
    FORWARD: "rank {rank}: its shapes in {layer}, its clock and temperature, and other processes on its node",
    BACKWARD: "rank {rank}: its shapes in {layer}, its clock and temperature, and other processes on its node",
    EXPOSED: "rank {rank}: what keeps its host from sending (CPU cores, other processes), and its network card",
    UPDATE: "rank {rank}: what it alone does behind the backward pass (logging, checkpoints)",
}
ADVICE_FOR_PART = {
    RunPart.HELD: "{whom}: what else its node did then: other processes, clock and temperature, storage",
    RunPart.RARE: "what {whom} does {often} (checkpoint, logging, validation): less often, or beside the training",
    RunPart.FIRST: "what the begin does that the rest need not: a cold cache, compiling, DataLoader workers that start",
    RunPart.LATER: "what changed then on {whom}: other jobs, the storage, clock and temperature, longer samples",
    RunPart.DECAY: "clock and temperature of {whom}, and memory that grows (losses kept with their graphs)",
}


def summary(folder: Path, workers: int) -> list[str]:
    """Return the summary of the workers' last recording below `folder`; no lines if it is too short."""
    found = wait_and_diagnose(folder, workers)
    return lines(found) if found else []


def lines(found: Diagnosis) -> list[str]:
    """Return the summary of a diagnosis, at most seven lines."""
    return [f"stallpoint: {headline(found)}", *(f"  {name:<9}{text}" for name, text in texts(found).items())]


def headline(found: Diagnosis) -> str:
    """Return the head of a summary: ``2 workers, 30 iterations of 20 ms``."""
    duration = _in_ms(found.seconds)
    if found.mean > MEAN_BESIDE * found.seconds:
        duration += f" in the median, {_in_ms(found.mean)} in the mean"
    head = f"{found.workers} worker{'s' * (found.workers > 1)}, {found.iterations:,} iterations of {duration}"
    missing = found.missing_ranks
    return head + (f" ({missing} rank{'s' * (missing > 1)} left no records here)" if missing else "")


def texts(found: Diagnosis) -> dict[str, str]:
    """Return the lines of a summary below its head, each by its label; empty lines are left out."""
    part = found.main
    others = [_part_in_words(found, one) for one in found.parts if one is not part]
    if part:
        others.append(_verdict(found))
    if found.behind:
        others.append(f"rank {found.behind[0]} holds the others up: {WORDS[found.behind[1]]}")
    by_label = {
        "verdict": _part_in_words(found, part) if part else _verdict(found),
        "why": _why_part(found, part) if part else _why(found),
        "also": others[0] if others else "",
        "shares": ", ".join(_shares(found)),
        "doubling": _gain(found.doubling) if found.doubling else "",
        "next": _next_part(found, part) if part else _next(found),
    }
    return {label: text for label, text in by_label.items() if text}


def _in_ms(seconds: float) -> str:
    return f"{number(1e3 * seconds)} ms" if seconds < 1 else f"{number(seconds)} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _verdict(found: Diagnosis) -> str:
    layer = f", layer {found.layer}" if found.layer else ""
    if found.rank is not None:
        cause = WORDS[found.phase] + layer
        if found.samples:
            own, others = found.samples
            counts = f"({number(own)} in an iteration, the others {number(others)})"
            cause = f"it has {number(own / others, 2)} times as many samples {counts}"
        return f"rank {found.rank} holds the others up: {cause}"
    if found.phase not in (DATA, EXPOSED):
        return f"mostly computing: {WORDS[found.phase]} takes longest{layer}"
    (lowest, lowest_rank), (highest, highest_rank) = found.ends
    if found.workers == 1:
        place = ""
    elif highest - lowest > MIN_SHARE * found.seconds:
        place = f", {_in_ms(lowest)} on rank {lowest_rank} to {_in_ms(highest)} on rank {highest_rank}"
    else:
        place = ", on every rank alike"
    return f"mostly {WORDS[found.phase]}{place}"


def _why(found: Diagnosis) -> str:
    cause = f"{WORDS[found.phase]} takes {_in_ms(found.here)} of {_in_ms(found.seconds)}"
    if found.phase == EXPOSED and found.rank is not None:
        cause = (
            f"it enters its all-reduces {_in_ms(found.here)} behind its gradients, the others {_in_ms(found.others)}"
        )
    elif found.rank is not None:
        cause = f"{WORDS[found.phase]} takes {_in_ms(found.here)} there, {_in_ms(found.others)} on the others"
    return f"{cause}; {_in_ms(found.layer_time)} of it in layer {found.layer}" if found.layer else cause


def _part_in_words(found: Diagnosis, part: PartialCost) -> str:
    """Return words for the cost of a part of the run: iterations, phase and ranks."""
    ranks = _whom(found, part)
    place = f", on {ranks}" if ranks else ""
    phase, share, longer = WORDS[part.phase], _percent(part.share), _in_ms(part.usual + part.more)
    if part.part is RunPart.HELD:
        period = _between(found, part)
        return f"{ranks} held the others up {period}: {phase} ({share} of the time)"
    if part.part is RunPart.RARE:
        frequency = (
            f"every {ordinal(part.period)} iteration"
            if part.period
            else f"{part.events} of {found.iterations:,} iterations"
        )
        return f"{share} of the time is in {frequency} ({_in_ms(part.more)} more, in {phase}{place})"
    if part.part is RunPart.DECAY:
        return f"iterations become slower and slower, {_in_ms(part.usual)} to {longer}: {phase}{place}"
    period = (
        f"the first {part.last:,} iterations" if part.part is RunPart.FIRST else f"iterations {_between(found, part)}"
    )
    return f"{period} take {longer} instead of {_in_ms(part.usual)}: {phase}{place} ({share} of the time)"


def _whom(found: Diagnosis, part: PartialCost) -> str:
    if not part.ranks:
        return "every rank" if found.workers > 1 else ""
    rest = f" and {len(part.ranks) - 4} more" if len(part.ranks) > 4 else ""
    return f"rank{'s' * (len(part.ranks) > 1)} {', '.join(map(str, part.ranks[:4]))}{rest}"


def _between(found: Diagnosis, part: PartialCost) -> str:
    """Return when a part of the run was: ``until 21:54:10 UTC``, ``from 21:50:00 UTC on``, or iteration numbers."""
    first = _moment(found, part.first) if part.first else ""
    last = _moment(found, part.last) if part.last < found.iterations else ""
    if first and last:
        return f"from {first} until {last}"
    return f"until {last}" if last else f"from {first} on"


def _moment(found: Diagnosis, position: int) -> str:
    time = found.at(position)
    return f"{time.astimezone(UTC):%H:%M:%S} UTC" if time else f"iteration {position:,}"


def ordinal(count: int) -> str:
    """Return a count as an ordinal: ``20th``."""
    suffix = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{suffix}"


def _why_part(found: Diagnosis, part: PartialCost) -> str:
    if part.part is RunPart.HELD:
        iterations = f"these {part.last - part.first:,} iterations"
        return f"its own work takes {_in_ms(part.more)} more in {iterations} than in the others"
    if part.part is RunPart.RARE:
        return f"an iteration takes {_in_ms(found.seconds)} in the median, {_in_ms(found.mean)} in the mean"
    return ", ".join(_drifts(found, part)) or f"{WORDS[part.phase]} has most of the difference"


_DRIFTS = (
    ("frequency", "clock of the CPUs", "GHz", 1e-9),
    ("gpu_clock", "clock of the GPU", "GHz", 1e-9),
    ("temperature", "temperature", "°C", 1.0),
    ("memory", "memory of the process", "GB", 1e-9),
    ("device_memory", "memory on the GPU", "GB", 1e-9),
)
"""Columns of `probe_files.STATES` with words, unit, and factor to the unit."""


def _drifts(found: Diagnosis, part: PartialCost) -> Iterator[str]:
    """Yield how clock, temperature and memory changed from the begin of the run to its end."""
    if len(found.states) < 2:
        return
    first, last = found.states[0], found.states[-1]
    for column, words, unit, factor in _DRIFTS:
        before, after = first[column], last[column]
        if before and after and part.part in (RunPart.DECAY, RunPart.LATER):
            yield f"{words} {number(factor * before)} -> {number(factor * after)} {unit}"


def _shares(found: Diagnosis) -> Iterator[str]:
    for name, share in found.shares.items():
        ranks = "" if name != "waiting" else f" for rank {found.rank}" if found.rank is not None else " for one another"
        if name != "waiting" or round(100 * share):
            yield f"{name}{ranks} {_percent(share)}"


def _gain(found: Doubling) -> str:
    return (
        f"{found.workers} -> {2 * found.workers} workers: {number(found.low, 2)} to {number(found.high, 2)} times the "
        f"samples/s (from {found.fewer} and {found.workers})"
    )


def _next(found: Diagnosis) -> str:
    if found.samples:
        return (
            f"as many samples for rank {found.rank} as for the others (sampler, drop_last, sequences of other lengths)"
        )
    advice = ADVICE if found.rank is None else ADVICE_FOR_ONE
    size_option = f"{max(1, round(found.gradients / 2**20))}M"
    tools = {NCCL: f" (all_reduce_perf -b {size_option} -e {size_option})", "": ""}
    tool = tools.get(found.backend, f" over {found.backend} (torch.distributed.all_reduce in a loop of its own)")
    layer = f"layer {found.layer}" if found.layer else "the model"
    size = f"{number(found.gradients / 1e6)} MB"
    return advice[found.phase].format(rank=found.rank, layer=layer, bytes=size, tool=tool)


def _next_part(found: Diagnosis, part: PartialCost) -> str:
    frequency = f"every {part.period} iterations" if part.period else "now and then"
    ranks = _whom(found, part) or "the script"
    return ADVICE_FOR_PART[part.part].format(whom=ranks, often=frequency)
