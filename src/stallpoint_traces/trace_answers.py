"""Answers to traces of a training: iterations, causes, shares of the device's time, and other worker counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.inputs.all_reduce_logs import AllReduce
from stallpoint.text import number
from stallpoint_traces import other_worker_counts, traced_link
from stallpoint_traces.formats.events import Trace
from stallpoint_traces.layout.context_ring import ring
from stallpoint_traces.layout.expert_imbalance import imbalance
from stallpoint_traces.layout.group_times import group_times
from stallpoint_traces.layout.groups import Group
from stallpoint_traces.layout.pipeline_bubble import bubble
from stallpoint_traces.layout.slowest_ranks import stragglers
from stallpoint_traces.rank.clocks import ClockOffset, clocks, max_seconds, min_seconds
from stallpoint_traces.rank.device_activity import shares
from stallpoint_traces.rank.iterations import MARKED, PERIODIC, blocked_by
from stallpoint_traces.rank.rank import Rank
from stallpoint_traces.rank.trace_collectives import ROUNDS, Collectives


def explain(
    ranks: Sequence[tuple[Trace, Rank | None]], *,
    batch: int | None = None, threshold: float = 0.1, log: Mapping[int, Sequence[AllReduce]] | None = None,
    per_node: float | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the answer to each trace, for JSON; times in s, shares in %. Unknown values are None, with the reason in
    notes.

    `log` holds all-reduces that another program timed, by worker count: at a traced count they give the link's speed.
    Otherwise traces of the same training at other worker counts help to identify it.
    """
    sizes = {rank.groups.replicas for _, rank in ranks if rank and rank.groups.replicas > 1}
    links = {size: traced_link.link_from_log(rows, size) for size, rows in (log or {}).items() if size in sizes}
    others = _other_ranks(ranks)
    transfers = _transfers(ranks, others)
    explained = [
        _trace_finding(
            trace, rank, others.get(index), links.get(rank.groups.replicas) if rank else None,
            [of for count, of in transfers.items() if rank and count != rank.groups.replicas],
            batch, threshold, per_node,
        )
        for index, (trace, rank) in enumerate(ranks)
    ]  # fmt: skip
    if log and not links and explained:
        counted, traced = (", ".join(map(str, sorted(of))) for of in (log, sizes or {1}))
        explained[0]["notes"].append(f"the log is of {counted} workers, the traces are of {traced}: it is not used")
    for members in _by_training(ranks):
        found = stragglers([trace.rank for _, trace, _ in members], [rank for _, _, rank in members])
        explained[members[0][0]]["stragglers"] = found and {**asdict(found), "slowdown": found.slowdown}
    return explained


def _transfers(
    ranks: Sequence[tuple[Trace, Rank | None]], others: Mapping[int, _OtherRanks]
) -> dict[int, traced_link.Transfers]:
    """Return the transfers at each number of replicas, from the first rank with that number."""
    found: dict[int, traced_link.Transfers] = {}
    for index, (_, rank) in enumerate(ranks):
        if rank and rank.groups.replicas > 1 and rank.groups.replicas not in found:
            least = others[index].least if index in others else None
            found[rank.groups.replicas] = traced_link.Transfers.of(rank, least)
    return found


@dataclass(frozen=True)
class _OtherRanks:
    """Comparison of a rank with others of the same training."""

    ranks: Sequence[Rank]
    """All traced ranks of the training."""
    least: npt.NDArray[np.float64]
    """Durations as from `min_seconds`, [collectives]."""
    largest: npt.NDArray[np.float64]
    clock: ClockOffset


def _by_training(ranks: Sequence[tuple[Trace, Rank | None]]) -> Iterable[list[tuple[int, Trace, Rank]]]:
    """Return each training's ranks with their indices; ranks with equal worker counts are of one training."""
    by_workers: dict[int, list[tuple[int, Trace, Rank]]] = defaultdict(list)
    for index, (trace, rank) in enumerate(ranks):
        if rank:
            by_workers[rank.workers].append((index, trace, rank))
    return by_workers.values()


