"""Rates of reading the training set, by storage (Keuper & Pfreundt, section IV)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.records.origins import in_words
from stallpoint.report.charts import Tables, axes, shapes
from stallpoint.report.charts.labels import estimate, rows, with_interval
from stallpoint.text import number

PERCENTILES = {"latency_p50": "median of a sample", "latency_p95": "95th percentile", "latency_p99": "99th percentile"}


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a row for each storage, order, state of the page cache and number of readers, the fastest first.

    Each number of nodes has a point. If nodes have several workers, each number of workers has its own point.
    """
    frame = _rates(tables)
    scale, axis = axes.log10(axes.span(frame), "~s")
    x = alt.X("value:Q", title="reading rate of all nodes together [samples/s]", scale=scale, axis=axis)
    tips = {
        "reading": "reading", "nodes": "nodes", "shown": "rate (90 % interval)", "bytes_read": "bytes (90 % interval)",
        "came": "the bytes came", "resident": "in the page cache before", **PERCENTILES,
    }  # fmt: skip
    return shapes.dots(frame, x, "reading", "nodes", tips, title="nodes", height=26, width=260, column="uncached")


def _rates(tables: Tables) -> pd.DataFrame:
    frame = estimate(rows(tables, "storage_rates", "storage cells"), "samples_per_second", "samples/s")
    frame = frame.sort_values(["hardware", "storage", "order", "cache", "readers", "ranks"], kind="stable")
    readers_vary = frame["readers"].nunique() > 1
    readers = [f" · {readers} readers" if readers_vary else "" for readers in frame["readers"]]
    return frame.assign(
        panel=frame["hardware"],
        reading=frame["storage"] + " · " + frame["order"] + " · " + frame["cache"] + readers,
        came=[in_words(*pair) for pair in zip(frame["origin"], frame["server_cache"], strict=True)],
        nodes=list(map(_node_count_label, frame["nodes"], frame["workers_per_node"])),
        bytes_read=with_interval(frame, "bytes_per_second", "MB/s", scale=1e-6),
        resident=["not known" if share != share else f"{100 * share:.0f} %" for share in frame["resident"]],
        **{name: [f"{number(seconds * 1e3)} ms" for seconds in frame[name]] for name in PERCENTILES},
    )


def _node_count_label(nodes: int, workers_per_node: int) -> str:
    return str(nodes) if workers_per_node == 1 else f"{nodes} × {workers_per_node} workers"


def finding(tables: Tables) -> str:
    """Return the finding: the fastest and the slowest storage, and storages whose reads a cache may have answered."""
    frame = _rates(tables)
    cold_rows = frame[(frame["cache"] == "cold") & (frame["order"] == "shuffled")]
    compared = cold_rows if len(cold_rows) else frame
    best = compared.sort_values("value", ascending=False, kind="stable").drop_duplicates("storage")
    names, values = list(best["storage"]), list(best["value"])
    if len(best) < 2:
        found = f"{names[0]} delivers {number(values[0], 2)} samples/s"
    else:
        condition = " when read cold" if len(cold_rows) else ""
        found = f"{names[0]} delivers {number(values[0] / values[-1], 2)} times the samples of {names[-1]}{condition}"
    doubtful_storages = sorted(set(best.loc[~best["uncached"].astype(bool), "storage"]))
    doubtful_words = "all of them" if len(doubtful_storages) == len(best) > 1 else " and ".join(doubtful_storages)
    return f"{found}; caches may have answered for {doubtful_words}" if doubtful_storages else found
