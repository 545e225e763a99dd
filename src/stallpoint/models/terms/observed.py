"""Training at one point: iterations and messages, reduced over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.models.base.lagging import OWN, waited_for
from stallpoint.models.base.statistics import UNKNOWN, Ensemble, Reals, Scatter, bootstrap, visits_of
from stallpoint.records.tables import PHASES

_STEP = ["cell", "repeat", "visit", "iteration"]
_OF_ITERATIONS = [*_STEP, "rank", *PHASES, "communication", "iteration_time"]
_OF_LAYERS = [
    "iteration", "rank", "layer_index", "bucket", "all_reduce_start", "all_reduce_end", "gather_start", "gather_end",
]  # fmt: skip
"""Columns read here: to choose rows of all others, names among them, took most of the time."""


@dataclass(frozen=True)
class Observed:
    """Times of a point's iterations; medians over them as ensembles, s."""

    forward: Ensemble
    backward: Ensemble
    update: Ensemble
    waiting: Ensemble
    """Wait for a mini-batch."""
    in_flight: Ensemble
    """Part of the backward pass with a message under way."""
    straggling: Ensemble
    """Iteration time beyond its parts."""
    collectives: Ensemble
    """Seconds of each message [1 + REPLICATES, messages], on the rank that waits least."""
    co_running: Ensemble
    """Part of them during the backward pass."""
    gathers: Ensemble
    """All-gathers of each message's weights before the forward pass, on the rank that waits least; none without
    sharding. [1 + REPLICATES, messages]."""
    buckets: list[list[int]]
    """Layers of each message, in the order of sending."""
    leads: Reals
    """Excess of each rank's own part of each iteration over the mean of the ranks that do not lag, relative to it;
    where some lag, of these only, in proportion to their number among the ranks."""
    ranks: int


@dataclass(frozen=True)
class Sending:
    """Iterations of a cell with its most frequent messages, reduced over ranks.

    Each job may merge layers by its own measurements (MG-WFBP), so that repeats differ; in imported traces layers may
    now and then send nothing.
    """

    by_layer: tuple[int, ...]
    """Message of each layer; -1 for none."""
    steps: pd.DataFrame
    """A row for each iteration: `_STEP`, forward, backward, update, waiting, in_flight and straggling."""
    collectives: Reals
    """[iterations, 2 x messages]: seconds of each message, and of those beside the backward pass."""
    gathers: Reals
    """[iterations, messages], or [iterations, 0] where weights are not sharded: seconds, as in `Observed`."""
    leads: Reals
    """As in `Observed`."""
    ranks: int

    @property
    def buckets(self) -> list[list[int]]:
        """Return the layers of each message, the last first."""
        message_numbers = sorted(set(self.by_layer) - {-1})
        count = len(self.by_layer)
        return [[layer for layer in reversed(range(count)) if self.by_layer[layer] == one] for one in message_numbers]


def sending(iterations: pd.DataFrame, layers: pd.DataFrame) -> Sending | None:
    """Reduce the rows of a cell, without warm-up; empty without communication."""
    iterations, layers = iterations[_OF_ITERATIONS], layers[_OF_LAYERS]
    layout_of_step = _bucket_layouts(layers[layers["rank"] == 0])
    ((commonest, _),) = Counter(layout_of_step.values()).most_common(1)
    if max(commonest) < 0:
        return None
    chosen = [step for step, layout in layout_of_step.items() if layout == commonest]
    iterations, layers = (frame[frame["iteration"].isin(chosen)] for frame in (iterations, layers))
    steps, ranks = np.unique(iterations["iteration"]), np.unique(iterations["rank"])
    at = np.searchsorted(steps, iterations["iteration"]), np.searchsorted(ranks, iterations["rank"])

    def of_ranks(rows: pd.Series[float]) -> Reals:
        """Return a value for each row of `iterations`, [steps, ranks]; not a number where a rank has no row."""
        found = np.full((len(steps), len(ranks)), np.nan)
        found[at] = rows
        return found

    lags = waited_for(iterations)
    typical = ~np.isin(ranks, iterations["rank"][lags])
    parts = {name: of_ranks(iterations[name]) for name in PHASES}
    own = of_ranks(iterations[list(OWN)].sum(axis=1))
    begin = of_ranks(iterations[["data_wait", "host_to_device", "forward"]].sum(axis=1))
    layers = layers[layers["iteration"].isin(steps) & layers["rank"].isin(ranks)]
    start, end = _spans(layers, "all_reduce", steps, ranks)
    until = np.minimum(end, (begin + parts["backward"])[..., None])
    co_running = np.maximum(until - np.maximum(start, begin[..., None]), 0.0)
    communicated = np.isfinite(end).any(axis=-1)
    # As in `measured.over_ranks`: the rank that arrives last waits for no other.
    means = {name: _mean(of[:, typical]) for name, of in parts.items()}
    means["exposed_communication"] = np.fmin.reduce(parts["exposed_communication"], axis=1)
    values = {
        **{name: means[name] for name in ("forward", "backward", "update")},
        "waiting": means["data_wait"],
        "in_flight": np.nan_to_num(_mean(np.where(communicated, np.nansum(co_running, axis=-1), np.nan))),
        "straggling": np.maximum(_mean(of_ranks(iterations["iteration_time"])) - sum(means.values()), 0.0),
    }
    mean = _mean(own[:, typical])
    labels = iterations[_STEP].drop_duplicates("iteration").sort_values("iteration", ignore_index=True)
    return Sending(
        by_layer=tuple(int(message) for message in commonest),
        steps=labels.assign(**values),
        collectives=np.hstack(_on_last(end - start, end - start, co_running)),
        gathers=_gathers(layers, steps, ranks),
        leads=((own - mean[:, None]) / mean[:, None])[at][lags if lags.any() else slice(None)],
        ranks=len(ranks),
    )


