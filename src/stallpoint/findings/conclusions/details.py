"""Every number of the conclusions, curve by curve: ``details.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stallpoint.findings.claims import claim_words as claims
from stallpoint.findings.conclusions.answers import Conclusions, Estimate
from stallpoint.findings.conclusions.conclusion_words import (
    CURVE_COLUMNS,
    REMEDY_COLUMNS,
    at_count,
    error_in_words,
    instrumentation,
    interventions,
    next_in_words,
    percent,
    series,
)
from stallpoint.findings.conclusions.external_findings import external_lines
from stallpoint.findings.conclusions.storage_tables import answered
from stallpoint.findings.conclusions.target_findings import STALLING, stalling
from stallpoint.findings.conclusions.trust_findings import instrumentation_warnings, trust_lines
from stallpoint.findings.listing import Columns, Listing, in_columns, interval_of, listed_below, markdown_table
from stallpoint.models.answers.fits import YES
from stallpoint.text import interval, listed, number, plain

REVERSED = {"value": "value", "low": "high", "high": "low"}
"""Names of an interval's ends after a change of sign."""


def details(conclusions: Conclusions) -> str:
    """Return all numbers of the conclusions, as a Markdown page."""
    covered, threshold = (f"{100 * conclusions[name]:.0f} %" for name in ("interval", "threshold"))
    blocks = [
        "# Details",
        f"Intervals, in brackets, cover {covered}. A curve stalls at the number n of workers from which doubling "
        f"them gains less than {threshold} in throughput. Workers are worth paying for while a sample costs at most "
        f"{number(1 / conclusions['efficiency'])} times the worker-seconds it costs on the fewest. *Predicted* means: "
        "by the DAG model, not measured; its intervals hold the uncertainty of its inputs, not that of the model.",
        *listed_below("How sure this is", trust_lines(conclusions)),
        *_scaling_blocks(conclusions["curves"]),
        *interventions(conclusions["interventions"]).markdown,
        *claims.blocks(conclusions["claims"]),
        *_amdahl(conclusions["amdahl"]).markdown,
        *_memory(conclusions["memory"]).markdown,
        *_fits_blocks(conclusions["fits"]),
        *_error_blocks(conclusions["dag_errors"]),
        *(block for one in answered(conclusions) for block in one.markdown),
        *listed_below("External tables", external_lines(conclusions, limit=None)),
        *_target_blocks(conclusions),
        *_staleness(conclusions["worker_staleness"]).markdown,
        *_instrumentation_blocks(conclusions["instrumentation"]),
        *_imported(conclusions["imported"]).markdown,
        *_failed_blocks(conclusions["failed"]),
    ]
    return "\n\n".join(blocks) + "\n"


def _scaling_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    for network, hardware in dict.fromkeys((curve["network"], curve["hardware"]) for curve in curves):
        here = [curve for curve in curves if (curve["network"], curve["hardware"]) == (network, hardware)]
        yield f"## {network} on {hardware}"
        yield _table(here, {"curve": series, **CURVE_COLUMNS})
        yield "Where the time goes on the critical path, there or at the largest n (parts of less than 1 % excluded):"
        yield "\n".join(f"- {series(curve)}: {_path_in_words(curve)}" for curve in here)
        yield from _communication_blocks(here)
        yield from _what_if_blocks(here)
        yield from _remedy_blocks(here)
        yield "What to measure next, for the interval of the stalling point (errors of the model included):"
        yield "\n".join(f"- {series(curve)}: {next_in_words(curve)}" for curve in here)
        yield "Largest cause of the time lost against ideal scaling, in ms of an iteration (*predicted* in italics):"
        yield _cause_table(here)


def _table(rows: Iterable[Mapping[str, Any]], columns: Columns) -> str:
    return markdown_table(*in_columns(rows, columns))


def _path_in_words(curve: Mapping[str, Any]) -> str:
    path = {at["ranks"]: at for at in curve["critical_path"]}
    if not path:
        return "not known"
    doubled = 2 * int(curve["stall_ranks"]["value"]) if curve["reached"] else None
    at = path[doubled if doubled in path else max(path)]
    parts = [f"{part['part']} {percent(part['share'])}" for part in at["parts"] if _counts(part["share"])]
    return f"{at_count(curve, at['ranks'])} ({at['basis']}): {', '.join(parts)}"


def _communication_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    lines = [f"- {series(curve)}: {_cost_in_words(curve, at)}" for curve in curves for at in curve["communication"]]
    if lines:
        yield "What communication costs an iteration: what it takes beyond the same training without communication:"
        yield "\n".join(lines)


