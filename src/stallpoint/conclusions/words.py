"""What the study found, in words: as a Markdown page, and in a few lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from stallpoint.claims import words as claims
from stallpoint.conclusions.numbers import Conclusions, Estimate
from stallpoint.numerals import interval, number


def to_markdown(conclusions: Conclusions) -> str:
    """The conclusions as a Markdown page."""
    covered, threshold = (f"{100 * conclusions[name]:.0f} %" for name in ("interval", "threshold"))
    blocks = [
        "# Conclusions",
        f"Intervals, in brackets, cover {covered}. A curve stalls at the node count from which doubling the nodes "
        f"gains less than {threshold} in throughput. Nodes are worth paying for while a sample costs at most "
        f"{number(1 / conclusions['efficiency'])} times the node-seconds it costs on the fewest. *Predicted* means: "
        "by the DAG model, not measured; its intervals hold the uncertainty of its inputs, not that of the model.",
        *_trust_blocks(conclusions),
        *_scaling_blocks(conclusions["curves"]),
        *_intervention_blocks(conclusions["interventions"]),
        *claims.blocks(conclusions["claims"]),
        *_amdahl_blocks(conclusions["amdahl"]),
        *_error_blocks(conclusions["dag_errors"]),
        *_storage_blocks(conclusions["storages"]),
        *_instrumentation_blocks(conclusions["instrumentation"]),
        *_imported_blocks(conclusions["imported"]),
        *_failed_blocks(conclusions["failed"]),
    ]
    return "\n\n".join(blocks) + "\n"


def summary(conclusions: Conclusions) -> list[str]:
    """The conclusions in a few lines, for the terminal."""
    lines = []
    kinds = dict.fromkeys((c["network"], c["hardware"], c["scaling"]) for c in conclusions["curves"])
    for network, hardware, scaling in kinds:
        alike = [
            c for c in conclusions["curves"]
            if (c["network"], c["hardware"], c["scaling"]) == (network, hardware, scaling)
        ]  # fmt: skip
        lines.append(f"{network} on {hardware}, {scaling} scaling: {headline(alike)}")
    lines += trust_lines(conclusions)
    lines.extend(_next_line(conclusions["curves"]))
    for error in conclusions["dag_errors"]:
        if error["sync"] == "all":
            lines.append(f"DAG model, {error['network']}: median error {_error_in_words(error)}")
    lines += claims.summary_line(conclusions["claims"])
    lines += instrumentation_warnings(conclusions["instrumentation"])
    if conclusions["imported"]:
        lines.append(f"{_count(len(conclusions['imported']), 'cell')} imported, not measured here")
    if conclusions["failed"]:
        lines.append(f"{_count(len(conclusions['failed']), 'cell')} could not run")
    return lines


def _next_line(curves: list[dict[str, Any]]) -> Iterator[str]:
    """The cell that tells most per node-hour of any curve."""
    telling = [curve for curve in curves if curve["next_cell"] and curve["next_cell"]["narrows"]]
    if telling:
        best = max(telling, key=_worth)
        yield f"measure next: {best['network']} on {best['hardware']} ({_series(best)}): {next_in_words(best)}"


def _worth(curve: Mapping[str, Any]) -> float:
    cell = curve["next_cell"]
    return float((cell["width"] - cell["expected_width"]) / cell["node_hours"])


def leading(curves: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The curve that leads: that with the largest speedup measured, among those with a verdict if there are any."""
    told = [curve for curve in curves if curve["verdict"] in ("stalls", "scales")] or curves
    return max(told, key=lambda curve: (curve["measured_speedup"] or {"value": 0})["value"] or 0)


def headline(curves: Sequence[Mapping[str, Any]]) -> str:
    """What was measured of curves that differ in preset, storage and the like, by the one that leads, and predicted."""
    best = leading(curves)
    predicted = predicted_in_words(best)
    return f"{verdict_in_words(best)} ({which(best, curves)})" + (f"; {predicted}" if predicted else "")


def which(best: Mapping[str, Any], curves: Sequence[Mapping[str, Any]]) -> str:
    """Which curve one of `curves` is: its preset, and the other axes in which they differ."""
    texts = {
        "sync": best["sync"],
        "storage": best["storage"],
        "prefetch": _ahead(best),
        "batch": _batch(best),
    }
    varied = [text for axis, text in texts.items() if axis == "sync" or len({curve[axis] for curve in curves}) > 1]
    return ", ".join(varied) + (f", the fastest of {len(curves)} curves" if len(curves) > 1 else "")


