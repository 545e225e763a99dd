"""What training on several workers takes beyond its isolated parts, learned on the fewest that communicate.

Layers are timed on one rank and all-reduces on idle nodes; in training both share cores, memory and caches. What they
take from each other when every rank computes is measured at every place, without training; how much of it training
feels is learned from training cells on the fewest nodes with more than one rank, and carried to more nodes. So is what
workers lose by waiting for the slowest of them. Workers of one node share its memory and its links and those of others
do not: with each number of workers on a node it is learned anew, where that was trained. See docs/models/contention.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallpoint.models.base.measured import POINT, Measured, Point
from stallpoint.models.base.statistics import (
    MOST_BELIEVED,
    REPLICATES,
    Ensemble,
    generator,
    groups,
    non_negative_least_squares,
    quasi_poisson_fit,
    scatter,
    shrink_to_one,
)
from stallpoint.models.terms.effects import AS_ISOLATED, FAIR_SHARE, NONE, Effects, IsolatedTimes, PerMessage
from stallpoint.models.terms.observed import Observed, by_messages, observe
from stallpoint.models.terms.pace import Pace
from stallpoint.models.terms.stragglers import expected_lead
from stallpoint.models.terms.trainings import Trainings
from stallpoint.strategies.presets import Preset
from stallpoint.study.workers import Placement, nearest

LEAST_SHARE = 0.1
"""Part of the backward pass in which messages have to be under way to tell what they do to it."""
MOSTLY = 0.9
"""Part of a message's time that passes beside the backward pass, or after it, for it to tell about either."""
FEWEST_MESSAGES = 6
"""Messages that can tell a delay of each message from a factor on its time."""
USUAL = {True: np.log(1 / FAIR_SHARE), False: 0.05}
"""How far (logarithm) the factor on a message usually is from 1, beside the backward pass, where the two may share a
core, and after it: alone it is timed at the same node count."""
MOST_SEEN = 64
"""Training points that one prediction learns from: of more, those most alike."""
_REPLICATE = np.arange(1 + REPLICATES)[:, None]


@dataclass(frozen=True)
class Seen:
    """A point on the fewest nodes that communicate with so many workers on each, beside its isolated times."""

    point: Point
    preset: Preset
    observed: Observed
    isolated: IsolatedTimes
    starves: bool
    """Whether reading a mini-batch takes longer than all else: the wait for it then says nothing of handing it over."""

    @property
    def known(self) -> bool:
        """Whether all parts were measured, here and isolated."""
        there, isolated = self.observed, self.isolated
        known = (there.forward, there.backward, there.update, there.waiting, there.straggling, there.messages)
        messages = isolated.messages
        without = (messages.isolated, messages.beside, messages.work, isolated.update)
        took = np.concatenate([np.ravel(times) for times in (*known, *without)])
        computing = (there.forward, there.backward, isolated.forward, isolated.backward)
        positive = all((times > 0).all() for times in (*computing, messages.isolated.sum(axis=-1)))
        return bool(np.isfinite(took).all() and positive)

    @property
    def forward(self) -> Ensemble:
        """As in `Effects`."""
        return self.observed.forward / self.isolated.forward

    @property
    def backward_over_forward(self) -> Ensemble:
        """How much more the backward pass is slowed down than the forward pass."""
        return self.observed.backward / self.isolated.backward / self.forward

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
        in_rounds = 0.0 if self.isolated.messages.co_run else self.isolated.messages.rounds
        return np.stack([in_rounds * part.sum(axis=-1), (self.isolated.messages.work * part).sum(axis=-1)], axis=-1)

    @property
    def straggling(self) -> Ensemble:
        """Over a worker's own time."""
        return self.observed.straggling / (self.observed.forward + self.observed.backward)

    @property
    def update(self) -> Ensemble:
        """As in `Effects`."""
        measured, isolated = self.observed.update, self.isolated.update
        return np.divide(measured, isolated, out=np.ones_like(measured), where=isolated > 0)


