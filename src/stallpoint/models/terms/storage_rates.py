"""Read rates of the storages by origin of the bytes, and rates of copying memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.statistics import (
    Ensemble,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    scatter,
    visits_of,
)
from stallpoint.records.origins import MIXED, UNKNOWN

_PLACEMENT = ("storage", "hardware", "nodes", "workers_per_node", "ranks")
_READING = ("order", "cache", "readers")
_ONE_PASS = ("cell", "visit", *_READING)
_ORIGIN = ("origin", "server_cache", "uncached")
_QUANTILES = {"latency_p50": 0.50, "latency_p95": 0.95, "latency_p99": 0.99}


def storage_rates(storage_reads: pd.DataFrame, storage_passes: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Return the rows of the storage_rates table.

    Passes whose bytes came from different sources are separate rows.
    """
    reads = storage_reads.merge(_origins(storage_passes), on=list(_ONE_PASS))
    usual = {at: scatter(rows, [*_PLACEMENT, *_READING, "rank"], "seconds") for at, rows in groups(reads, "hardware")}
    passes = groups(reads, [*_PLACEMENT, *_READING, *_ORIGIN])
    return [_rates(key, rows, usual[rows["hardware"].iloc[0]], seed) for key, rows in passes]


def _origins(passes: pd.DataFrame) -> pd.DataFrame:
    """Return, for each pass of a visit, over all workers, the source of its bytes and what was known before."""
    found = passes.groupby(list(_ONE_PASS)).agg(
        origin=("origin", lambda values: _same(values, MIXED)),
        server_cache=("server_cache", lambda values: _same(values, UNKNOWN)),
        uncached=("uncached", "all"),
        filesystem=("filesystem", "first"),
        locality=("locality", "first"),
        metadata=("metadata", lambda values: _same(values, UNKNOWN)),
        resident=("resident", lambda values: values.astype(float).mean(skipna=False)),
        set_bytes=("set_bytes", "first"),
        memory_bytes=("memory_bytes", "first"),
    )
    return found.reset_index()


def _same(values: pd.Series[Any], otherwise: str) -> object:
    return values.iloc[0] if values.nunique() == 1 else otherwise


def _rates(key: tuple[Any, ...], rows: pd.DataFrame, usual: Scatter, seed: int) -> dict[str, object]:
    """Return the rates of one pass: all bytes over the time until the last rank ended.

    Replicates draw the samples of each rank again: a rank takes the sum of its reads.
    """
    of_rank = rows.assign(end=rows["start"] + rows["seconds"]).groupby(["repeat", "visit", "rank"])
    # Each read's part of its rank's time, including the time to the next read.
    spans = rows.assign(span=of_rank["end"].transform("max") * rows["seconds"] / of_rank["seconds"].transform("sum"))
    random = generator(seed, "rates", *key)
    seconds_per_sample = [
        bootstrap(of_one["span"], visits_of(of_one), random, np.mean, usual) for _, of_one in groups(spans, "rank")
    ]
    samples = len(seconds_per_sample) / np.max(np.stack(seconds_per_sample), axis=0)
    first = rows.iloc[0]
    return {
        **dict(zip((*_PLACEMENT, *_READING, *_ORIGIN), key, strict=True)),
        **{name: first[name] for name in ("filesystem", "locality", "metadata")},
        "resident": float(rows["resident"].mean()),
        "set_over_memory": float(first["set_bytes"] / first["memory_bytes"]),
        **columns("samples_per_second", samples),
        **columns("bytes_per_second", samples * float(rows["bytes"].mean())),
        **_latencies(rows),
    }


def _latencies(rows: pd.DataFrame) -> dict[str, object]:
    return {name: float(rows["seconds"].quantile(share)) for name, share in _QUANTILES.items()}


_COPY = ("hardware", "copy", "threads")


_ADDS = ("triad", "within the device")
"""Copies that touch the memory gradients lie in."""


def memory_rates(copies: pd.DataFrame, seed: int) -> dict[str, Ensemble]:
    """Return the traffic of memory by hardware, B/s: the fastest of `_ADDS`, by any number of threads."""
    rows = copies[copies["copy"].isin(_ADDS)]
    found: dict[str, Ensemble] = {}
    for key, rate in _copy_rates(rows, seed):
        if key[0] not in found or rate[0] > found[key[0]][0]:
            found[key[0]] = rate
    return found


def copy_rates(copies: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Return the rows of the copy_rates table, from the tidy table `copies`."""
    return [
        {**dict(zip(_COPY, key, strict=True)), **columns("bytes_per_second", rate)}
        for key, rate in _copy_rates(copies, seed)
    ]


def _copy_rates(copies: pd.DataFrame, seed: int) -> Iterator[tuple[tuple[Any, ...], Ensemble]]:
    usual = {hardware: scatter(rows, _COPY, "seconds") for hardware, rows in groups(copies, "hardware")}
    for key, rows in groups(copies, _COPY):
        random = generator(seed, "copies", *key)
        yield key, rows["bytes"].mean() / bootstrap(rows["seconds"], visits_of(rows), random, np.mean, usual[key[0]])
