"""Listings of storages and training data, for ``details.md`` and the report.

Each answers one question: read rates by source; saturation; whether storages keep workers busy, and with how many
readers; after how many epochs staging or packing has paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import at_count, count, percent, series
from stallpoint.findings.listing import Listing, interval_of
from stallpoint.models.answers.feeding import BUSY
from stallpoint.records.origins import BEYOND_CACHE, DEVICE, NETWORK, in_words
from stallpoint.study.workers import placement_in_words
from stallpoint.text import interval, number

LARGE = 150e9
"""Size of ImageNet, bytes (Keuper & Pfreundt, section IV-A)."""


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
        "have, is not the storage's speed. Projected to 150 GB, ImageNet's size: one reading of a set that no cache "
        "holds; a terabyte takes 6.7 times as long."
    )
    if small := sorted({row["storage"] for row in rows if row["set_over_memory"] < BEYOND_CACHE}):
        text += (
            f" MLPerf Storage asks for sets of {number(BEYOND_CACHE)} times the memory of the nodes, of which caches "
            f"hold little; smaller: {', '.join(small)}."
        )
    # As training reads comes first.
    shown = sorted(_at_max_nodes(rows), key=lambda row: (row["order"] != "shuffled", row["cache"] != "cold"))
    return Listing.of("Storages", text, shown, {
        "storage": "storage", "read by": _placement,
        "read": lambda row: f"{row['order']}, {row['cache']}, {count(row['readers'], 'reader')}",
        "samples/s": interval_of("samples_per_second"), "beside others": "verdict",
        "the bytes came": came_in_words, "150 GB would take, min": _reading_large,
    })  # fmt: skip


def _reading_large(row: Mapping[str, Any]) -> str:
    rate = row["bytes_per_second"]
    if row["origin"] not in (DEVICE, NETWORK) or not rate:
        return "–"
    ends = {"value": "value", "low": "high", "high": "low"}
    return interval({end: rate[of] and LARGE / rate[of] for end, of in ends.items()}, 1 / 60)


def _at_max_nodes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the largest node count of each hardware entry."""
    largest = {row["hardware"]: row["nodes"] for row in sorted(rows, key=lambda row: row["nodes"])}
    return [row for row in rows if row["nodes"] == largest[row["hardware"]]]


def operations(rows: list[dict[str, Any]]) -> Listing:
    """Return the time to look up and open a file, and to decode a sample, of ``storage_operations``."""
    text = (
        "What one worker waits beside the reading of a sample, while all do the same: looking up and opening a file on "
        "each number of workers, all else at the largest node count. Cold: the node knew nothing of the file before."
    )
    polls = [row for row in rows if row["operation"] in ("stat", "open")]
    polls.sort(key=lambda row: (row["storage"], row["hardware"], row["operation"], row["metadata"], row["nodes"]))
    others = [row for row in _at_max_nodes(rows) if row["operation"] not in ("stat", "open")]
    return Listing.of("Operations on storages", text, [*polls, *others], {
        "storage": "storage", "by": _placement,
        "operation": lambda row: f"{row['operation']}, {row['metadata']}",
        "ms each": interval_of("seconds", 1e3),
        "of 100 the 95th": lambda row: number(1e3 * row["latency_p95"]),
        "the 99th": lambda row: number(1e3 * row["latency_p99"]),
    })  # fmt: skip


def _placement(row: Mapping[str, Any]) -> str:
    """Return ``8 workers (2 nodes) of cpu``."""
    per_node = row["workers_per_node"]
    return f"{placement_in_words(row['nodes'] * per_node, per_node)} of {row['hardware']}"


def came_in_words(row: Mapping[str, Any]) -> str:
    """Return ``from the network, or from a cache behind it (nfs4, shared)``."""
    return f"{in_words(row['origin'], row['server_cache'])} ({row['filesystem']}, {row['locality']})"


def saturation(rows: list[dict[str, Any]]) -> Listing:
    """Return where storages saturate, of rows of ``saturation`` in the conclusions."""
    text = (
        "A storage saturates where doubling the workers that read at once brings less than the threshold more samples "
        "in the same time."
    )
    return Listing.of("Saturation of storages", text, rows, {
        "storage": "storage", "hardware": "hardware", "workers per node": "workers_per_node",
        "readers of each": "readers", "verdict": _saturation_in_words, "saturates at": _saturating,
        "measured up to": "largest_measured",
    })  # fmt: skip


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
    """Return the utilisation of each measured curve, at the most workers."""
    text = (
        "The part of an iteration in which workers do not wait for training data, of each curve at the most workers "
        f"measured, and as predicted without these cells; below {100 * BUSY:.0f} % workers starve. As many readers as "
        "are needed read as fast as a worker computes."
    )
    fed = [{**curve, **points[-1]} for curve in curves if (points := _measured(curve))]
    return Listing.of("Accelerator utilisation", text, fed, {
        "network": _trained, "curve": series, "n": "ranks", "b": "worker_batch",
        "utilisation": lambda row: percent(row["utilisation"]),
        "as predicted": lambda row: percent(row["predicted_utilisation"]),
        "starves from": starving_in_words,
        "readers": lambda row: str(row["readers"]) if row["prefetch"] else "none, in line",
        "readers needed": interval_of("readers_needed"),
    })  # fmt: skip


def _measured(curve: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [at for at in curve["feeding"] if at["basis"] == "measured"]


def _trained(curve: Mapping[str, Any]) -> str:
    return f"{curve['network']} on {curve['hardware']}"


def starving_in_words(curve: Mapping[str, Any]) -> str:
    """Return the fewest workers that surely wait too long for data, and whether that was measured."""
    for at in curve["feeding"]:
        busy = at["utilisation"]
        if busy and busy["high"] is not None and busy["high"] < BUSY:
            return f"{at_count(curve, at['ranks'])}, {at['basis']}"
    return f"not up to {at_count(curve, curve['feeding'][-1]['ranks'])}"


def break_even(rows: list[dict[str, Any]]) -> Listing:
    """Return the cost and saving of staging and packing, of rows of ``break_even`` in the conclusions."""
    text = (
        "Copying a shared set to the nodes' own disks, or converting it into another format, costs its time once, "
        "and saves in each epoch what workers wait less for data. Undecided: an epoch may save nothing."
    )
    return Listing.of("Staging and packing", text, rows, {
        "network": _trained, "curve": series, "nodes": "nodes", "remedy": "remedy", "instead of": "before",
        "verdict": "verdict", "after epochs": interval_of("epochs", unknown="–"),
        "takes, s": interval_of("seconds"), "an epoch waited, s": interval_of("wait_before"),
        "and waits, s": interval_of("wait_after"),
    })  # fmt: skip
