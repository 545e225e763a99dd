"""Listings of storages and training data, for ``details.md`` and the report.

Each answers one question: read rates by source; saturation; whether storages keep workers busy, and with how many
readers; after how many epochs staging or packing has paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import at_count, count, percent, series
from stallpoint.findings.listing import Listing
from stallpoint.models.answers.feeding import BUSY
from stallpoint.records.origins import BEYOND_CACHE, in_words
from stallpoint.study.workers import placement_in_words
from stallpoint.text import interval, number


def answered(conclusions: Conclusions) -> Iterator[Listing]:
    """Return the questions for which the study has records."""
    tables = (
        _rates(conclusions["storages"]),
        operations(conclusions["storage_operations"]),
        saturation(conclusions["saturation"]),
        _feeding(conclusions["curves"]),
        break_even(conclusions["break_even"]),
    )
    yield from (table for table in tables if table.rows)


def _rates(rows: list[dict[str, Any]]) -> Listing:
    text = (
        "Samples per second read by all nodes together, at the largest node count. What came from a cache, or may "
        "have, is not the storage's speed."
    )
    if small := sorted({row["storage"] for row in rows if row["set_over_memory"] < BEYOND_CACHE}):
        text += (
            f" MLPerf Storage asks for sets of {number(BEYOND_CACHE)} times the memory of the nodes, of which caches "
            f"hold little; smaller: {', '.join(small)}."
        )
    shown = _at_max_nodes(rows)
    shown.sort(key=lambda row: (row["order"] != "shuffled", row["cache"] != "cold"))  # as training reads comes first
    return Listing(
        "Storages",
        text,
        ["storage", "read by", "read", "samples/s", "beside others", "the bytes came"],
        [
            [
                row["storage"], _placement(row), f"{row['order']}, {row['cache']}, {count(row['readers'], 'reader')}",
                interval(row["samples_per_second"]), row["verdict"], came_in_words(row),
            ]
            for row in shown
        ],
        shown,
    )  # fmt: skip


def _at_max_nodes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the largest node count of each hardware entry."""
    largest = {row["hardware"]: row["nodes"] for row in sorted(rows, key=lambda row: row["nodes"])}
    return [row for row in rows if row["nodes"] == largest[row["hardware"]]]


def operations(rows: list[dict[str, Any]]) -> Listing:
    """Return the time to look up and open a file, and to decode a sample, of ``storage_operations``."""
    shown = _at_max_nodes(rows)
    return Listing(
        "Operations on storages",
        "What one worker waits beside the reading of a sample, while all do the same, at the largest node count. Cold: "
        "the node knew nothing of the file before.",
        ["storage", "by", "operation", "ms each", "of 100 the 95th", "the 99th"],
        [
            [
                row["storage"], _placement(row), f"{row['operation']}, {row['metadata']}",
                interval(row["seconds"], 1e3),
                *(number(1e3 * row[name]) for name in ("latency_p95", "latency_p99")),
            ]
            for row in shown
        ],
        shown,
    )  # fmt: skip


def external(rows: list[dict[str, Any]]) -> Listing:
    """Return the rates that scaling laws predict for external tables, at the most workers of each series."""
    last = {(row["table"], row["series"]): row for row in sorted(rows, key=lambda row: int(row["workers"]))}
    known = {(row["table"], row["series"]): row["workers"] for row in rows if row["measured"] is not None}
    return Listing(
        "External tables",
        "Rates of other sources, carried to more workers by scaling laws (90 % interval of a new measurement).",
        ["table", "series", "measured up to n", "at n", "predicted /s", "by"],
        [
            [
                *key, str(known.get(key, "–")), str(row["workers"]),
                interval({"value": row["predicted"], "low": row["lower"], "high": row["upper"]})
                if row["predicted"] is not None else "not known",
                row["law"],
            ]
            for key, row in last.items()
        ],
        list(last.values()),
    )  # fmt: skip


def _placement(row: Mapping[str, Any]) -> str:
    """Return ``8 workers (2 nodes) of cpu``."""
    per_node = row["workers_per_node"]
    return f"{placement_in_words(row['nodes'] * per_node, per_node)} of {row['hardware']}"


