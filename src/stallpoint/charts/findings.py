"""What a chart shows, as a sentence: the heading of its figure, and its text for those who cannot see it.

A chart without a sentence here keeps its plain title. Sentences speak of measured points, of the fastest preset of each
network, and name at most `MOST` networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from stallpoint.charts import Tables
from stallpoint.charts.frames import AXES, communicating
from stallpoint.models.answers import attribution
from stallpoint.numerals import number

MOST = 3
_PLACE = [*AXES, "nodes", "ranks"]


def finding(name: str, tables: Tables) -> str:
    """The sentence of the chart `name`; empty where it has none, or where nothing was measured."""
    say = _SENTENCES.get(name)
    if say is None or any(tables.get(table) is None or tables[table].empty for table in _NEEDS[name]):
        return ""
    found = list(dict.fromkeys(say(tables)))
    more = f"; and {len(found) - MOST} more" if len(found) > MOST else ""
    return "; ".join(found[:MOST]) + more


def _fastest(predictions: pd.DataFrame) -> pd.DataFrame:
    """Of each network on each hardware entry, the fastest point on the most nodes measured."""
    known = communicating(predictions)
    known = known[known["measured_iteration"].notna() & (known["ranks"] > 1) & (known["scaling"] != "compute")]
    alike = ["network", "hardware", "scaling", "storage", "batch"]
    known = known[known["ranks"] == known.groupby(alike)["ranks"].transform("max")]
    return known.sort_values("measured_iteration", kind="stable").drop_duplicates(alike).sort_index()


def _there(tables: Tables, name: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Where each fastest point is, in words, and what a table says of it."""
    table = tables[name].query("basis == 'measured'")
    for place, rows in table.merge(_fastest(tables["predictions"])[_PLACE]).groupby(_PLACE, sort=False):
        at = dict(zip(_PLACE, place, strict=True))
        yield f"{at['network']} on {at['ranks']} workers", rows


def _speedup(tables: Tables) -> Iterator[str]:
    for row in _fastest(tables["predictions"]).to_dict("records"):
        times = f"{number(row['measured_speedup'], 2)} times as fast on {row['ranks']} workers"
        yield f"{row['network']} is {times} ({row['sync']})"


def _critical_path(tables: Tables) -> Iterator[str]:
    for where, parts in _there(tables, "critical_path"):
        largest = parts.sort_values("share").iloc[-1]
        yield f"{where}: {largest['share']:.0%} of an iteration is {largest['part']}"


def _causes(tables: Tables) -> Iterator[str]:
    for where, causes in _there(tables, "causes"):
        dominant = causes[causes["verdict"] == attribution.DOMINANT]
        if dominant.empty:
            yield f"What costs most {where[where.index(' on ') + 1 :]} cannot be told"
        for cause in dominant.to_dict("records"):
            yield f"{where} loses most to {cause['cause']} ({cause['share']:.0%} of an iteration)"


def _what_if(tables: Tables) -> Iterator[str]:
    table = communicating(tables["what_if"]).query("ranks > 1 and gain_low > 1")
    for network, rows in table.groupby("network", sort=False):
        best = rows[rows["nodes"] == rows["nodes"].min()].sort_values("gain_low").iloc[-1]
        gain = f"{best['scenario']}, {number(best['gain'], 2)} times as fast (predicted)"
        yield f"{network} on {best['nodes']} nodes would gain most from {gain}"


def _data_share(tables: Tables) -> Iterator[str]:
    worst = tables["data_share"].sort_values("share").iloc[-1]
    most = f"{number(100 * worst['share'], 2)} % of an iteration"
    yield f"Waiting for data takes at most {most} ({worst['network']}, {worst['storage']})"


def _prediction(tables: Tables) -> Iterator[str]:
    errors = tables["predictions"]["error"].abs().dropna()
    if len(errors):
        yield f"Predictions are {errors.median():.0%} off in the median, {errors.max():.0%} at most"


def _free_communication(tables: Tables) -> Iterator[str]:
    layers = tables["layer_scaling"].query("layer_type == 'all'")
    for network, rows in layers.groupby("network", sort=False):
        ordered = rows.sort_values("worker_batch")
        least, most = ordered.iloc[0], ordered["worker_batch"].iloc[-1]
        speedup, workers = number(least["speedup"], 2), number(most / least["worker_batch"])
        yield f"{network}: at most {speedup} times as fast on {workers} workers if communication were free"


_SENTENCES: dict[str, Callable[[Tables], Iterator[str]]] = {
    "speedup": _speedup,
    "critical-path": _critical_path,
    "causes": _causes,
    "what-if": _what_if,
    "data-share": _data_share,
    "prediction": _prediction,
    "free-communication": _free_communication,
}
_NEEDS = {
    "speedup": ("predictions",),
    "critical-path": ("critical_path", "predictions"),
    "causes": ("causes", "predictions"),
    "what-if": ("what_if",),
    "data-share": ("data_share",),
    "prediction": ("predictions",),
    "free-communication": ("layer_scaling",),
}
