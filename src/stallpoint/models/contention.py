"""What training on several nodes takes beyond its parts alone, learned on the fewest nodes that communicate.

Layers are timed on one rank and all-reduces on idle nodes; in training both share cores, memory and caches. What they
take from each other when every rank computes is measured at every node count, without training; how much of it training
feels is learned from training cells on the fewest nodes with more than one rank, and carried to other node counts. So
is what workers lose by waiting for the slowest of them. See docs/models/contention.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.models.measured import POINT, Measured, Point, kept
from stallpoint.models.pace import Pace
from stallpoint.models.statistics import (
    MOST_BELIEVED,
    REPLICATES,
    UNKNOWN,
    Ensemble,
    Reals,
    Scatter,
    believed,
    bootstrap,
    generator,
    groups,
    non_negative_least_squares,
    quasi_poisson_fit,
    scatter,
    visits_of,
)
from stallpoint.models.stragglers import OWN, expected_lead
from stallpoint.presets import Preset

LEAST_SHARE = 0.1
"""Part of the backward pass in which messages have to be under way to tell what they do to it."""
MOSTLY = 0.9
"""Part of a message's time that passes beside the backward pass, or after it, for it to tell about either."""
FEWEST = 6
"""Messages that can tell a delay of each message from a factor on its time."""
FAIR_SHARE = 0.5
"""Most of a core that a communication thread takes from a thread that computes all the time."""
USUAL = {True: np.log(1 / FAIR_SHARE), False: 0.05}
"""How far (logarithm) the factor on a message usually is from 1, beside the backward pass, where the two may share a
core, and after it: alone it is timed at the same node count."""
_PARTS = ("data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update")
_REPLICATE = np.arange(1 + REPLICATES)[:, None]
_STEP = ["cell", "repeat", "visit", "iteration"]


@dataclass(frozen=True)
class Together:
    """What messages and computing take from each other when every rank computes; [1 + REPLICATES, messages], s."""

    longer: Ensemble
    """How much longer each message takes."""
    work: Ensemble
    """How much longer computing takes for each."""


@dataclass(frozen=True)
class Messages:
    """What was measured of messages without training; [1 + REPLICATES, messages], in the order of sending, s."""

    latency: Ensemble
    """What of each is latency."""
    alone: Ensemble
    """On idle nodes."""
    together: Together | None = None
    """None where it was not measured; the time alone then stands for both."""

    @property
    def beside(self) -> Ensemble:
        """How long each takes while every rank computes, as far as that is known."""
        return self.alone + self.together.longer if self.together else self.alone

    @property
    def work(self) -> Ensemble:
        """What each takes from computing goes with this."""
        return self.together.work if self.together else self.alone

    def slowed(self, factor: Reals) -> Messages:
        """The same over links on which everything takes `factor` [..., 1] times as long."""
        return replace(self, latency=self.latency * factor, alone=self.alone * factor)


@dataclass(frozen=True)
class Alone:
    """What a point would take if nothing slowed anything down; ensembles, s."""

    forward: Ensemble
    backward: Ensemble
    update: Ensemble
    messages: Messages


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


@dataclass(frozen=True)
class PerMessage:
    """Seconds of a message: rounds · each + share · what was measured of it without training."""

    each: Ensemble
    """s in each round."""
    share: Ensemble

    def __call__(self, known: Ensemble, ranks: int) -> Ensemble:
        """Seconds of messages among `ranks` for which `known` [1 + REPLICATES, messages] was measured."""
        seconds: Ensemble = rounds(ranks) * self.each[:, None] + self.share[:, None] * known
        return seconds


def rounds(ranks: int) -> float:
    """Rounds in which every rank can hear of every other one: in each somebody's thread has to get a core first."""
    return float(np.ceil(np.log2(ranks))) if ranks > 1 else 0.0