class Contention:
    """The training cells from which effects are learned: of each number of workers on a node those on the fewest nodes
    with more than one rank."""

    def __init__(
        self,
        points: Sequence[Measured],
        trainings: Trainings,
        presets: Mapping[str, Preset],
        isolated: Callable[[Point, Sequence[Sequence[int]]], IsolatedTimes | None],
        reading: Callable[[Measured], Ensemble],
        pace: Pace,
        seed: int,
    ) -> None:
        """`isolated` says what a point would take, given the layers of its messages; None where it is not known.
        `reading` is its t_io, not a number where that is not known."""
        self._presets, self._pace, self._seed = presets, pace, seed
        several = [measured for measured in points if measured.point.ranks > 1]
        fewest: dict[tuple[str, int], int] = {}
        for measured in several:
            nodes, workers = measured.point.place
            alike = measured.point.hardware, workers
            fewest[alike] = min(nodes, fewest.get(alike, nodes))
        known = [one for one in several if one.point.nodes == fewest[one.point.hardware, one.point.place[1]]]
        usual = {at: scatter(rows, POINT, "iteration_time") for at, rows in groups(trainings.steps, "hardware")}
        self._seen: list[Seen] = []
        self._known: dict[tuple[Point, bool], Effects] = {}
        self._taught: dict[tuple[tuple[str | int, ...], Point | None], _Taught | None] = {}
        for measured in known:
            cells = [trainings.sending[name] for name in measured.cells if name in trainings.sending]
            for same in by_messages(cells):
                random = generator(seed, "contention", *measured.point.series)
                observed = observe(same, random, usual[measured.point.hardware])
                preset = presets[measured.point.sync]
                if preset.strategy.in_blocks:  # whose passes wait for what they send
                    none = np.zeros_like(observed.messages)
                    observed = replace(observed, beside=none, under_way=none.sum(axis=-1))
                times = isolated(measured.point, observed.sent)
                if times is not None:
                    busy = measured.parts.iteration_time - observed.waiting
                    starves = bool(np.ravel(reading(measured))[0] > busy[0])
                    seen = Seen(measured.point, preset, observed, times, starves)
                    if seen.known:
                        self._seen.append(seen)

    def effects(self, point: Point, held_out: bool = False) -> Effects:
        """The effects at `point`, learned from points on the same hardware; without its own if it is `held_out`."""
        point = point.alone
        if (point, held_out) not in self._known:
            self._known[point, held_out] = self._effects(point, held_out)
        return self._known[point, held_out]

    def _effects(self, point: Point, held_out: bool) -> Effects:
        own = point if held_out and any(seen.point == point for seen in self._seen) else None
        if (point.series, own) not in self._taught:
            self._taught[point.series, own] = self._teach(point, own)
        taught = self._taught[point.series, own]
        if taught is None:
            return NONE
        learned, where = taught.effects, (point.hardware, point.place, taught.place)
        slower = self._pace.ratio(*where)
        return replace(
            learned,
            forward=np.maximum(learned.forward * slower, 1.0),
            backward=np.maximum(learned.backward * slower, 1.0),
            update=learned.update * slower,
            straggling=_lagging(learned.straggling, taught.begins, point.ranks, self._pace.further_lead(*where)),
        )

    def _teach(self, point: Point, own: Point | None) -> _Taught | None:
        """What the curve of `point` learns from training, if any was seen; nothing is learned from `own`."""
        there = [seen for seen in self._seen if seen.point.hardware == point.hardware and seen.point != own]
        if not there:
            return None
        place = nearest((seen.point.place for seen in there), point.place)
        preset = self._presets[point.sync]
        others = _alike(
            [seen for seen in there if seen.point.place == place],
            lambda seen: (seen.preset.strategy.in_blocks == preset.strategy.in_blocks,),
        )
        if len(others) > MOST_SEEN:
            others = sorted(others, key=lambda seen: _unlike(seen.point, point))[:MOST_SEEN]
        # The same draws on any number of nodes: a curve is predicted by one model.
        random = generator(self._seed, "effects", *point.series)
        network = _alike(
            others, lambda seen: (seen.point.network == point.network, _ahead(seen.point) == _ahead(point))
        )
        same_way = [seen for seen in others if seen.preset.communicator == preset.communicator]
        scheme = [seen for seen in same_way if _scheme(seen.preset) == _scheme(preset)]
        overlapping = [seen for seen in same_way if seen.overlaps]
        ahead = [seen for seen in network if _ahead(seen.point) and not seen.starves]
        updating = [seen for seen in network if _updating(seen.preset) == _updating(preset)]
        begins = _alike(others, lambda seen: (seen.preset.start == preset.start, seen.point.network == point.network))
        after = _slowing(scheme, random, beside=False) or _slowing(same_way, random, beside=False)
        beside = _slowing(scheme, random, beside=True) or _slowing(same_way, random, beside=True)
        sent = [seen.observed.sent for seen in others if _same(seen.point, point)]
        forward = _median([seen.forward for seen in network], random)
        networks = dict.fromkeys(seen.point.network for seen in others)
        more = {name: _backward_over_forward(others, name, random) for name in networks}
        effects = Effects(
            forward=forward,
            backward=forward * more[network[0].point.network],
            update=_median([seen.update for seen in updating], random, default=np.ones(1)),
            waiting=_median([seen.observed.waiting for seen in ahead], random, default=np.zeros(1)),
            work=_work(overlapping, more, random) if overlapping else _untaught_work(others),
            beside=beside or NONE.beside,
            after=after or NONE.after,
            gathering=gathering(scheme, random) or gathering(same_way, random) or NONE.gathering,
            straggling=_median([seen.straggling for seen in begins], random),
            sent=sent[0] if sent else None,
        )
        return _Taught(effects, begins, place)


