"""When runs to a target end, and what they took, on made-up evaluations."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.study.kinds.convergence_kind import best, ended, outcome

LIMITS: dict[str, Any] = {"target": 0.8, "steps": 100, "patience": None, "max_minutes": None}


def run(*accuracies: float, loss: float = 1.0, train_loss: float = 1.0) -> list[dict[str, Any]]:
    """Evaluations ten steps, 40 samples and half a second apart; the last one has these losses."""
    rows = [
        {"step": 10 * place, "samples": 40 * place, "seconds": 0.5 * place, "validation_accuracy": accuracy,
         "train_loss": 1.0 if place else None, "validation_loss": 1.0}
        for place, accuracy in enumerate(accuracies)
    ]  # fmt: skip
    return [*rows[:-1], rows[-1] | {"validation_loss": loss, "train_loss": train_loss if len(rows) > 1 else None}]


def test_a_run_goes_on_until_something_ends_it() -> None:
    assert ended(run(0.1, 0.5), **LIMITS) == ""
    assert ended(run(0.1, 0.8), **LIMITS) == "target"
    assert ended(run(*[0.1] * 11), **LIMITS) == "max steps"
    assert ended(run(0.1, 0.3, 0.3, 0.2), **LIMITS | {"patience": 2}) == "stopped early"
    assert ended(run(0.1, 0.3, 0.2), **LIMITS | {"patience": 2}) == ""
    assert ended(run(0.1, 0.3), **LIMITS | {"max_minutes": 0.5 / 60}) == "walltime"
    assert ended(run(0.1, 0.9), **LIMITS | {"target": None}) == ""


@pytest.mark.parametrize(
    "losses", [{"loss": math.nan}, {"loss": 1.2}, {"train_loss": math.nan}, {"train_loss": math.inf}]
)
def test_a_loss_that_is_no_number_or_above_the_start_is_divergence(losses: dict[str, float]) -> None:
    assert ended(run(0.1, 0.2, **losses), **LIMITS) == "diverged"
    assert ended(run(0.1, 0.2, loss=1.05), **LIMITS) == "", "losses rise by a little at random"


def test_what_a_target_took_is_linear_between_two_evaluations() -> None:
    found = outcome(run(0.1, 0.6, 0.9), 0.8, "target")
    third = 2 / 3
    assert found["reached"]
    assert found["steps_to_target"] == pytest.approx(10 + 10 * third)
    assert found["samples_to_target"] == pytest.approx(40 + 40 * third)
    assert found["seconds_to_target"] == pytest.approx(0.5 + 0.5 * third)


def test_a_target_that_is_never_reached_leaves_the_best_value() -> None:
    found = outcome(run(0.1, 0.6, 0.7, 0.7, 0.5), 0.8, "max steps")
    assert (found["reached"], found["ended"], found["best_accuracy"], found["best_step"]) == (
        False, "max steps", 0.7, 20,
    )  # fmt: skip
    assert found["steps_to_target"] is found["samples_to_target"] is found["seconds_to_target"] is None


def test_a_target_below_the_initial_accuracy_takes_nothing() -> None:
    assert outcome(run(0.9), 0.8, "target")["steps_to_target"] == 0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.floats(0.01, 1))
def test_the_target_lies_between_the_last_two_evaluations(accuracies: list[float], target: float) -> None:
    rows = run(*accuracies)
    reached = ended(rows, **LIMITS | {"target": target}) == "target"
    assert reached == (accuracies[-1] >= target)
    if reached:
        found = outcome(rows, target, "target")
        assert found["best_accuracy"] == max(accuracies) == accuracies[best(rows)]
        if accuracies[-2] < target:
            assert rows[-2]["step"] <= found["steps_to_target"] <= rows[-1]["step"] + 1e-9