def _other_ranks(ranks: Sequence[tuple[Trace, Rank | None]]) -> dict[int, _OtherRanks]:
    """Return comparisons by index, for trainings with several ranks."""
    found = {}
    for members in _by_training(ranks):
        collectives = [rank.collectives for _, _, rank in members]
        if len(members) > 1:
            zero = members[0][1].began
            each = zip(members, min_seconds(collectives), max_seconds(collectives), clocks(collectives), strict=True)
            for (index, trace, _), least, largest, clock in each:
                absolute = ClockOffset(clock.ahead + trace.began - zero, clock.spread)
                found[index] = _OtherRanks([rank for _, _, rank in members], least, largest, absolute)
    return found


def _trace_finding(
    trace: Trace, rank: Rank | None, others: _OtherRanks | None,
    link: traced_link.FittedLink | None, elsewhere: Sequence[traced_link.Transfers],
    batch: int | None, threshold: float, per_node: float | None,
) -> dict[str, Any]:  # fmt: skip
    events, notes = trace.events, list(trace.notes)
    of_device = shares(events) if trace.computing else None
    if of_device is None and trace.computing:
        notes.append("no kernel of a device was traced: there are no shares of a device's time")
    explained: dict[str, Any] = {
        "file": trace.path.name, "rank": trace.rank, "world_size": rank.workers if rank else trace.world_size,
        "iterations": 0, "iteration_seconds": None, "replayed_seconds": None, "seconds": None, "blocked_by": [],
        "never_idle": bool(rank and rank.other_hosts), "shares": of_device,
        "collectives": [], "groups": [], "bubble": None, "ring": None, "imbalance": None, "clock": None, "waits": None,
        "predicted": None, "stragglers": None, "missing_ranks": 0, "lacks": [], "notes": notes,
    }  # fmt: skip
    if rank is None:
        notes.append("no iterations were found: no ProfilerStep, no Optimizer.step, and nothing that is periodic")
        return explained
    found, collectives = rank.iterations, rank.collectives
    if found.found_by != MARKED:
        parts = ", and may be parts of one" if found.found_by == PERIODIC else ""
        notes.append(f"iterations are told apart by {found.found_by}{parts}, as no ProfilerStep is marked")
    explained |= {
        "iterations": len(found.seconds),
        "iteration_seconds": float(np.median(found.seconds)),
        "collectives": _collectives_table(collectives, len(found.seconds)),
        "groups": [_group(rank, group, others.least if others else None) for group in rank.groups.groups],
        "bubble": _as_dict(bubble(rank)),
        "ring": _as_dict(ring(rank)),
        "imbalance": _as_dict(imbalance(rank, others.ranks if others else ())),
        "missing_ranks": rank.workers - (len(others.ranks) if others else 1),
    }
    if found.ahead:
        notes.append("the host runs ahead of the device, which it does not wait for: iterations are the device's")
    if others:
        explained |= _waits(rank, others)
        if not explained["waits"]:
            notes.append("no collectives are the same on the ranks that are traced: clocks and waiting are not told")
        if len(others.ranks) < rank.workers:
            notes.append(
                f"{len(others.ranks)} of {rank.workers} ranks are traced: what they wait for the others is taken for "
                "sending"
            )
    if not trace.computing:
        return explained
    explained |= {
        "replayed_seconds": float(np.median(rank.replayed)),
        "seconds": {name: float(np.median(of)) for name, of in rank.causes.items()},
        "blocked_by": [
            {"call": name, "seconds": seconds, "calls": count, "longest_seconds": longest}
            for name, seconds, count, longest in blocked_by(events, found)
        ],
    }
    node = per_node or other_worker_counts.NODE
    try:
        known = other_worker_counts.learn(
            rank, link, others.least if others else None, traced=len(others.ranks) if others else 1, elsewhere=elsewhere
        )
        explained["predicted"] = other_worker_counts.predictions(known, batch, threshold, node)
        if other_worker_counts.reachable(known, node) != other_worker_counts.worker_counts(known.workers):
            where = "across" if known.workers <= node else "inside"
            notes.append(
                f"all workers exchange with all, and the trace does not say how long that takes {where} nodes of "
                f"{number(node)} (--workers-per-node)"
            )
    except other_worker_counts.NotIdentifiable as reason:
        notes.append(f"nothing is predicted: {reason}")
        return explained | {"lacks": reason.reasons}
    exchanged = traced_link.exchanges(rank)
    stay = Counter(
        f"{kind or 'unnamed'} of {_group_in_words(group)}"
        for group in rank.groups.groups
        for kind in {collectives.kind[index] for index in group.places}
        if (kind not in ROUNDS or not rank.groups.data[group.places].all()) and not exchanged[group.places].all()
    )
    if stay:
        notes.append(f"predictions leave these collectives as they were traced: {', '.join(sorted(stay))}")
    return explained


