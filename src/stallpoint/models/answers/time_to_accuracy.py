"""Time to a target accuracy, steps(B) x iteration time(n, B): where more workers stop saving any.

With X the throughput and E(B) the samples that B needs, it is E(B) / X: a doubling of workers that also doubles B gains
what throughput gains, less what more samples cost. Goodput is throughput times statistical efficiency, the samples
that the smallest B needs over those that B needs (Qiao et al. 2021, "Pollux", section 3). Pollux has that efficiency
from the noise scale φ, (φ + B₀) / (φ + B), which is the same where φ is the critical mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stallpoint.models.answers.stall_probability import Stall
from stallpoint.models.answers.stalling import Gains
from stallpoint.models.base.measured import SERIES, Measured, Point
from stallpoint.models.base.statistics import Ensemble, Reals, columns, unknown_ensemble
from stallpoint.models.convergence.steps import ANY, TO_TARGET, Steps
from stallpoint.models.iteration.curve import Predicted, ScalingCurve
from stallpoint.strategies.presets import Preset

_LABELS = {"steps_storage": "storage", "steps_sync": "sync", "recipe": "recipe", "target": "target"}
"""Columns that say which training the steps are of, and what they are called there."""


class Matched(NamedTuple):
    """A scaling curve, and the steps to a target that its training takes."""

    curve: ScalingCurve
    training: Mapping[str, Any]
    """Values of `TO_TARGET`: what runs to the target the steps are of."""
    steps: Mapping[int, Steps]
    """By workers, as far as they are known: one for all, or those that as many workers took."""

    def at(self, ranks: int) -> tuple[Measured | Predicted, Steps] | None:
        """An iteration and the steps on so many workers; None where one of them is not known."""
        return (self.curve.at(ranks), self.steps[ranks]) if ranks in self.steps else None


def tables(
    pairs: Sequence[Matched],
    gains_of: Callable[[ScalingCurve], Gains],
    noise: Callable[[Steps], Ensemble],
    threshold: float,
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Rows of time_to_accuracy, for every place of a curve, and of accuracy_stalling, one for each of the `matched`.

    `gains_of` is `gains` of throughput or remembers them; `noise` gives the noise scale of a training.
    """
    times = [row for pair in pairs for row in _times(pair, noise)]
    return times, [_stalling(pair, gains_of(pair.curve), threshold) for pair in pairs]


def matched(curves: Iterable[ScalingCurve], found: Sequence[Steps], presets: Mapping[str, Preset]) -> list[Matched]:
    """Each curve with the steps that its training takes, for every target.

    Steps are those of the curve's network and preset. Where nobody trained to the target with this preset, those of
    another one count if both compute the weights of one worker; and on one worker alone algorithms do so, too.
    """
    trained: dict[tuple[Any, ...], dict[str, list[Steps]]] = {}
    for steps in found:
        network, storage, sync, *rest = (steps.training[name] for name in TO_TARGET)
        trained.setdefault((network, storage, *rest), {}).setdefault(sync, []).append(steps)
    pairs = (
        _matched(curve, by_preset, presets)
        for curve in curves
        for (network, *_), by_preset in trained.items()
        if network == _first(curve).network
    )
    return [pair for pair in pairs if pair is not None]


def _matched(
    curve: ScalingCurve, trained: Mapping[str, Sequence[Steps]], presets: Mapping[str, Preset]
) -> Matched | None:
    """With runs to one target, by preset."""
    sync = _first(curve).sync
    exact = next((steps for name, steps in trained.items() if presets[name].exact), ())
    own = trained.get(sync) or (exact if presets[sync].exact else ())
    if not own:
        return None
    known = {ranks: steps for steps in own for ranks in curve.known if steps.ranks in (ANY, ranks)}
    if presets[sync].exact_alone and 1 in curve.known and 1 not in known and exact:
        known[1] = exact[0]
    return Matched(curve, own[0].training, known)


def _first(curve: ScalingCurve) -> Point:
    return curve.origin


def _times(pair: Matched, noise: Callable[[Steps], Ensemble]) -> Iterator[dict[str, object]]:
    curve, base = pair.curve, pair.at(pair.curve.base)
    for ranks, steps in sorted(pair.steps.items()):
        here = curve.at(ranks)
        batch = here.point.global_batch
        smallest, of_noise = min(steps.batches), noise(steps)
        needed, seconds = steps.at(batch), here.parts.iteration_time
        efficiency = steps.samples(smallest) / steps.samples(batch)
        faster = curve.speedup(ranks, curve.basis(ranks))
        more = steps.samples(batch) / base[1].samples(base[0].point.global_batch) if base else unknown_ensemble()
        yield {
            **here.point.labels("global_batch"),
            **{column: steps.training[name] for column, name in _LABELS.items()},
            "steps_ranks": steps.ranks,
            "basis": curve.basis(ranks),
            **columns("steps", needed),
            **columns("time", needed * seconds),
            **columns("speedup", faster / more),
            **columns("throughput_speedup", faster),
            **columns("statistical_efficiency", efficiency),
            **columns("goodput", efficiency * batch / seconds),
            **columns("noise_efficiency", 1 - (batch - smallest) / (of_noise + batch)),  # also where it is infinite
        }


def _gains(pair: Matched, of_throughput: Gains) -> dict[int, Reals]:
    """Logarithm of the time at n over that at 2n, where both are known: draws, [REPLICATES]."""
    found = {}
    for ranks, (_, gain) in of_throughput.items():
        ends = [at for at in map(pair.at, (ranks, 2 * ranks)) if at]
        if len(ends) == 2:
            one, double = (steps.samples(at.point.global_batch) for at, steps in ends)
            cost = np.log(double / one)[1:]
            if np.isfinite(cost).all():
                found[ranks] = gain - cost
    return found


def _stalling(pair: Matched, of_throughput: Gains, threshold: float) -> dict[str, object]:
    gained = _gains(pair, of_throughput)
    stall = Stall.of(gained, 2 * max(gained, default=0), threshold)
    verdict, place = stall.verdict
    labels = {name: value for name, value in _first(pair.curve).labels().items() if name in SERIES}
    return {
        **labels,
        **{column: pair.training[name] for column, name in _LABELS.items()},
        **stall.columns,
        "reached": stall.reached,
        "verdict": verdict,
        "verdict_ranks": place,
        "largest_considered": stall.largest,
    }