def verdict_in_short(curve: Mapping[str, Any]) -> str:
    """The verdict in a few words, without its reason."""
    nodes = curve["verdict_nodes"]
    return {
        "stalls": f"stalls at n = {nodes}",
        "scales": f"scales to n = {nodes}",
        "undecided": f"undecided whether n = {2 * nodes} gains" if nodes else "undecided",
        "withheld": "withheld",
    }[curve["verdict"]]


def reason_in_words(curve: Mapping[str, Any]) -> str:
    """What the verdict rests on: the speedup measured there and the probabilities, or what is missing."""
    if curve["verdict"] == "withheld" or (curve["note"] and not curve["verdict_nodes"]):
        return str(curve["note"])
    if not curve["verdict_nodes"]:
        largest = curve["largest_measured"]
        return "only n = 1 was measured" if largest == 1 else "no node count was measured together with its double"
    measured = {at["nodes"]: at["speedup"] for at in curve["measured_speedups"]}
    # Where it stalls on the fewest nodes, or gains nothing for sure, the doubled count says so.
    nodes = curve["verdict_nodes"]
    if curve["verdict"] == "undecided" or nodes not in measured:
        nodes *= 2
    if nodes not in measured:
        nodes, measured = curve["measured_speedup_nodes"], {curve["measured_speedup_nodes"]: curve["measured_speedup"]}
    return f"speedup {interval(measured[nodes])} on n = {nodes}{_probably(curve)}"


LEAST_NAMED = 0.01
"""Probability below which a node count is not named."""


def probabilities_in_words(curve: Mapping[str, Any]) -> str:
    """Where it stalls by what was measured, the most probable first: "stalls at n = 8: 60 %, ..."."""
    told = sorted(curve["measured_stall"], key=lambda entry: -entry["probability"])
    named = [entry for entry in told if entry["probability"] >= LEAST_NAMED]
    return ", ".join(
        f"{'stalls at' if entry['stalls'] else 'no stall up to'} n = {entry['nodes']}: {_chance(entry['probability'])}"
        for entry in named
    )


def _chance(probability: float) -> str:
    """In per cent; draws tell none beyond 99 %."""
    return "over 99 %" if probability > 1 - LEAST_NAMED else f"{100 * probability:.0f} %"


def _probably(curve: Mapping[str, Any]) -> str:
    """How sure a verdict is; of none the probabilities, and what would decide. Empty where nothing was told."""
    if not curve["measured_stall"]:
        return ""
    if curve["verdict"] != "undecided":
        return f", {_chance(max(entry['probability'] for entry in curve['measured_stall']))} sure"
    deciding = ", ".join(map(str, curve["deciding_nodes"]))
    return f"; {probabilities_in_words(curve)}; visits to n = {deciding} would decide"


def verdict_in_words(curve: Mapping[str, Any]) -> str:
    """What was measured of one curve."""
    told = curve["verdict"] != "withheld" and curve["verdict_nodes"]
    return f"{verdict_in_short(curve)}{', ' if told else ': '}{reason_in_words(curve)}"


def predicted_in_words(curve: Mapping[str, Any]) -> str:
    """What is predicted beyond the measured nodes; empty where nothing is, or where it stalls before."""
    if curve["note"] or curve["verdict"] in ("stalls", "withheld"):
        return ""
    if curve["reached"]:
        stall = curve["stall_nodes"]
        there = stall["value"] == stall["low"] == stall["high"] == curve["verdict_nodes"]
        where = "there" if there else f"at n = {interval(stall)}"
        return f"predicted to stall {where}" if curve["basis"] == "predicted" else ""
    largest = curve["largest_considered"]
    return f"predicted not to stall up to n = {largest}" if largest > curve["largest_measured"] else ""


ENDED = {
    "precision": "precision reached",
    "budget": "budget used up",
    "visits": "fixed number of visits reached",
    "most visits": "no cell is to be visited more often",
}
"""Why there was no further visit, as readers are told."""


def ended_in_words(entry: Mapping[str, Any]) -> str:
    """How the visits to cells of a hardware entry ended."""
    cells, visits = _count(entry["cells"], "cell"), _count(entry["visits"], "visit")
    return f"{cells}, {visits}: {ENDED.get(entry['ended'], entry['ended'])}"


