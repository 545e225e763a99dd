"""When a run of training to a target ends, and what it took: from its evaluations alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Evaluated = dict[str, Any]
"""Columns of a row of `tables.CONVERGENCE`."""
TARGET, MOST_STEPS, DIVERGED, STOPPED_EARLY, WALLTIME = "target", "most steps", "diverged", "stopped early", "walltime"
ABOVE_START = 1.1
"""Validation loss, over that of the initial weights, from which on a run has diverged; losses rise by less at random,
and by less where a network learns its training samples by heart."""


def ended(
    evaluations: Sequence[Evaluated],
    *,
    target: float | None,
    steps: int,
    patience: int | None,
    most_minutes: float | None,
) -> str:
    """Why a run ends after these evaluations, the first of which is of its initial weights; empty where it goes on."""
    first, last = evaluations[0], evaluations[-1]
    if target is not None and last["validation_accuracy"] >= target:
        return TARGET
    losses = [last["validation_loss"], *([last["train_loss"]] if last["train_loss"] is not None else [])]
    if not all(map(math.isfinite, losses)) or last["validation_loss"] > ABOVE_START * first["validation_loss"]:
        return DIVERGED
    if last["step"] >= steps:
        return MOST_STEPS
    if patience is not None and len(evaluations) - 1 - best(evaluations) >= patience:
        return STOPPED_EARLY
    if most_minutes is not None and last["seconds"] >= 60 * most_minutes:
        return WALLTIME
    return ""


def best(evaluations: Sequence[Evaluated]) -> int:
    """Place of the best accuracy, the first of equal ones."""
    return max(range(len(evaluations)), key=lambda place: evaluations[place]["validation_accuracy"])


def outcome(evaluations: Sequence[Evaluated], target: float | None, reason: str) -> dict[str, Any]:
    """Columns of `tables.CONVERGENCE_RUNS` that follow from the evaluations of a run that ended for a `reason`."""
    highest = evaluations[best(evaluations)]
    return {
        "target": target,
        "reached": reason == TARGET,
        **(_to_target(evaluations, target) if reason == TARGET and target is not None else _NEVER),
        "best_accuracy": highest["validation_accuracy"],
        "best_step": highest["step"],
        "ended": reason,
    }


_QUANTITIES = ("step", "samples", "seconds")
_NAMES = {"step": "steps_to_target", "samples": "samples_to_target", "seconds": "seconds_to_target"}
_NEVER = dict.fromkeys(_NAMES.values())


def _to_target(evaluations: Sequence[Evaluated], target: float) -> dict[str, float]:
    """What it took: between the last two evaluations as far as the target lies between their accuracies."""
    after = evaluations[-1]
    before = evaluations[-2] if len(evaluations) > 1 else after
    gain = after["validation_accuracy"] - before["validation_accuracy"]
    part = (target - before["validation_accuracy"]) / gain if gain > 0 else 1.0
    return {_NAMES[name]: before[name] + part * (after[name] - before[name]) for name in _QUANTITIES}
