"""Sentences of the conclusions that several pages share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from stallpoint.findings.conclusions.alike import alike_in_words
from stallpoint.findings.conclusions.answers import no_stall
from stallpoint.findings.conclusions.numbers import Estimate
from stallpoint.models.answers.fits import NO, UNKNOWN, YES
from stallpoint.models.answers.fits import UNDECIDED as MAY_FIT
from stallpoint.models.answers.remedies import HELPS, TRAINS_OTHERWISE, UNDECIDED
from stallpoint.models.base.statistics import INTERVAL
from stallpoint.study.workers import place_in_words
from stallpoint.text import interval, number

LEAST_NAMED = 0.01
"""Probability below which a number of workers is not named."""


def at_count(curve: Mapping[str, Any], ranks: int | str) -> str:
    """A place, or several, of a curve: ``n = 4`` in nodes of one worker each, else ``8 workers (2 nodes)``."""
    per_node = curve["workers_per_node"]
    if per_node == 1:
        return f"n = {ranks}"
    return f"{ranks} workers" if isinstance(ranks, str) else place_in_words(ranks, per_node)


def verdict_in_short(curve: Mapping[str, Any]) -> str:
    """The verdict in a few words, without its reason."""
    ranks = curve["verdict_ranks"]
    here, double = at_count(curve, ranks), at_count(curve, 2 * ranks)
    return {
        "stalls": f"stalls at {here}",
        "scales": f"scales to {here}",
        "undecided": f"undecided whether {double} gains" if ranks else "undecided",
        "withheld": "withheld",
    }[curve["verdict"]]


def reason_in_words(curve: Mapping[str, Any]) -> str:
    """What the verdict rests on: the speedup measured there and the probabilities, or what is missing."""
    if curve["verdict"] == "withheld" or (curve["note"] and not curve["verdict_ranks"]):
        return str(curve["note"])
    if not curve["verdict_ranks"]:
        return _no_double(curve["largest_measured"])
    measured = {at["ranks"]: at["speedup"] for at in curve["measured"][1:]}
    # Where it stalls on the fewest workers, or gains nothing for sure, the doubled count says so.
    ranks = curve["verdict_ranks"]
    if curve["verdict"] == "undecided" or ranks not in measured:
        ranks *= 2
    if ranks not in measured:
        ranks, measured = curve["measured_speedup_ranks"], {curve["measured_speedup_ranks"]: curve["measured_speedup"]}
    return f"speedup {interval(measured[ranks])} on {at_count(curve, ranks)}{_probably(curve)}"


def _no_double(largest: int) -> str:
    """Why what was measured, on `largest` workers at most, gives no verdict."""
    if not largest:
        return "no iteration was measured: they are composed of the times of their layers"
    return "only n = 1 was measured" if largest == 1 else "no worker count was measured together with its double"


def unit_in_words(answer: Mapping[str, Any], machines: Iterable[Mapping[str, Any]], ranks: int) -> str:
    """``2 nodes``, or ``8 workers (2 nodes)``; ``2 processes`` where all workers of nodes that have one each ran on one
    machine, whatever the study calls them."""
    one = any(at["hardware"] == answer["hardware"] and at["machines"] < at["nodes"] for at in machines)
    if one and answer["workers_per_node"] == 1:
        return count(ranks, "process")
    return place_in_words(ranks, answer["workers_per_node"])


def heading(answer: Mapping[str, Any], machines: Sequence[Mapping[str, Any]]) -> str:
    """The state of an answer in a few words."""
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
    """The answer as a sentence without its subject's place."""
    ranks, network = answer["ranks"], answer["network"]
    here, double = (unit_in_words(answer, machines, n) for n in (ranks, 2 * ranks))
    if answer["why_withheld"]:
        return f"{network}: {answer['state']}, as {answer['why_withheld']}"
    if not ranks:
        return f"{network}: undecided, as {_no_double(answer['beyond']['from'])}"
    deciding = at_count(answer, ", ".join(map(str, answer["deciding"])))
    return {
        "stalls": f"{network} stops gaining beyond {here}",
        "scales": f"{network} gains up to {here}",
        "undecided": f"{network}: undecided whether {double} gain; visits to {deciding} would decide",
    }[answer["state"]]