def disturbed_in_words(entry: Mapping[str, Any]) -> str:
    """What became of iterations that were disturbed for one reason."""
    kept, left_out = entry["kept"], entry["iterations"] - entry["kept"]
    if not kept:
        return "left out"
    return f"{left_out} left out, {kept} kept for want of others" if left_out else "kept for want of others"


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
        iterations = _count(entry["iterations"], "iteration")
        yield f"{entry['hardware']}: {iterations} disturbed by {entry['reason']}, {disturbed_in_words(entry)}"
    if controls := conclusions["controls"]:
        agree = sum(bool(entry["agrees"]) for entry in controls)
        verb = "agrees" if len(controls) == 1 else "agree"
        yield f"A/A controls: {agree} of {_count(len(controls), 'pair')} of cells that do the same {verb}"
    for hardware in mistrusted(conclusions):
        yield f"{hardware}: verdicts are withheld, as cells that do the same differ"


def half_widths(curves: Iterable[Mapping[str, Any]]) -> list[float]:
    """Half-widths of the intervals of all measured speedups, over their values."""
    return [at["half_width"] for curve in curves for at in curve["measured_speedups"] if at["half_width"] is not None]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _percent(estimate: Estimate | None) -> str:
    return interval(estimate, 100, " %")


def _series(curve: Mapping[str, Any]) -> str:
    return f"{curve['scaling']}, {_batch(curve)}, {curve['sync']}, {_ahead(curve)}, {curve['storage']}"


def _batch(curve: Mapping[str, Any]) -> str:
    return f"{'B' if curve['scaling'] == 'strong' else 'b'} = {curve['batch']}"


def _ahead(curve: Mapping[str, Any]) -> str:
    return f"prefetch {curve['prefetch']}" if curve["prefetch"] else "no prefetch"


def stall_in_words(curve: Mapping[str, Any]) -> str:
    """Where a curve stalls, or why nobody knows."""
    if curve["reached"]:
        where = interval(curve["stall_nodes"])
        return f"{where}, measured" if curve["basis"] == "measured" else f"{where}, predicted, not measured"
    if curve["note"]:
        return f"not known: {curve['note']}"
    largest = curve["largest_considered"]
    below = f", interval from {curve['stall_not_below']}" if curve["stall_not_below"] < largest else ""
    beyond = f" (beyond {curve['largest_measured']} predicted, not measured)"
    return f"not reached up to n = {largest}{below}{beyond if largest > curve['largest_measured'] else ''}"


def _trust_blocks(conclusions: Conclusions) -> Iterator[str]:
    if lines := list(trust_lines(conclusions)):
        yield "## How sure this is"
        yield "\n".join(f"- {line}" for line in lines)


def _scaling_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    for network, hardware in dict.fromkeys((curve["network"], curve["hardware"]) for curve in curves):
        here = [curve for curve in curves if (curve["network"], curve["hardware"]) == (network, hardware)]
        yield f"## {network} on {hardware}"
        yield _table(
            [
                "curve", "as measured", "stalls at n", "dominant cause there (or at the largest n)",
                "communication reaches compute at n", "worth paying for up to n", "best speedup", "waiting for data",
            ],
            (
                [
                    _series(curve),
                    verdict_in_words(curve),
                    stall_in_words(curve),
                    curve["dominant_cause"],
                    crossing_in_words(curve),
                    worthwhile_in_words(curve),
                    interval(curve["best_speedup"]),
                    f"{_percent(curve['data_wait']['share'])} at n = {curve['data_wait']['nodes']}",
                ]
                for curve in here
            ),
        )  # fmt: skip
        yield "Where the time goes on the critical path, there or at the largest n (parts of less than 1 % left out):"
        yield "\n".join(f"- {_series(curve)}: {_path_in_words(curve)}" for curve in here)
        yield from _communication_blocks(here)
        yield from _what_if_blocks(here)
        yield "What to measure next, for the interval of the stalling point (errors of the model included):"
        yield "\n".join(f"- {_series(curve)}: {next_in_words(curve)}" for curve in here)
        yield "Largest cause of the time lost against ideal scaling, in ms of an iteration (*predicted* in italics):"
        yield _cause_table(here)


