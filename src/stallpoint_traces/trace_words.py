"""Findings and sentences on traces: iterations, ranks and predictions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stallpoint.base.section import Cause, Finding
from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import Estimate
from stallpoint.text import interval, number
from stallpoint_traces import traced_link
from stallpoint_traces.layout.groups import DATA
from stallpoint_traces.layout.slowest_ranks import DATA as LOADING
from stallpoint_traces.layout.slowest_ranks import LAST_STAGE, SEQUENCES, STRAGGLING, WORKER
from stallpoint_traces.rank.iterations import CAUSES

WORDS = {
    "compute": "computing",
    "exposed_communication": "communication that nothing hides",
    "copy": "copies that nothing hides",
    "data_wait": "waiting for a mini-batch",
    "host_wait": "the host is blocked in calls",
    "launch": "the device waits for the host to start operators",
    "other": "time of which the trace says nothing",
}


def findings(explained: Sequence[dict[str, Any]]) -> Iterable[Finding]:
    """Yield the joint finding of several ranks (who arrives last, cost of the slowest), then each rank's finding."""
    if words := list(joint_sentences(explained)):
        slow = next((one["stragglers"] for one in explained if one["stragglers"]), None)
        causes: tuple[Cause, ...] = ()
        if slow and slow["slowdown"] >= STRAGGLING:
            lost = round(1 - 1 / slow["slowdown"], 3)
            causes = (Cause(slow["cause"] or "ranks", "others wait for the slowest ranks", lost),)
        yield Finding(
            "trace", "traced ranks", words[-1].rstrip("."), causes=causes, evidence="traced",
            notes=tuple(words[:-1]), points=tuple(slow["cells"]) if slow else (),
        )  # fmt: skip
    yield from map(_finding, explained)


def _finding(one: dict[str, Any]) -> Finding:
    subject = f"{one['file']}: rank {one['rank']} of {one['world_size']}"
    if not one["iterations"]:
        return Finding("trace", subject, "no iterations were found", Verdict.UNDECIDED, notes=tuple(one["notes"]))
    first, *others = sentences(one)
    seconds, total = one["seconds"] or {}, one["iteration_seconds"]
    causes = tuple(
        Cause(name, cause(one, name), round(seconds[name] / total, 3), _time_and_share(seconds[name], total))
        for name in sorted(seconds, key=lambda name: -seconds[name])
        if name != "compute" and seconds[name] > _MIN_NAMED * total
    )
    computing = [f"computing {_time_and_share(seconds['compute'], total)}"] if seconds else []
    device = [f"{name} {number(value)} %" for name, value in (one["shares"] or {}).items()]
    stalling = (one["predicted"] or {}).get("stalling")
    verdict = stalling["verdict"] if stalling else Verdict.UNDECIDED
    workers = float(stalling["workers"]) if stalling else None
    return Finding(
        "trace",
        subject,
        first.rstrip("."),
        verdict if verdict in (Verdict.STALLS, Verdict.SCALES) else Verdict.UNDECIDED,
        workers,
        workers,
        unit="workers" if stalling else "",
        causes=causes,
        evidence="traced",
        fits="; ".join([*computing, *([f"the device: {', '.join(device)}"] if device else [])]),
        beyond=" ".join(prediction(one)),
        ask=tuple(one["lacks"]),
        notes=(*others, *one["notes"]),
    )


_MIN_NAMED = 0.02
"""Minimum time of a cause that is named, as a fraction of an iteration."""