@dataclass(frozen=True)
class Effects:
    """How much longer things take in training than alone."""

    forward: Ensemble
    """Factor on the forward pass; 1 at least, as ranks that compute together are no faster than one alone."""
    backward: Ensemble
    """Factor on the backward pass while no message is under way; 1 at least."""
    update: Ensemble
    """Factor on the update."""
    waiting: Ensemble
    """Taking over a mini-batch that was read ahead, s."""
    work: PerMessage
    """What a message beside the backward pass takes from it: to hand over and take in, and to move its bytes."""
    beside: PerMessage
    """What a message takes beside the backward pass: delays, and a factor."""
    after: PerMessage
    straggling: Ensemble
    """Waiting for the slowest worker, over a worker's own time."""
    sent: list[list[int]] | None
    """Layers of each message, where the same network was sent by the same preset."""

    def of_messages(self, messages: Messages, ranks: int) -> tuple[Ensemble, Ensemble, Ensemble]:
        """Seconds of messages after the backward pass and beside it, and the factor on the pass beside them.

        A message costs the backward pass the same work however long it is under way: while it waits for a core or for
        the other ranks, it takes nothing. [messages, 1 + REPLICATES] each.
        """
        beside, work = self.beside(messages.beside, ranks), self.work(messages.work, ranks)
        part = np.divide(work, beside, out=np.zeros(beside.shape), where=beside > 0)
        slower = 1 / (1 - np.minimum(part, FAIR_SHARE))
        return self.after(messages.alone, ranks).T, beside.T, slower.T


_ONE, _ZERO = np.ones(1), np.zeros(1)
_AS_MEASURED = PerMessage(_ZERO, _ONE)
NONE = Effects(_ONE, _ONE, _ONE, _ZERO, PerMessage(_ZERO, _ZERO), _AS_MEASURED, _AS_MEASURED, _ZERO, None)
"""Nothing takes longer: what is assumed where nothing was measured."""


@dataclass(frozen=True)
class Seen:
    """A point on the fewest nodes that communicate, beside what it would take alone."""

    point: Point
    preset: Preset
    observed: Observed
    alone: Alone

    @property
    def known(self) -> bool:
        """Whether all parts were measured, here and alone."""
        there, alone = self.observed, self.alone
        known = (there.forward, there.backward, there.update, there.waiting, there.straggling, there.messages)
        messages = alone.messages
        without = (messages.alone, messages.beside, messages.work, alone.update)
        took = np.concatenate([np.ravel(times) for times in (*known, *without)])
        longer_than_0 = (there.forward, there.backward, alone.forward, alone.backward, messages.alone.sum(axis=-1))
        return bool(np.isfinite(took).all() and all((times > 0).all() for times in longer_than_0))

    @property
    def forward(self) -> Ensemble:
        """As in `Effects`."""
        return self.observed.forward / self.alone.forward

    @property
    def backward_over_forward(self) -> Ensemble:
        """How much more the backward pass is slowed down than the forward pass."""
        return self.observed.backward / self.alone.backward / self.forward

    @property
    def overlaps(self) -> bool:
        """Whether enough is sent during the backward pass to tell what that does to it."""
        return bool(self.observed.under_way[0] > LEAST_SHARE * self.observed.backward[0])

    @property
    def sent_beside(self) -> Ensemble:
        """The messages beside the backward pass, or the parts of them: rounds, and what they would take of it, s.

        Where that was measured rounds are in it, and are 0 here. [1 + REPLICATES, 2].
        """
        part = self.observed.beside / np.maximum(self.observed.messages, 1e-12)
        in_rounds = 0.0 if self.alone.messages.together else rounds(self.observed.ranks)
        return np.stack([in_rounds * part.sum(axis=-1), (self.alone.messages.work * part).sum(axis=-1)], axis=-1)

    @property
    def straggling(self) -> Ensemble:
        """Over a worker's own time."""
        return self.observed.straggling / (self.observed.forward + self.observed.backward)

    @property
    def update(self) -> Ensemble:
        """As in `Effects`."""
        measured, alone = self.observed.update, self.alone.update
        return np.divide(measured, alone, out=np.ones_like(measured), where=alone > 0)


