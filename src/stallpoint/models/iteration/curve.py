"""A scaling curve: its points, measured and predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from stallpoint.models.base.measured import Measured, Point
from stallpoint.models.base.parts import Parts
from stallpoint.models.base.statistics import Ensemble, is_duration, unknown_ensemble
from stallpoint.models.terms.effects import IsolatedComputing

Basis: TypeAlias = Literal["measured", "predicted"]


@dataclass(frozen=True)
class Predicted:
    """A predicted point; not a number where a part of the model was not measured."""

    point: Point
    equation: str
    compute_source: str
    parts: Parts
    reading: Ensemble = field(default_factory=unknown_ensemble)
    """t_io: time to read and decode a mini-batch, hidden or not, s."""
    latency_share: Ensemble = field(default_factory=unknown_ensemble)
    """Share of latency in the exposed communication; in all communication where none is exposed."""
    isolated: IsolatedComputing | None = None
    """None where the computing time at this b is not known."""
    isolated_communication: Ensemble = field(default_factory=unknown_ensemble)
    """Time of the messages on idle workers, s."""
    backward_over_forward: Ensemble | None = None
    """Slowdown of the backward pass by other ranks over that of the forward pass, while nothing is sent; None where no
    message overlaps the backward pass."""
    waiting: str = "straggling"
    """Part of the critical path in which ranks wait for each other (`Strategy.waiting`)."""
    excluded_cells: frozenset[str] = frozenset()
    """Cells of this point whose records the prediction did not use; empty where it used all."""


@dataclass(frozen=True, eq=False)
class ScalingCurve:
    """A scaling curve: measured and predicted points by worker count; the smallest count was measured."""

    points: Mapping[int, Measured]
    """Points of the study, also those whose iterations are composed of parts."""
    predicted: Mapping[int, Predicted]
    """Points predicted by one model for all worker counts, from all cells."""
    held_out: Mapping[int, Predicted] = field(default_factory=dict)
    """Measured points, each predicted without its own cells."""
    withheld: str = ""
    """Why nothing is predicted beyond the measured points; empty where something is."""

    @cached_property
    def measured(self) -> Mapping[int, Measured]:
        """Return the points whose iterations were measured."""
        return {ranks: point for ranks, point in self.points.items() if not point.composed}

    @property
    def base(self) -> int:
        """Return the smallest worker count, to which speedups refer."""
        return min(self.points)

    @property
    def origin(self) -> Point:
        """Return the point on the fewest workers."""
        return self.points[self.base].point

    @property
    def per_node(self) -> int:
        """Return the workers of a full node."""
        return self.origin.workers_per_node

    @property
    def strong(self) -> bool:
        """Return whether the global mini-batch is split (strong scaling) or grows (weak)."""
        return self.origin.scaling == "strong"

    @property
    def known(self) -> list[int]:
        """Return the worker counts of known iteration time, rising; none where that of the smallest count is
        unknown."""
        if self.base in self.measured and not _known(self.measured[self.base]):
            return []
        usable = _known(self.predicted[self.base])
        predicted = (ranks for ranks, point in self.predicted.items() if usable and _known(point))
        return sorted({*(ranks for ranks, point in self.measured.items() if _known(point)), *predicted})

    def basis(self, ranks: int) -> Basis:
        """Return ``measured`` where `ranks` were measured, else ``predicted``."""
        return "measured" if ranks in self.measured and _known(self.measured[ranks]) else "predicted"

    def at(self, ranks: int) -> Measured | Predicted:
        """Return the point at `ranks`: measured, else predicted."""
        return self.measured[ranks] if self.basis(ranks) == "measured" else self.predicted[ranks]

    def speedup(self, ranks: int, basis: str) -> Ensemble:
        """Return the throughput at `ranks` over that of the smallest count, ``measured`` or ``predicted`` by
        `basis`."""
        points: Mapping[int, Measured | Predicted] = self.measured if basis == "measured" else self.predicted
        here, base = points[ranks], points[self.base]
        larger = here.point.global_batch / base.point.global_batch
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(larger * base.parts.iteration_time / here.parts.iteration_time)

    def efficiency(self, ranks: int, basis: str) -> Ensemble:
        """Return speedup over the ratio of workers: t1/(N tN) by strong scaling, t1/tN by weak scaling (Serebryakov
        2017)."""
        points: Mapping[int, Measured | Predicted] = self.measured if basis == "measured" else self.predicted
        return self.speedup(ranks, basis) * points[self.base].point.ranks / points[ranks].point.ranks


def _known(point: Measured | Predicted) -> bool:
    return is_duration(point.parts.iteration_time)