@dataclass(frozen=True)
class _Taught:
    """What a curve learns, the same on any number of nodes with as many workers on each."""

    effects: Effects
    """As at the `place` where they were learned."""
    begins: list[Seen]
    """The points that `straggling` is of."""
    place: Placement


def _unlike(seen: Point, point: Point) -> tuple[bool, int]:
    """How little one point tells of another: first of all when its network is another one."""
    return seen.network != point.network, sum(a != b for a, b in zip(seen.series, point.series, strict=True))


def _ahead(point: Point) -> bool:
    return point.prefetch > 0


def _updating(preset: Preset) -> tuple[bool, str]:
    return preset.strategy.updates_on_server, preset.strategy.updating


def _scheme(preset: Preset) -> tuple[str, str, bool]:
    return preset.communicator, preset.scheme, preset.segment_bytes > 0


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
    parts: list[tuple[Ensemble, Ensemble, Ensemble]] = []
    for one in seen:
        share = one.observed.beside[0] / np.maximum(one.observed.messages[0], 1e-12)
        chosen = share > MOSTLY if beside else share < 1 - MOSTLY
        if chosen.any():
            without = one.isolated.messages.beside if beside else one.isolated.messages.isolated
            in_rounds = np.full_like(without, one.isolated.messages.rounds)
            parts.append((one.observed.messages[:, chosen], without[:, chosen], in_rounds[:, chosen]))
    if not parts:
        return None
    measured, known, of_rounds = (np.concatenate(of, axis=-1) for of in zip(*parts, strict=True))
    drawn = _drawn(len(parts), random)
    times_drawn = (drawn[:, :, None] == np.arange(len(parts))).sum(axis=1)
    count = np.repeat(times_drawn, [part.shape[1] for part, *_ in parts], axis=1)
    whole = (count * known).sum(axis=-1)
    ratio = np.divide((count * measured).sum(axis=-1), whole, out=np.ones_like(whole), where=whole > 0)
    if beside and _all_co_run(seen):
        return PerMessage(np.zeros_like(ratio), shrink_to_one(ratio, USUAL[beside]))
    can_tell = count.sum(axis=-1) >= FEWEST_MESSAGES
    design = np.stack([of_rounds, known], axis=-1)
    factor = np.where(can_tell, quasi_poisson_fit(design, measured, count)[:, 1], ratio)
    # Where it may as well be a delay, a factor learned from small messages would say nonsense of large ones.
    doubt = np.log(np.clip(ratio, 1 / MOST_BELIEVED, MOST_BELIEVED))
    factor = shrink_to_one(factor, USUAL[beside], doubt=np.where(can_tell, 0.0, doubt))
    left = (count * (measured - factor[:, None] * known)).sum(axis=-1) / (count * of_rounds).sum(axis=-1)
    return PerMessage(np.where(can_tell, np.maximum(left, 0.0), 0.0), factor)