def throughput_in_words(answer: Mapping[str, Any]) -> str:
    """``15 → 22 samples/s``: on the fewest workers, and where the verdict was seen."""
    base, at = answer["base"], answer["at"]
    if not base:
        return "not known"
    rates = [number(point["samples_per_second"]["value"], 3) for point in (base, at) if point]
    return f"{' → '.join(rates)} samples/s"


def gain_in_words(answer: Mapping[str, Any]) -> str:
    """Efficiency, speedup with its interval, and seconds of an iteration, where the verdict was seen."""
    base, at = answer["base"], answer["at"]
    if not at:
        return "one worker count was measured" if base else "no iteration was measured"
    seconds = " → ".join(number(point["seconds"]["value"], 2) for point in (base, at))
    speedup, _, ends = interval(at["speedup"]).partition(" (")
    return f"{_efficient(at['efficiency'])}, {speedup}× (90 % CI {ends}, {seconds} s an iteration"


def _efficient(efficiency: Estimate) -> str:
    """``74 % efficient``; more than 100 % only where the whole interval lies above."""
    value, low = 100 * (efficiency["value"] or 0.0), 100 * (efficiency["low"] or 0.0)
    if value > 100 and low <= 100:
        return "100 % efficient within its interval"
    return f"{value:.0f} % efficient"


def cause_in_words(answer: Mapping[str, Any]) -> str:
    """What costs most against ideal scaling, as measured; causes that cannot be told apart are named together."""
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
    shown = named[:2]
    if others := len(lost) - len(shown):
        return f"undecided: {', '.join(shown)} or {count(others, 'other')}"
    return f"undecided: {' or '.join(shown)}"


