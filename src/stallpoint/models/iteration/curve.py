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
    """A point as predicted; not a number where a part of the model was not measured."""

    point: Point
    equation: str
    compute_source: str
    parts: Parts
    reading: Ensemble = field(default_factory=unknown_ensemble)
    """t_io: reading and decoding a mini-batch, hidden or not, s."""
    latency_share: Ensemble = field(default_factory=unknown_ensemble)
    """What of the exposed communication is latency; of all communication, where none is exposed."""
    isolated: IsolatedComputing | None = None
    """None where computing at this b is not known."""
    isolated_communication: Ensemble = field(default_factory=unknown_ensemble)
    """What the messages take on idle workers, s."""
    backward_over_forward: Ensemble | None = None
    """How much more other ranks slow down the backward than the forward pass, beside which nothing is sent; None where
    nothing is sent beside the backward pass."""
    layers: Mapping[str, object] | None = None
    """The columns of layer_predictions for each layer, without uncertainty."""
    waiting: str = "straggling"
    """The part of the critical path that ranks wait for each other (`Strategy.waiting`)."""
    left_out: frozenset[str] = frozenset()
    """Cells of this point that calibrated nothing; empty where none of the point's cells did."""


@dataclass(frozen=True, eq=False)
class ScalingCurve:
    """One scaling curve: points of the study and predicted ones, by worker count; the study has the fewest workers."""

    points: Mapping[int, Measured]
    """The study's, also those whose iterations are composed of parts."""
    predicted: Mapping[int, Predicted]
    """By one model for all worker counts, from all cells."""
    held_out: Mapping[int, Predicted] = field(default_factory=dict)
    """Measured points, each predicted without its own cells."""
    withheld: str = ""
    """Why there are no predictions where nobody measured; empty where there are."""

    @cached_property
    def measured(self) -> Mapping[int, Measured]:
        """Those of the study whose iterations were measured."""
        return {ranks: point for ranks, point in self.points.items() if not point.composed}

    @property
    def base(self) -> int:
        """The fewest workers, to which speedups refer."""
        return min(self.points)

    @property
    def origin(self) -> Point:
        """The point on the fewest workers."""
        return self.points[self.base].point

    @property
    def per_node(self) -> int:
        """Workers of a full node."""
        return self.origin.workers_per_node

    @property
    def strong(self) -> bool:
        """Whether the global mini-batch is split (strong scaling) or grows (weak)."""
        return self.origin.scaling == "strong"

    @property
    def known(self) -> list[int]:
        """Worker counts whose iteration time is known, rising; none where that on the fewest workers is not."""
        if self.base in self.measured and not _known(self.measured[self.base]):
            return []
        usable = _known(self.predicted[self.base])
        predicted = (ranks for ranks, point in self.predicted.items() if usable and _known(point))
        return sorted({*(ranks for ranks, point in self.measured.items() if _known(point)), *predicted})

    def basis(self, ranks: int) -> Basis:
        """``measured`` where `ranks` were measured, else ``predicted``."""
        return "measured" if ranks in self.measured and _known(self.measured[ranks]) else "predicted"

    def at(self, ranks: int) -> Measured | Predicted:
        """The point at `ranks`, measured where it was."""
        return self.measured[ranks] if self.basis(ranks) == "measured" else self.predicted[ranks]

    def speedup(self, ranks: int, basis: str) -> Ensemble:
        """Throughput at `ranks` over that at the fewest; `basis` is ``measured`` or ``predicted``."""
        points: Mapping[int, Measured | Predicted] = self.measured if basis == "measured" else self.predicted
        here, base = points[ranks], points[self.base]
        larger = here.point.global_batch / base.point.global_batch
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(larger * base.parts.iteration_time / here.parts.iteration_time)

    def efficiency(self, ranks: int, basis: str) -> Ensemble:
        """Speedup over the ratio of workers: t1/(N tN) by strong scaling, t1/tN by weak scaling (Serebryakov 2017)."""
        points: Mapping[int, Measured | Predicted] = self.measured if basis == "measured" else self.predicted
        return self.speedup(ranks, basis) * points[self.base].point.ranks / points[ranks].point.ranks


def _known(point: Measured | Predicted) -> bool:
    return is_duration(point.parts.iteration_time)
