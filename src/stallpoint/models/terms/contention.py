"""Time that training adds to its isolated parts, calibrated on the fewest nodes that communicate.

Layers are timed on one rank and all-reduces on idle nodes; in training both share cores, memory and caches. Their
mutual slowdown while every rank computes is measured at every placement, without training. Its effect on training is
calibrated on training cells on the fewest nodes with more than one rank, and applied to more nodes. The wait for the
slowest worker is calibrated like the slowdown. As workers of a node share memory and links, each trained number of
workers on a node is calibrated separately. See docs/models/contention.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stallpoint.base.measured import POINT, Measured, Point
from stallpoint.base.non_negative_fits import non_negative_least_squares, quasi_poisson_fit
from stallpoint.base.shrinkage import shrink_to_one
from stallpoint.base.statistics import MAX_FACTOR, REPLICATES, Ensemble, Reals, generator, groups, scatter
from stallpoint.loops import for_each
from stallpoint.models.terms.effects import (
    FAIR_SHARE,
    ISOLATED_LAW,
    NONE,
    Effects,
    Factors,
    IsolatedTimes,
    PerMessage,
    Slowdown,
    expected_lead,
)
from stallpoint.models.terms.observed import Observed, by_bucket_layout, observe
from stallpoint.models.terms.training_cells import TrainingCells
from stallpoint.strategies.presets import Preset
from stallpoint.study.workers import Placement, nearest

MIN_OVERLAP_SHARE = 0.1
"""Part of the backward pass with messages under way above which their effect on it can be estimated."""
MIN_TIME_SHARE = 0.9
"""Share of a message's time in the backward pass (or after it) above which it shows the slowdown there."""
MIN_COLLECTIVES = 6
"""Messages needed to separate a delay per message from a factor on its time."""
SPREADS = {True: np.log(1 / FAIR_SHARE), False: 0.05}
"""Prior scale (log) of the factor on messages during the backward pass (True), where cores are shared, and after."""
MAX_POINTS = 64
"""Largest number of training points of a calibration: the most similar are taken."""
_REPLICATE = np.arange(1 + REPLICATES)[:, None]


@dataclass(frozen=True)
class _Messages:
    """Times of a training point's messages, in training and isolated."""

    measured: Ensemble
    """Seconds of each message, [1 + REPLICATES, messages]; `isolated` likewise."""
    isolated: Ensemble
    rounds: Reals
    """Rounds of each, [messages]."""

    @cached_property
    def sums(self) -> tuple[Ensemble, Ensemble, Ensemble, Ensemble]:
        """Sums over all messages: seconds in training, isolated seconds, rounds and number, [1 + REPLICATES] each."""
        ones = np.ones(1 + REPLICATES)
        in_rounds, count = self.rounds.sum() * ones, len(self.rounds) * ones
        return self.measured.sum(axis=-1), self.isolated.sum(axis=-1), in_rounds, count


