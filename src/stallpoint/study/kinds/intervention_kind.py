"""Training with one thing left out: what that saves is what the thing costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stallpoint.records.tables import INTERVENED, STAGING, STALENESS
from stallpoint.study.job_kind import JobKind
from stallpoint.study.kinds.train_kind import BESIDE_TRAINING, TrainCell


@dataclass(frozen=True, slots=True)
class InterventionCell(TrainCell):
    """A training cell with one thing left out (`stallpoint.study.interventions`); no point of any scaling curve."""

    kind: ClassVar[str] = "intervention"
    axes: ClassVar[tuple[str, ...]] = (*TrainCell.axes[:-1], "intervention", "repeat")

    intervention: str
    """What is left out."""


KIND = JobKind(
    InterventionCell,
    "intervention",
    (INTERVENED, *BESIDE_TRAINING),
    "interventions",
    "sky",
    lacks=(STAGING, STALENESS),
)