def gathering(seen: Sequence[Seen], random: np.random.Generator) -> PerMessage | None:
    """What all-gathers of these points take, over what was measured of them while ranks computed.

    Replicates draw the points again. None where no training gathered.
    """
    known = [one.isolated.gathered for one in seen]
    pairs = [
        (one.observed.gathers.sum(axis=-1), gathered.beside.sum(axis=-1))
        for one, gathered in zip(seen, known, strict=True)
        if gathered and one.observed.gathers.any() and np.isfinite(gathered.beside).all()
    ]
    if not pairs:
        return None
    drawn = _drawn(len(pairs), random)
    took, without = (np.stack(of)[drawn, _REPLICATE].sum(axis=1) for of in zip(*pairs, strict=True))
    return PerMessage(np.zeros_like(took), shrink_to_one(took / without, USUAL[True]))


def _backward_over_forward(seen: Sequence[Seen], network: str, random: np.random.Generator) -> Ensemble:
    """How much more a backward pass beside which nothing is sent is slowed down than the forward pass before it."""
    quiet = [one for one in seen if not one.overlaps]
    alike = _alike(quiet, lambda one: (one.point.network == network,)) if quiet else []
    return _median([one.backward_over_forward for one in alike], random, default=np.ones(1))


def _work(seen: Sequence[Seen], more: Mapping[str, Ensemble], random: np.random.Generator) -> PerMessage:
    """Least squares over points, in units of their backward passes; one point alone puts all down to the bytes.

    The backward pass computes as much slower as the point's forward pass, and `more` times that in its network; no
    faster than alone.
    """
    passes = np.stack([one.isolated.backward for one in seen])
    slower = [np.maximum(one.forward * more[one.point.network], 1.0) for one in seen]
    computing = passes * np.stack(slower)
    lost = (np.stack([one.observed.backward for one in seen]) - computing) / passes
    sent = np.stack([one.sent_beside for one in seen]) / passes[..., None]
    drawn = _drawn(len(seen), random)
    found = non_negative_least_squares(sent[drawn, _REPLICATE], lost[drawn, _REPLICATE])
    return PerMessage(found[:, 0], found[:, 1])


def _untaught_work(others: Sequence[Seen]) -> PerMessage:
    """Where no training overlapped: what was measured while ranks computed, as it stands, or nothing."""
    return AS_ISOLATED if _all_co_run(others) else NONE.work


def _all_co_run(seen: Sequence[Seen]) -> bool:
    """Whether messages of all these points were measured while ranks computed."""
    return all(one.isolated.messages.co_run for one in seen)


def _lagging(share: Ensemble, seen: Sequence[Seen], workers: int, further: Ensemble | None) -> Ensemble:
    """The share that was seen, and how much `further` the slowest of `workers` lags.

    Where that was not measured, the share grows as the expected maximum of so many draws does.
    """
    if further is not None:
        return np.maximum(share + further, 0.0)
    leads, ranks = np.concatenate([one.observed.leads for one in seen]), seen[0].observed.ranks
    known = expected_lead(leads, ranks)
    return np.asarray(share * (expected_lead(leads, workers) / known if known > 0 else 1.0))
