"""Findings of an answer: the measurement of its fastest curve, the prediction beyond, and its uncertainty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stallpoint.findings.conclusions.answers import Answer, Conclusions, Estimate
from stallpoint.findings.conclusions.conclusion_words import (
    at_count,
    batch_in_words,
    count,
    deciding_in_words,
    gained_in_words,
    model_error_in_words,
    named_in_words,
    no_double,
    prefetch_in_words,
    probabilities_in_words,
    probable,
)
from stallpoint.findings.conclusions.cost_findings import cost_in_words, failures_in_words
from stallpoint.findings.finding import Finding
from stallpoint.models.answers.remedies import HELPS, UNDECIDED
from stallpoint.study.workers import placement_in_words
from stallpoint.text import interval, number

VERDICT, HEADLINE, RATE, GAIN, WITHHELD, LIKELY = "verdict", "headline", "rate", "gain", "withheld", "most likely"
LOSS, BEYOND, HELP, FIRST, CURVE = "largest loss", "beyond", "would help", "would help first", "curve"
COST, FAILURES = "cost", "failures"
MACHINE, TRUST = "measured on", "trust"
CARD = (WITHHELD, LIKELY, LOSS, BEYOND, COST, FAILURES, HELP, FIRST, CURVE, MACHINE, TRUST)
"""Kinds below the headline of an answer, in order."""
COMMON = {
    "; workers slow each other down: cores, caches, memory or clock": {"interference", "straggling"},
    "; sending, and what it takes from computing": {"communication", "interference"},
    "; a smaller b takes less work, but not as much less time": {"matrix shapes", "non-scaling layers", "model update"},
}
"""What causes that are not distinguishable have in common."""


def answer_findings(answer: Answer, conclusions: Conclusions) -> dict[str, Finding]:
    """Return the findings of an answer by kind, those of `CARD` in order; without empty ones."""
    machines, trusted = conclusions["machines"], not answer["why_withheld"]
    at, cause = answer["at"] or {}, (answer["cause"] or {"leading": [{}]})["leading"][0]
    where, beyond = beyond_in_words(answer, machines)
    on = next((machine_in_words(one) for one in machines if one["hardware"] == answer["hardware"]), "")
    source = source_in_words(answer, machines)
    undecided = answer["state"] == "undecided" and answer["deciding_ranks"]
    found = (
        _finding(
            answer, VERDICT, sentence(answer, machines), at.get("speedup"), verdict=answer["state"], evidence=source,
            ask=(deciding_in_words(answer),) if undecided else (),
        ),
        _finding(answer, HEADLINE, heading(answer, machines), evidence=source if trusted and answer["ranks"] else ""),
        _finding(answer, RATE, throughput_in_words(answer), at.get("samples_per_second"), "samples/s", evidence=source),
        _finding(answer, GAIN, gain_in_words(answer), at.get("efficiency"), evidence=source),
        _finding(answer, WITHHELD, answer["why_withheld"]),
        _finding(answer, LIKELY, likely_in_words(answer), label=LIKELY),
        _finding(
            answer, LOSS, cause_in_words(answer) if trusted else "", cause.get("lost_seconds"), "s", label=LOSS,
            evidence=source,
        ),
        _finding(answer, BEYOND, beyond, verdict=answer["beyond"]["state"], label=where, evidence="predicted"),
        _finding(answer, COST, cost_in_words(answer, conclusions) if trusted else "", label=COST, evidence=source),
        _finding(answer, FAILURES, failures_in_words(answer, conclusions) if trusted else "", label=FAILURES),
        _finding(answer, HELP, helps_in_words(answer), label=HELP, evidence="predicted"),
        _finding(answer, FIRST, helps_in_words(answer, limit=1), label=HELP, evidence="predicted"),
        _finding(answer, CURVE, _which(answer), label=CURVE),
        _finding(answer, MACHINE, f"{answer['hardware']}: {on}" if on else "", label=MACHINE),
        _finding(answer, TRUST, trust_in_words(answer, conclusions), label=TRUST),
    )  # fmt: skip
    return {one.kind: one for one in found if one.words}


def _finding(
    answer: Answer, kind: str, words: str, estimate: Estimate | None = None, unit: str = "", **fields: Any
) -> Finding:
    ends: Estimate = estimate or {}
    return Finding(
        kind, placement(answer), words, value=ends.get("value"), low=ends.get("low"), high=ends.get("high"),
        unit=unit if ends else "", about={name: answer[name] for name in ("network", "hardware", "storage")}, **fields,
    )  # fmt: skip


def subject(answer: Mapping[str, Any]) -> str:
    """Return ``alexnet``, or ``alexnet at B = 2`` where the verdict at another B differs."""
    return f"{answer['network']} at B = {batch}" if (batch := answer["of_batch"]) else str(answer["network"])


def placement(answer: Mapping[str, Any]) -> str:
    """Return ``alexnet on cpu, strong, B = 64, local``."""
    on = f"{answer['network']} on {answer['hardware']}"
    return f"{on}, {answer['scaling']}, {batch_in_words(answer)}, {answer['storage']}"


def _which(one: Answer) -> str:
    """Return the leading curve: its mini-batch, preset and storage, and whatever else its rivals vary."""
    per_node = f"{one['workers_per_node']} workers per node" if one["workers_per_node"] > 1 else ""
    ahead = prefetch_in_words(one) if "prefetch" in one["differ"] else ""
    texts = (f"{one['scaling']} scaling", batch_in_words(one), one["sync"], per_node, ahead, one["storage"])
    return ", ".join(filter(None, texts)) + rivals_in_words(one)


# --- in words -------------------------------------------------------------------------------------


def unit_in_words(answer: Mapping[str, Any], machines: Iterable[Mapping[str, Any]], ranks: int) -> str:
    """Return ``2 nodes``, or ``8 workers (2 nodes)``; ``2 processes`` where nodes with one worker each were processes
    of one machine."""
    one = any(at["hardware"] == answer["hardware"] and at["machines"] < at["nodes"] for at in machines)
    if one and answer["workers_per_node"] == 1:
        return count(ranks, "process")
    return placement_in_words(ranks, answer["workers_per_node"])


def heading(answer: Mapping[str, Any], machines: Sequence[Mapping[str, Any]]) -> str:
    """Return the state of an answer in a few words."""
    ranks = answer["ranks"]
    here, double = (unit_in_words(answer, machines, n) for n in (ranks, 2 * ranks))
    first = bool(answer["base"]) and ranks == answer["base"]["ranks"]
    return {
        "stalls": f"No gain beyond {here}" if first else f"Worth up to {here}",
        "scales": f"Scales to {here}",
        "undecided": f"Undecided at {double}" if ranks else "Undecided",
        "withheld": "Withheld",
    }[answer["state"]]


def sentence(answer: Mapping[str, Any], machines: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer as a sentence without its subject's placement."""
    ranks, network = answer["ranks"], subject(answer)
    here, double = (unit_in_words(answer, machines, n) for n in (ranks, 2 * ranks))
    if answer["why_withheld"]:
        return f"{network}: {answer['state']}, as {answer['why_withheld']}"
    if not ranks:
        return f"{network}: undecided, as {no_double(answer['beyond']['from'])}"
    return {
        "stalls": f"{network} stops gaining beyond {here}",
        "scales": f"{network} gains up to {here}",
        "undecided": f"{network}: undecided whether {double} gain; {deciding_in_words(answer)} would decide",
    }[answer["state"]]


