"""What training costs in words: the number of nodes for a deadline or a budget, and what failures leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stallpoint.base.measured import SERIES
from stallpoint.findings.conclusions.answers import Answer, Conclusions
from stallpoint.findings.conclusions.conclusion_words import verdict_in_short
from stallpoint.models.answers.costs import DEADLINE, DECIDED, EPOCH, KNOWN, NONE
from stallpoint.study.workers import placement_in_words
from stallpoint.text import in_words, interval, listed, number

CHOICE = (
    *SERIES, "goal", "question", "limit", "basis", "verdict", "nodes", "ranks", "likely", "probability", "time",
    "node_hours", "price", "energy", "energy_from",
)  # fmt: skip
"""Columns of the table ``choices`` in an entry."""
REMAINING = (
    *SERIES, "verdict", "verdict_ranks", "without_failures", "without_failures_ranks", "failure_limit",
    "largest_considered",
)  # fmt: skip
"""Columns of the table ``availability_stalling`` in an entry."""
PRODUCTIVE = (
    *SERIES, "nodes", "ranks", "basis", "time_between_failures", "checkpoint_interval", "productive_share",
    "checkpoint_time", "checkpoint_from", "elastic_share", "spares", "spare_share",
)  # fmt: skip
"""Columns of the table ``availability`` in an entry."""


def cost_in_words(answer: Answer, conclusions: Conclusions) -> str:
    """Return the choices for the answer's curve; predicted points count where they change a choice."""
    rows = [row for row in conclusions["choices"] if _same(row, answer)]
    measured = {(row["goal"], row["question"]): row for row in rows if row["basis"] != KNOWN}
    known = [row for row in rows if row["basis"] == KNOWN]
    others = [row for row in known if _outcome(row) != _outcome(measured.get((row["goal"], row["question"]), {}))]
    return "; ".join(map(_choice, (*measured.values(), *others)))


def _same(row: Mapping[str, Any], answer: Answer) -> bool:
    return all(row[name] == answer[name] for name in SERIES)


def _outcome(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row.get("verdict"), row.get("likely")


def _choice(row: Mapping[str, Any]) -> str:
    limit = in_words(row["limit"]) if row["question"] == DEADLINE else number(row["limit"])
    goal = "" if row["goal"] == EPOCH else f" ({row['goal']})"
    among = ", with predicted points" if row["basis"] == KNOWN else ""
    asked = f"{row['question']} of {limit}{goal}{among}: "
    if row["verdict"] == NONE:
        return f"{asked}no number of nodes keeps it"
    if row["verdict"] != DECIDED:
        return f"{asked}undecided between {listed(row['likely'].split(', '))} workers"
    spent = interval(row["price"]) if row["price"] else interval(row["node_hours"], 1.0, " node-hours")
    hours = interval(row["time"], 1 / 3600, " h")
    energy = f", {interval(row['energy'], 1.0, ' kWh')} by {row['energy_from']}" if row["energy"] else ""
    return f"{asked}{placement_in_words(row['ranks'], row['workers_per_node'])}, {hours} for {spent}{energy}"


def failures_in_words(answer: Answer, conclusions: Conclusions) -> str:
    """Return where failures end the gain of the answer's curve, measured or predicted; empty where none are given."""
    row = next((row for row in conclusions["availability_stalling"] if _same(row, answer)), None)
    rows = [at for at in conclusions["availability"] if _same(at, answer)]
    if row is None or not rows:
        return ""
    last = max(rows, key=lambda at: int(at["ranks"]))
    where = placement_in_words(last["ranks"], last["workers_per_node"])
    every = in_words(last["checkpoint_interval"]["value"])
    share = f"on {where} {interval(last['productive_share'], 100, ' %')} of the time is productive, with a checkpoint"
    if last["checkpoint_from"] == "measured":
        every += f" that takes {interval(last['checkpoint_time'], 1.0, ' s')} as measured"
    limit = f"failures alone end the gain from {interval(row['failure_limit'])} nodes on; {share} every {every}"
    if last["elastic_share"]:
        elastic, spare = (interval(last[f"{name}_share"], 100, " %") for name in ("elastic", "spare"))
        limit += f" (if it went on without failed nodes {elastic}; with spare nodes, {last['spares']} in all, {spare})"
    if not row["largest_considered"]:
        return limit
    other = verdict_in_short(row | {"verdict": row["without_failures"], "verdict_ranks": row["without_failures_ranks"]})
    if row["verdict"] == "stalls" and row["verdict_ranks"] < row["without_failures_ranks"]:
        here = placement_in_words(row["verdict_ranks"], row["workers_per_node"])
        return f"beyond {here} failures eat more than a doubling gains (throughput alone {other}); {limit}"
    return f"with failures it {verdict_in_short(row)}, without {other}; {limit}"