@dataclass(frozen=True)
class CalibrationPoint:
    """A training point and its isolated times. No training with as many workers on each node was on fewer nodes."""

    point: Point
    preset: Preset
    observed: Observed
    isolated: IsolatedTimes
    is_starving: bool
    """Whether reading a mini-batch takes longer than all else, so that the wait does not show the hand-over."""

    @cached_property
    def series(self) -> tuple[str | int, ...]:
        """Labels of the scaling curve of this point, in the order of `SERIES`."""
        return self.point.series

    @cached_property
    def in_blocks(self) -> bool:
        """Whether passes wait for their messages."""
        return self.preset.strategy.in_blocks

    @property
    def known(self) -> bool:
        """Whether all parts were measured, in training and isolated."""
        there, isolated = self.observed, self.isolated
        known = (there.forward, there.backward, there.update, there.waiting, there.straggling, there.collectives)
        collectives = isolated.collectives
        without = (collectives.isolated, collectives.co_running, collectives.work, isolated.update)
        all_times = np.concatenate([np.ravel(times) for times in (*known, *without)])
        computing = (there.forward, there.backward, isolated.forward, isolated.backward)
        all_positive = all((times > 0).all() for times in (*computing, collectives.isolated.sum(axis=-1)))
        return bool(np.isfinite(all_times).all() and all_positive)

    @cached_property
    def forward(self) -> Ensemble:
        """Slowdown of the forward pass (`Effects.forward`)."""
        return self.observed.forward / self.isolated.forward

    @cached_property
    def backward_over_forward(self) -> Ensemble:
        """Return the slowdown of the backward pass divided by that of the forward pass."""
        return self.observed.backward / self.isolated.backward / self.forward

    @cached_property
    def overlaps(self) -> bool:
        """Return whether enough communication overlaps the backward pass to estimate how it slows this pass."""
        return bool(self.observed.in_flight[0] > MIN_OVERLAP_SHARE * self.observed.backward[0])

    @cached_property
    def overlapped_work(self) -> Ensemble:
        """Return the rounds and the work, s, of messages during the backward pass, [1 + REPLICATES, 2].

        If the work was measured while ranks compute, it includes that of rounds, and the rounds are returned as 0.
        """
        part = self.observed.co_running / np.maximum(self.observed.collectives, 1e-12)
        in_rounds = 0.0 if self.isolated.collectives.co_run else self.isolated.collectives.rounds
        return np.stack([in_rounds * part.sum(axis=-1), (self.isolated.collectives.work * part).sum(axis=-1)], axis=-1)

    @cached_property
    def during(self) -> _Messages | None:
        """Messages mostly during the backward pass, which show the slowdown of messages in it; None without any."""
        return self._messages(self._share > MIN_TIME_SHARE, self.isolated.collectives.co_running)

    @cached_property
    def after(self) -> _Messages | None:
        """Messages mostly after the backward pass; None without any."""
        return self._messages(self._share < 1 - MIN_TIME_SHARE, self.isolated.collectives.isolated)

    @property
    def _share(self) -> Reals:
        return np.asarray(self.observed.co_running[0] / np.maximum(self.observed.collectives[0], 1e-12))

    def _messages(self, chosen: npt.NDArray[np.bool_], isolated: Ensemble) -> _Messages | None:
        rounds = np.full(int(chosen.sum()), self.isolated.collectives.rounds)
        return _Messages(self.observed.collectives[:, chosen], isolated[:, chosen], rounds) if chosen.any() else None

    @cached_property
    def straggling(self) -> Ensemble:
        """Wait for the slowest worker, relative to a worker's own time."""
        return self.observed.straggling / (self.observed.forward + self.observed.backward)

    @cached_property
    def update(self) -> Ensemble:
        """Slowdown of the update (`Effects.update`)."""
        measured, isolated = self.observed.update, self.isolated.update
        return np.divide(measured, isolated, out=np.ones_like(measured), where=isolated > 0)