def beyond_in_words(answer: Mapping[str, Any], machines: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Where nobody measured, and what is said of it; empty where nothing is."""
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


MOST_HELPS = 3
"""Remedies that are named: the first to try."""


def helps_in_words(answer: Mapping[str, Any], limit: int = MOST_HELPS) -> str:
    """What would help first where most workers were measured, `limit` remedies; empty where nothing would."""
    if answer["beyond"]["state"] == "withheld":
        return ""
    sure = [f"{named_in_words(one)}: {gained_in_words(one)}" for one in answer["helps"] if one["verdict"] == HELPS]
    open_ = [named_in_words(one) for one in answer["helps"] if one["verdict"] == UNDECIDED]
    told = sure[:limit] or ([f"undecided whether {' or '.join(open_[:limit])}"] if open_ else [])
    return f"{'; '.join(told)} (predicted, {at_count(answer, answer['helps'][0]['ranks'])})" if told else ""


def named_in_words(remedy: Mapping[str, Any]) -> str:
    """``4 × the mini-batch (a target may take more samples)``: what trains something else says so by its name."""
    return f"{remedy['remedy']} ({also})" if (also := remedy["also"]) in TRAINS_OTHERWISE else str(remedy["remedy"])


def gained_in_words(remedy: Mapping[str, Any]) -> str:
    """``+60 % (55–65)`` more throughput; ``at most`` where it is a limit."""
    if remedy["gain"] is None:
        return "not known"
    ends: Estimate = {end: 100 * ((value or 0.0) - 1) for end, value in remedy["gain"].items()}
    sign = "+" if (ends["value"] or 0.0) > 0 else ""
    return f"{'at most ' if remedy['at_most'] else ''}{sign}{interval(ends, 1.0, ' %')}"


FITS_IN_WORDS = {YES: "fits", NO: "does not fit", MAY_FIT: "may not fit", UNKNOWN: "unknown"}
REMEDIES_HEAD = ["what would help", "throughput", "memory of a worker", "it also means", "verdict"]


def remedy_in_words(remedy: Mapping[str, Any]) -> list[str]:
    """The cells of a remedy under `REMEDIES_HEAD`."""
    fits = FITS_IN_WORDS[remedy["fits"]]
    memory = f"{interval(remedy['memory'], 2**-30, ' GiB')}, {fits}" if remedy["memory"] else fits
    return [remedy["remedy"], gained_in_words(remedy), memory, remedy["also"] or "–", remedy["verdict"]]


def machine_in_words(machine: Mapping[str, Any]) -> str:
    """``2 processes on one machine (AMD EPYC)``."""
    if machine["imported"]:
        nodes = count(machine["nodes"], "node")
        return f"imported, not measured here: up to {count(machine['processes'], 'process')} on {nodes}"
    machines = "one machine" if machine["machines"] == 1 else f"{machine['machines']} machines"
    models = ", ".join(machine["models"])
    return f"{count(machine['processes'], 'process')} on {machines}{f' ({models})' if models else ''}"


def source_in_words(answer: Mapping[str, Any], machines: Iterable[Mapping[str, Any]]) -> str:
    """Where an answer's points come from: ``measured`` or ``imported``."""
    imported = any(at["imported"] for at in machines if at["hardware"] == answer["hardware"])
    return "imported" if imported else "measured"


def imported_beside(conclusions: Mapping[str, Any]) -> int:
    """Imported cells of hardware entries that also measured here; of the others the machine says it."""
    wholly = [f"hardware~{at['hardware']}/" for at in conclusions["machines"] if at["imported"]]
    return sum(not any(part in row["cell"] for part in wholly) for row in conclusions["imported"])


def trust_in_words(answer: Mapping[str, Any], conclusions: Mapping[str, Any]) -> str:
    """How sure an answer is: the speedup's interval, the model's error where it was checked, visits."""
    at, error = answer["at"], answer["model_error"]
    known = f"known to ± {number(100 * at['half_width'], 2)} %" if at and at["half_width"] is not None else ""
    off = f"model {number(100 * error['value'], 2)} % off where checked" if error else "model not checked"
    visits = sum(entry["visits"] for entry in conclusions["ended"] if entry["hardware"] == answer["hardware"])
    return "; ".join(text for text in (known, off, count(visits, "visit") if visits else "") if text)


def likely_in_words(answer: Mapping[str, Any]) -> str:
    """The two most probable outcomes of an answer that is undecided; empty for others."""
    return probabilities_in_words(answer, answer["likely"], most=2) if answer["state"] == "undecided" else ""


def probabilities_in_words(
    curve: Mapping[str, Any], outcomes: Iterable[Mapping[str, Any]], most: int | None = None
) -> str:
    """Where it stalls by what was measured, the most probable first: "stalls at n = 8: 60 %, ..."."""
    told = sorted(outcomes, key=lambda entry: -entry["probability"])[:most]
    named = [entry for entry in told if entry["probability"] >= LEAST_NAMED]
    words = {True: "stalls at", False: "no stall up to"}
    return ", ".join(
        f"{words[entry['stalls']]} {at_count(curve, entry['ranks'])}: {chance_in_words(entry['probability'])}"
        for entry in named
    )


def probable(probability: float) -> str:
    """``P = 0.58``, as draws tell it."""
    return "P > 0.99" if probability > 1 - LEAST_NAMED else f"P = {probability:.2f}"


def chance_in_words(probability: float) -> str:
    """In per cent; draws tell none beyond 99 %."""
    return "over 99 %" if probability > 1 - LEAST_NAMED else f"{100 * probability:.0f} %"


def _probably(curve: Mapping[str, Any]) -> str:
    """How sure a verdict is; of none the probabilities, and what would decide. Empty where nothing was told."""
    if not curve["measured_stall"]:
        return ""
    if curve["verdict"] != "undecided":
        return f", {chance_in_words(max(entry['probability'] for entry in curve['measured_stall']))} sure"
    deciding = at_count(curve, ", ".join(map(str, curve["deciding_ranks"])))
    return f"; {probabilities_in_words(curve, curve['measured_stall'])}; visits to {deciding} would decide"


def verdict_in_words(curve: Mapping[str, Any]) -> str:
    """What was measured of one curve."""
    told = curve["verdict"] != "withheld" and curve["verdict_ranks"]
    return f"{verdict_in_short(curve)}{', ' if told else ': '}{reason_in_words(curve)}"


ENDED = {
    "precision": "precision reached",
    "budget": "budget used up",
    "visits": "fixed number of visits reached",
    "most visits": "no cell is to be visited more often",
}
"""Why there was no further visit, as readers are told."""


def ended_in_words(entry: Mapping[str, Any]) -> str:
    """How the visits to cells of a hardware entry ended."""
    cells, visits = count(entry["cells"], "cell"), count(entry["visits"], "visit")
    return f"{cells}, {visits}: {ENDED.get(entry['ended'], entry['ended'])}"


def disturbed_in_words(entry: Mapping[str, Any]) -> str:
    """What became of iterations that were disturbed for one reason."""
    kept, left_out = entry["kept"], entry["iterations"] - entry["kept"]
    if not kept:
        return "left out"
    return f"{left_out} left out, {kept} kept for want of others" if left_out else "kept for want of others"


def slow_node_in_words(entry: Mapping[str, Any]) -> str:
    """A node that holds up the others."""
    return f"{entry['node']} computes {entry['ratio']:.2g} times as long as the other nodes, which wait for it"


def mistrusted(conclusions: Mapping[str, Any]) -> list[str]:
    """Hardware entries on which cells that do the same differ: no verdict of theirs is to be trusted."""
    return list(dict.fromkeys(entry["hardware"] for entry in conclusions["controls"] if not entry["agrees"]))


def trust_lines(conclusions: Mapping[str, Any]) -> Iterator[str]:
    """How sure that is: how visits ended and how narrow intervals are, what was disturbed, and whether cells agree."""
    for entry in conclusions["ended"]:
        yield f"{entry['hardware']}: {ended_in_words(entry)}"
    for hardware in dict.fromkeys(curve["hardware"] for curve in conclusions["curves"]):
        if widths := half_widths(curve for curve in conclusions["curves"] if curve["hardware"] == hardware):
            several = f" in the median, ± {100 * max(widths):.2g} % at most" if len(widths) > 1 else ""
            what = "speedups" if len(widths) > 1 else "speedup"
            yield f"{hardware}: measured {what} known to ± {100 * median(widths):.2g} %{several}"
    for entry in conclusions["disturbances"]:
        iterations = count(entry["iterations"], "iteration")
        yield f"{entry['hardware']}: {iterations} disturbed by {entry['reason']}, {disturbed_in_words(entry)}"
    for entry in conclusions["slow_nodes"]:
        visits = count(entry["visits"], "visit")
        yield f"{entry['hardware']}: {slow_node_in_words(entry)} (sentinel, median of {visits})"
    yield from map(left_out_in_words, conclusions["left_out"])
    if controls := conclusions["controls"]:
        agree = sum(bool(entry["agrees"]) for entry in controls)
        verb = "agrees" if len(controls) == 1 else "agree"
        yield f"A/A controls: {agree} of {count(len(controls), 'pair')} of cells that do the same {verb}"
    yield from map(alike_in_words, conclusions["alike"])
    for hardware in mistrusted(conclusions):
        yield f"{hardware}: verdicts are withheld, as cells that do the same differ"


def half_widths(curves: Iterable[Mapping[str, Any]]) -> list[float]:
    """Half-widths of the intervals of all measured speedups, over their values."""
    return [at["half_width"] for curve in curves for at in curve["measured"] if at["half_width"] is not None]


def left_out_in_words(entry: Mapping[str, Any]) -> str:
    """What the data of a storage lacks."""
    verb = "is" if entry["samples"] == 1 else "are"
    return f"storage {entry['storage']}: {count(entry['samples'], 'sample')} that cannot be decoded {verb} left out"


def count(number: int, what: str) -> str:
    """``1 node``, ``2 nodes``, ``2 processes``."""
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number} {what}{ending}"


