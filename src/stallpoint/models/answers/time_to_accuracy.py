"""Time to a target accuracy, steps(B) x iteration time(n, B): where more workers stop saving any.

With X the throughput and E(B) the samples that B needs, it is E(B) / X: a doubling of workers that also doubles B gains
what throughput gains, less what more samples cost. Goodput is throughput times statistical efficiency, the samples
that the smallest B needs over those that B needs (Qiao et al. 2021, "Pollux", section 3). Pollux has that efficiency
from the noise scale φ, (φ + B₀) / (φ + B), which is the same where φ is the critical mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from stallpoint.models.answers.stall_probability import Stall
from stallpoint.models.answers.stalling import Gains
from stallpoint.models.base.measured import SERIES, Point
from stallpoint.models.base.statistics import Ensemble, Reals, columns
from stallpoint.models.convergence.steps import Steps
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.presets import Preset

_LABELS = {"steps_storage": "storage", "steps_sync": "sync", "recipe": "recipe", "target": "target"}
"""Columns that say which training the steps are of, and what they are called there."""

Matched: TypeAlias = tuple[ScalingCurve, Steps]
"""A scaling curve, and steps to a target that its training takes."""


def tables(
    pairs: Sequence[Matched],
    gains_of: Callable[[ScalingCurve], Gains],
    noise: Callable[[Steps], Ensemble],
    threshold: float,
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Rows of time_to_accuracy, for every place of a curve, and of accuracy_stalling, one for each of the `matched`.

    `gains_of` is `gains` of throughput or remembers them; `noise` gives the noise scale of a training.
    """
    times = [row for curve, steps in pairs for row in _times(curve, steps, noise(steps))]
    return times, [_stalling(curve, steps, gains_of(curve), threshold) for curve, steps in pairs]


def matched(curves: Iterable[ScalingCurve], found: Sequence[Steps], presets: Mapping[str, Preset]) -> list[Matched]:
    """Each curve with the steps that its training takes, for every target.

    Steps are those of the curve's network. Synchronous presets that send whole gradients take the same steps, as they
    compute the same weights; any other preset has only those that were trained with it.
    """
    return [(curve, steps) for curve in curves for steps in found if _same(_first(curve), steps, presets)]


def _first(curve: ScalingCurve) -> Point:
    return curve.measured[curve.base].point


def _same(point: Point, steps: Steps, presets: Mapping[str, Preset]) -> bool:
    if point.network != steps.training["network"]:
        return False
    there = steps.training["sync"]
    return point.sync == there or all(presets[name].exact for name in (point.sync, there))


def _times(curve: ScalingCurve, steps: Steps, noise: Ensemble) -> Iterator[dict[str, object]]:
    smallest = min(steps.batches)
    for place in curve.known:
        here = curve.at(place)
        batch = here.point.global_batch
        needed, seconds = steps.at(batch), here.parts.iteration_time
        efficiency = steps.samples(smallest) / steps.samples(batch)
        yield {
            **here.point.labels("global_batch"),
            **{column: steps.training[name] for column, name in _LABELS.items()},
            "basis": curve.basis(place),
            **columns("steps", needed),
            **columns("time", needed * seconds),
            **columns("statistical_efficiency", efficiency),
            **columns("goodput", efficiency * batch / seconds),
            **columns("noise_efficiency", 1 - (batch - smallest) / (noise + batch)),  # also where it is infinite
        }


def _gains(curve: ScalingCurve, steps: Steps, of_throughput: Gains) -> dict[int, Reals]:
    """Logarithm of the time at n over that at 2n, where both are known: draws, [REPLICATES]."""
    found = {}
    for place, (_, gain) in of_throughput.items():
        one, double = (steps.samples(curve.at(at).point.global_batch) for at in (place, 2 * place))
        cost = np.log(double / one)[1:]
        if np.isfinite(cost).all():
            found[place] = gain - cost
    return found


def _stalling(curve: ScalingCurve, steps: Steps, of_throughput: Gains, threshold: float) -> dict[str, object]:
    gained = _gains(curve, steps, of_throughput)
    stall = Stall.of(gained, 2 * max(gained, default=0), threshold)
    verdict, place = stall.verdict
    labels = {name: value for name, value in _first(curve).labels().items() if name in SERIES}
    return {
        **labels,
        **{column: steps.training[name] for column, name in _LABELS.items()},
        **stall.columns,
        "reached": stall.reached,
        "verdict": verdict,
        "verdict_ranks": place,
        "largest_considered": stall.largest,
    }
