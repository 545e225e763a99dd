"""Training to a target: the class of cells, the reason why a run ends, and its outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from typing_extensions import override

from stallpoint.records.tables import CONVERGENCE, CONVERGENCE_RUNS, GRADIENT_NOISE, STALENESS, Table
from stallpoint.strategies.presets import preset_from
from stallpoint.study import work
from stallpoint.study.cells import LATER, Cell
from stallpoint.study.job_kind import JobKind


@dataclass(frozen=True, slots=True)
class ConvergenceCell(Cell):
    """One run of training to a target, from the initial weights to its end."""

    kind: ClassVar[str] = "convergence"
    axes: ClassVar[tuple[str, ...]] = (
        "network", "hardware", "nodes", "workers_per_node", "batch", "storage", "sync", "recipe", "trial", "seed",
        "repeat",
    )  # fmt: skip

    network: str
    batch: int
    """The global mini-batch B."""
    storage: str
    sync: str
    recipe: str
    """Name of the recipe."""
    trial: int
    """Number of the point in the recipe's search, from 1."""
    prefetch: int
    readers: int
    storage_path: str
    storage_format: str
    validation_storage: str
    """Storage of the validation samples; the training storage if a part of its samples is set apart."""
    validation_path: str
    validation_format: str
    validation_share: float
    """Share of the training storage that is set apart for validation; 0 if validation has its own storage."""
    preset: dict[str, Any]
    settings: dict[str, Any]
    """Fields of the `stallpoint.study.recipes.Recipe` of this trial."""
    own_network: dict[str, Any] | None
    target: float | None
    """Validation accuracy that ends the run; None: the run ends with its last step."""
    max_epochs: float
    """Epochs after which the run ends."""
    evaluation_epochs: float
    """Epochs between two evaluations, which are at least one step apart."""
    patience: int | None
    """Number of evaluations without a better accuracy after which the run ends; None: no limit."""
    max_minutes: float | None
    """Training time after which the run ends, min; None: no limit."""
    noise_steps: int | None
    """Number of steps from one record of gradient norms to the next; None: they are not recorded."""
    sharpness_samples: int | None = field(default=None, kw_only=True, metadata=LATER)
    """Number of training samples for generalisation gap and sharpness at the end; None: neither is computed."""

    @property
    @override
    def scheme(self) -> str:
        return preset_from(self.preset).scheme

    @property
    @override
    def storages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.storage, self.validation_storage)))

    @property
    def worker_batch(self) -> int:
        """Number of samples in one worker's mini-batch, b."""
        return self.batch // self.ranks

    @override
    def seconds(self, properties: work.KnownProperties) -> float:
        steps = max(1.0, self.max_epochs * properties.samples(self.storage) / self.batch)
        steps *= 1.0 if self.target is None else work.REACHED_FRACTION
        limit = 60 * self.max_minutes if self.max_minutes else float("inf")
        return work.VISIT + work.EVALUATION_FACTOR * min(limit, steps * (work.STEP + work.iteration(self, properties)))

    @override
    def rows(self, table: Table, visits: int) -> tuple[int | None, str]:
        return (1, "a run") if table is CONVERGENCE_RUNS else Cell.rows(self, table, visits)


KIND = JobKind(
    ConvergenceCell,
    "measure.jobs.convergence:measure",
    (CONVERGENCE, CONVERGENCE_RUNS, GRADIENT_NOISE, STALENESS),
    "convergence cells",
    "lilac",
    optional_tables=(GRADIENT_NOISE, STALENESS),
)


# --- end and outcome of a run, from its evaluations only ------------------------------------------

EvaluationRow = dict[str, Any]
"""Row of `tables.CONVERGENCE`."""
TARGET, MAX_STEPS, DIVERGED, STOPPED_EARLY, WALLTIME = "target", "max steps", "diverged", "stopped early", "walltime"
DIVERGED_RATIO = 1.1
"""Ratio of the validation loss to that of the initial weights above which a run counts as diverged; random rises and
overfitting stay below."""


def ended(
    evaluations: Sequence[EvaluationRow],
    *,
    target: float | None,
    steps: int,
    patience: int | None,
    max_minutes: float | None,
) -> str:
    """Return why a run ends after its last evaluation; empty if it goes on. The first evaluation is before any step."""
    start, end = evaluations[0], evaluations[-1]
    if target is not None and end["validation_accuracy"] >= target:
        return TARGET
    losses = [end["validation_loss"], *([end["train_loss"]] if end["train_loss"] is not None else [])]
    if not all(map(math.isfinite, losses)) or end["validation_loss"] > DIVERGED_RATIO * start["validation_loss"]:
        return DIVERGED
    if end["step"] >= steps:
        return MAX_STEPS
    if patience is not None and len(evaluations) - 1 - best(evaluations) >= patience:
        return STOPPED_EARLY
    if max_minutes is not None and end["seconds"] >= 60 * max_minutes:
        return WALLTIME
    return ""


def best(evaluations: Sequence[EvaluationRow]) -> int:
    """Return the index of the first evaluation with the best accuracy."""
    return max(range(len(evaluations)), key=lambda index: evaluations[index]["validation_accuracy"])


def outcome(evaluations: Sequence[EvaluationRow], target: float | None, reason: str) -> dict[str, Any]:
    """Return the columns of `tables.CONVERGENCE_RUNS` for a run that ended for `reason`."""
    best_row = evaluations[best(evaluations)]
    return {
        "target": target,
        "reached": reason == TARGET,
        **(_costs_to_target(evaluations, target) if reason == TARGET and target is not None else _NEVER_REACHED),
        "best_accuracy": best_row["validation_accuracy"],
        "best_step": best_row["step"],
        "ended": reason,
    }


_QUANTITIES = ("step", "samples", "seconds")
_NAMES = {"step": "steps_to_target", "samples": "samples_to_target", "seconds": "seconds_to_target"}
_NEVER_REACHED = dict.fromkeys(_NAMES.values())


def _costs_to_target(evaluations: Sequence[EvaluationRow], target: float) -> dict[str, float]:
    """Return steps, samples and seconds until the target accuracy, interpolated between the last two evaluations."""
    last_row = evaluations[-1]
    previous_row = evaluations[-2] if len(evaluations) > 1 else last_row
    gain = last_row["validation_accuracy"] - previous_row["validation_accuracy"]
    share = (target - previous_row["validation_accuracy"]) / gain if gain > 0 else 1.0
    return {_NAMES[name]: previous_row[name] + share * (last_row[name] - previous_row[name]) for name in _QUANTITIES}
