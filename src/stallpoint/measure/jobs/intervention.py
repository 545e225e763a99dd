"""Training without one of its parts (`stallpoint.study.kinds.intervention_kind`)."""

from __future__ import annotations

from stallpoint.measure.jobs import train
from stallpoint.measure.jobs.train import TrainingChange
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training.input_pipeline import FixedMiniBatch, SyntheticData
from stallpoint.measure.world import World
from stallpoint.records.tables import INTERVENED
from stallpoint.study.kinds.intervention_kind import (
    EMPTY_MESSAGES,
    FIXED_MINI_BATCH,
    NO_UPDATE,
    SYNTHETIC_DATA,
    InterventionCell,
)

CHANGES = {
    EMPTY_MESSAGES: TrainingChange(empty_messages=True),
    SYNTHETIC_DATA: TrainingChange(pipeline=SyntheticData),
    FIXED_MINI_BATCH: TrainingChange(pipeline=FixedMiniBatch),
    NO_UPDATE: TrainingChange(update=False),
}


def measure(cell: InterventionCell, world: World, recorder: Recorder) -> None:
    """Train like `train.measure` but without the cell's excluded part; record iterations, but no layers."""
    for number, iteration, sensors in train.iterations(cell, world, recorder, CHANGES[cell.intervention]):
        recorder.add(INTERVENED, **number, **iteration.phases, **sensors)
