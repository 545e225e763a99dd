"""What training did at one point: its iterations and messages, reduced over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.models.base.statistics import UNKNOWN, Ensemble, Reals, Scatter, bootstrap, visits_of
from stallpoint.models.terms.stragglers import OWN
from stallpoint.records.tables import PHASES

_STEP = ["cell", "repeat", "visit", "iteration"]


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
    """How much longer than the mean of all ranks each rank's own part of each iteration took, over that mean."""
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
    of_steps = layers[layers["rank"] == 0].pivot(index="iteration", columns="layer_index", values="message")
    sent_in = {step: tuple(messages) for step, messages in zip(of_steps.index, of_steps.to_numpy(), strict=True)}
    ((commonest, _),) = Counter(sent_in.values()).most_common(1)
    if max(commonest) < 0:
        return None
    chosen = [step for step, messages in sent_in.items() if messages == commonest]
    iterations, layers = (frame[frame["iteration"].isin(chosen)] for frame in (iterations, layers))
    own = iterations[list(OWN)].sum(axis=1)
    begin = iterations[["data_wait", "host_to_device", "forward"]].sum(axis=1)
    times = iterations.assign(own=own, begin=begin, ended=begin + iterations["backward"])
    sent = _messages(layers, times)
    # The iteration alone tells steps of one cell apart; grouping by all of `_STEP` takes several times as long.
    means = times.groupby("iteration")[[*PHASES, "iteration_time", "own"]].mean()
    values = means[["forward", "backward", "update"]].assign(waiting=means["data_wait"])
    under_way = sent.groupby(["iteration", "rank"])["beside"].sum().groupby("iteration").mean()
    values["under_way"] = under_way.reindex(values.index).fillna(0.0)
    # As in `measured.over_ranks`: the rank that arrives last waits for nobody.
    exposed = times.groupby("iteration")["exposed_communication"].min()
    parts = sum(exposed if name == "exposed_communication" else means[name] for name in PHASES)
    values["straggling"] = np.maximum(means["iteration_time"] - parts, 0.0)
    wide = _on_last(sent, ["seconds", "beside"]).reindex(values.index).fillna(0.0)
    gathers = _on_last(_gathers(layers), ["seconds"]).reindex(values.index).fillna(0.0)
    mean = means["own"].reindex(times["iteration"]).to_numpy()
    labels = iterations[_STEP].drop_duplicates("iteration")
    return Sending(
        by_layer=tuple(int(message) for message in commonest),
        steps=labels.merge(values.reset_index(), on="iteration", how="right"),
        messages=wide.to_numpy(),
        gathers=gathers.to_numpy(),
        leads=((times["own"] - mean) / mean).to_numpy(),
        ranks=int(iterations["rank"].nunique()),
    )


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


def _on_last(sent: pd.DataFrame, values: list[str]) -> pd.DataFrame:
    """`values` of each message, on the rank that arrives last and waits for nobody: a row for each iteration."""
    last = sent.groupby(["iteration", "rank"])["seconds"].sum().groupby("iteration").idxmin()
    of_last = sent.set_index(["iteration", "rank"]).loc[list(last)].reset_index()
    return of_last.pivot(index="iteration", columns="message", values=values)


def _gathers(layers: pd.DataFrame) -> pd.DataFrame:
    """One row for each all-gather ahead of the forward pass of each rank and iteration: how long it took."""
    return _spans(layers[layers["gather_end"].notna()], "gather")


def _messages(layers: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """One row for each message of each rank and iteration: how long it took, and how long beside the backward pass."""
    sent = _spans(layers, "all_reduce").merge(times[["iteration", "rank", "begin", "ended"]], on=["iteration", "rank"])
    both = np.minimum(sent["end"], sent["ended"]) - np.maximum(sent["start"], sent["begin"])
    return sent.assign(beside=np.maximum(both, 0.0))


def _spans(layers: pd.DataFrame, what: str) -> pd.DataFrame:
    """When the operation ``what`` of each message began and ended on each rank in each iteration, and its seconds."""
    rows = layers[layers["message"] >= 0]
    spans = rows.groupby(["iteration", "rank", "message"], as_index=False).agg(
        start=(f"{what}_start", "min"), end=(f"{what}_end", "max")
    )
    return spans.assign(seconds=spans["end"] - spans["start"])