def _as_dict(found: Any) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _group(rank: Rank, group: Group, least: npt.NDArray[np.float64] | None) -> dict[str, Any]:
    return {
        "name": group.name or None, "size": group.size if group.size > 0 else None,
        "parallelism": group.parallelism or None, "per_iteration": len(group.places) / len(rank.iterations.seconds),
        "collectives": [asdict(one) for one in group_times(rank, group, least)],
    }  # fmt: skip


def _group_in_words(group: Group) -> str:
    what = f"{group.parallelism} parallelism" if group.parallelism else "a group whose use is not told"
    return what + (f" ({group.size} ranks)" if group.size > 0 else "")


_MIN_WAIT = 10e-6
"""Minimum waiting that is reported, s."""


def _waits(rank: Rank, others: _OtherRanks) -> dict[str, Any]:
    """Return the waiting of an iteration's collectives, how often this rank arrived last, and its clock."""
    collectives, known = rank.collectives, np.isfinite(others.least)
    if not known.any():
        return {}
    waited = np.bincount(
        collectives.iteration[known],
        (collectives.seconds - others.least)[known],
        minlength=len(rank.iterations.seconds),
    )
    clock = {"ahead_seconds": others.clock.ahead, "spread_seconds": others.clock.spread}
    some = known & (others.largest > others.least + _MIN_WAIT)
    last = float((collectives.seconds <= others.least + _MIN_WAIT / 2)[some].mean()) if some.any() else 0.0
    return {
        "waits": {
            "seconds": float(np.median(waited)),
            "last": last,
            "share": float(waited.sum() / (collectives.seconds[known].sum() or 1.0)),
        },
        "clock": {name: value if np.isfinite(value) else None for name, value in clock.items()},
    }


def _collectives_table(collectives: Collectives, iterations: int) -> list[dict[str, Any]]:
    """Return number per iteration and times of the collectives of each kind, size and algorithm."""
    equal = defaultdict(list)
    keys = zip(
        collectives.kind,
        collectives.algorithm,
        collectives.protocol,
        collectives.bytes,
        collectives.group_size,
        strict=True,
    )
    for index, key in enumerate(keys):
        equal[key].append(index)
    rows = []
    for (kind, algorithm, protocol, size, ranks), places in sorted(equal.items()):
        seconds = collectives.seconds[places]
        rows.append({
            "kind": kind, "algorithm": algorithm or None, "protocol": protocol or None,
            "bytes": int(size) if size >= 0 else None, "group_size": int(ranks) if ranks > 0 else None,
            "per_iteration": len(seconds) / iterations, "seconds": float(np.median(seconds)),
            "shortest_seconds": float(seconds.min()),
        })  # fmt: skip
    return rows
