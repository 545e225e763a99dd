"""Training by a user's script, measured by a probe or by the rates that the script prints."""

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
    """Training by a user's script (`stallpoint.study.commands`); in tables, the command's name is the network."""

    kind: ClassVar[str] = "command"

    run: str
    """The command, with placeholders."""
    launch: str
    """Name or text of the launcher that starts the command on the workers."""
    rate: str
    """Regular expression of the rates that the script prints; empty if a probe records the script's iterations."""
    max_minutes: float
    """Time after which a visit is ended, min."""

    @property
    @override
    def scheme(self) -> str:
        """Name of the MPI library's default scheme. No other is set, as the script chooses its communication."""
        return "library"

    @property
    @override
    def storages(self) -> tuple[str, ...]:
        """Name of the storage entry that the script reads; empty if the script has its own data."""
        return (self.storage,) if self.storage_format else ()

    @override
    def seconds(self, properties: work.KnownProperties) -> float:
        """Return the typical duration of a visit, s, which is the same for all scripts."""
        return work.VISIT + work.SCRIPT_SECONDS * properties.crowd


KIND = JobKind(
    CommandCell,
    "measure.jobs.command:measure",
    (*TRAINING, PEAK_MEMORY, PROBES),
    "command cells",
    "violet",
    optional_tables=(LAYERS, PEAK_MEMORY, PROBES),  # printed rates fill none of the three; a probe may find no layers
)
