"""Properties of a cluster for predictions: computing, data, links, and the time that training adds to each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from stallpoint.base.measured import Measured, Point
from stallpoint.base.statistics import REPLICATES, Ensemble
from stallpoint.models.terms import effects
from stallpoint.models.terms.communication import Communication, Scheme, scheme_of
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.data import Traffic
from stallpoint.models.terms.effects import Effects
from stallpoint.models.terms.training_cells import Layers
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import Preset
from stallpoint.study.workers import Placement

SCALINGS = ("strong", "weak")


class ComputingTimes(Protocol):
    """Source of computing times at any mini-batch b: `stallpoint.models.terms.compute.Compute`, or a table."""

    @property
    def layers(self) -> Mapping[str, Layers]:
        """Layers by network."""
        ...

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        """Return computing times as `Compute.times` does."""
        ...


class DataTimes(Protocol):
    """Source of t_io, the time to read a mini-batch, at any b: `data.TrainingData`, or `LocalData`."""

    def seconds(
        self, measured: Measured, placement: Placement, batch: int, *, without: Collection[str] = ()
    ) -> Ensemble:
        """Return t_io as `TrainingData.seconds` does."""
        ...

    def sharing_link(
        self, measured: Measured, isolated: Ensemble, ranks_per_node: int, batch: int, traffic: Traffic | None
    ) -> tuple[Ensemble, Ensemble | float]:
        """Return t_io on a shared link as `TrainingData.sharing_link` does."""
        ...

    def changed(self, readers: int | None, staged: bool, decoded: bool = False) -> DataTimes:
        """Return changed data times as `TrainingData.changed` does."""
        ...


class LocalData:
    """Training data without reading time, as from memory or local SSDs."""

    def seconds(
        self, measured: Measured, placement: Placement, batch: int, *, without: Collection[str] = ()
    ) -> Ensemble:
        """Return zero."""
        return np.zeros(1 + REPLICATES)

    def sharing_link(
        self, measured: Measured, isolated: Ensemble, ranks_per_node: int, batch: int, traffic: Traffic | None
    ) -> tuple[Ensemble, float]:
        """Return `isolated` unchanged: data does not share the link with gradients."""
        return isolated, 1.0

    def changed(self, readers: int | None, staged: bool, decoded: bool = False) -> LocalData:
        """Return these data times, as nothing can change them."""
        return self


CalibratedEffects: TypeAlias = Callable[[Point, bool], Effects]
"""Time that training at a point adds to its isolated parts, such as `Contention.effects`."""


def no_effects(point: Point, held_out: bool = False) -> Effects:
    """Return no effects: training adds nothing to its isolated parts."""
    return effects.NONE


@dataclass(frozen=True)
class Cluster:
    """Measured or published properties of a cluster."""

    compute: ComputingTimes
    communication: Mapping[Scheme, Communication]
    data: DataTimes
    presets: Mapping[str, Preset]
    effects: CalibratedEffects = no_effects
    """Time that training adds to its isolated parts."""
    cuts: Mapping[str, Cuts] = field(default_factory=dict)
    """Layers at which each network can be cut into pipeline stages or split by outputs, as far as known."""
    memory_rates: Mapping[str, Ensemble] = field(default_factory=dict)
    """Traffic of a worker's memory, B/s, by hardware with copies cells."""

    def preset(self, point: Point) -> Preset:
        """Return the preset of a point."""
        return self.presets[point.sync]

    def links(self, point: Point, operation: str = ALL_REDUCE) -> Communication | None:
        """Return the fits of `operation` by the point's scheme and hardware; None if the operation was not measured."""
        return self.communication.get(scheme_of(point.hardware, self.preset(point), operation))

    def communicates(self, point: Point) -> bool:
        """Return whether the point's preset communicates; always true for points outside of scaling curves."""
        return point.scaling not in SCALINGS or self.preset(point).communicates
