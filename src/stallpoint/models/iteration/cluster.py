"""Everything that predictions are given of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stallpoint.models.base.measured import Measured, Point
from stallpoint.models.base.statistics import Ensemble
from stallpoint.models.terms import effects
from stallpoint.models.terms.communication import Communication, Scheme, scheme_of
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import Effects
from stallpoint.models.terms.link import Traffic
from stallpoint.models.terms.trainings import Layers
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import Preset
from stallpoint.study.workers import Placement

SCALINGS = ("strong", "weak")


class ComputingTimes(Protocol):
    """Computing times at any b; `stallpoint.models.terms.compute.Compute` has those measured."""

    @property
    def layers(self) -> Mapping[str, Layers]:
        """Layers by network."""
        ...

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        """As `Compute.times`."""
        ...


class DataTimes(Protocol):
    """t_io at any b; `stallpoint.models.terms.data.TrainingData` has what was measured."""

    def seconds(
        self,
        measured: Measured,
        place: Placement,
        batch: int,
        *,
        without: Collection[str] = (),
        readers: int | None = None,
    ) -> Ensemble:
        """As `TrainingData.seconds`."""
        ...

    def beside_gradients(
        self, measured: Measured, isolated: Ensemble, ranks_per_node: int, batch: int, traffic: Traffic | None
    ) -> tuple[Ensemble, Ensemble | float]:
        """As `TrainingData.beside_gradients`."""
        ...


class LearnedEffects(Protocol):
    """What training at a point takes beyond its isolated parts; `terms.contention` learns it."""

    def __call__(self, point: Point, held_out: bool = False) -> Effects:
        """As `Contention.effects`."""
        ...


def no_effects(point: Point, held_out: bool = False) -> Effects:
    """Nothing is known to take longer in training."""
    return effects.NONE


@dataclass(frozen=True)
class Cluster:
    """What was measured, or published, of a cluster."""

    compute: ComputingTimes
    communication: Mapping[Scheme, Communication]
    data: DataTimes
    presets: Mapping[str, Preset]
    effects: LearnedEffects = no_effects
    """What training takes beyond its isolated parts."""
    cuts: Mapping[str, Cuts] = field(default_factory=dict)
    """Where each network can be cut into the stages of a pipeline or split by outputs, as far as that is known."""

    def preset(self, point: Point) -> Preset:
        """The preset of a point."""
        return self.presets[point.sync]

    def links(self, point: Point, operation: str = ALL_REDUCE) -> Communication | None:
        """What is known of an operation of the point's scheme on its hardware; None where it was not measured."""
        return self.communication.get(scheme_of(point.hardware, self.preset(point), operation))

    def communicates(self, point: Point) -> bool:
        """Whether the workers of a point train together; one worker alone does."""
        return point.scaling not in SCALINGS or self.preset(point).communicates
