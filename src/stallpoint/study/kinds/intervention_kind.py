"""Training without one of its parts: the time saved is the part's cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stallpoint.records.tables import INTERVENED, STAGING, STALENESS
from stallpoint.study.job_kind import JobKind
from stallpoint.study.kinds.train_kind import WHILE_TRAINING, TrainCell


@dataclass(frozen=True, slots=True)
class InterventionCell(TrainCell):
    """A training cell without one of its parts (`stallpoint.study.interventions`); no point of any scaling curve."""

    kind: ClassVar[str] = "intervention"
    axes: ClassVar[tuple[str, ...]] = (*TrainCell.axes[:-1], "intervention", "repeat")

    intervention: str
    """Excluded part."""


KIND = JobKind(
    InterventionCell,
    "measure.jobs.intervention:measure",
    (INTERVENED, *WHILE_TRAINING),
    "interventions",
    "sky",
    lacks=(STAGING, STALENESS),
)