def markdown_table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent(estimate: Estimate | None) -> str:
    """A share with its interval, in per cent."""
    return interval(estimate, 100, " %")


def series(curve: Mapping[str, Any]) -> str:
    """Which curve of a network on a hardware entry it is."""
    per_node = f", {curve['workers_per_node']} workers per node" if curve["workers_per_node"] > 1 else ""
    return (
        f"{curve['scaling']}, {batch_in_words(curve)}, {curve['sync']}, {prefetch_in_words(curve)}, "
        f"{curve['storage']}{per_node}"
    )


def batch_in_words(curve: Mapping[str, Any]) -> str:
    """The mini-batch that stays fixed: B of all workers, or b of each."""
    return f"{'B' if curve['scaling'] == 'strong' else 'b'} = {curve['batch']}"


def prefetch_in_words(curve: Mapping[str, Any]) -> str:
    """How many mini-batches are read ahead."""
    return f"prefetch {curve['prefetch']}" if curve["prefetch"] else "no prefetch"


def rivals_in_words(answer: Mapping[str, Any]) -> str:
    """``, the fastest of 4 curves, though 1 may be as fast``: how its curve was chosen; empty for one alone."""
    if answer["curves"] == 1:
        return ""
    doubt = f", though {answer['as_fast']} may be as fast" if answer["as_fast"] else ""
    return f", the fastest of {answer['curves']} curves{doubt}"