def throughput_in_words(answer: Mapping[str, Any]) -> str:
    """Return ``15 → 22 samples/s``: on the fewest workers, and at the verdict."""
    base, at = answer["base"], answer["at"]
    if not base:
        return "not known"
    rates = [number(point["samples_per_second"]["value"], 3) for point in (base, at) if point]
    return f"{' → '.join(rates)} samples/s"


def gain_in_words(answer: Mapping[str, Any]) -> str:
    """Return efficiency, speedup with its interval, and iteration time at the verdict."""
    base, at = answer["base"], answer["at"]
    if not at:
        return "one worker count was measured" if base else "no iteration was measured"
    seconds = " → ".join(number(point["seconds"]["value"], 2) for point in (base, at))
    speedup, _, ends = interval(at["speedup"]).partition(" (")
    return f"{_efficient(at['efficiency'])}, {speedup}× (90 % CI {ends}, {seconds} s an iteration"


def _efficient(efficiency: Estimate) -> str:
    """Return ``74 % efficient``; more than 100 % only where the whole interval is above it."""
    value, low = 100 * (efficiency["value"] or 0.0), 100 * (efficiency["low"] or 0.0)
    if value > 100 and low <= 100:
        return "100 % efficient within its interval"
    return f"{value:.0f} % efficient"


