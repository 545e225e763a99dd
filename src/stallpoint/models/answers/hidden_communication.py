"""What communication costs an iteration, and how much of it the backward pass hides: by differences between cells.

A preset's iteration, less that of the same cell without any communication, is what communicating costs: the messages
that nothing hides, what the backward pass loses beside them, and waiting for each other. What the same messages take
on idle workers, less that cost, is hidden (Shi et al., 2018, section IV-C, ask for it as t_c - t_c^no). It is negative
where overlapping costs more than it hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stallpoint.models.base.measured import Measured, Point
from stallpoint.models.base.statistics import Ensemble, columns, unknown_ensemble
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.strategies.presets import Preset


def table(
    curves: Iterable[ScalingCurve], points: Sequence[Measured], presets: Mapping[str, Preset]
) -> list[dict[str, object]]:
    """Rows of the hidden_communication table: every measured point of several ranks that communicate."""
    without = Without(points, presets)
    return [row for curve in curves for row in _rows(curve, without, presets)]


class Without:
    """Points of several ranks that do not communicate, to be found by those that do."""

    def __init__(self, points: Iterable[Measured], presets: Mapping[str, Preset]) -> None:
        self._presets = presets
        several = [one for one in points if one.point.ranks > 1]
        self._found = {self._way(one.point): one for one in several if not presets[one.point.sync].communicates}

    def of(self, point: Point) -> Measured | None:
        """The point that differs from `point` in nothing but that it does not communicate, if it is data-parallel."""
        return None if self._presets[point.sync].model_parallel else self._found.get(self._way(point))

    def _way(self, point: Point) -> tuple[Point, bool]:
        return replace(point.alone, sync=""), self._presets[point.sync].device_prefetch


def _rows(curve: ScalingCurve, without: Without, presets: Mapping[str, Preset]) -> Iterator[dict[str, object]]:
    for ranks, measured in curve.measured.items():
        point = measured.point
        if point.ranks > 1 and presets[point.sync].communicates:
            yield _row(measured, without.of(point), curve.predicted[ranks].isolated_communication)


def _row(measured: Measured, without: Measured | None, isolated: Ensemble) -> dict[str, object]:
    quiet = without.parts.iteration_time if without else unknown_ensemble()
    cost = measured.parts.iteration_time - quiet
    with np.errstate(divide="ignore", invalid="ignore"):
        quantities = {
            "communication": measured.parts.communication,
            "exposed": measured.parts.exposed_communication,
            "isolated": isolated,
            "without": quiet,
            "cost": cost,
            "hidden": isolated - cost,
            "hidden_share": 1 - cost / isolated,
            "of_backward": measured.parts.communication / measured.parts.backward,
        }
    of_columns = (columns(name, ensemble) for name, ensemble in quantities.items())
    return measured.point.labels() | {column: value for found in of_columns for column, value in found.items()}