def stall_in_words(curve: Mapping[str, Any]) -> str:
    """Where a curve stalls, or why nobody knows; how likely that is, where it is not likely enough to be said."""
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
    told = [f"beyond {measured} predicted, not measured" if measured else "predicted"] * (largest > measured)
    beside = f" ({'; '.join(told)})" if (told := [*([] if likely else [probable(scales)]), *told]) else ""
    return f"{undecided}not reached up to {at_count(curve, largest)}{below}{beside}"


def crossing_in_words(curve: Mapping[str, Any]) -> str:
    """Where communication takes as long as compute."""
    crossing = curve["crossing_ranks"]
    if crossing is None:
        return "not known"
    if crossing["value"] is None:
        return f"not up to {at_count(curve, curve['largest_considered'])}"
    after = curve["crossing_after"]
    beside = f", interpolated from {at_count(curve, round(after))} on" if after is not None else ""
    return f"{interval(crossing)}{beside}"


def worthwhile_in_words(curve: Mapping[str, Any]) -> str:
    """The most workers worth paying for; all that are known may be."""
    ranks = curve["worthwhile_ranks"]
    if ranks is None or curve["note"]:
        return "not known"
    return f"{interval(ranks)}{' or more' if ranks['value'] == curve['largest_considered'] else ''}"


INTERVENTIONS_HEAD = ["cell", "left out", "saves", "parts that should go with it", "they take", "agree"]


def intervention_in_words(row: Mapping[str, Any]) -> list[str]:
    """The cells of a row under `INTERVENTIONS_HEAD`."""
    where = f"{row['network']} on {row['hardware']}, {series(row)}, {at_count(row, row['ranks'])}"
    saved, parted = (interval(row[name], 1e3, " ms") for name in ("saved", "parted"))
    return [where, row["intervention"], saved, row["parts"], parted, "yes" if row["agrees"] else "no"]


def next_in_words(curve: Mapping[str, Any]) -> str:
    """The cell to measure next, what it is expected to tell, and what it costs."""
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


def error_in_words(error: Mapping[str, Any]) -> str:
    """The median error, with an interval where its points tell one."""
    median_error = error["median_error"]
    return f"{number(100 * median_error['value'])} %" if median_error["low"] is None else percent(median_error)


INSTRUMENTATION_HEAD = ["network", "hardware", "cells", "timing a layer", "of an iteration", "forward", "backward"]
INSTRUMENTATION_CAPTION = (
    "Measured in each training job beside its data; here the worst of all ranks and cells: what timing one layer (its "
    "forward and its backward pass) adds to an iteration, how much of an iteration that is, and what part of the "
    "forward and the backward pass its layers add up to."
)


def instrumentation_rows(entries: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Texts below `INSTRUMENTATION_HEAD`."""
    return [
        [
            entry["network"],
            entry["hardware"],
            str(entry["cells"]),
            f"{number(1e6 * entry['timing_cost'])} µs",
            f"{number(100 * entry['timing_share'])} %",
            _closure(entry["forward_closure"]),
            _closure(entry["backward_closure"]),
        ]
        for entry in entries
    ]


def instrumentation_warnings(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each network and hardware whose layer times are not to be trusted as they are."""
    return [
        f"warning: {entry['network']} on {entry['hardware']}: {'; '.join(entry['warnings'])}"
        for entry in entries
        if entry["warnings"]
    ]


def _closure(value: float) -> str:
    return f"{100 * value:.1f} %"
