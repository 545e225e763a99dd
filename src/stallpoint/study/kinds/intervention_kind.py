"""Interventions: training without one of its parts, to measure the part's cost by the time that is saved.

Visits to a cell with an intervention are interleaved with visits to the unchanged cell. This module imports no tensor
library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stallpoint.records.tables import INTERVENED, STAGING, STALENESS
from stallpoint.strategies.presets import Preset
from stallpoint.study.job_kind import JobKind
from stallpoint.study.kinds.train_kind import TABLES_WHILE_TRAINING, TrainCell

NO_COMMUNICATION = "no-communication"
EMPTY_MESSAGES = "empty-messages"
SYNTHETIC_DATA = "synthetic-data"
FIXED_MINI_BATCH = "fixed-mini-batch"
NO_UPDATE = "no-update"


@dataclass(frozen=True)
class Intervention:
    """Description of an intervention, and the parts of the critical path that it removes (`models.answers.causes`)."""

    description: str
    parts: tuple[str, ...]


_BYTES = ("communication bandwidth", "communication, undivided", "communication thread")

INTERVENTIONS: dict[str, Intervention] = {
    NO_COMMUNICATION: Intervention(
        "the preset none: nothing is sent, and ranks do not wait for each other",
        (*_BYTES, "communication latency", "straggling"),
    ),
    EMPTY_MESSAGES: Intervention(
        "as many messages at the same moments, with one value each: ranks wait for each other, no gradients move",
        _BYTES,
    ),
    SYNTHETIC_DATA: Intervention(
        "mini-batches are put together from a sample in memory: nothing is read or decoded", ("data",)
    ),
    FIXED_MINI_BATCH: Intervention("the first mini-batch again and again: no input pipeline", ("data",)),
    NO_UPDATE: Intervention("weights stay as they are", ("update",)),
}
"""Interventions by name. The first makes an ordinary training cell, the others an `InterventionCell`."""


def possible(name: str, preset: Preset, ranks: int) -> bool:
    """Return whether training on `ranks` ranks has the part that intervention `name` excludes, and runs without it."""
    # NO_COMMUNICATION sets the preset `none`, without prefetching into GPU memory, with one pass per mini-batch.
    if name == NO_COMMUNICATION:
        can_exclude = preset.strategy.independent and preset.one_pass and not preset.device_prefetch
        return ranks > 1 and preset.communicates and can_exclude
    if name == EMPTY_MESSAGES:
        return ranks > 1 and preset.communicates and not preset.strategy.sends_by_itself
    if name == NO_UPDATE:  # a server's update is part of communication, and cannot be excluded
        return ranks == 1 or not preset.strategy.updates_on_server
    return True


@dataclass(frozen=True, slots=True)
class InterventionCell(TrainCell):
    """Training without one of its parts (`INTERVENTIONS`); cells with interventions are on no scaling curve."""

    kind: ClassVar[str] = "intervention"
    axes: ClassVar[tuple[str, ...]] = (*TrainCell.axes[:-1], "intervention", "repeat")

    intervention: str
    """Name of the intervention."""


KIND = JobKind(
    InterventionCell,
    "measure.jobs.intervention:measure",
    (INTERVENED, *TABLES_WHILE_TRAINING),
    "interventions",
    "sky",
    optional_tables=(STAGING, STALENESS),
)
