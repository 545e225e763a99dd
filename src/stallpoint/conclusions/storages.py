"""Tables of storages and of training data that ``details.md`` and the report share: heads and rows of texts.

Each answers one question: how fast the storages are, and from where; where they give no more; whether they keep workers
busy, and by how many readers; after how many epochs staging or packing has paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stallpoint.conclusions.numbers import Conclusions
from stallpoint.conclusions.words import at_count, percent, series
from stallpoint.models.answers.feeding import BUSY
from stallpoint.numerals import interval, number
from stallpoint.origins import BEYOND_CACHE, in_words


@dataclass(frozen=True)
class Answered:
    """A question about training data, and its table."""

    title: str
    text: str
    head: list[str]
    rows: list[list[str]]
    about: Sequence[Mapping[str, Any]]
    """To which network, hardware and storage each row belongs."""


def answered(conclusions: Conclusions) -> Iterator[Answered]:
    """The questions that the study has records for."""
    tables = (
        _rates(conclusions["storages"]),
        _saturation(conclusions["saturation"]),
        _feeding(conclusions["curves"]),
        _break_even(conclusions["break_even"]),
    )
    yield from (table for table in tables if table.rows)


def _rates(rows: list[dict[str, Any]]) -> Answered:
    text = (
        "Samples per second read by all nodes together, at the largest node count. What came from a cache, or may "
        "have, is not the storage's speed."
    )
    if small := sorted({row["storage"] for row in rows if row["set_over_memory"] < BEYOND_CACHE}):
        text += (
            f" Smaller than {number(BEYOND_CACHE)} times the memory of the nodes, which MLPerf Storage asks for, so "
            f"that caches may hold much of it: {', '.join(small)}."
        )
    largest = {row["hardware"]: row["nodes"] for row in sorted(rows, key=lambda row: row["nodes"])}
    shown = [row for row in rows if row["nodes"] == largest[row["hardware"]]]
    return Answered(
        "Storages",
        text,
        [
            "storage", "hardware", "nodes", "workers", "order", "page cache", "readers", "samples/s", "came",
            "beside others",
        ],
        [
            [
                row["storage"], row["hardware"], str(row["nodes"]), str(row["nodes"] * row["workers_per_node"]),
                row["order"], row["cache"], str(row["readers"]), interval(row["samples_per_second"]),
                in_words(row["origin"], row["server_cache"]), row["verdict"],
            ]
            for row in shown
        ],
        shown,
    )  # fmt: skip


def _saturation(rows: list[dict[str, Any]]) -> Answered:
    return Answered(
        "Workers that read at once",
        "A storage saturates where doubling them brings less than the threshold more samples in the same time.",
        ["storage", "hardware", "workers per node", "readers of each", "verdict", "saturates at", "measured up to"],
        [
            [
                row["storage"], row["hardware"], str(row["workers_per_node"]), str(row["readers"]),
                saturation_in_words(row), _saturating(row), str(row["largest_measured"]),
            ]
            for row in rows
        ],
        rows,
    )  # fmt: skip


def saturation_in_words(row: Mapping[str, Any]) -> str:
    """``saturates at 4``, ``keeps pace up to 8``, ``undecided from 2``: of workers that read a storage at once."""
    links = {"saturates": "at", "keeps pace": "up to"}
    where = f"{links.get(row['verdict'], 'from')} {row['verdict_ranks']}" if row["verdict_ranks"] else ""
    return f"{row['verdict']} {where}".strip()


def _saturating(row: Mapping[str, Any]) -> str:
    found = row["saturation_ranks"]
    return interval(found) if found else f"not up to {row['largest_considered']}"


def _feeding(curves: list[dict[str, Any]]) -> Answered:
    fed = [curve for curve in curves if _measured(curve)]
    return Answered(
        "Are workers kept busy",
        "Accelerator utilisation is the part of an iteration in which workers do not wait for training data; below "
        f"{100 * BUSY:.0f} % they starve. As many readers as are needed read as fast as a worker computes. Each curve "
        "at the most workers measured.",
        [
            "network", "hardware", "curve", "n", "b", "utilisation", "predicted without its own cells", "starves from",
            "readers", "readers needed",
        ],
        [_fed(curve, _measured(curve)[-1]) for curve in fed],
        fed,
    )  # fmt: skip


def _measured(curve: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [at for at in curve["feeding"] if at["basis"] == "measured"]


def _fed(curve: Mapping[str, Any], at: Mapping[str, Any]) -> list[str]:
    return [
        curve["network"], curve["hardware"], series(curve), str(at["ranks"]), str(at["worker_batch"]),
        percent(at["utilisation"]), percent(at["predicted_utilisation"]), starving_in_words(curve), str(at["readers"]),
        interval(at["readers_needed"]),
    ]  # fmt: skip


def starving_in_words(curve: Mapping[str, Any]) -> str:
    """The fewest workers that surely wait too long for data, and whether that was measured."""
    for at in curve["feeding"]:
        busy = at["utilisation"]
        if busy and busy["high"] is not None and busy["high"] < BUSY:
            return f"{at_count(curve, at['ranks'])}, {at['basis']}"
    return f"not up to {at_count(curve, curve['feeding'][-1]['ranks'])}"


def _break_even(rows: list[dict[str, Any]]) -> Answered:
    return Answered(
        "Staging and packing",
        "Copying a shared set to the nodes' own disks, or converting it into another format, costs its time once, "
        "and saves in each epoch what workers wait less for data. Undecided: an epoch may save nothing.",
        [
            "network", "hardware", "curve", "n", "instead of", "remedy", "takes, s", "wait in an epoch before, s",
            "after, s", "verdict", "after epochs",
        ],
        [
            [
                row["network"], row["hardware"], series(row), str(row["nodes"]), row["before"],
                row["remedy"], *(interval(row[name]) for name in ("seconds", "wait_before", "wait_after")),
                row["verdict"], interval(row["epochs"]) if row["epochs"] else "–",
            ]
            for row in rows
        ],
        rows,
    )  # fmt: skip
