"""Sentences of the conclusions shared by several pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stallpoint.base.statistics import INTERVAL
from stallpoint.findings.conclusions.answers import Estimate, no_stall
from stallpoint.findings.listing import Columns, Listing, interval_of
from stallpoint.models.answers.fits import NO, UNKNOWN, YES
from stallpoint.models.answers.fits import UNDECIDED as MAY_FIT
from stallpoint.models.answers.remedies import TRAINS_OTHERWISE
from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_round_words, interval, number

MIN_PROBABILITY = 0.01
"""Probability below which a number of workers is not named."""
MAX_DECIDING = 3600
"""Seconds of further visits beyond which no number is said: the gain lies too close to the limit."""


def at_count(curve: Mapping[str, Any], ranks: int | str) -> str:
    """Return the placement or placements of a curve: ``n = 4`` in nodes of one worker each, else ``8 workers (2
    nodes)``."""
    per_node = curve["workers_per_node"]
    if per_node == 1:
        return f"n = {ranks}"
    return f"{ranks} workers" if isinstance(ranks, str) else placement_in_words(ranks, per_node)


def verdict_in_short(curve: Mapping[str, Any]) -> str:
    """Return the verdict in a few words, without its reason."""
    ranks = curve["verdict_ranks"]
    here, double = at_count(curve, ranks), at_count(curve, 2 * ranks)
    return {
        "stalls": f"stalls at {here}",
        "scales": f"scales to {here}",
        "undecided": f"undecided whether {double} gains" if ranks else "undecided",
        "withheld": "withheld",
    }[curve["verdict"]]


def reason_in_words(curve: Mapping[str, Any]) -> str:
    """Return the grounds of the verdict: the measured speedup and the probabilities, or what is missing."""
    if curve["verdict"] == "withheld" or (curve["note"] and not curve["verdict_ranks"]):
        return str(curve["note"])
    if not curve["verdict_ranks"]:
        return no_double(curve["largest_measured"])
    measured = {at["ranks"]: at["speedup"] for at in curve["measured"][1:]}
    # A stall on the fewest workers, or a certain lack of gain, is seen at the doubled count.
    ranks = curve["verdict_ranks"]
    if curve["verdict"] == "undecided" or ranks not in measured:
        ranks *= 2
    if ranks not in measured:
        ranks, measured = curve["measured_speedup_ranks"], {curve["measured_speedup_ranks"]: curve["measured_speedup"]}
    return f"speedup {interval(measured[ranks])} on {at_count(curve, ranks)}{_probably(curve)}"


def no_double(largest: int) -> str:
    """Return why the measurements, on `largest` workers at most, give no verdict."""
    if not largest:
        return "no iteration was measured: they are composed of the times of their layers"
    return "only n = 1 was measured" if largest == 1 else "no worker count was measured together with its double"


NO_DIFFERENCE = 1.0
"""Gain in % below which only the width of an interval around 0 is stated."""


def named_in_words(remedy: Mapping[str, Any]) -> str:
    """Return ``4 × the mini-batch (a target may take more samples)``: remedies that change training say so."""
    return f"{remedy['remedy']} ({also})" if (also := remedy["also"]) in TRAINS_OTHERWISE else str(remedy["remedy"])


def gained_in_words(remedy: Mapping[str, Any]) -> str:
    """Return ``+60 % (55–65)`` more throughput; ``at most`` for a limit, ``no difference within ± 15 %`` for none."""
    if remedy["gain"] is None:
        return "not known"
    ends: Estimate = {end: 100 * ((value or 0.0) - 1) for end, value in remedy["gain"].items()}
    value, low, high = (ends[end] or 0.0 for end in ("value", "low", "high"))
    if low <= 0 <= high and abs(value) < NO_DIFFERENCE:
        width = max(-low, high)
        return f"no difference within ± {number(max(1.0, width), 2)} %"
    sign = "+" if value > 0 else ""
    return f"{'at most ' if remedy['upper_bound'] else ''}{sign}{interval(ends, 1.0, ' %')}"


FITS_IN_WORDS = {YES: "fits", NO: "does not fit", MAY_FIT: "may not fit", UNKNOWN: "unknown"}


def _memory_in_words(remedy: Mapping[str, Any]) -> str:
    fits = FITS_IN_WORDS[remedy["fits"]]
    return f"{interval(remedy['memory'], 2**-30, ' GiB')}, {fits}" if remedy["memory"] else fits


REMEDY_COLUMNS: Columns = {
    "what would help": "remedy", "throughput": gained_in_words, "memory of a worker": _memory_in_words,
    "it also means": lambda remedy: remedy["also"] or "–", "verdict": "verdict",
}  # fmt: skip


def probabilities_in_words(
    curve: Mapping[str, Any], outcomes: Iterable[Mapping[str, Any]], limit: int | None = None
) -> str:
    """Return the stalling points by probability: "stalls at n = 8: 60 %, ..."."""
    ranked = sorted(outcomes, key=lambda entry: -entry["probability"])[:limit]
    named = [entry for entry in ranked if entry["probability"] >= MIN_PROBABILITY]
    words = {True: "stalls at", False: "no stall up to"}
    return ", ".join(
        f"{words[entry['stalls']]} {at_count(curve, entry['ranks'])}: {chance_in_words(entry['probability'])}"
        for entry in named
    )


def probable(probability: float) -> str:
    """Return ``P = 0.58``, to the precision of the draws."""
    return "P > 0.99" if probability > 1 - MIN_PROBABILITY else f"P = {probability:.2f}"


def chance_in_words(probability: float) -> str:
    """Return a probability in per cent; draws resolve none beyond 99 %."""
    return "over 99 %" if probability > 1 - MIN_PROBABILITY else f"{100 * probability:.0f} %"


def _probably(curve: Mapping[str, Any]) -> str:
    """Return the certainty of a verdict; without one the probabilities, and what would decide. Empty where unknown."""
    if not curve["measured_stall"]:
        return ""
    if curve["verdict"] != "undecided":
        return f", {chance_in_words(max(entry['probability'] for entry in curve['measured_stall']))} sure"
    return f"; {probabilities_in_words(curve, curve['measured_stall'])}; {deciding_in_words(curve)} would decide"


def deciding_in_words(curve: Mapping[str, Any]) -> str:
    """Return ``some 4 min of visits to n = 1, 2``; without minutes where no visits can be counted."""
    visits = f"visits to {at_count(curve, ', '.join(map(str, curve['deciding_ranks'])))}"
    seconds = curve["deciding_time"]
    if seconds is None:
        return visits
    return f"{'more than an hour' if seconds > MAX_DECIDING else f'some {in_round_words(seconds)}'} of {visits}"


def verdict_in_words(curve: Mapping[str, Any]) -> str:
    """Return the measured verdict of one curve."""
    decided = curve["verdict"] != "withheld" and curve["verdict_ranks"]
    return f"{verdict_in_short(curve)}{', ' if decided else ': '}{reason_in_words(curve)}"


def count(number: int, what: str) -> str:
    """Return ``1 node``, ``2 nodes``, ``2 processes``."""
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number} {what}{ending}"


def percent(estimate: Estimate | None) -> str:
    """Return a share with its interval, in per cent."""
    return interval(estimate, 100, " %")


def series(curve: Mapping[str, Any]) -> str:
    """Return the name of a curve among those of a network on a hardware entry."""
    per_node = f", {curve['workers_per_node']} workers per node" if curve["workers_per_node"] > 1 else ""
    return (
        f"{curve['scaling']}, {batch_in_words(curve)}, {curve['sync']}, {prefetch_in_words(curve)}, "
        f"{curve['storage']}{per_node}"
    )


def batch_in_words(curve: Mapping[str, Any]) -> str:
    """Return the constant mini-batch: B of all workers, or b of each."""
    return f"{'B' if curve['scaling'] == 'strong' else 'b'} = {curve['batch']}"


def prefetch_in_words(curve: Mapping[str, Any]) -> str:
    """Return how many mini-batches are read ahead."""
    return f"prefetch {curve['prefetch']}" if curve["prefetch"] else "no prefetch"


def stall_in_words(curve: Mapping[str, Any]) -> str:
    """Return where a curve stalls, or why that is unknown; with its probability, where that is low."""
    if curve["note"] and not curve["reached"]:
        return f"not known: {curve['note']}"
    scales = no_stall(curve)
    likely = max(scales, 1 - scales) >= INTERVAL
    undecided = "" if likely else "undecided: "
    if curve["reached"]:
        where = interval(curve["stall_ranks"])
        basis = "measured" if curve["basis"] == "measured" else "predicted, not measured"
        return f"{undecided}{where}, {basis}{'' if likely else f' ({probable(1 - scales)})'}"
    largest = curve["largest_considered"]
    below = f", interval from {curve['stall_not_below']}" if curve["stall_not_below"] < largest else ""
    measured = curve["largest_measured"]
    remarks = [f"beyond {measured} predicted, not measured" if measured else "predicted"] * (largest > measured)
    suffix = f" ({'; '.join(remarks)})" if (remarks := [*([] if likely else [probable(scales)]), *remarks]) else ""
    return f"{undecided}not reached up to {at_count(curve, largest)}{below}{suffix}"


def crossing_in_words(curve: Mapping[str, Any]) -> str:
    """Return where communication takes as long as compute."""
    crossing = curve["crossing_ranks"]
    if crossing is None:
        return "not known"
    if crossing["value"] is None:
        return f"not up to {at_count(curve, curve['largest_considered'])}"
    after = curve["crossing_after"]
    suffix = f", interpolated from {at_count(curve, round(after))} on" if after is not None else ""
    return f"{interval(crossing)}{suffix}"


def cost_efficient_in_words(curve: Mapping[str, Any]) -> str:
    """Return the most cost-efficient workers; all known ones may be."""
    ranks = curve["cost_efficient_ranks"]
    if ranks is None or curve["note"]:
        return "not known"
    return f"{interval(ranks)}{' or more' if ranks['value'] == curve['largest_considered'] else ''}"


def interventions(rows: Sequence[Mapping[str, Any]]) -> Listing:
    """Return the time saved without each part, of rows of ``interventions`` in the conclusions."""
    text = "What training saves with one thing excluded for real, beside what the critical path says that it takes:"
    return Listing.of("Causes by intervention", text, rows, {
        "cell": lambda row: f"{row['network']} on {row['hardware']}, {series(row)}, {at_count(row, row['ranks'])}",
        "excluded": "intervention", "saves": interval_of("saved", 1e3, " ms"),
        "parts that should go with it": "parts", "they take": interval_of("expected", 1e3, " ms"),
        "agree": agrees_in_words,
    })  # fmt: skip


def agrees_in_words(row: Mapping[str, Any]) -> str:
    """Return ``yes`` or ``no``."""
    return "yes" if row["agrees"] else "no"


def _wait_in_words(curve: Mapping[str, Any]) -> str:
    wait = curve["data_wait"]
    return f"{percent(wait['share'])} at {at_count(curve, wait['ranks'])}"


CURVE_COLUMNS: Columns = {
    "as measured": verdict_in_words,
    "stalls at n": stall_in_words,
    "dominant cause there (or at the largest n)": "dominant_cause",
    "communication reaches compute at n": crossing_in_words,
    "worth paying for up to n": cost_efficient_in_words,
    "best speedup": interval_of("best_speedup"),
    "waiting for data": _wait_in_words,
}


def next_in_words(curve: Mapping[str, Any]) -> str:
    """Return the next cell to measure, what it is expected to tell, and its cost."""
    cell = curve["next_cell"]
    if cell is None:
        return f"not known: {curve['note'] or 'no doubling of the workers is known'}"
    factor, expected = (number(2 ** cell[name], 2) for name in ("width", "expected_width"))
    if not cell["narrows"] or factor == expected:
        return f"no cell would tell more; the stalling point is known within a factor of {factor}"
    what = {
        "train": f"training on {at_count(curve, cell['ranks'])}",
        "collectives": f"the collectives on {at_count(curve, cell['ranks'])}",
        "compute": f"compute at b = {cell['worker_batch']} on one worker",
    }[cell["kind"]]
    return (
        f"{what} ({number(cell['node_hours'], 2)} node-hours); the stalling point would then be known within a factor "
        f"of {expected} instead of {factor}"
    )


def model_error_in_words(error: Mapping[str, Any]) -> str:
    """Return the median error of the model, and of how many points."""
    off = number(100 * error["median_error"]["value"], 2)
    return f"{off} % off (median of {count(error['points'], 'measured point')})"


def error_in_words(error: Mapping[str, Any]) -> str:
    """Return the median error, with an interval where its points tell one."""
    median_error = error["median_error"]
    return f"{number(100 * median_error['value'])} %" if median_error["low"] is None else percent(median_error)


def instrumentation(entries: Sequence[Mapping[str, Any]]) -> Listing:
    """Return the cost of timing layers, and whether they add up, of ``instrumentation`` in the conclusions."""
    text = (
        "Measured in each training job beside its data; here the worst of all ranks and cells: what timing one layer "
        "(its forward and its backward pass) adds to an iteration, how much of an iteration that is, and what part of "
        "the forward and the backward pass its layers add up to."
    )
    return Listing.of("What the timing of layers costs", text, entries, {
        "network": "network", "hardware": "hardware", "cells": "cells",
        "timing a layer": lambda entry: f"{number(1e6 * entry['timing_cost'])} µs",
        "of an iteration": lambda entry: f"{number(100 * entry['timing_share'])} %",
        "forward": lambda entry: f"{100 * entry['forward_closure']:.1f} %",
        "backward": lambda entry: f"{100 * entry['backward_closure']:.1f} %",
    })  # fmt: skip
