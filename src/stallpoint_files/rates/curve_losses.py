"""Losses per worker that a measured curve shows: within a node, at its boundary, or with every further node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from stallpoint.base.curve import Curve
from stallpoint.base.section import Cause
from stallpoint.base.stall import Verdict
from stallpoint_files.rates.rate_series import CLEAR

KEPT = 0.97
"""Minimum fraction of a worker's rate that is kept for a loss to be negligible."""


def losses(curve: Curve) -> Iterator[Cause]:
    """Yield the causes of losses per worker."""
    node = curve.full_node_workers
    inside = [count for count in curve.counts if node and count <= node]
    across = [count for count in curve.counts if node and count > node]
    if curve.stall.reached and not (curve.one_step or curve.is_short):
        yield _saturated(curve, curve.stall.ranks)
    elif across:
        if len(inside) > 1 and (lost := 1 - curve.efficiency(inside[-1])) > 1 - KEPT:
            yield Cause(
                "inside_node",
                "inside the node: uneven work of samples, the host's share of loading, or links between its GPUs",
                round(lost, 3),
                f"{curve.counts[0]} -> {inside[-1]} keep {100 * curve.efficiency(inside[-1]):.0f} % of a worker's rate",
            )
        yield from _between_nodes(curve, inside, across)
    elif (lost := 1 - curve.efficiency(curve.counts[-1])) > 1 - KEPT:
        shared = "something that all share" + ("" if curve.counted == "nodes" else " (nodes are not known)")
        why = "links or host shared by its GPUs, or uneven work" if inside else f"communication, or {shared}"
        if curve.unit.startswith("runs"):
            why += "; or more samples to a target, if the mini-batch grows (samples_to_target would tell)"
        where = "inside the node" if inside else f"with the number of {curve.counted}"
        words = f"each {curve.counted.removesuffix('s')} loses {100 * lost:.0f} % {where}: {why}"
        yield Cause("inside_node" if inside else "workers", words, round(lost, 3))


def _between_nodes(curve: Curve, inside: Sequence[int], across: Sequence[int]) -> Iterator[Cause]:
    """Yield the loss from the last count within a node (if measured) to the last count across nodes."""
    base, last = inside[-1] if inside else across[0], across[-1]
    between = curve.efficiency(last) / curve.efficiency(base)
    if last == base or between >= KEPT:
        return
    name = "between_nodes"
    if not inside:
        words = f"a worker loses {100 * (1 - between):.0f} % with the nodes: communication over the network, or "
        words += "something that all nodes share"
    else:
        at_boundary = curve.efficiency(across[0]) / curve.efficiency(base)
        later = between / at_boundary
        if at_boundary < KEPT and (across[0] == last or later > at_boundary + 0.02):
            name = "node_boundary"
            words = f"the first node boundary costs {100 * (1 - at_boundary):.0f} % of each worker's rate"
            words += "" if across[0] == last else f", later nodes {100 * max(0, 1 - later):.0f} %"
        else:
            words = f"between nodes a worker loses {100 * (1 - between):.0f} %, more with each doubling: communication "
            words += "over the network"
    lost = curve.efficiency(base) - curve.efficiency(last)
    yield Cause(name, words, round(max(lost, 0), 3))


def _saturated(curve: Curve, stall: int) -> Cause:
    """Return the cause of saturation at `stall` workers; for an undecided curve, worded as a condition."""
    node = curve.full_node_workers
    condition = "if it stops there: " if curve.verdict[0] == Verdict.UNDECIDED else ""
    nodes = "" if not node or stall <= node else f" ({math.ceil(stall / node)} nodes)"
    lost = round(1 - curve.efficiency(curve.counts[-1]), 3)
    last = curve.counts[-1]
    if curve.rate(last) < (1 - CLEAR) * curve.rate(stall):
        return Cause(
            "contention",
            f"{condition}from {count_of(stall, curve)}{nodes} on all together get slower: each one added costs the "
            "others time (a link that gets fuller, or latency that grows)",
            lost,
        )
    where = "a server or link inside the node" if node and last <= node else "a shared server, file system or link"
    return Cause(
        "shared_limit",
        f"{condition}after {count_of(stall, curve)}{nodes} every one added takes as much as it gives: {where} "
        "(not told apart)",
        lost,
    )


def count_of(count: int, curve: Curve) -> str:
    """Return a count with its unit: ``1 worker``, ``8 workers``."""
    return f"{count} {curve.counted if count > 1 else curve.counted.removesuffix('s')}"