def crossing_in_words(curve: Mapping[str, Any]) -> str:
    """Where communication takes as long as compute."""
    crossing = curve["crossing_nodes"]
    if crossing is None:
        return "not known"
    if crossing["value"] is None:
        return f"not up to n = {curve['largest_considered']}"
    after = curve["crossing_after"]
    beside = f", interpolated from n = {after:.0f} on" if after is not None else ""
    return f"{interval(crossing)}{beside}"


def worthwhile_in_words(curve: Mapping[str, Any]) -> str:
    """The most nodes worth paying for; all that are known may be."""
    nodes = curve["worthwhile_nodes"]
    if nodes is None or curve["note"]:
        return "not known"
    return f"{interval(nodes)}{' or more' if nodes['value'] == curve['largest_considered'] else ''}"


def _path_in_words(curve: Mapping[str, Any]) -> str:
    path = {at["nodes"]: at for at in curve["critical_path"]}
    if not path:
        return "not known"
    doubled = 2 * int(curve["stall_nodes"]["value"]) if curve["reached"] else None
    at = path[doubled if doubled in path else max(path)]
    parts = [f"{part['part']} {_percent(part['share'])}" for part in at["parts"] if _counts(part["share"])]
    return f"n = {at['nodes']} ({at['basis']}): {', '.join(parts)}"


INTERVENTIONS_HEAD = ["cell", "left out", "saves", "parts that should go with it", "they take", "agree"]


def _intervention_blocks(found: list[dict[str, Any]]) -> Iterator[str]:
    if found:
        yield "## Causes by intervention"
        yield "What training saves with one thing left out for real, beside what the critical path says that it takes:"
        yield _table(INTERVENTIONS_HEAD, map(intervention_in_words, found))


def intervention_in_words(row: Mapping[str, Any]) -> list[str]:
    """The cells of a row under `INTERVENTIONS_HEAD`."""
    where = f"{row['network']} on {row['hardware']}, {_series(row)}, n = {row['nodes']}"
    saved, parted = (interval(row[name], 1e3, " ms") for name in ("saved", "parted"))
    return [where, row["intervention"], saved, row["parts"], parted, "yes" if row["agrees"] else "no"]


def _communication_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    lines = [f"- {_series(curve)}: {_cost_in_words(at)}" for curve in curves for at in curve["communication"]]
    if lines:
        yield "What communication costs an iteration: what it takes beyond the same training without communication:"
        yield "\n".join(lines)


def _cost_in_words(at: Mapping[str, Any]) -> str:
    cost, isolated, hidden = (interval(at[name], 1e3, " ms") for name in ("cost", "isolated", "hidden"))
    return f"n = {at['nodes']}: {cost}; its messages alone take {isolated}, so {hidden} of them are hidden"


def _counts(share: Estimate | None) -> bool:
    """Whether a part is worth naming: 1 % or more, or not known."""
    return share is None or (share["value"] or 0.0) >= 0.01


def _what_if_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    rows = [
        [_series(curve), entry["scenario"], *_scenario_in_words(entry)]
        for curve in curves
        for entry in curve["what_if"]
    ]
    if rows:
        yield "What if the cluster were different (predicted; throughput over that predicted for it as measured):"
        yield _table(["curve", "scenario", "throughput, on the largest measured n", "stalls at n"], rows)


def _scenario_in_words(entry: Mapping[str, Any]) -> list[str]:
    if entry["note"]:
        return [f"not known: {entry['note']}", ""]
    stalls = interval(entry["stall_nodes"]) if entry["stall_nodes"] else f"not up to {entry['largest_considered']}"
    return [f"× {interval(entry['gain'])}, n = {entry['nodes']}" if entry["gain"] else "not known", stalls]


def next_in_words(curve: Mapping[str, Any]) -> str:
    """The cell to measure next, what it is expected to tell, and what it costs."""
    cell = curve["next_cell"]
    if cell is None:
        return f"not known: {curve['note'] or 'no doubling of the nodes is known'}"
    if not cell["narrows"]:
        return f"no cell would narrow the interval, which is {number(cell['width'])} doublings of n wide"
    what = {
        "train": f"training on n = {cell['nodes']}",
        "collectives": f"the collectives on n = {cell['nodes']}",
        "compute": f"compute at b = {cell['worker_batch']} on one worker",
    }[cell["kind"]]
    return (
        f"{what} ({number(cell['node_hours'])} node-hours), which should narrow the interval from "
        f"{number(cell['width'])} to {number(cell['expected_width'])} doublings of n"
    )


