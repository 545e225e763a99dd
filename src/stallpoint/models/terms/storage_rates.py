"""How fast the storages are read, where the bytes came from, and what else is done with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from stallpoint.models.base.checks import refuse
from stallpoint.models.base.statistics import (
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

_PLACE = ("storage", "hardware", "nodes", "workers_per_node", "ranks")
_READING = ("order", "cache", "readers")
_ONE_PASS = ("cell", "visit", *_READING)
_ORIGIN = ("origin", "server_cache", "uncached")
_OPERATION = ("operation", "metadata", "origin")
_QUANTILES = {"latency_p50": 0.50, "latency_p95": 0.95, "latency_p99": 0.99}


def storage_rates(storage_reads: pd.DataFrame, storage_passes: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Rows of the storage_rates table.

    Passes whose bytes came from different places are never put together: they are rows of their own.
    """
    reads = storage_reads.merge(_origins(storage_passes), on=list(_ONE_PASS))
    usual = {at: scatter(rows, [*_PLACE, *_READING, "rank"], "seconds") for at, rows in groups(reads, "hardware")}
    passes = groups(reads, [*_PLACE, *_READING, *_ORIGIN])
    return [_rates(key, rows, usual[rows["hardware"].iloc[0]], seed) for key, rows in passes]


def _origins(passes: pd.DataFrame) -> pd.DataFrame:
    """For each pass of a visit, all workers together, where its bytes came from and what was known before."""
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
    """The value of all workers, or `otherwise` where they differ."""
    return values.iloc[0] if values.nunique() == 1 else otherwise


def _rates(key: tuple[Any, ...], rows: pd.DataFrame, usual: Scatter, seed: int) -> dict[str, object]:
    """Rates of one pass: everything read over the time until the last rank was through.

    Replicates draw the samples of each rank again: a rank takes as long as its reads together.
    """
    of_rank = rows.assign(end=rows["start"] + rows["seconds"]).groupby(["repeat", "visit", "rank"])
    # Each read's part of its rank's time, what passes between two reads included.
    spans = rows.assign(span=of_rank["end"].transform("max") * rows["seconds"] / of_rank["seconds"].transform("sum"))
    random = generator(seed, "rates", *key)
    seconds_per_sample = [
        bootstrap(of_one["span"], visits_of(of_one), random, np.mean, usual) for _, of_one in groups(spans, "rank")
    ]
    samples = len(seconds_per_sample) / np.max(np.stack(seconds_per_sample), axis=0)
    first = rows.iloc[0]
    return {
        **dict(zip((*_PLACE, *_READING, *_ORIGIN), key, strict=True)),
        **{name: first[name] for name in ("filesystem", "locality", "metadata")},
        "resident": float(rows["resident"].mean()),
        "set_over_memory": float(first["set_bytes"] / first["memory_bytes"]),
        **columns("samples_per_second", samples),
        **columns("bytes_per_second", samples * float(rows["bytes"].mean())),
        **_latencies(rows),
    }


def storage_operation_rates(operations: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Rows of the storage_operation_rates table; `InputError` for a time below 0."""
    refuse(operations, "storage_operations", ["seconds", "bytes"])
    by = [*_PLACE, *_OPERATION]
    usual = {at: scatter(rows, [*_PLACE, "operation"], "seconds") for at, rows in groups(operations, "hardware")}
    return [
        _operation(dict(zip(by, key, strict=True)), rows, usual[rows["hardware"].iloc[0]], seed)
        for key, rows in groups(operations, by)
    ]


def _operation(labels: dict[str, object], rows: pd.DataFrame, usual: Scatter, seed: int) -> dict[str, object]:
    seconds = bootstrap(
        rows["seconds"], visits_of(rows), generator(seed, "operations", *labels.values()), np.mean, usual
    )
    size = float(rows["bytes"].mean())
    return {
        **labels,
        **columns("seconds", seconds),
        **columns("per_second", _over(1.0, seconds)),
        **columns("bytes_per_second", _over(size or np.nan, seconds)),
        **_latencies(rows),
    }


def _over(amount: float, seconds: Ensemble) -> Ensemble:
    """Amount over time; not a number where the clock saw none pass."""
    return np.divide(amount, seconds, out=np.full_like(seconds, np.nan), where=seconds > 0)


def _latencies(rows: pd.DataFrame) -> dict[str, object]:
    return {name: float(rows["seconds"].quantile(share)) for name, share in _QUANTILES.items()}