class Contention:
    """The training cells from which effects are learned: those on the fewest nodes with more than one rank."""

    def __init__(
        self,
        points: Sequence[Measured],
        iterations: pd.DataFrame,
        layers: pd.DataFrame,
        presets: Mapping[str, Preset],
        alone: Callable[[Point, Sequence[Sequence[int]]], Alone | None],
        pace: Pace,
        seed: int,
    ) -> None:
        """`alone` says what a point would take, given the layers of its messages; None where it is not known."""
        self._presets, self._pace, self._seed = presets, pace, seed
        together = [measured for measured in points if measured.point.ranks > 1]
        fewest: dict[str, int] = {}
        for measured in together:
            point = measured.point
            fewest[point.hardware] = min(point.nodes, fewest.get(point.hardware, point.nodes))
        known = [measured for measured in together if measured.point.nodes == fewest[measured.point.hardware]]
        cells = {cell for measured in known for cell in measured.cells}
        of_iterations, of_layers = _of_cells(iterations, cells), _of_cells(layers, cells)
        usual = {at: scatter(rows, POINT, "iteration_time") for at, rows in groups(kept(iterations), "hardware")}
        self._seen: list[Seen] = []
        for measured in known:
            cells_with_layers = [cell for cell in measured.cells if cell in of_iterations and cell in of_layers]
            for of_messages in _by_messages([of_layers[cell] for cell in cells_with_layers]):
                steps = pd.concat([of_iterations[cell] for cell in of_messages["cell"].unique()])
                steps = steps.merge(of_messages[["cell", "iteration"]].drop_duplicates())
                random = generator(seed, "contention", *measured.point.series)
                observed = observe(steps, of_messages, random, usual[measured.point.hardware])
                parts = alone(measured.point, observed.sent)
                if parts is not None:
                    seen = Seen(measured.point, presets[measured.point.sync], observed, parts)
                    if seen.known:
                        self._seen.append(seen)

    def effects(self, point: Point, held_out: bool = False) -> Effects:
        """The effects at `point`, learned from points on the same hardware; without its own if it is `held_out`."""
        others = [
            seen
            for seen in self._seen
            if seen.point.hardware == point.hardware and not (held_out and seen.point == point)
        ]
        if not others:
            return NONE
        preset = self._presets[point.sync]
        # The same draws at every node count: a curve is predicted by one model.
        random = generator(self._seed, "effects", *point.series)
        network = _alike(
            others, lambda seen: (seen.point.network == point.network, _ahead(seen.point) == _ahead(point))
        )
        same_way = [seen for seen in others if seen.preset.communicator == preset.communicator]
        scheme = [seen for seen in same_way if _scheme(seen.preset) == _scheme(preset)]
        overlapping = [seen for seen in same_way if seen.overlaps]
        updating = [seen for seen in network if _serves(seen.preset) == _serves(preset)]
        begins = _alike(others, lambda seen: (seen.preset.start == preset.start, seen.point.network == point.network))
        after = _slowing(scheme, random, beside=False) or _slowing(same_way, random, beside=False)
        beside = _slowing(scheme, random, beside=True) or _slowing(same_way, random, beside=True)
        sent = [seen.observed.sent for seen in others if _same(seen.point, point)]
        forward = _median([seen.forward for seen in network], random)
        networks = dict.fromkeys(seen.point.network for seen in others)
        more = {name: _backward_over_forward(others, name, random) for name in networks}
        where = point.hardware, point.nodes, others[0].point.nodes
        slower = self._pace.ratio(*where)
        return Effects(
            forward=np.maximum(forward * slower, 1.0),
            backward=np.maximum(forward * more[network[0].point.network] * slower, 1.0),
            update=_median([seen.update for seen in updating], random, default=_ONE) * slower,
            waiting=_median([seen.observed.waiting for seen in network if _ahead(seen.point)], random, default=_ZERO),
            work=_work(overlapping, more, random) if overlapping else _untaught_work(others),
            beside=beside or NONE.beside,
            after=after or NONE.after,
            straggling=_straggling(begins, point.ranks, self._pace.further_lead(*where), random),
            sent=sent[0] if sent else None,
        )


def _ahead(point: Point) -> bool:
    return point.prefetch > 0


def _serves(preset: Preset) -> bool:
    return preset.reduction == "parameter-server"


def _scheme(preset: Preset) -> tuple[str, str, bool]:
    return preset.communicator, preset.reduction, preset.segment_bytes > 0


def _same(known: Point, point: Point) -> bool:
    return (known.network, known.sync) == (point.network, point.sync)


def _alike(seen: Sequence[Seen], likeness: Callable[[Seen], tuple[bool, ...]]) -> list[Seen]:
    """Those that are most alike."""
    best = max(map(likeness, seen))
    return [one for one in seen if likeness(one) == best]


def _median(values: Sequence[Ensemble], random: np.random.Generator, default: Ensemble | None = None) -> Ensemble:
    """Median over points; replicates draw points again, so that what differs between jobs counts."""
    if not values:
        assert default is not None, "there is always somebody most alike"
        return default
    stacked = np.stack(values)
    return np.asarray(np.median(stacked[_drawn(len(values), random), _REPLICATE], axis=1))


