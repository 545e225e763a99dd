"""What training did at one point: its iterations and messages, reduced over ranks."""

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
"""Columns that are read here: choosing rows of all others, names among them, took most of the time."""


@dataclass(frozen=True)
class Observed:
    """What the iterations of a point took; medians over them as ensembles, s."""

    forward: Ensemble
    backward: Ensemble
    update: Ensemble
    waiting: Ensemble
    """For a mini-batch."""
    under_way: Ensemble
    """Of the backward pass, the time in which a message was under way."""
    straggling: Ensemble
    """What the iteration took beyond its parts."""
    messages: Ensemble
    """Of each message [1 + REPLICATES, messages], on the rank that waits least."""
    beside: Ensemble
    """Of those, the time beside the backward pass."""
    gathers: Ensemble
    """All-gathers of the weights of each message ahead of the forward pass, on the rank that waits least; none where
    weights are not sharded. [1 + REPLICATES, messages]."""
    sent: list[list[int]]
    """Layers of each message, in the order of sending."""
    leads: Reals
    """How much longer than the mean of the ranks that do not lag each rank's own part of each iteration took, over
    that mean; where some lag, of these alone, as they are among the ranks however many there are."""
    ranks: int


@dataclass(frozen=True)
class Sending:
    """What the iterations of a cell took that sent what most of them did, reduced over ranks.

    Each job may merge layers by what it measures itself (MG-WFBP), so that repeats differ; and in imported traces
    layers may now and then send nothing.
    """

    by_layer: tuple[int, ...]
    """The message of each layer; -1 for none."""
    steps: pd.DataFrame
    """A row for each iteration: `_STEP`, forward, backward, update, waiting, under_way and straggling."""
    messages: Reals
    """[iterations, 2 x messages]: seconds of each message, and of those beside the backward pass."""
    gathers: Reals
    """[iterations, messages], or [iterations, 0] where weights are not sharded: seconds, as in `Observed`."""
    leads: Reals
    """As in `Observed`."""
    ranks: int

    @property
    def sent(self) -> list[list[int]]:
        """Layers of each message, the last first."""
        messages = sorted(set(self.by_layer) - {-1})
        count = len(self.by_layer)
        return [[layer for layer in reversed(range(count)) if self.by_layer[layer] == one] for one in messages]


def sending(iterations: pd.DataFrame, layers: pd.DataFrame) -> Sending | None:
    """Reduce the rows of a cell, warm-up left out; nothing where nothing was sent."""
    iterations, layers = iterations[_OF_ITERATIONS], layers[_OF_LAYERS]
    sent_in = _sent_in(layers[layers["rank"] == 0])
    ((commonest, _),) = Counter(sent_in.values()).most_common(1)
    if max(commonest) < 0:
        return None
    chosen = [step for step, messages in sent_in.items() if messages == commonest]
    iterations, layers = (frame[frame["iteration"].isin(chosen)] for frame in (iterations, layers))
    steps, ranks = np.unique(iterations["iteration"]), np.unique(iterations["rank"])
    at = np.searchsorted(steps, iterations["iteration"]), np.searchsorted(ranks, iterations["rank"])

    def of_ranks(rows: pd.Series[float]) -> Reals:
        """A value for each row of `iterations`, [steps, ranks]; not a number where a rank has no row."""
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
    beside = np.maximum(until - np.maximum(start, begin[..., None]), 0.0)
    sent = np.isfinite(end).any(axis=-1)
    # As in `measured.over_ranks`: the rank that arrives last waits for nobody.
    means = {name: _mean(of[:, typical]) for name, of in parts.items()}
    means["exposed_communication"] = np.fmin.reduce(parts["exposed_communication"], axis=1)
    values = {
        **{name: means[name] for name in ("forward", "backward", "update")},
        "waiting": means["data_wait"],
        "under_way": np.nan_to_num(_mean(np.where(sent, np.nansum(beside, axis=-1), np.nan))),
        "straggling": np.maximum(_mean(of_ranks(iterations["iteration_time"])) - sum(means.values()), 0.0),
    }
    mean = _mean(own[:, typical])
    labels = iterations[_STEP].drop_duplicates("iteration").sort_values("iteration", ignore_index=True)
    return Sending(
        by_layer=tuple(int(message) for message in commonest),
        steps=labels.assign(**values),
        messages=np.hstack(_on_last(end - start, end - start, beside)),
        gathers=_gathers(layers, steps, ranks),
        leads=((own - mean[:, None]) / mean[:, None])[at][lags if lags.any() else slice(None)],
        ranks=len(ranks),
    )


