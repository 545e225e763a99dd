"""Training by a script of the user's, with a probe or by the rates that it prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from stallpoint.records.tables import LAYERS, PEAK_MEMORY, PROBES
from stallpoint.study import work
from stallpoint.study.job_kind import JobKind
from stallpoint.study.kinds.train_kind import TRAINING, TrainCell


@dataclass(frozen=True, slots=True)
class CommandCell(TrainCell):
    """Training by a script of the user's (`stallpoint.study.commands`); the command's name is the network."""

    kind: ClassVar[str] = "command"

    run: str
    """The command, with placeholders."""
    launch: str
    """What starts it on the workers."""
    rate: str
    """Regular expression of the rates that the script prints; empty where a probe records its iterations."""
    max_minutes: float
    """Longest duration of a visit, min."""

    @property
    @override
    def scheme(self) -> str:
        """Empty: the script communicates by its own means."""
        return "library"

    @property
    @override
    def storages(self) -> tuple[str, ...]:
        """The storage of the study that the script reads; none if the data is its own."""
        return (self.storage,) if self.storage_format else ()

    @override
    def seconds(self, known: work.KnownProperties) -> float:
        """Return the expected duration, which assumes nothing of the script."""
        return work.VISIT + work.SCRIPT * known.crowd


KIND = JobKind(
    CommandCell,
    "measure.jobs.command:measure",
    (*TRAINING, PEAK_MEMORY, PROBES),
    "command cells",
    "violet",
    lacks=(LAYERS, PEAK_MEMORY, PROBES),  # absent if the script prints rates, or hides its layers
)