def _drawn(count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Which of so many points each replicate has, [1 + REPLICATES, count]; the first has each once."""
    return np.vstack([np.arange(count), random.integers(count, size=(REPLICATES, count))])


def _slowing(seen: Sequence[Seen], random: np.random.Generator, *, beside: bool) -> PerMessage | None:
    """What messages of these points take, beside the backward pass or after it, against what was measured before.

    Replicates draw the points again. A delay is what the factor leaves of a message on average; there is none where too
    few messages can tell the two apart, or what they take while ranks compute was measured with all delays.
    """
    parts: list[tuple[Ensemble, Ensemble]] = []
    for one in seen:
        share = one.observed.beside[0] / np.maximum(one.observed.messages[0], 1e-12)
        chosen = share > MOSTLY if beside else share < 1 - MOSTLY
        if chosen.any():
            without = one.alone.messages.beside if beside else one.alone.messages.alone
            parts.append((one.observed.messages[:, chosen], without[:, chosen]))
    if not parts:
        return None
    measured, known = (np.concatenate(of, axis=-1) for of in zip(*parts, strict=True))
    drawn = _drawn(len(parts), random)
    times_drawn = (drawn[:, :, None] == np.arange(len(parts))).sum(axis=1)
    count = np.repeat(times_drawn, [part.shape[1] for part, _ in parts], axis=1)
    whole = (count * known).sum(axis=-1)
    ratio = np.divide((count * measured).sum(axis=-1), whole, out=np.ones_like(whole), where=whole > 0)
    if beside and _all_together(seen):
        return PerMessage(np.zeros_like(ratio), believed(ratio, USUAL[beside]))
    can_tell = count.sum(axis=-1) >= FEWEST
    per_round = rounds(seen[0].point.ranks)
    design = np.stack([np.full_like(known, per_round), known], axis=-1)
    factor = np.where(can_tell, quasi_poisson_fit(design, measured, count)[:, 1], ratio)
    # Where it may as well be a delay, a factor learned from small messages would say nonsense of large ones.
    doubt = np.log(np.clip(ratio, 1 / MOST_BELIEVED, MOST_BELIEVED))
    factor = believed(factor, USUAL[beside], doubt=np.where(can_tell, 0.0, doubt))
    left = (count * (measured - factor[:, None] * known)).sum(axis=-1) / count.sum(axis=-1)
    return PerMessage(np.where(can_tell, np.maximum(left, 0.0), 0.0) / per_round, factor)


def _backward_over_forward(seen: Sequence[Seen], network: str, random: np.random.Generator) -> Ensemble:
    """How much more a backward pass beside which nothing is sent is slowed down than the forward pass before it."""
    quiet = [one for one in seen if not one.overlaps]
    alike = _alike(quiet, lambda one: (one.point.network == network,)) if quiet else []
    return _median([one.backward_over_forward for one in alike], random, default=_ONE)


def _work(seen: Sequence[Seen], more: Mapping[str, Ensemble], random: np.random.Generator) -> PerMessage:
    """Least squares over points, in units of their backward passes; one point alone puts all down to the bytes.

    The backward pass computes as much slower as the point's forward pass, and `more` times that in its network; no
    faster than alone.
    """
    passes = np.stack([one.alone.backward for one in seen])
    slower = [np.maximum(one.forward * more[one.point.network], 1.0) for one in seen]
    computing = passes * np.stack(slower)
    lost = (np.stack([one.observed.backward for one in seen]) - computing) / passes
    sent = np.stack([one.sent_beside for one in seen]) / passes[..., None]
    drawn = _drawn(len(seen), random)
    found = non_negative_least_squares(sent[drawn, _REPLICATE], lost[drawn, _REPLICATE])
    return PerMessage(found[:, 0], found[:, 1])


def _untaught_work(others: Sequence[Seen]) -> PerMessage:
    """Where no training overlapped: what was measured while ranks computed, as it stands, or nothing."""
    return _AS_MEASURED if _all_together(others) else NONE.work


def _all_together(seen: Sequence[Seen]) -> bool:
    """Whether messages of all these points were measured while ranks computed."""
    return all(one.alone.messages.together for one in seen)


def _straggling(seen: Sequence[Seen], workers: int, further: Ensemble | None, random: np.random.Generator) -> Ensemble:
    """What was seen, and how much `further` the slowest lags; unless measured, as the slowest of so many draws does."""
    share = _median([one.straggling for one in seen], random)
    if further is not None:
        return np.maximum(share + further, 0.0)
    leads, ranks = np.concatenate([one.observed.leads for one in seen]), seen[0].observed.ranks
    known = expected_lead(leads, ranks)
    return np.asarray(share * (expected_lead(leads, workers) / known if known > 0 else 1.0))


def _of_cells(frame: pd.DataFrame, cells: Collection[str]) -> dict[str, pd.DataFrame]:
    return dict(groups(kept(frame[frame["cell"].isin(list(cells))]), "cell"))


def _by_messages(of_cells: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
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