def came_in_words(row: Mapping[str, Any]) -> str:
    """Return ``from the network, or from a cache behind it (nfs4, shared)``."""
    return f"{in_words(row['origin'], row['server_cache'])} ({row['filesystem']}, {row['locality']})"


def saturation(rows: list[dict[str, Any]]) -> Listing:
    """Return where storages saturate, of rows of ``saturation`` in the conclusions."""
    return Listing(
        "Saturation of storages",
        "A storage saturates where doubling the workers that read at once brings less than the threshold more samples "
        "in the same time.",
        ["storage", "hardware", "workers per node", "readers of each", "verdict", "saturates at", "measured up to"],
        [
            [
                row["storage"], row["hardware"], str(row["workers_per_node"]), str(row["readers"]),
                _saturation_in_words(row), _saturating(row), str(row["largest_measured"]),
            ]
            for row in rows
        ],
        rows,
    )  # fmt: skip


def _saturation_in_words(row: Mapping[str, Any]) -> str:
    """Return ``saturates at 4``, ``keeps pace up to 8``, ``undecided from 2; ... would decide``: concurrent readers."""
    links = {"saturates": "at", "keeps pace": "up to"}
    where = f" {links.get(row['verdict'], 'from')} {row['verdict_ranks']}" if row["verdict_ranks"] else ""
    return f"{row['verdict']}{where}{f'; {deciding} would decide' if (deciding := row['deciding']) else ''}"


def _saturating(row: Mapping[str, Any]) -> str:
    if not row["verdict_ranks"]:
        return "not known"
    found = row["saturation_ranks"]
    return interval(found) if found else f"not up to {row['largest_considered']}"


def _feeding(curves: list[dict[str, Any]]) -> Listing:
    fed = [curve for curve in curves if _measured(curve)]
    return Listing(
        "Accelerator utilisation",
        "The part of an iteration in which workers do not wait for training data, of each curve at the most workers "
        f"measured, and as predicted without these cells; below {100 * BUSY:.0f} % workers starve. As many readers as "
        "are needed read as fast as a worker computes.",
        [
            "network", "curve", "n", "b", "utilisation", "as predicted", "starves from", "readers", "readers needed",
        ],
        [_fed(curve, _measured(curve)[-1]) for curve in fed],
        fed,
    )  # fmt: skip


def _trained(curve: Mapping[str, Any]) -> str:
    return f"{curve['network']} on {curve['hardware']}"


def _measured(curve: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [at for at in curve["feeding"] if at["basis"] == "measured"]


def _fed(curve: Mapping[str, Any], at: Mapping[str, Any]) -> list[str]:
    return [
        _trained(curve), series(curve), str(at["ranks"]), str(at["worker_batch"]),
        percent(at["utilisation"]), percent(at["predicted_utilisation"]), starving_in_words(curve),
        str(at["readers"]) if curve["prefetch"] else "none, in line", interval(at["readers_needed"]),
    ]  # fmt: skip


def starving_in_words(curve: Mapping[str, Any]) -> str:
    """Return the fewest workers that surely wait too long for data, and whether that was measured."""
    for at in curve["feeding"]:
        busy = at["utilisation"]
        if busy and busy["high"] is not None and busy["high"] < BUSY:
            return f"{at_count(curve, at['ranks'])}, {at['basis']}"
    return f"not up to {at_count(curve, curve['feeding'][-1]['ranks'])}"


def break_even(rows: list[dict[str, Any]]) -> Listing:
    """Return the cost and saving of staging and packing, of rows of ``break_even`` in the conclusions."""
    return Listing(
        "Staging and packing",
        "Copying a shared set to the nodes' own disks, or converting it into another format, costs its time once, "
        "and saves in each epoch what workers wait less for data. Undecided: an epoch may save nothing.",
        [
            "network", "curve", "nodes", "remedy", "instead of", "verdict", "after epochs", "takes, s",
            "an epoch waited, s", "and waits, s",
        ],
        [
            [
                _trained(row), series(row), str(row["nodes"]), row["remedy"], row["before"], row["verdict"],
                interval(row["epochs"]) if row["epochs"] else "–",
                *(interval(row[name]) for name in ("seconds", "wait_before", "wait_after")),
            ]
            for row in rows
        ],
        rows,
    )  # fmt: skip
