"""Every number of the conclusions, curve by curve: ``details.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stallpoint.findings.claims import claim_words as claims
from stallpoint.findings.conclusions.answers import Conclusions, Estimate
from stallpoint.findings.conclusions.conclusion_words import (
    CURVE_HEAD,
    REMEDIES_HEAD,
    at_count,
    curve_in_words,
    error_in_words,
    instrumentation,
    interventions,
    next_in_words,
    percent,
    remedy_in_words,
    series,
)
from stallpoint.findings.conclusions.storage_tables import answered, external
from stallpoint.findings.conclusions.target_findings import STALLING, STALLING_HEAD, stalling_rows
from stallpoint.findings.conclusions.trust_findings import instrumentation_warnings, trust_lines
from stallpoint.findings.listing import Listing, markdown_table
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
        *_trust_blocks(conclusions),
        *_scaling_blocks(conclusions["curves"]),
        *interventions(conclusions["interventions"]).markdown,
        *claims.blocks(conclusions["claims"]),
        *_amdahl(conclusions["amdahl"]).markdown,
        *_memory(conclusions["memory"]).markdown,
        *_fits_blocks(conclusions["fits"]),
        *_error_blocks(conclusions["dag_errors"]),
        *_data_blocks(conclusions),
        *_target_blocks(conclusions),
        *_staleness(conclusions["worker_staleness"]).markdown,
        *_instrumentation_blocks(conclusions["instrumentation"]),
        *_imported(conclusions["imported"]).markdown,
        *_failed_blocks(conclusions["failed"]),
    ]
    return "\n\n".join(blocks) + "\n"


def _trust_blocks(conclusions: Conclusions) -> Iterator[str]:
    if lines := list(trust_lines(conclusions)):
        yield "## How sure this is"
        yield "\n".join(f"- {line}" for line in lines)


def _scaling_blocks(curves: list[dict[str, Any]]) -> Iterator[str]:
    for network, hardware in dict.fromkeys((curve["network"], curve["hardware"]) for curve in curves):
        here = [curve for curve in curves if (curve["network"], curve["hardware"]) == (network, hardware)]
        yield f"## {network} on {hardware}"
        yield markdown_table(
            ["curve", *CURVE_HEAD],
            (
                [series(curve), *curve_in_words(curve)]
                for curve in here
            ),
        )  # fmt: skip
        yield "Where the time goes on the critical path, there or at the largest n (parts of less than 1 % left out):"
        yield "\n".join(f"- {series(curve)}: {_path_in_words(curve)}" for curve in here)
        yield from _communication_blocks(here)
        yield from _what_if_blocks(here)
        yield from _remedy_blocks(here)
        yield "What to measure next, for the interval of the stalling point (errors of the model included):"
        yield "\n".join(f"- {series(curve)}: {next_in_words(curve)}" for curve in here)
        yield "Largest cause of the time lost against ideal scaling, in ms of an iteration (*predicted* in italics):"
        yield _cause_table(here)


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
    rows = [
        [series(curve), *remedy_in_words(entry), number(entry["node_hours"]) if entry["cell"] else "–"]
        for curve in curves
        for entry in curve["remedies"]
    ]
    if rows:
        yield "What would help (predicted, on the largest measured n), and node-hours of the cell that confirms it:"
        yield markdown_table(["curve", *REMEDIES_HEAD, "node-hours"], rows)
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
    return Listing(
        "Amdahl's law",
        "By layer type on one worker at falling mini-batch (free communication), and over measured strong scaling.",
        ["network", "hardware", "of", "serial fraction", "speedup limit", "doubling stops paying at n"],
        [[row["network"], row["hardware"], _what(row), *_limits(row)] for row in rows],
        rows,
    )


def _what(row: Mapping[str, Any]) -> str:
    return f"measured: {row['series']}" if row["basis"] == "measured" else f"compute: {row['layer_type']}"


def _limits(row: Mapping[str, Any]) -> list[str]:
    if row["note"]:
        return [f"not fitted: {row['note']}", "", ""]
    return [interval(row[name]) for name in ("serial_fraction", "speedup_limit", "stall_ranks")]


def _memory(rows: list[dict[str, Any]]) -> Listing:
    return Listing(
        "Memory",
        "The largest mini-batch b of a worker that fits into its memory: *measured* between what was trained and "
        "what ran out of memory, or *predicted* by fixed + slope · b.",
        ["network", "hardware", "workers a node", "preset", "shards", "prefetch", "memory", "GiB available",
         "GiB fixed", "MiB a sample", "largest b", ""],
        [
            [
                row["network"], row["hardware"], str(row["workers_per_node"]), row["sync"], str(row["shards"]),
                str(row["prefetch"]), row["memory"],
                number(row["available"] / 2**30) if row["available"] else "",
                interval(row["fixed"], 2**-30) if row["fixed"] else "",
                interval(row["slope"], 2**-20) if row["slope"] else "",
                interval(row["largest_batch"]) if row["largest_batch"] else "",
                f"{row['basis']}: {row['note']}" if row["note"] else row["basis"],
            ]
            for row in rows
        ],
        rows,
    )  # fmt: skip


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
    yield markdown_table(
        ["network", "hardware", "preset", "median error", "points", "published"],
        (
            [
                error["network"],
                error["hardware"],
                error["sync"],
                error_in_words(error),
                str(error["points"]),
                f"{100 * error['published']:.1f} %" if error["published"] else "–",
            ]
            for error in errors
        ),
    )


def _data_blocks(conclusions: Conclusions) -> Iterator[str]:
    for one in (*answered(conclusions), external(conclusions["extrapolations"])):
        yield from one.markdown


def _target_blocks(conclusions: Conclusions) -> Iterator[str]:
    """Return up to which mini-batch larger ones pay, and where time to a target and throughput stall."""
    if not conclusions["critical_batches"]:
        return
    yield "## Training to a target"
    yield (
        "Up to the critical mini-batch a larger one mostly saves steps, beyond it, mostly costs samples; the noise "
        "scale is an estimate of it from the gradients."
    )
    yield markdown_table(
        ["network", "storage", "preset", "workers", "recipe", "target", "B that reached it", "critical B", "noise"],
        (
            [
                row["network"], row["storage"], row["sync"], str(row["ranks"] or "any"), row["recipe"],
                number(row["target"]),
                f"{row['batches']}, up to {row['largest_reaching']}" if row["batches"] else "none",
                interval(row["critical_batch"]), interval(row["noise_scale"]),
            ]
            for row in conclusions["critical_batches"]
        ),
    )  # fmt: skip
    if rows := stalling_rows(conclusions):
        yield STALLING
        yield markdown_table(STALLING_HEAD, rows)


def _staleness(rows: list[dict[str, Any]]) -> Listing:
    return Listing(
        "Staleness",
        "How many updates came between a worker's taking the weights and the update with its gradient. With "
        "n equally fast workers that is n - 1; a slow worker's gradients are staler.",
        ["network", "hardware", "preset", "workers", "B or b", "worker", "gradients", "mean staleness", "largest"],
        [
            [
                row["network"], row["hardware"], row["sync"],
                *(str(row[name]) for name in ("ranks", "batch", "worker", "gradients")),
                interval(row["mean_staleness"]), str(row["largest_staleness"]),
            ]
            for row in rows
        ],
        rows,
    )  # fmt: skip


def _instrumentation_blocks(entries: list[dict[str, Any]]) -> Iterator[str]:
    yield from instrumentation(entries).markdown
    yield from (f"**{line[0].upper()}{line[1:]}.**" for line in instrumentation_warnings(entries))


def _imported(rows: list[dict[str, Any]]) -> Listing:
    return Listing(
        "Imported",
        "Not measured here, but read from files. Where these say how long layers took, and not the whole iteration, "
        "that is predicted from them.",
        ["cell", "files"],
        [[f"`{row['cell']}`", plain(row["source"])] for row in rows],
    )


def _failed_blocks(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        yield "## Cells that could not run"
        yield markdown_table(["cell", "reason"], ([f"`{row['cell']}`", plain(row["reason"])] for row in rows))