def _cost_in_words(curve: Mapping[str, Any], at: Mapping[str, Any]) -> str:
    cost, isolated = (interval(at[name], 1e3, " ms") for name in ("cost", "isolated"))
    text = f"{at_count(curve, at['ranks'])}: {cost}"
    if at["hidden"] is None:  # messages of these sizes were not measured in isolation
        return text
    return f"{text}; its isolated messages take {isolated}, of which {_hidden_in_words(at['hidden'])}"


def _hidden_in_words(hidden: Estimate) -> str:
    """Return the hidden part of the messages, or how much more they cost than isolated."""
    if (hidden["value"] or 0.0) > 0:
        return f"{interval(hidden, 1e3, ' ms')} are hidden"
    beyond: Estimate = {name: -(hidden[end] or 0.0) for name, end in REVERSED.items()}
    more = f": training loses {interval(beyond, 1e3, ' ms')} more" if (beyond["low"] or 0.0) > 0 else ""
    return f"nothing is hidden{more}"


def _counts(share: Estimate | None) -> bool:
    return share is None or (share["value"] or 0.0) >= 0.01


def _what_if_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    rows = [
        [series(curve), entry["scenario"], *_scenario_in_words(curve, entry)]
        for curve in curves
        for entry in curve["what_if"]
    ]
    if rows:
        yield "What if the cluster were different (predicted; throughput over that predicted for it as measured):"
        yield markdown_table(["curve", "scenario", "throughput, on the largest measured n", "stalls at n"], rows)


def _remedy_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    """Return remedies, and for each curve the cell that would confirm the first remedy with a cell."""
    rows = [{"curve": series(curve), **entry} for curve in curves for entry in curve["remedies"]]
    if rows:
        yield "What would help (predicted, on the largest measured n), and node-hours of the cell that confirms it:"
        hours: Columns = {"node-hours": lambda entry: number(entry["node_hours"]) if entry["cell"] else "–"}
        yield _table(rows, {"curve": "curve", **REMEDY_COLUMNS, **hours})
    firsts = [(curve, next((one for one in curve["remedies"] if one["cell"]), None)) for curve in curves]
    cells = [f"  # {first['remedy']}: {series(curve)}\n{_entry(first['cell'])}" for curve, first in firsts if first]
    if cells:
        yield "To confirm the first remedy of a curve, add its cell to the study:"
        yield "\n".join(["```yaml", "include:", *cells, "```"])


def _entry(cell: str) -> str:
    return cell.removeprefix("include:\n")


