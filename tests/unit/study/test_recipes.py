"""Recipes: what they refuse, how the step size goes, what is searched, and the optimisers against known answers."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stallpoint.errors import InputError
from stallpoint.measure.training.optimisers import RecipeOptimiser
from stallpoint.study.recipes import RECIPES, Recipe, StepSizeSchedule, recipe_from, recipes_of, to_values


def schedule(batch: int = 100, steps: int = 100, **values: Any) -> StepSizeSchedule:
    return StepSizeSchedule(Recipe(**values), batch, samples=1000, steps=steps)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"like": "adam"}, "recipes.mine.like: no recipe 'adam'; known so far: sgd, momentum"),
        ({"like": "sgd", "schedule": "steps"}, "recipes.mine.schedule: 'steps' is not one of constant, step-decay"),
        ({"like": "sgd", "step_size": -1.0}, "recipes.mine.step_size: -1.0 is not above 0"),
        ({"like": "sgd", "momentum": 1.0}, "recipes.mine.momentum: 1.0 is not from 0 to below 1"),
        ({"like": "sgd", "trials": 3}, "recipes.mine: search and trials go together"),
        ({"like": "sgd", "search": {"seed": [1, 2]}, "trials": 3}, "recipes.mine.search.seed: cannot be searched"),
        (
            {"like": "sgd", "search": {"step_size": [2, 1]}, "trials": 3},
            r"recipes.mine.search.step_size: \[2, 1\] is no",
        ),
        ({"like": "sgd", "search": {"momentum": [0.5, 1.5]}, "trials": 3}, "recipes.mine.momentum: 1.5 is not from 0"),
    ],
)
def test_recipes_that_cannot_be_are_refused_by_name(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        recipes_of({"mine": entry})


def test_a_recipe_has_what_differs_and_names_are_taken_once() -> None:
    mine = recipes_of({"mine": {"like": "lars", "step_size": 3.0}})["mine"].recipe
    assert (mine.optimiser, mine.step_size, mine.warmup_epochs) == ("lars", 3.0, 5.0)
    with pytest.raises(InputError, match=r"recipes\.sgd: that name is taken"):
        recipes_of({"sgd": {"like": "lars"}})
    assert all(recipe_from(to_values(known.recipe)) == known.recipe for known in RECIPES.values())
    with pytest.raises(InputError, match="recipe: unknown speed"):
        recipe_from({"speed": 1})


def test_the_step_size_of_known_schedules() -> None:
    constant = schedule(step_size=0.1)
    assert [constant.step_size(step) for step in (0, 99)] == [0.1, 0.1]
    decayed = schedule(step_size=0.1, schedule="step-decay", decay=0.5, decay_epochs=2.0)  # an epoch is 10 steps
    assert [decayed.step_size(step) for step in (0, 19, 20, 40)] == [0.1, 0.1, 0.05, 0.025]
    cosine = schedule(step_size=0.1, schedule="cosine")
    assert [cosine.step_size(step) for step in (0, 50, 100)] == pytest.approx([0.1, 0.05, 0.0])


def test_linear_scaling_warms_up_from_the_step_before_scaling() -> None:
    scaled = schedule(batch=400, step_size=0.1, scaling="linear", reference_batch=100, warmup_epochs=4.0)
    assert scaled.warmup_steps == 10
    rising = [scaled.step_size(step) for step in range(10)]
    assert rising == pytest.approx([0.1 + 0.03 * (step + 1) for step in range(10)])
    assert scaled.step_size(10) == pytest.approx(0.4)
    assert Recipe(scaling="square-root", step_size=0.1, reference_batch=100).peak(400) == pytest.approx(0.2)


@given(
    kind=st.sampled_from(["constant", "step-decay", "cosine"]),
    scaling=st.sampled_from(["none", "linear", "square-root"]),
    batch=st.integers(1, 1000),
    warmup=st.floats(0, 5),
    step=st.integers(0, 10_000),
)
def test_no_step_is_larger_than_the_peak(kind: str, scaling: str, batch: int, warmup: float, step: int) -> None:
    one = StepSizeSchedule(Recipe(schedule=kind, scaling=scaling, warmup_epochs=warmup), batch, 1000, 10_000)
    assert 0 <= one.step_size(step) <= one.recipe.peak(batch) * (1 + 1e-12)


def test_trials_are_points_of_a_sobol_sequence_in_the_logarithms() -> None:
    entry = {"like": "sgd", "search": {"step_size": [0.01, 1.0], "momentum": [0.9, 0.999]}, "trials": 3}
    points = recipes_of({"mine": entry})["mine"].points()
    assert [point.step_size for point in points] == pytest.approx([0.1, 10**-0.5, 10**-1.5], rel=1e-5)
    assert points[0].momentum == pytest.approx(0.99)
    more = recipes_of({"mine": {**entry, "trials": 7}})["mine"].points()
    assert more[:3] == points
    assert all(0.01 <= point.step_size <= 1 and 0.9 <= point.momentum <= 0.999 for point in more)


# --- optimisers -----------------------------------------------------------------------------------


def moved(recipe: Recipe, gradients: list[list[float]], start: list[float], *, matrix: bool = True) -> torch.Tensor:
    """A layer's weights after a step with each of these gradients."""
    weights = nn.Parameter(torch.tensor([start] if matrix else start))
    optimiser = RecipeOptimiser(recipe, [weights])
    for step, values in enumerate(gradients):
        weights.grad = torch.tensor([values] if matrix else values)
        optimiser.begin(step)
        optimiser.step([weights])
    return weights.detach().flatten()