class Contention:
    """Training cells of several ranks that calibrate effects: the fewest nodes with each number of workers per node."""

    def __init__(
        self,
        points: Sequence[Measured],
        training_cells: TrainingCells,
        presets: Mapping[str, Preset],
        isolated: Callable[[Point, Sequence[Sequence[int]], Factors | None], IsolatedTimes | None],
        reading: Callable[[Measured], Ensemble],
        slowdown: Slowdown,
        seed: int,
    ) -> None:
        """Take two functions. `isolated` returns isolated times, if known, for a point, the layers of its messages and
        factors sent in place of gradients. `reading` returns t_io of a measured point, NaN if unknown."""
        self._presets, self._slowdown, self._seed = presets, slowdown, seed
        several = [measured for measured in points if measured.point.ranks > 1]
        fewest: dict[tuple[str, int], int] = {}
        for measured in several:
            nodes, workers = measured.point.placement
            of_hardware = measured.point.hardware, workers
            fewest[of_hardware] = min(nodes, fewest.get(of_hardware, nodes))
        known = [one for one in several if one.point.nodes == fewest[one.point.hardware, one.point.placement[1]]]
        usual = {at: scatter(rows, POINT, "iteration_time") for at, rows in groups(training_cells.steps, "hardware")}
        self._seen: dict[tuple[str, Placement], list[CalibrationPoint]] = {}
        self._labels: dict[tuple[str, Placement], npt.NDArray[np.int64]] = {}
        """Labels of the points as numbers, as every calibration compares thousands of points."""
        self._numbers: dict[str | int, int] = {}
        self._places: dict[Point, list[int]] = {}
        """Positions of a point among those of its placement."""
        self._known: dict[tuple[Point, bool], Effects] = {}
        self._calibrations: dict[tuple[tuple[str | int, ...], Point | None], _Calibration | None] = {}

        def observations(measured: Measured) -> list[tuple[Observed, IsolatedTimes, bool]]:
            found, preset = [], presets[measured.point.sync]
            cells = [training_cells.sending[name] for name in measured.cells if name in training_cells.sending]
            for same in by_bucket_layout(cells):
                random = generator(seed, "contention", *measured.point.series)
                observed = observe(same, random, usual[measured.point.hardware])
                if preset.strategy.in_blocks or preset.factored:  # passes wait for messages: none is during a pass
                    zero_seconds = np.zeros_like(observed.collectives)
                    observed = replace(observed, co_running=zero_seconds, in_flight=zero_seconds.sum(axis=-1))
                times = isolated(measured.point, observed.buckets, _factors_sent(observed) if preset.factored else None)
                if times is not None:
                    busy = measured.parts.iteration_time - observed.waiting
                    found.append((observed, times, bool(np.ravel(reading(measured))[0] > busy[0])))
            return found

        for measured, of_point in zip(known, for_each(observations, known), strict=True):
            for observed, times, is_starving in of_point:
                seen = CalibrationPoint(measured.point, presets[measured.point.sync], observed, times, is_starving)
                if seen.known:
                    there = self._seen.setdefault((seen.point.hardware, seen.point.placement), [])
                    self._places.setdefault(seen.point, []).append(len(there))
                    there.append(seen)

    def effects(self, point: Point, held_out: bool = False) -> Effects:
        """Return the effects at `point` from points of the same hardware, without its own cells if it is `held_out`."""
        point = point.standalone
        if (point, held_out) not in self._known:
            self._known[point, held_out] = self._effects(point, held_out)
        return self._known[point, held_out]

    def _effects(self, point: Point, held_out: bool) -> Effects:
        own = point if held_out and point in self._places else None
        if (point.series, own) not in self._calibrations:
            self._calibrations[point.series, own] = self._calibrate(point, own)
        calibration = self._calibrations[point.series, own]
        if calibration is None:
            return NONE
        effects, where = calibration.effects, (point.hardware, point.placement, calibration.placement)
        slower = self._slowdown.ratio(*where)
        return replace(
            effects,
            forward=np.maximum(effects.forward * slower, 1.0),
            backward=np.maximum(effects.backward * slower, 1.0),
            update=effects.update * slower,
            factors=effects.factors and effects.factors.with_making_times(slower),
            straggling=_straggling_share(
                effects.straggling, calibration.waits, point.ranks, self._slowdown.further_lead(*where)
            ),
        )

    def _calibrate(self, point: Point, own: Point | None) -> _Calibration | None:
        """Return the calibration for the curve of `point` without the point `own`; None if no point is left."""
        there = {placement: seen for (hardware, placement), seen in self._seen.items() if hardware == point.hardware}
        placements = [placement for placement, seen in there.items() if any(one.point != own for one in seen)]
        if not placements:
            return None
        placement = nearest(placements, point.placement)
        preset = self._presets[point.sync]
        others = self._similar_points(point, placement, own, in_blocks=preset.strategy.in_blocks)
        # All node counts of a curve have the same random draws, as one model predicts the curve.
        random = generator(self._seed, "effects", *point.series)
        network = _nearest(
            others, lambda seen: (seen.point.network == point.network, _prefetches(seen.point) == _prefetches(point))
        )
        # Messages of asynchronous workers do not calibrate those of synchronous workers.
        peers = [
            seen
            for seen in others
            if seen.preset.communicator == preset.communicator
            and (seen.preset.synchronous or not preset.synchronous)
            # times of factored messages include the making of factors
            and not seen.preset.factored
        ]
        # A message's time includes its encoding: messages with the same encoding are used; without any, lossless ones.
        encoded = [seen for seen in peers if _encoding(seen.preset) == _encoding(preset)]
        peers = encoded or [seen for seen in peers if seen.preset.lossless]
        scheme = [seen for seen in peers if _scheme(seen.preset) == _scheme(preset)]
        overlaps = [seen for seen in peers if seen.overlaps]
        ahead = [seen for seen in network if _prefetches(seen.point) and not seen.is_starving]
        update_peers = [seen for seen in network if _update_kind(seen.preset) == _update_kind(preset)]
        waits = _nearest(others, lambda seen: (seen.preset.start == preset.start, seen.point.network == point.network))
        after = _time_law(scheme, random, co_running=False) or _time_law(peers, random, co_running=False)
        co_running = _time_law(scheme, random, co_running=True) or _time_law(peers, random, co_running=True)
        training = (point.network, point.sync)
        preset_points = [seen for seen in others if (seen.point.network, seen.point.sync) == training]
        known_buckets = preset_points[0].observed.buckets if preset_points else None
        matching = [seen for seen in preset_points if seen.observed.buckets == known_buckets]
        forward = _median([seen.forward for seen in network], random)
        networks = dict.fromkeys(seen.point.network for seen in others)
        more = _backward_over_forward([seen for seen in others if not seen.overlaps], networks, random)
        effects = Effects(
            forward=forward,
            backward=forward * more[network[0].point.network],
            update=_median([seen.update for seen in update_peers], random, default=np.ones(1)),
            waiting=_median([seen.observed.waiting for seen in ahead], random, default=np.zeros(1)),
            work=_work(overlaps, more, random) if overlaps else ISOLATED_LAW if _all_co_run(others) else NONE.work,
            co_running=co_running or NONE.co_running,
            after=after or NONE.after,
            gathering=gathering(scheme, random) or gathering(peers, random) or NONE.gathering,
            straggling=_median([seen.straggling for seen in waits], random),
            buckets=known_buckets,
            factors=_observed_factors(matching, after or NONE.after, random) if matching and preset.factored else None,
        )
        return _Calibration(effects, waits, placement)

    def _similar_points(
        self, point: Point, placement: Placement, own: Point | None, *, in_blocks: bool
    ) -> list[CalibrationPoint]:
        """Return at most `MAX_POINTS` points of a placement, without `own`, most similar to `point`. Points with the
        same `in_blocks` are preferred, then points of the same network."""
        at = point.hardware, placement
        seen = self._seen[at]
        if at not in self._labels:
            self._labels[at] = np.array([[*self._label_numbers(one.point), one.in_blocks] for one in seen])
        labels = self._labels[at]
        known = np.ones(len(seen), bool)
        if own and (own.hardware, own.placement) == at:
            known[self._places[own]] = False
        matching = known & (labels[:, -1] == in_blocks)
        chosen = np.flatnonzero(matching if matching.any() else known)
        if len(chosen) > MAX_POINTS:
            other_network, *others = (labels[chosen, :-1] != self._label_numbers(point)).T
            chosen = chosen[np.lexsort([np.sum(others, axis=0), other_network])[:MAX_POINTS]]
        return [seen[place] for place in chosen]

    def _label_numbers(self, point: Point) -> list[int]:
        """Return a number for each of a point's labels: its network, and its values of `SERIES`."""
        return [self._numbers.setdefault(label, len(self._numbers)) for label in (point.network, *point.series)]