def _cause_table(curves: list[dict[str, Any]]) -> str:
    nodes = sorted({at["nodes"] for curve in curves for at in curve["causes"]})
    rows = []
    for curve in curves:
        found = {at["nodes"]: _leading(at) for at in curve["causes"]}
        rows.append([_series(curve), *(found.get(n, "") for n in nodes)])
    return _table(["curve", *(f"n = {n}" for n in nodes)], rows)


def _leading(at: Mapping[str, Any]) -> str:
    causes = [f"{entry['cause']} {interval(entry['lost_seconds'], 1000)}" for entry in at["leading"]]
    if at["verdict"] == "dominant":
        text = causes[0]
    elif len(causes) == 1:
        text = f"not distinguishable from no loss: {causes[0]}"
    else:
        text = f"not distinguishable: {'; '.join(causes)}"
    return f"*{text}*" if at["basis"] == "predicted" else text


def _amdahl_blocks(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield "## Amdahl's law"
    yield "By layer type on one worker at falling mini-batch (free communication), and over measured strong scaling."
    yield _table(
        ["network", "hardware", "of", "serial fraction", "speedup limit", "doubling stops paying at n"],
        ([row["network"], row["hardware"], _what(row), *_limits(row)] for row in rows),
    )


def _what(row: Mapping[str, Any]) -> str:
    return f"measured: {row['series']}" if row["basis"] == "measured" else f"compute: {row['layer_type']}"


def _limits(row: Mapping[str, Any]) -> list[str]:
    if row["note"]:
        return [f"not fitted: {row['note']}", "", ""]
    return [interval(row[name]) for name in ("serial_fraction", "speedup_limit", "stall_nodes")]


def _error_in_words(error: Mapping[str, Any]) -> str:
    """The median error, with an interval where its points tell one."""
    median_error = error["median_error"]
    return f"{number(100 * median_error['value'])} %" if median_error["low"] is None else _percent(median_error)


def _error_blocks(errors: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Accuracy of the DAG model"
    if not errors:
        yield "No prediction could be compared with a measurement on more than one rank."
        return
    yield (
        "Median size of the error of the predicted iteration time on more than one rank. No cell takes part in its own "
        "prediction. Published: mean errors of Shi et al. (2018), on other machines."
    )
    yield _table(
        ["network", "synchronisation", "median error", "points", "published"],
        (
            [
                error["network"],
                error["sync"],
                _error_in_words(error),
                str(error["points"]),
                f"{100 * error['published']:.1f} %" if error["published"] else "–",
            ]
            for error in errors
        ),
    )


def _storage_blocks(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield "## Storages"
    yield "Samples per second read by all nodes together, at the largest node count."
    largest = {row["hardware"]: row["nodes"] for row in sorted(rows, key=lambda row: row["nodes"])}
    yield _table(
        ["hardware", "nodes", "order", "page cache", "storage", "samples/s", ""],
        (
            [
                row["hardware"], str(row["nodes"]), row["order"], row["cache"], row["storage"],
                interval(row["samples_per_second"]), row["verdict"],
            ]
            for row in rows
            if row["nodes"] == largest[row["hardware"]]
        ),
    )  # fmt: skip


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


def _instrumentation_blocks(entries: list[dict[str, Any]]) -> Iterator[str]:
    if entries:
        yield "## What the timing of layers costs"
        yield INSTRUMENTATION_CAPTION
        yield _table(INSTRUMENTATION_HEAD, instrumentation_rows(entries))
        yield from (f"**{line[0].upper()}{line[1:]}.**" for line in instrumentation_warnings(entries))


def _imported_blocks(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        yield "## Imported"
        yield (
            "Not measured here, but read from files. Those of training runs say how long the parts of an iteration "
            "took; iteration times are composed of them, and stand above where measured ones do."
        )
        yield _table(["cell", "files"], ([f"`{row['cell']}`", row["source"]] for row in rows))


def _failed_blocks(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        yield "## Cells that could not run"
        yield _table(["cell", "reason"], ([f"`{row['cell']}`", row["reason"].replace("\n", " ")] for row in rows))