GRADIENTS = [[1.0, -2.0], [0.5, 0.25], [-1.0, 3.0]]


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov"])
def test_weights_move_as_pytorchs_do(name: str) -> None:
    theirs = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    sgd = torch.optim.SGD(
        [theirs], lr=0.1, momentum=0.0 if name == "sgd" else 0.9, weight_decay=0.01, nesterov=name == "nesterov"
    )
    for values in GRADIENTS:
        theirs.grad = torch.tensor([values])
        sgd.step()
    ours = moved(Recipe(name, step_size=0.1, weight_decay=0.01), GRADIENTS, [3.0, 4.0])
    torch.testing.assert_close(ours, theirs.detach().flatten())


def test_a_layer_moves_by_the_trusted_part_of_its_norm_under_lars() -> None:
    ours = moved(Recipe("lars", step_size=0.5, trust=0.01), [[30.0, 40.0]], [3.0, 4.0])
    torch.testing.assert_close(ours, torch.tensor([3.0, 4.0]) * (1 - 0.5 * 0.01))


def test_a_layer_moves_by_its_norm_under_lamb_whatever_the_size_of_its_gradient() -> None:
    for scale in (1e-2, 1.0, 1e3):
        ours = moved(Recipe("lamb", step_size=0.1), [[scale, -scale]], [3.0, 4.0])
        # Adam's first step is the gradient's sign; its norm is the square root of 2, that of the weights 5.
        torch.testing.assert_close(ours, torch.tensor([3.0, 4.0]) - 0.1 * 5 / math.sqrt(2) * torch.tensor([1.0, -1.0]),
                                   rtol=1e-3, atol=1e-3)  # fmt: skip


def test_biases_have_no_decay_and_no_layerwise_step() -> None:
    plain = moved(Recipe("sgd", step_size=0.1, weight_decay=0.5), [[1.0, 1.0]], [3.0, 4.0], matrix=False)
    torch.testing.assert_close(plain, torch.tensor([2.9, 3.9]))
    lars = moved(Recipe("lars", step_size=0.1), [[1.0, 1.0]], [3.0, 4.0], matrix=False)
    torch.testing.assert_close(lars, torch.tensor([2.9, 3.9]))


def test_layers_without_weights_or_gradients_still_move_or_stay() -> None:
    for name in ("lars", "lamb"):
        assert torch.isfinite(moved(Recipe(name), [[1.0, 1.0]], [0.0, 0.0])).all()
        assert moved(Recipe(name), [[0.0, 0.0]], [3.0, 4.0]).tolist() == [3.0, 4.0]


def test_the_scale_of_the_loss_does_not_matter() -> None:
    weights = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimiser = RecipeOptimiser(Recipe("sgd", step_size=0.1), [weights], loss_scale=1024.0)
    weights.grad = torch.tensor([[1024.0, 2048.0]])
    optimiser.step([weights])
    torch.testing.assert_close(weights.detach(), torch.tensor([[2.9, 3.8]]))
