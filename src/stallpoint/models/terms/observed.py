"""What training did at one point: its iterations and messages, reduced over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.models.base.statistics import UNKNOWN, Ensemble, Reals, Scatter, bootstrap, visits_of
from stallpoint.models.terms.stragglers import OWN

_PARTS = ("data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update")
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
    sent: list[list[int]]
    """Layers of each message, in the order of sending."""
    leads: Reals
    """How much longer than the mean of all ranks each rank's own part of each iteration took, over that mean."""
    ranks: int


def by_messages(of_cells: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Layers of cells that sent the same messages, together; where nothing was sent they are left out.

    Each job may merge layers by what it measures itself (MG-WFBP), so that repeats differ. Of each cell those
    iterations count that sent what most of its iterations did: in imported traces layers may now and then send nothing.
    """
    alike: dict[tuple[int, ...], list[pd.DataFrame]] = {}
    for rows in of_cells:
        of_steps = rows[rows["rank"] == 0].pivot(index="iteration", columns="layer_index", values="message")
        sent = {step: tuple(messages) for step, messages in zip(of_steps.index, of_steps.to_numpy(), strict=True)}
        ((commonest, _),) = Counter(sent.values()).most_common(1)
        if max(commonest) >= 0:
            steps = [step for step, messages in sent.items() if messages == commonest]
            alike.setdefault(commonest, []).append(rows[rows["iteration"].isin(steps)])
    return (pd.concat(rows) for rows in alike.values())


def observe(
    iterations: pd.DataFrame, layers: pd.DataFrame, random: np.random.Generator, usual: Scatter = UNKNOWN
) -> Observed:
    """Reduce the rows of one point, whose iterations all sent the same messages; warm-up left out."""
    own = iterations[list(OWN)].sum(axis=1)
    begin = iterations[["data_wait", "host_to_device", "forward"]].sum(axis=1)
    times = iterations.assign(own=own, begin=begin, ended=begin + iterations["backward"])
    sent = _messages(layers, times)
    steps = times.groupby(_STEP)
    values = steps[["forward", "backward", "update"]].mean()
    values["waiting"] = steps["data_wait"].mean()
    under_way = sent.groupby([*_STEP, "rank"])["beside"].sum().groupby(_STEP).mean()
    values["under_way"] = under_way.reindex(values.index).fillna(0.0)
    # As in `measured.over_ranks`: the rank that arrives last waits for nobody.
    parts = sum(steps[name].min() if name == "exposed_communication" else steps[name].mean() for name in _PARTS)
    values["straggling"] = np.maximum(steps["iteration_time"].mean() - parts, 0.0)
    last = sent.groupby([*_STEP, "rank"])["seconds"].sum().groupby(_STEP).idxmin()
    of_last = sent.set_index([*_STEP, "rank"]).loc[list(last)].reset_index()
    wide = of_last.pivot(index=_STEP, columns="message", values=["seconds", "beside"])
    wide = wide.reindex(values.index).fillna(0.0)
    names, count = list(values.columns), wide.shape[1] // 2
    found = bootstrap(
        np.hstack([values.to_numpy(), wide.to_numpy()]), visits_of(values.reset_index()), random, np.mean, usual
    )
    mean = steps["own"].transform("mean")
    return Observed(
        **{name: found[:, index] for index, name in enumerate(names)},
        messages=found[:, len(names) : len(names) + count],
        beside=found[:, len(names) + count :],
        sent=_sent(layers),
        leads=((times["own"] - mean) / mean).to_numpy(),
        ranks=int(iterations["rank"].nunique()),
    )


def _messages(layers: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """One row for each message of each rank and iteration: how long it took, and how long beside the backward pass."""
    key = [*_STEP, "rank"]
    rows = layers[layers["message"] >= 0]
    sent = rows.groupby([*key, "message"], as_index=False).agg(
        start=("all_reduce_start", "min"), end=("all_reduce_end", "max")
    )
    sent = sent.merge(times[[*key, "begin", "ended"]], on=key)
    both = np.minimum(sent["end"], sent["ended"]) - np.maximum(sent["start"], sent["begin"])
    return sent.assign(seconds=sent["end"] - sent["start"], beside=np.maximum(both, 0.0))


def _sent(layers: pd.DataFrame) -> list[list[int]]:
    """Layers of each message, the last first."""
    first = layers[(layers["message"] >= 0) & (layers["rank"] == 0)].drop_duplicates("layer_index")
    members = first.sort_values("layer_index", ascending=False).groupby("message")["layer_index"]
    return [[int(layer) for layer in of_message] for _, of_message in members]
