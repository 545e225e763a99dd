"""End and outcome of a run to a target, from its evaluations only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Evaluated = dict[str, Any]
"""Columns of a row of `tables.CONVERGENCE`."""
TARGET, MAX_STEPS, DIVERGED, STOPPED_EARLY, WALLTIME = "target", "max steps", "diverged", "stopped early", "walltime"
ABOVE_START = 1.1
"""Validation loss, over that of the initial weights, from which a run has diverged; random rises and overfitting stay
below."""


def ended(
    evaluations: Sequence[Evaluated],
    *,
    target: float | None,
    steps: int,
    patience: int | None,
    max_minutes: float | None,
) -> str:
    """Return why a run ends after these evaluations, the first of which is of its initial weights; empty if it goes
    on."""
    first, last = evaluations[0], evaluations[-1]
    if target is not None and last["validation_accuracy"] >= target:
        return TARGET
    losses = [last["validation_loss"], *([last["train_loss"]] if last["train_loss"] is not None else [])]
    if not all(map(math.isfinite, losses)) or last["validation_loss"] > ABOVE_START * first["validation_loss"]:
        return DIVERGED
    if last["step"] >= steps:
        return MAX_STEPS
    if patience is not None and len(evaluations) - 1 - best(evaluations) >= patience:
        return STOPPED_EARLY
    if max_minutes is not None and last["seconds"] >= 60 * max_minutes:
        return WALLTIME
    return ""


def best(evaluations: Sequence[Evaluated]) -> int:
    """Return the index of the best accuracy, the first of equal ones."""
    return max(range(len(evaluations)), key=lambda index: evaluations[index]["validation_accuracy"])


def outcome(evaluations: Sequence[Evaluated], target: float | None, reason: str) -> dict[str, Any]:
    """Return columns of `tables.CONVERGENCE_RUNS` from the evaluations of a run that ended for a `reason`."""
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
    """Return the cost to the target, interpolated between the last two evaluations by accuracy."""
    after = evaluations[-1]
    before = evaluations[-2] if len(evaluations) > 1 else after
    gain = after["validation_accuracy"] - before["validation_accuracy"]
    part = (target - before["validation_accuracy"]) / gain if gain > 0 else 1.0
    return {_NAMES[name]: before[name] + part * (after[name] - before[name]) for name in _QUANTITIES}