def _scenario_in_words(curve: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    if entry["note"]:
        return [f"not known: {entry['note']}", ""]
    gain = f"× {interval(entry['gain'])}, {at_count(curve, entry['ranks'])}" if entry["gain"] else "not known"
    largest = entry["largest_considered"]
    if entry["stall_ranks"]:
        return [gain, interval(entry["stall_ranks"])]
    return [gain, f"not up to {largest}" if entry["stall_not_below"] == largest else f"undecided up to {largest}"]


def _cause_table(curves: list[dict[str, Any]]) -> str:
    counts = sorted({at["ranks"] for curve in curves for at in curve["causes"]})
    rows = []
    for curve in curves:
        found = {at["ranks"]: _leading(at) for at in curve["causes"]}
        rows.append([series(curve), *(found.get(n, "") for n in counts)])
    return markdown_table(["curve", *(f"n = {n}" for n in counts)], rows)


def _leading(at: Mapping[str, Any]) -> str:
    first = at["leading"][0]
    largest = f"{first['cause']} {interval(first['lost_seconds'], 1000)}"
    if at["verdict"] == "dominant":
        text = largest
    elif len(at["leading"]) == 1:
        text = f"not distinguishable from no loss: {largest}"
    else:
        text = f"not distinguishable: {largest}, {listed([entry['cause'] for entry in at['leading'][1:]])}"
    return f"*{text}*" if at["basis"] == "predicted" else text


def _amdahl(rows: list[dict[str, Any]]) -> Listing:
    text = "By layer type on one worker at falling mini-batch (free communication), and over measured strong scaling."
    return Listing.of("Amdahl's law", text, rows, {
        "network": "network", "hardware": "hardware",
        "of": lambda row: f"{row['basis']}: {row['series'] or row['layer_type']}",
        "serial fraction": lambda row: (
            f"not fitted: {row['note']}" if row["note"] else interval(row["serial_fraction"])
        ),
        "speedup limit": interval_of("speedup_limit", unknown=""),
        "doubling stops paying at n": interval_of("stall_ranks", unknown=""),
    })  # fmt: skip


def _memory(rows: list[dict[str, Any]]) -> Listing:
    text = (
        "The largest mini-batch b of a worker that fits into its memory: *measured* between what was trained and "
        "what ran out of memory, or *predicted* by fixed + slope · b."
    )
    return Listing.of("Memory", text, rows, {
        "network": "network", "hardware": "hardware", "workers a node": "workers_per_node", "preset": "sync",
        "shards": "shards", "prefetch": "prefetch", "memory": "memory",
        "GiB available": lambda row: number(row["available"] / 2**30) if row["available"] else "",
        "GiB fixed": interval_of("fixed", 2**-30, unknown=""),
        "MiB a sample": interval_of("slope", 2**-20, unknown=""),
        "largest b": interval_of("largest_batch", unknown=""),
        "": lambda row: f"{row['basis']}: {row['note']}" if row["note"] else row["basis"],
    })  # fmt: skip


def _fits_blocks(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Return the placements that may not fit in memory; that there are none, where that is known."""
    if not rows:
        return
    yield "### Does it fit?"
    yield "At every placement of a curve, run or not: by an isolated worker, and what the preset divides and adds."
    doubtful = [row for row in rows if row["fits"] != YES]
    if not doubtful:
        yield f"All {len(rows)} placements fit."
        return
    yield f"{len(rows) - len(doubtful)} of {len(rows)} placements fit; the others, by the least that each takes:"
    equal: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in doubtful:
        available = number(row["available"] / 2**30)
        key = (row["network"], row["hardware"], series(row), row["memory"], available, row["fits"])
        equal.setdefault(key, []).append(row)
    head = ["network", "hardware", "curve", "memory", "GiB available", "fits", "n", "b", "GiB of a worker"]
    yield markdown_table(head, ([*key, *_sizes(of)] for key, of in equal.items()))


def _sizes(rows: list[dict[str, Any]]) -> Iterator[str]:
    for name in ("ranks", "worker_batch"):
        yield ", ".join(str(size) for size in sorted({row[name] for row in rows}))
    known = [row["predicted"] for row in rows if row["predicted"]]
    yield interval(min(known, key=lambda one: one["value"], default=None), 2**-30)


def _error_blocks(errors: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Accuracy of the DAG model"
    if not errors:
        yield "No prediction could be compared with a measurement on more than one rank."
        return
    yield (
        "Median size of the error of the predicted iteration time on more than one rank. No cell takes part in its own "
        "prediction. Published: mean errors of Shi et al. (2018), on other machines."
    )
    yield _table(errors, {
        "network": "network", "hardware": "hardware", "preset": "sync", "median error": error_in_words,
        "points": "points",
        "published": lambda error: f"{100 * error['published']:.1f} %" if error["published"] else "–",
    })  # fmt: skip


def _target_blocks(conclusions: Conclusions) -> Iterator[str]:
    """Return up to which mini-batch larger ones pay, and where time to a target and throughput stall."""
    if not conclusions["critical_batches"]:
        return
    yield "## Training to a target"
    yield (
        "Up to the critical mini-batch a larger one mostly saves steps, beyond it, mostly costs samples; the noise "
        "scale is an estimate of it from the gradients."
    )
    yield _table(conclusions["critical_batches"], {
        "network": "network", "storage": "storage", "preset": "sync",
        "workers": lambda row: str(row["ranks"] or "any"),
        "recipe": "recipe",
        "target": lambda row: number(row["target"]),
        "B that reached it": lambda row: (
            f"{row['batches']}, up to {row['largest_reaching']}" if row["batches"] else "none"
        ),
        "critical B": interval_of("critical_batch"), "noise": interval_of("noise_scale"),
    })  # fmt: skip
    if conclusions["accuracy_stalling"]:
        yield STALLING
        yield markdown_table(*stalling(conclusions))


def _staleness(rows: list[dict[str, Any]]) -> Listing:
    text = (
        "How many updates came between a worker's taking the weights and the update with its gradient. With "
        "n equally fast workers that is n - 1; a slow worker's gradients are staler."
    )
    return Listing.of("Staleness", text, rows, {
        "network": "network", "hardware": "hardware", "preset": "sync", "workers": "ranks", "B or b": "batch",
        "worker": "worker", "gradients": "gradients", "mean staleness": interval_of("mean_staleness"),
        "largest": "largest_staleness",
    })  # fmt: skip


def _instrumentation_blocks(entries: list[dict[str, Any]]) -> Iterator[str]:
    yield from instrumentation(entries).markdown
    yield from (f"**{line[0].upper()}{line[1:]}.**" for line in instrumentation_warnings(entries))


def _imported(rows: list[dict[str, Any]]) -> Listing:
    text = (
        "Not measured here, but read from files. Where these say how long layers took, and not the whole iteration, "
        "that is predicted from them."
    )
    return Listing.of("Imported", text, rows, {"cell": _cell, "files": lambda row: plain(row["source"])})


def _failed_blocks(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        yield "## Cells that could not run"
        yield _table(rows, {"cell": _cell, "reason": lambda row: plain(row["reason"])})


def _cell(row: Mapping[str, Any]) -> str:
    return f"`{row['cell']}`"
