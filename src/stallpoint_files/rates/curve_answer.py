"""Answer to a measured curve: where it stops getting faster, how sure that is, and what to measure next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from stallpoint.base.curve import SURE_PROBABILITY, Curve
from stallpoint.base.section import Finding
from stallpoint.base.stall import Verdict
from stallpoint.text import listed, number
from stallpoint_files.rates.curve_losses import count_of, losses


def subject_of(name: str, curve: Curve) -> str:
    """Return the subject of the answer: the series, its counts, and the workers of a node."""
    first, last = curve.counts[0], curve.counts[-1]
    of_nodes = curve.per_node and curve.per_node > 1 and curve.counted != "nodes"
    nodes = f" ({number(curve.per_node or 1)} a node)" if of_nodes else ""
    return f"{name}, {f'{first}-' if first < last else ''}{count_of(last, curve)}{nodes}"


def at_workers(value: float, low: float, high: float | None = None) -> dict[str, Any]:
    """Return the fields of a finding whose value is a worker count: where a curve stalls, or up to which it scales."""
    return {"value": value, "low": low, "high": high, "unit": "workers"}


def points_of(curve: Curve) -> tuple[dict[str, float | None], ...]:
    """Return the measured counts and rates, as charts have them."""
    return tuple({"workers": count, "rate": curve.rate(count)} for count in curve.counts)


def in_arrows(values: Iterable[float]) -> str:
    """Return rates in words: ``532 -> 710 -> 879``."""
    return " -> ".join(number(value) for value in values)


def measured(subject: str, curve: Curve) -> Finding:
    """Return the answer by only the measured rates."""
    counts, (verdict, at) = curve.counts, curve.verdict
    last, before = counts[-1], counts[-2]
    gain = f"{100 * (curve.gain(before, last) - 1):.0f} %"
    efficient = "" if curve.dips or at == counts[0] else f", {100 * curve.efficiency(at):.0f} % efficient"
    asks: list[str] = []
    workers = at_workers(at, at)
    chance = curve.stall.probabilities[at]
    likely = f"P = {chance:.2f}" if chance < SURE_PROBABILITY else f"P > {SURE_PROBABILITY}"
    doubt = "sure" if curve.is_sure else f"{likely}{_prior_words(curve)}"
    if verdict == Verdict.STALLS:
        later = counts[counts.index(at) + 1 :]
        headline = f"stops getting faster at {count_of(at, curve)}{efficient}"
        workers = at_workers(at, at, later[0])
        if len(later) == 1:
            doubt = f"one count beyond it ({later[0]})"
            asks.append(f"a rate on {2 * last} {curve.counted}")
    elif verdict == Verdict.SCALES:
        headline = f"still gets faster at {last}, by {gain} for the last doubling{efficient}"
        workers = at_workers(last, last)
        doubt = "two counts only" if len(counts) == 2 else doubt
    elif curve.stalls_within_counts:
        likely_at = curve.stall.likely
        chance = sum(curve.stall.probabilities[count] for count in likely_at)
        headline = f"stops getting faster at {' or '.join(map(str, likely_at))} {curve.counted}"
        workers = at_workers(at, at, likely_at[-1])
        doubt = f"P = {min(chance, SURE_PROBABILITY):.2f} that it stops at one of them{_prior_words(curve)}"
        asks.append(f"repeat the run on {listed([str(count) for count in curve.stall.crucial_counts])} {curve.counted}")
    else:
        doubt = "not sure"
        if curve.one_step:
            node = f"a node of {curve.full_node_workers}" if curve.full_node_workers else f"{at}, which may be a node,"
            why = f"one count ({last}) beyond {node} does not tell a step from a stall"
            asks.append(f"a rate on {2 * last} {curve.counted}: a step comes once, a stall stays")
        elif curve.is_short:
            why = f"{last} are no doubling of them"
            asks.append(f"a rate on {2 * at} {curve.counted}")
        else:
            after = counts[counts.index(at) + 1]
            doubling = "the last doubling" if after == last else f"a doubling from {at} to {after}"
            gain = f"{100 * (curve.gain(at, after) - 1):.0f} %"
            why = f"{doubling} gains {gain}, within what equal runs may differ by"
            doubt += _prior_words(curve)
            deciding = listed([str(count) for count in curve.stall.crucial_counts])
            asks.append(f"repeat the run on {deciding} {curve.counted}, or measure {2 * last}")
        headline = f"undecided beyond {count_of(at, curve)}: {why}"
    odd = curve.odd_count is not None
    if last / before > 2.5 or len(counts) == 2:
        asks.append(_gap_question(curve))
    if verdict == Verdict.STALLS:
        asks.append(_deciding_test(curve, at))
    shown = dict.fromkeys([at, last] if verdict == Verdict.STALLS else [last])
    efficiencies = ", ".join(f"{100 * curve.efficiency(count):.0f} % at {count}" for count in shown)
    return Finding(
        "rates",
        subject,
        "; ".join([*_dips(curve), headline]),
        verdict,
        **workers,
        causes=() if odd else tuple(sorted(losses(curve), key=lambda cause: -(cause.share or 0))),
        evidence=f"measured, {'but not of the same settings' if odd else doubt}",
        fits=f"{in_arrows(map(curve.rate, counts[-6:]))} {curve.unit}; efficiency {efficiencies}",
        ask=tuple(dict.fromkeys(asks)),
        notes=(_odd_note(curve),) if odd else (),
        points=points_of(curve),
        about={"unit": curve.unit},
        to_mend=bool(curve.dips or curve.slower_largest_count),
    )


def _prior_words(curve: Curve) -> str:
    """Return, in words, the prior of the noise; empty if runs were repeated."""
    words = f"; single runs, taken to differ by {100 * curve.prior.deviation:.0f} % ({curve.prior.words})"
    return "" if curve.repeated else words


def _dips(curve: Curve) -> Iterator[str]:
    """Yield sentences on counts that are slower than smaller ones: the largest count, and the deepest dip."""
    if (beyond := curve.slower_largest_count) and curve.verdict[0] == Verdict.UNDECIDED:
        before = max(curve.counts, key=curve.rate)
        times = curve.rate(beyond) / curve.rate(before)
        yield f"{beyond} {curve.counted} are slower than {before}, {times:.2f} times"
    if not curve.dips:
        return
    dip = min(curve.dips, key=lambda dip: curve.rate(dip.at) / curve.rate(dip.before))
    last, node = curve.counts[-1], curve.full_node_workers or 1
    in_nodes = curve.counted == "nodes" or (node > 1 and not any(count % node for count in (*dip, last)))
    counted, each = ("nodes", node) if in_nodes else (curve.counted, 1)
    at, before, end = (count // each for count in (dip.at, dip.before, last))
    slower, faster = (f"{curve.rate(count) / curve.rate(dip.before):.2f}" for count in (dip.at, last))
    yield (
        f"{at} {counted} are slower than {before}, {slower} times; from {at} on it gains again; {end} {counted} are "
        f"{faster} times {before}, {100 * curve.efficiency(last):.0f} % efficient"
    )


def _odd_note(curve: Curve) -> str:
    odd = curve.odd_count or 0
    index = curve.counts.index(odd)
    steep = [(a, b) for a, b in pairwise(curve.counts) if odd in (a, b)]
    start, end = max(steep, key=lambda pair: curve.gain(*pair))
    times = curve.rate(end) / curve.rate(start)
    slow = index < len(curve.counts) - 1 and odd == start
    what = "was slower than it need be, or ran" if slow else "ran"
    return (
        f"{end} are {number(times)} times as fast as {start}: workers alone do not do that, so {odd} {what} with other "
        "settings; no cause is named"
    )


def _gap_question(curve: Curve) -> str:
    counts = curve.counts
    if len(counts) == 2:
        where = f"{2 * counts[-1]}"
        if curve.full_node_workers and counts[0] <= curve.full_node_workers < counts[1]:
            return (
                f"a rate on {where} {curve.counted}: a loss that comes once, at the first node boundary, then "
                "stays; one that grows with nodes comes again"
            )
        return f"a rate on {where} {curve.counted}: two counts do not tell a loss that grows from one that stays"
    middle = 2 * counts[-2]
    return f"a rate on {middle} {curve.counted}: between {counts[-2]} and {counts[-1]} nothing is measured"


def _deciding_test(curve: Curve, stall: int) -> str:
    """Return the measurement that distinguishes a slow link from a slow server."""
    if not curve.full_node_workers:
        return "how many workers a node has (--workers-per-node), and whether one server or file system feeds all"
    nodes = math.ceil(stall / curve.full_node_workers)
    few = f"{max(nodes, 2)} and {2 * max(nodes, 2)} nodes"
    return f"time an all-reduce of the gradients' size on {few}:  all_reduce_perf -b 64M -e 256M -f 2"
