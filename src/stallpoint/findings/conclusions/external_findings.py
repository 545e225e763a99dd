"""What a study's tables of rates from elsewhere say: each series as it was measured, and carried further by laws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stallpoint.findings.finding import Finding
from stallpoint.text import interval, number

EXTERNAL = "external table"
MAX_LINES = 10


def external_findings(rows: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding for each series, of rows of ``extrapolations`` in the conclusions."""
    series: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: int(row["workers"])):
        series.setdefault((row["table"], row["series"]), []).append(row)
    for (table, name), of_series in series.items():
        known = [row for row in of_series if row["measured"] is not None]
        last = of_series[-1]
        ends = {"value": last["predicted"], "low": last["lower"], "high": last["upper"]}
        predicted = last["predicted"] is not None
        beyond = f"{interval(ends)} samples/s predicted ({last['law']})" if predicted else f"not known ({last['law']})"
        texts = [_measured(known), f"at {last['workers']} workers {beyond}" if last not in known else ""]
        yield Finding(
            EXTERNAL, f"{name} in {table}", "; ".join(filter(None, texts)), value=last["predicted"], low=last["lower"],
            high=last["upper"], unit="samples/s" if predicted else "", evidence="measured elsewhere",
        )  # fmt: skip


def external_lines(rows: Iterable[Mapping[str, Any]], limit: int | None = MAX_LINES) -> Iterator[str]:
    """Yield the same in words, at most `limit` of them."""
    found = list(external_findings(rows))
    yield from (f"{one.subject}: {one.words}" for one in found[:limit])
    if limit and (more := len(found) - limit) > 0:
        yield f"{more} more series of external tables: details.md"


def _measured(known: list[Mapping[str, Any]]) -> str:
    if not known:
        return "no rate was measured"
    first, last = known[0], known[-1]
    if first is last:
        return f"{number(first['measured'])} samples/s on {first['workers']} workers alone"
    proportional = first["measured"] / first["workers"] * last["workers"]
    return (
        f"{number(first['measured'])} → {number(last['measured'])} samples/s on {first['workers']} → {last['workers']} "
        f"workers, {100 * last['measured'] / proportional:.0f} % efficient"
    )