def joint_sentences(explained: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Yield sentences for each worker count: who arrives last, and how much of communication is waiting."""
    for size in dict.fromkeys(one["world_size"] for one in explained):
        some = [one for one in explained if one["world_size"] == size]
        yield from _arrival_sentences(some)
        ranks = f"{len(some)} ranks" if len(some) >= size else f"{len(some)} of {size} ranks"
        yield from (_straggler_sentence(one["stragglers"], ranks) for one in some if one["stragglers"])


def _arrival_sentences(explained: Sequence[dict[str, Any]]) -> Iterable[str]:
    known = [one for one in explained if one["waits"]]
    if len(known) < 2:
        return
    last = max(known, key=lambda one: float(one["waits"]["last"]))
    waiting = np.mean([one["waits"]["share"] for one in known])
    if not last["waits"]["last"]:
        yield f"Of {len(known)} ranks none waits for another."
        return
    yield (
        f"Of {len(known)} ranks rank {last['rank']} comes last most often, to "
        f"{number(100 * last['waits']['last'], 2)} % of the collectives in which any rank waits; of communication "
        f"{number(100 * waiting, 2)} % is waiting for other ranks."
    )


def _straggler_sentence(of: dict[str, Any], ranks: str) -> str:
    """Return the cost of uneven ranks and its cause in words."""
    slow = f"{number(of['slowdown'])} times as long as with even ones, exposed communication apart"
    if of["slowdown"] < STRAGGLING:
        return f"None of these {ranks} straggles: an iteration takes {slow}."
    shares = {name: f"{number(100 * share, 2)} %" for name, share in of["shares"].items()}
    words = {
        LOADING: "waiting for mini-batches", LAST_STAGE: "the last stage", SEQUENCES: "sequences of uneven length",
        WORKER: f"rank {', '.join(map(str, of['slowest'][:3]))}",
    }  # fmt: skip
    mended = "No cause alone makes up half"
    if cause := of["cause"]:
        mended = f"Mending {words.get(cause, cause)} alone would save {shares.pop(cause)}"
    others = ", ".join(f"{words.get(name, name)}: {share}" for name, share in shares.items())
    return f"With these {ranks} an iteration takes {slow}. {mended} of that ({others})."


def _assumptions(found: dict[str, Any]) -> str:
    """Return the assumptions of predictions."""
    each = found["batch_workers"]
    who = "worker" if each == 1 else f"replica of {each} workers"
    return f"Predicted, each {who} with its mini-batch, over links like those traced"


def _verdict_in_words(found: dict[str, Any]) -> str:
    stalling = found["stalling"]
    words = {Verdict.STALLS: "stalls at", Verdict.SCALES: "scales to", Verdict.UNDECIDED: "undecided from"}
    workers = stalling["workers"]
    return f"Weak scaling {words[stalling['verdict']]} {workers} worker{'' if workers == 1 else 's'}."


def cause(one: dict[str, Any], name: str) -> str:
    """Return a cause of an iteration's time in words; communication includes waiting if other ranks are not traced."""
    if name != "exposed_communication" or not one["seconds"][name] or (one["clock"] and not one["missing_ranks"]):
        return WORDS[name]
    return f"{WORDS[name]}: transfer and waiting, not told apart"


def _link_in_words(found: dict[str, Any]) -> str:
    """Return latency and bandwidth of the link in words, as far as they are identifiable."""
    of = found["link"]
    alpha, beta = (_estimate(of, name) for name in ("alpha_seconds", "beta_seconds_per_byte"))
    why = {
        traced_link.LOG: "by the log",
        traced_link.COUNTS: "by what was sent on several numbers of workers",
        traced_link.RANKS: "by the rank that came last",
        traced_link.ONE_RANK: "at most, as one rank's communication is transfer and waiting, not told apart",
    }[of["source"]]  # fmt: skip
    return f"Link: α {interval(alpha, 1e6, ' µs')} a round, β {interval(beta, 1e9, ' ns')} a byte; {why}."


def sentence(one: dict[str, Any]) -> str:
    """Return the number of iterations and their duration in words."""
    replayed = "" if one["replayed_seconds"] is None else f", {_ms(one['replayed_seconds'])} when replayed"
    count = one["iterations"]
    return f"{count} iteration{'' if count == 1 else 's'} of {_ms(one['iteration_seconds'])} (median){replayed}."


def blocked(one: dict[str, Any]) -> Iterable[str]:
    """Yield sentences on the calls that block the host longest, and on a device that is never idle."""
    rows = [row for row in one["blocked_by"] if row["seconds"] >= _MIN_BLOCKED * one["iteration_seconds"]][:3]
    if rows:
        calls = (
            f"{row['call']} ({_ms(row['seconds'])} an iteration, {row['calls']} in all, the longest "
            f"{_ms(row['longest_seconds'])})"
            for row in rows
        )
        yield f"The host is blocked in {', '.join(calls)}."
    if one["never_idle"]:
        yield "The device is never idle: the host is not the limit, and how long it needs itself is not told."


_MIN_BLOCKED = 0.01
"""Minimum blocking time of a call that is named, as a fraction of an iteration."""


def other_ranks_in_words(one: dict[str, Any]) -> Iterable[str]:
    """Return the comparison with other ranks and groups of ranks in words."""
    if one["waits"]:
        last = f"{number(100 * one['waits']['last'], 2)} % of the collectives in which any rank waits"
        yield f"Collectives wait {_ms(one['waits']['seconds'])} of it for other ranks; this one comes last to {last}."
    if any(group["parallelism"] not in (None, DATA) for group in one["groups"]):
        named = [f"{group['parallelism'] or 'unknown'} ({group['size'] or '?'} ranks) {_group_times_in_words(group)}"
                 for group in one["groups"]]  # fmt: skip
        yield f"Parallelism: {'; '.join(sorted(named))}."
    if of := one["bubble"]:
        yield (
            f"Pipeline: {of['schedule']} with {of['passes']} forward passes on {of['pipeline_stages']} stages, which "
            f"leaves {_ms(of['seconds'])} idle; {_ms(of['exposed'])} are exposed in sending and receiving. With twice "
            f"as many micro-batches of half the size an iteration takes {_ms(of['twice_as_many'])}, with twice as many "
            f"stages {_ms(of['twice_the_pipeline'])}."
        )
    if of := one["ring"]:
        low, high = of["twice_as_many"], of["twice_as_many_high"]
        until = "" if high <= low * _MAX_RATIO else (
            f", or {_ms(high)} if its exchanges get no shorter: blocks of one size do not tell their latency; a trace "
            "of other sequences or ranks does"
        )  # fmt: skip
        yield (
            f"Context: a ring of {of['ranks']} ranks exchanges {number(of['exchanges'])} blocks in {_ms(of['seconds'])}"
            f", of which {_ms(of['exposed'])} are exposed. With twice as many ranks, the same sequences and links like "
            f"those traced an iteration takes {_ms(low)}{until}."
        )
    if of := one["imbalance"]:
        who = "" if of["all_traced"] else ", if all route as this one,"
        cost = of["computing"] + of["exchanging"]
        yield (
            f"Experts: the busiest of {of['ranks']} ranks gets{who} {number(of['busiest'], 2)} times the mean of "
            f"tokens, which costs {_ms(cost)} of an iteration: {_ms(of['computing'])} of computing, "
            f"{_ms(of['exchanging'])} of exchanges."
        )


_MAX_RATIO = 1.02
"""Maximum ratio of an interval's two ends for which only one number is printed."""


def _group_times_in_words(group: dict[str, Any]) -> str:
    """Return the time of a group's collectives in words."""
    parts = []
    for row in group["collectives"]:
        exposed = "" if row["exposed"] is None else f", {_ms(row['exposed'])} of it exposed"
        waiting = "" if row["waiting"] is None else f", {_ms(row['waiting'])} waiting"
        parts.append(f"{row['kind'] or 'unnamed'} {_ms(row['seconds'])}{exposed}{waiting}")
    return ", ".join(parts)


def sentences(one: dict[str, Any]) -> Iterable[str]:
    """Yield a rank's answer in a few sentences."""
    if not one["iterations"]:
        return
    if not one["seconds"]:
        yield sentence(one)
        yield from other_ranks_in_words(one)
        return
    total = one["iteration_seconds"]
    largest = max((name for name in CAUSES if name != "compute"), key=lambda name: one["seconds"][name])
    computing, lost = (f"{number(100 * one['seconds'][name] / total, 2)} %" for name in ("compute", largest))
    yield (f"{sentence(one)} {computing} of it is computing; most of the rest ({lost}): {cause(one, largest)}.")
    yield from blocked(one)
    yield from other_ranks_in_words(one)


def prediction(one: dict[str, Any]) -> Iterable[str]:
    """Yield sentences on other worker counts, the link, and the gains of hypothetical changes."""
    found = one["predicted"]
    if not found:
        return
    each, rows = found["replica_workers"], found["workers"]
    first = "one" if each == 1 else f"one replica, {each} workers"
    speedups = ", ".join(
        f"{row['workers']} workers: {interval(_estimate(row, 'speedup'))}"
        for row in rows
        if row is rows[-1] or row["workers"] == one["world_size"]
    )
    yield f"{_verdict_in_words(found)} {speedups} times the throughput of {first}."
    yield f"{_assumptions(found)}. {_link_in_words(found)}"
    changes = [f"{at['change']}: × {interval(_estimate(at, 'throughput_factor'))}" for at in found["what_if"]]
    yield f"On {found['what_if_workers']} workers: {'; '.join(changes)}."


def _estimate(row: dict[str, Any], name: str) -> Estimate:
    ends = (row[name], row[f"{name}_low"], row[f"{name}_high"])
    return Estimate(*(math.nan if end is None else end for end in ends))


def _time_and_share(seconds: float, total: float) -> str:
    return f"{_ms(seconds)}, {number(100 * seconds / total, 2)} %"


def _ms(seconds: float) -> str:
    return f"{number(1e3 * seconds)} ms"