def cause_in_words(answer: Mapping[str, Any]) -> str:
    """Return the largest measured loss against ideal scaling; indistinguishable causes are named together."""
    cause = answer["cause"]
    if cause is None:
        return ""
    lost = {entry["cause"]: entry["lost_seconds"] for entry in cause["leading"]}
    if cause["verdict"] == "dominant":
        ((name, seconds),) = lost.items()
        return f"{name}, {interval(seconds, 1e3, ' ms')} of each iteration"
    named = [name for name, seconds in lost.items() if (seconds["low"] or 0.0) > 0]
    if not named:
        return "no loss beyond what visits differ by"
    if len(lost) == 1:
        return f"{named[0]}, not distinguishable from no loss"
    if common := [words for words, causes in COMMON.items() if lost.keys() <= causes]:
        return f"undecided: {' or '.join(lost)}{common[0]}"
    shown = named[:2]
    if others := len(lost) - len(shown):
        return f"undecided: {', '.join(shown)} or {count(others, 'other')}"
    return f"undecided: {' or '.join(shown)}"


def beyond_in_words(answer: Mapping[str, Any], machines: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the prediction beyond the measured workers; empty without one."""
    beyond = answer["beyond"]
    where = f"beyond {unit_in_words(answer, machines, beyond['from'])}" if beyond["from"] else "nothing measured"
    workers = " workers" if answer["workers_per_node"] > 1 else ""
    if beyond["state"] == "withheld":
        return where, f"withheld: {beyond['why']}"
    if beyond["state"] == "nothing":
        return where, ""
    if beyond["state"] == "stalls":
        return where, f"predicted to stall at {interval(beyond['stall_ranks'])}{workers}"
    if beyond["state"] == "undecided":
        return where, f"undecided whether it gains up to {beyond['to']}{workers} ({probable(beyond['probability'])})"
    return where, f"predicted to gain up to {beyond['to']}{workers}"


MAX_REMEDIES = 3
"""Number of remedies named."""


def helps_in_words(answer: Mapping[str, Any], limit: int = MAX_REMEDIES) -> str:
    """Return the first `limit` remedies on the most measured workers; empty where there is none."""
    if answer["beyond"]["state"] == "withheld":
        return ""
    sure = [f"{named_in_words(one)}: {gained_in_words(one)}" for one in answer["helps"] if one["verdict"] == HELPS]
    open_ = [named_in_words(one) for one in answer["helps"] if one["verdict"] == UNDECIDED]
    named = sure[:limit] or ([f"undecided whether {' or '.join(open_[:limit])}"] if open_ else [])
    return f"{'; '.join(named)} (predicted, {at_count(answer, answer['helps'][0]['ranks'])})" if named else ""


def machine_in_words(machine: Mapping[str, Any]) -> str:
    """Return ``2 processes on one machine (AMD EPYC)``."""
    if machine["imported"]:
        nodes = count(machine["nodes"], "node")
        return f"imported, not measured here: up to {count(machine['processes'], 'process')} on {nodes}"
    machines = "one machine" if machine["machines"] == 1 else f"{machine['machines']} machines"
    models = ", ".join(machine["models"])
    return f"{count(machine['processes'], 'process')} on {machines}{f' ({models})' if models else ''}"


def source_in_words(answer: Mapping[str, Any], machines: Iterable[Mapping[str, Any]]) -> str:
    """Return the source of an answer's points: ``measured`` or ``imported``."""
    imported = any(at["imported"] for at in machines if at["hardware"] == answer["hardware"])
    return "imported" if imported else "measured"


def trust_in_words(answer: Mapping[str, Any], conclusions: Mapping[str, Any]) -> str:
    """Return the uncertainty of an answer: the speedup's interval, the model's error where it was checked, visits."""
    at, error = answer["at"], answer["model_error"]
    known = f"known to ± {number(100 * at['half_width'], 2)} %" if at and at["half_width"] is not None else ""
    off = f"model {model_error_in_words(error)}" if error else "model not checked"
    visits = sum(entry["visits"] for entry in conclusions["ended"] if entry["hardware"] == answer["hardware"])
    return "; ".join(text for text in (known, off, count(visits, "visit") if visits else "") if text)


def likely_in_words(answer: Mapping[str, Any]) -> str:
    """Return the two most probable outcomes of an undecided answer; empty for others."""
    return probabilities_in_words(answer, answer["likely"], limit=2) if answer["state"] == "undecided" else ""


def rivals_in_words(answer: Mapping[str, Any]) -> str:
    """Return ``, the fastest of 4 curves, though 1 may be as fast``; empty for a single curve."""
    if answer["curves"] == 1:
        return ""
    doubt = f", though {answer['as_fast']} may be as fast" if answer["as_fast"] else ""
    return f", the fastest of {answer['curves']} curves{doubt}"