@dataclass(frozen=True)
class _Calibration:
    """Calibrated effects of a curve; they are equal on any number of nodes with the same number of workers on each."""

    effects: Effects
    """Effects at the calibrated `placement`."""
    waits: list[CalibrationPoint]
    """Points that give `straggling`."""
    placement: Placement


def _prefetches(point: Point) -> bool:
    return point.prefetch > 0


def _update_kind(preset: Preset) -> tuple[bool, str]:
    return preset.strategy.updates_on_server, preset.strategy.updating


def _scheme(preset: Preset) -> tuple[str, str, bool]:
    return preset.communicator, preset.scheme, preset.segment_bytes > 0


def _encoding(preset: Preset) -> tuple[int, float, str]:
    return preset.gradient_bits, preset.top_k, preset.hook


def _nearest(
    seen: Sequence[CalibrationPoint], similarity: Callable[[CalibrationPoint], tuple[bool, ...]]
) -> list[CalibrationPoint]:
    """Return the points of largest `similarity`."""
    best = max(map(similarity, seen))
    return [one for one in seen if similarity(one) == best]


def _median(values: Sequence[Ensemble], random: np.random.Generator, default: Ensemble | None = None) -> Ensemble:
    """Return the median of the points' `values`; replicates resample points, so that differences between jobs count."""
    if not values:
        assert default is not None, "there is always somebody most matching"
        return default
    # Values are finite, so the slower `np.median`, which checks for NaN, is not needed.
    drawn = np.sort(np.stack(values)[_resampled_points(len(values), random), _REPLICATE], axis=1)
    return np.asarray((drawn[:, (len(values) - 1) // 2] + drawn[:, len(values) // 2]) / 2)


def _resampled_points(count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the resampled points of each replicate, [1 + REPLICATES, count]; the first has each point once."""
    return np.vstack([np.arange(count), random.integers(count, size=(REPLICATES, count))])


def _time_law(seen: Sequence[CalibrationPoint], random: np.random.Generator, *, co_running: bool) -> PerMessage | None:
    """Return the law of messages' times in training: during the backward pass if `co_running`, else after it.

    A message takes a factor times its isolated time, and a delay in each round. The delay is 0 if messages are too few
    to tell it from the factor, or if isolated times contain all delays. Replicates resample the points.
    """
    parts = [messages for one in seen if (messages := one.during if co_running else one.after) is not None]
    if not parts:
        return None
    drawn = _resampled_points(len(parts), random)
    drawn_positions = drawn + len(parts) * np.arange(len(drawn))[:, None]
    # The counts are converted to float here once; numpy would convert them in each product.
    draw_counts = np.bincount(drawn_positions.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
    took, total, in_rounds, messages = (
        (draw_counts * np.stack(of, axis=-1)).sum(axis=-1) for of in zip(*(part.sums for part in parts), strict=True)
    )
    ratio = np.divide(took, total, out=np.ones_like(total), where=total > 0)
    if co_running and _all_co_run(seen):
        return PerMessage(np.zeros_like(ratio), shrink_to_one(ratio, SPREADS[co_running]))
    measured, known, of_rounds = (
        np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in ("measured", "isolated", "rounds")
    )
    count = np.repeat(draw_counts, [len(part.rounds) for part in parts], axis=1)
    enough = messages >= MIN_COLLECTIVES
    factor = np.where(enough, quasi_poisson_fit(of_rounds, known, measured, count)[:, 1], ratio)
    # If messages are too few to separate factor and delay, the factor is shrunk, as it may contain a delay.
    doubt = np.log(np.clip(ratio, 1 / MAX_FACTOR, MAX_FACTOR))
    factor = shrink_to_one(factor, SPREADS[co_running], deviation=np.where(enough, 0.0, doubt))
    delay = (took - factor * total) / in_rounds
    return PerMessage(np.where(enough, np.maximum(delay, 0.0), 0.0), factor)


def gathering(seen: Sequence[CalibrationPoint], random: np.random.Generator) -> PerMessage | None:
    """Return the ratio of all-gathers' times in training, at the points `seen`, to their times while ranks compute.

    Replicates resample the points. None if no training used all-gathers.
    """
    known = [one.isolated.gathered for one in seen]
    pairs = [
        (one.observed.gathers.sum(axis=-1), gathered.co_running.sum(axis=-1))
        for one, gathered in zip(seen, known, strict=True)
        if gathered and one.observed.gathers.any() and np.isfinite(gathered.co_running).all()
    ]
    if not pairs:
        return None
    drawn = _resampled_points(len(pairs), random)
    training_seconds, co_run_seconds = (np.stack(of)[drawn, _REPLICATE].sum(axis=1) for of in zip(*pairs, strict=True))
    return PerMessage(np.zeros_like(training_seconds), shrink_to_one(training_seconds / co_run_seconds, SPREADS[True]))


def _backward_over_forward(
    quiet: Sequence[CalibrationPoint], networks: Iterable[str], random: np.random.Generator
) -> dict[str, Ensemble]:
    """Return, by network, the slowdown of backward passes divided by that of forward passes, at the points `quiet`,
    where few messages overlap. Networks without these points get the median of all networks."""
    found: dict[str, list[Ensemble]] = {}
    for one in quiet:
        found.setdefault(one.point.network, []).append(one.backward_over_forward)
    every = [one.backward_over_forward for one in quiet]
    return {name: _median(found.get(name, every), random, default=np.ones(1)) for name in networks}


def _work(seen: Sequence[CalibrationPoint], more: Mapping[str, Ensemble], random: np.random.Generator) -> PerMessage:
    """Return the law of the time that a message takes from the backward pass, by least squares over points.

    Errors are in units of the isolated pass. Without messages, the pass would be slowed by the point's factor on the
    forward pass times the network's `more`, and by no less than 1. A single point attributes all work to the bytes.
    """
    passes = np.stack([one.isolated.backward for one in seen])
    slower = [np.maximum(one.forward * more[one.point.network], 1.0) for one in seen]
    computing = passes * np.stack(slower)
    lost_shares = (np.stack([one.observed.backward for one in seen]) - computing) / passes
    work = np.stack([one.overlapped_work for one in seen]) / passes[..., None]
    drawn = _resampled_points(len(seen), random)
    found = non_negative_least_squares(work[drawn, _REPLICATE], lost_shares[drawn, _REPLICATE])
    return PerMessage(found[:, 0], found[:, 1])


def _factors_sent(observed: Observed) -> Factors:
    """Return the factors that messages of `observed` sent in place of gradients; their making takes no time here."""
    gradients, sent = observed.bytes
    return Factors(sent / gradients, np.zeros_like(observed.collectives))


def _observed_factors(seen: Sequence[CalibrationPoint], after: PerMessage, random: np.random.Generator) -> Factors:
    """Return the factors sent at the points `seen`, which have one preset and equal messages. The time to make factors
    is what a message takes beyond its all-reduces. Replicates resample the points."""
    making_times = [
        np.maximum(
            after.known(one.observed.collectives, one.isolated.collectives.rounds) - one.isolated.collectives.isolated,
            0.0,
        )
        / one.observed.bytes[0]
        for one in seen
    ]
    return replace(_factors_sent(seen[0].observed), making=_median(making_times, random))


def _all_co_run(seen: Sequence[CalibrationPoint]) -> bool:
    return all(one.isolated.collectives.co_run for one in seen)


def _straggling_share(
    share: Ensemble, seen: Sequence[CalibrationPoint], workers: int, further_lead: Ensemble | None
) -> Ensemble:
    """Return the wait for the slowest of `workers`, over a worker's own time: `share` plus `further_lead`.

    If `further_lead` was not measured, `share` grows like the expected maximum of as many draws as workers.
    """
    if further_lead is not None:
        return np.maximum(share + further_lead, 0.0)
    leads, ranks = np.concatenate([one.observed.leads for one in seen]), seen[0].observed.ranks
    known = expected_lead(leads, ranks)
    return np.asarray(share * (expected_lead(leads, workers) / known if known > 0 else 1.0))
