"""What traces say of a training: iterations, causes, shares of the device's time, and other worker counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stallpoint.errors import InputError
from stallpoint.exchange.all_reduce_logs import AllReduce
from stallpoint.numerals import interval, number
from stallpoint.traces import scaling
from stallpoint.traces.collectives import Collectives
from stallpoint.traces.device import shares
from stallpoint.traces.iterations import CAUSES, MARKED
from stallpoint.traces.kineto import Trace
from stallpoint.traces.rank import Rank, least_seconds

SUFFIXES = (".json", ".json.gz")
WORDS = {
    "compute": "computing",
    "exposed_communication": "communication that nothing hides",
    "copy": "copies that nothing hides",
    "data_wait": "waiting for a mini-batch",
    "host_wait": "the host waits for the device",
    "launch": "the device waits for the host to start operators",
    "other": "other",
}


def trace_files(named: Sequence[str]) -> list[Path]:
    """The traces that are named, and those in folders that are; `InputError` where there is none."""
    found: list[Path] = []
    for name in named:
        path = Path(name)
        if path.is_dir():
            found += sorted(file for file in path.iterdir() if file.name.lower().endswith(SUFFIXES))
        elif path.is_file():
            found.append(path)
        else:
            raise InputError(f"{name}: there is no such file or folder")
    if not found:
        raise InputError(f"{', '.join(named)}: no file ends in {' or '.join(SUFFIXES)}")
    return found


def explain(
    ranks: Sequence[tuple[Trace, Rank | None]], *,
    batch: int | None = None, threshold: float = 0.1, log: Sequence[AllReduce] = (),
) -> list[dict[str, Any]]:  # fmt: skip
    """What each trace says, for JSON; times in s, shares in %. What it cannot say is None, with the reason in notes.

    `log` are all-reduces among as many workers that another program timed: they then say how fast the link is.
    """
    sizes = {trace.world_size for trace, _ in ranks if trace.world_size > 1}
    links = {size: scaling.link_of(log, size) for size in sizes} if log else {}
    told = []
    for trace, rank in ranks:
        others = [one for at, one in ranks if one and at is not trace and at.world_size == trace.world_size]
        told.append(_of_trace(trace, rank, others, links.get(trace.world_size), batch, threshold))
    return told


def _of_trace(
    trace: Trace, rank: Rank | None, others: Sequence[Rank],
    link: scaling.Link | None, batch: int | None, threshold: float,
) -> dict[str, Any]:  # fmt: skip
    events, notes = trace.events, list(trace.notes)
    of_device = shares(events)
    if of_device is None:
        notes.append("no kernel of a device was traced: there are no shares of a device's time")
    told: dict[str, Any] = {
        "file": trace.path.name, "rank": trace.rank, "world_size": trace.world_size, "iterations": 0,
        "iteration_seconds": None, "replayed_seconds": None, "seconds": None, "shares": of_device, "collectives": [],
        "predicted": None,
        "notes": notes,
    }  # fmt: skip
    if rank is None:
        notes.append("no iterations were found: no ProfilerStep, no Optimizer.step, and nothing that is periodic")
        return told
    found, sent = rank.iterations, rank.collectives
    if found.found_by != MARKED:
        notes.append(f"iterations are told apart by {found.found_by}, as no ProfilerStep is marked")
    told |= {
        "iterations": len(found.seconds),
        "iteration_seconds": float(np.median(found.seconds)),
        "replayed_seconds": float(np.median(rank.replayed)),
        "seconds": {name: float(np.median(of)) for name, of in rank.causes.items()},
        "collectives": _table(sent, len(found.seconds)),
    }
    try:
        told["predicted"] = scaling.predictions(
            scaling.learn(rank, link, least_seconds(rank, others)), batch, threshold
        )
    except scaling.NotTold as reason:
        notes.append(f"nothing is predicted: {reason}")
        return told
    if stay := sorted({kind or "unnamed" for kind in sent.kind} - set(scaling.ROUNDS)):
        notes.append(f"predictions leave these collectives as they were traced: {', '.join(stay)}")
    return told


def _table(sent: Collectives, iterations: int) -> list[dict[str, Any]]:
    """Collectives of one kind, size and algorithm: how many in an iteration, and their times."""
    alike = defaultdict(list)
    keys = zip(sent.kind, sent.algorithm, sent.protocol, sent.bytes, sent.group_size, strict=True)
    for place, key in enumerate(keys):
        alike[key].append(place)
    rows = []
    for (kind, algorithm, protocol, size, ranks), places in sorted(alike.items()):
        seconds = sent.seconds[places]
        rows.append({
            "kind": kind, "algorithm": algorithm or None, "protocol": protocol or None,
            "bytes": int(size) if size >= 0 else None, "group_size": int(ranks) if ranks > 0 else None,
            "per_iteration": len(seconds) / iterations, "seconds": float(np.median(seconds)),
            "shortest_seconds": float(seconds.min()),
        })  # fmt: skip
    return rows


def in_words(told: Iterable[dict[str, Any]]) -> str:
    """The same for people, as Markdown."""
    return "\n\n".join(block for one in told for block in _blocks(one)) + "\n"


def _blocks(one: dict[str, Any]) -> Iterable[str]:
    yield f"## {one['file']}: rank {one['rank']} of {one['world_size']}"
    if one["iterations"]:
        replayed = f"replayed: {_ms(one['replayed_seconds'])}"
        yield f"{one['iterations']} iterations, {_ms(one['iteration_seconds'])} each (median; {replayed}). Of it:"
        rows = [(WORDS[name], one["seconds"][name]) for name in CAUSES]
        whole = one["iteration_seconds"]
        yield "\n".join(f"- {what}: {_ms(seconds)}, {number(100 * seconds / whole, 2)} %" for what, seconds in rows)
    if one["shares"]:
        yield "Device: " + ", ".join(f"{name} {number(value)} %" for name, value in one["shares"].items())
    if one["predicted"]:
        yield from _predicted(one["predicted"])
    if one["notes"]:
        yield "\n".join(f"- {note}" for note in one["notes"])


def _predicted(found: dict[str, Any]) -> Iterable[str]:
    lines = [f"| workers | iteration | {found['unit']} | speedup |", "| --- | --- | --- | --- |"]
    for at in found["workers"]:
        seconds, rate, speedup = (_estimate(at, name) for name in ("iteration_seconds", "throughput", "speedup"))
        lines.append(f"| {at['workers']} | {interval(seconds, 1e3, ' ms')} | {interval(rate)} | {interval(speedup)} |")
    yield "Predicted, each worker with its mini-batch, over links like those traced:"
    yield "\n".join(lines)
    yield _verdict(found)
    changes = [f"{at['change']}: × {interval(_estimate(at, 'throughput_factor'))}" for at in found["what_if"]]
    yield f"On {found['what_if_workers']} workers: {'; '.join(changes)}"


def _verdict(found: dict[str, Any]) -> str:
    stalling = found["stalling"]
    words = {"stalls": "stalls at", "scales": "scales to", "undecided": "undecided from"}
    return f"Weak scaling {words[stalling['verdict']]} {stalling['workers']} workers."


def sentences(one: dict[str, Any]) -> Iterable[str]:
    """A rank's answer in a few sentences."""
    if not one["iterations"]:
        return
    whole = one["iteration_seconds"]
    most = max((name for name in CAUSES if name != "compute"), key=lambda name: one["seconds"][name])
    computing, lost = (f"{number(100 * one['seconds'][name] / whole, 2)} %" for name in ("compute", most))
    yield (
        f"{one['iterations']} iterations of {_ms(whole)} (median), {_ms(one['replayed_seconds'])} when replayed. "
        f"{computing} of it is computing; most of the rest ({lost}): {WORDS[most]}."
    )
    if one["predicted"]:
        last = one["predicted"]["workers"][-1]
        speedup = interval(_estimate(last, "speedup"))
        yield f"{_verdict(one['predicted'])} {last['workers']} workers: {speedup} times the throughput of one."


def _estimate(row: dict[str, Any], name: str) -> dict[str, float | None]:
    return {"value": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"]}


def _ms(seconds: float) -> str:
    return f"{number(1e3 * seconds)} ms"