def _bucket_layouts(layers: pd.DataFrame) -> dict[int, tuple[int, ...]]:
    """Return the message of each layer, by iteration; rows of one rank."""
    of_steps = layers.pivot(index="iteration", columns="layer_index", values="bucket")
    return {
        step: tuple(message_numbers) for step, message_numbers in zip(of_steps.index, of_steps.to_numpy(), strict=True)
    }


def _mean(of_ranks: Reals) -> Reals:
    """Return the mean over the ranks that have a value, [steps]; not a number without any."""
    known = ~np.isnan(of_ranks)
    total: Reals = np.where(known, of_ranks, 0.0).sum(axis=1)
    mean: Reals = np.divide(total, known.sum(axis=1), out=np.full_like(total, np.nan), where=known.any(axis=1))
    return mean


def by_bucket_layout(cells: Iterable[Sending]) -> Iterator[list[Sending]]:
    """Return cells grouped by identical messages."""
    by_layout: dict[tuple[int, ...], list[Sending]] = {}
    for cell in cells:
        by_layout.setdefault(cell.by_layer, []).append(cell)
    yield from by_layout.values()


def observe(cells: Sequence[Sending], random: np.random.Generator, usual: Scatter = UNKNOWN) -> Observed:
    """Return the iterations of `cells` of one point with identical messages."""
    steps = pd.concat([cell.steps for cell in cells], ignore_index=True)
    values, wide = steps.drop(columns=_STEP), np.concatenate([cell.collectives for cell in cells])
    gathers = np.concatenate([cell.gathers for cell in cells])
    found = bootstrap(np.hstack([values.to_numpy(), wide, gathers]), visits_of(steps), random, np.mean, usual)
    names, count = list(values.columns), wide.shape[1] // 2
    return Observed(
        **{name: found[:, index] for index, name in enumerate(names)},
        collectives=found[:, len(names) : len(names) + count],
        co_running=found[:, len(names) + count : len(names) + 2 * count],
        gathers=found[:, len(names) + 2 * count :],
        buckets=cells[0].buckets,
        leads=np.concatenate([cell.leads for cell in cells]),
        ranks=cells[0].ranks,
    )


def _spans(layers: pd.DataFrame, what: str, steps: Reals, ranks: Reals) -> tuple[Reals, Reals]:
    """Return begin and end of the operation ``what`` of each message, [steps, ranks, messages]; not a number without
    one."""
    rows = layers[layers["bucket"] >= 0]
    message_numbers = np.unique(rows["bucket"])
    keys = zip(("iteration", "rank", "bucket"), (steps, ranks, message_numbers), strict=True)
    index = tuple(np.searchsorted(known, rows[name]) for name, known in keys)
    begin, end = (np.full((len(steps), len(ranks), len(message_numbers)), np.nan) for _ in range(2))
    np.fmin.at(begin, index, rows[f"{what}_start"].to_numpy(dtype=np.float64))
    np.fmax.at(end, index, rows[f"{what}_end"].to_numpy(dtype=np.float64))
    return begin, end


def _on_last(seconds: Reals, *values: Reals) -> list[Reals]:
    """Return `values` [steps, ranks, messages] on the rank that arrives last and waits for no other, whose messages
    take the fewest `seconds`.

    [steps, messages]; 0 where it has none.
    """
    total = np.where(np.isfinite(seconds).any(axis=-1), np.nansum(seconds, axis=-1), np.inf)
    last = total.argmin(axis=1)[:, None, None]
    return [np.nan_to_num(np.take_along_axis(of, last, axis=1)[:, 0]) for of in values]


def _gathers(layers: pd.DataFrame, steps: Reals, ranks: Reals) -> Reals:
    """Return the all-gathers before the forward pass, [steps, messages], on the rank that arrives last."""
    begin, end = _spans(layers[layers["gather_end"].notna()], "gather", steps, ranks)
    return _on_last(end - begin, end - begin)[0]