def _sent_in(layers: pd.DataFrame) -> dict[int, tuple[int, ...]]:
    """The message of each layer, by iteration; rows of one rank."""
    of_steps = layers.pivot(index="iteration", columns="layer_index", values="bucket")
    return {step: tuple(messages) for step, messages in zip(of_steps.index, of_steps.to_numpy(), strict=True)}


def _mean(of_ranks: Reals) -> Reals:
    """Mean over the ranks that have a value, [steps]; not a number where none has one."""
    known = ~np.isnan(of_ranks)
    total: Reals = np.where(known, of_ranks, 0.0).sum(axis=1)
    mean: Reals = np.divide(total, known.sum(axis=1), out=np.full_like(total, np.nan), where=known.any(axis=1))
    return mean


def by_messages(cells: Iterable[Sending]) -> Iterator[list[Sending]]:
    """Cells that sent the same messages, together."""
    alike: dict[tuple[int, ...], list[Sending]] = {}
    for cell in cells:
        alike.setdefault(cell.by_layer, []).append(cell)
    yield from alike.values()


def observe(cells: Sequence[Sending], random: np.random.Generator, usual: Scatter = UNKNOWN) -> Observed:
    """The iterations of `cells` of one point, which all sent the same messages."""
    steps = pd.concat([cell.steps for cell in cells], ignore_index=True)
    values, wide = steps.drop(columns=_STEP), np.concatenate([cell.messages for cell in cells])
    gathers = np.concatenate([cell.gathers for cell in cells])
    found = bootstrap(np.hstack([values.to_numpy(), wide, gathers]), visits_of(steps), random, np.mean, usual)
    names, count = list(values.columns), wide.shape[1] // 2
    return Observed(
        **{name: found[:, index] for index, name in enumerate(names)},
        messages=found[:, len(names) : len(names) + count],
        beside=found[:, len(names) + count : len(names) + 2 * count],
        gathers=found[:, len(names) + 2 * count :],
        sent=cells[0].sent,
        leads=np.concatenate([cell.leads for cell in cells]),
        ranks=cells[0].ranks,
    )


def _spans(layers: pd.DataFrame, what: str, steps: Reals, ranks: Reals) -> tuple[Reals, Reals]:
    """When the operation ``what`` of each message began and ended, [steps, ranks, messages]; not a number where there
    is none."""
    rows = layers[layers["bucket"] >= 0]
    messages = np.unique(rows["bucket"])
    keys = zip(("iteration", "rank", "bucket"), (steps, ranks, messages), strict=True)
    place = tuple(np.searchsorted(known, rows[name]) for name, known in keys)
    begin, end = (np.full((len(steps), len(ranks), len(messages)), np.nan) for _ in range(2))
    np.fmin.at(begin, place, rows[f"{what}_start"].to_numpy(dtype=np.float64))
    np.fmax.at(end, place, rows[f"{what}_end"].to_numpy(dtype=np.float64))
    return begin, end


def _on_last(seconds: Reals, *values: Reals) -> list[Reals]:
    """`values` [steps, ranks, messages] on the rank that arrives last and waits for nobody: that whose messages take
    the fewest `seconds`. [steps, messages]; 0 where it has none."""
    whole = np.where(np.isfinite(seconds).any(axis=-1), np.nansum(seconds, axis=-1), np.inf)
    last = whole.argmin(axis=1)[:, None, None]
    return [np.nan_to_num(np.take_along_axis(of, last, axis=1)[:, 0]) for of in values]


def _gathers(layers: pd.DataFrame, steps: Reals, ranks: Reals) -> Reals:
    """All-gathers ahead of the forward pass, [steps, messages], on the rank that arrives last."""
    begin, end = _spans(layers[layers["gather_end"].notna()], "gather", steps, ranks)
    return _on_last(end - begin, end - begin)[0]
