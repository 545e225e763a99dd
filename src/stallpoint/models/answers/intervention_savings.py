"""Blame by intervention: what leaving a thing out saves, beside what the critical path says that it takes.

The two are independent: the one is a difference of cells that took turns, the other a decomposition of one cell. Where
they disagree, what was left out also changed something else, or the decomposition is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from stallpoint.models.answers.critical_path import path
from stallpoint.models.answers.hidden_communication import Without
from stallpoint.models.base.measured import Measured, Point, measured
from stallpoint.models.base.statistics import Ensemble, columns, estimate, groups
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.strategies.presets import Preset
from stallpoint.study.interventions import INTERVENTIONS, NO_COMMUNICATION


def table(
    curves: Iterable[ScalingCurve],
    points: Sequence[Measured],
    intervened: pd.DataFrame,
    presets: Mapping[str, Preset],
    seed: int,
) -> list[dict[str, object]]:
    """Rows of the interventions table: each measured point with each intervention on it.

    `points` are all measured ones; `intervened` are steps as `measured.over_ranks` gives them, and the intervention.
    """
    without = Without(points, presets)
    changed = {
        (name, one.point): one
        for name, rows in groups(intervened, "intervention")
        for one in measured(rows, seed, name)
    }
    return [row for curve in curves for row in _rows(curve, without, changed, presets)]


def _rows(
    curve: ScalingCurve,
    without: Without,
    changed: Mapping[tuple[str, Point], Measured],
    presets: Mapping[str, Preset],
) -> Iterator[dict[str, object]]:
    for ranks, whole in curve.measured.items():
        quiet = without.of(whole.point) if presets[whole.point.sync].communicates else None
        for name in INTERVENTIONS:
            left = quiet if name == NO_COMMUNICATION else changed.get((name, whole.point.alone))
            if left is not None:
                yield _row(whole, left, name, path(curve, ranks, "measured"))


def _row(whole: Measured, left: Measured, name: str, on_path: Mapping[str, Ensemble]) -> dict[str, object]:
    named = [part for part in INTERVENTIONS[name].parts if part in on_path]
    saved = whole.parts.iteration_time - left.parts.iteration_time
    parted = np.sum([on_path[part] for part in named], axis=0)
    (_, low, high), (_, low_of_parts, high_of_parts) = estimate(saved), estimate(parted)
    return {
        **whole.point.labels(),
        "intervention": name,
        "parts": "; ".join(named),
        **columns("saved", saved),
        **columns("parted", parted),
        "agrees": low <= high_of_parts and low_of_parts <= high,
    }
