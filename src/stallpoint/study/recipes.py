"""Recipes of training to a target: an optimiser, a step-size schedule and their values.

A study defines its own recipes under ``recipes``, each by its differences from another recipe. A recipe can have
several trials: each draws the searched fields quasi-randomly. No tensor library is imported, which would take seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from stallpoint.errors import InputError

CHOICES: dict[str, dict[str, str]] = {
    "optimiser": {
        "sgd": "stochastic gradient descent",
        "momentum": "with momentum, as Caffe and PyTorch have it",
        "nesterov": "with Nesterov's momentum, as PyTorch has it (Sutskever et al. 2013)",
        "lars": "momentum; each layer scales its step by the norm of its weights over that of its gradient (You et al. "
        "2017)",
        "lamb": "Adam; each layer scales its step by the norm of its weights over that of the step (You et al. 2020)",
    },
    "schedule": {
        "constant": "the same step size until the end",
        "step-decay": "times decay every decay_epochs",
        "cosine": "half a cosine, from the step size to 0 at the last step (Loshchilov & Hutter 2017)",
    },
    "scaling": {
        "none": "the step size does not depend on the mini-batch",
        "linear": "times B / reference_batch (Krizhevsky 2014; Goyal et al. 2017)",
        "square-root": "times the square root of B / reference_batch (Krizhevsky 2014)",
    },
}
"""Values of a recipe's choices, with their meanings."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """An optimiser, a schedule and their values (`CHOICES`). `InputError` names a field with an invalid value."""

    optimiser: str = "momentum"
    schedule: str = "constant"
    scaling: str = "none"
    step_size: float = 0.01
    """Step size before scaling."""
    reference_batch: int = 256
    """Global mini-batch B at which scaling does not change the step size."""
    warmup_epochs: float = 0.0
    """Epochs in which the step size rises linearly, from its value before scaling, or from 0 without scaling."""
    momentum: float = 0.9
    """Momentum; for ``lamb`` the decay of the mean gradient (beta 1); unused by ``sgd``."""
    weight_decay: float = 0.0
    decay: float = 0.1
    """Factor on the step size at each decay of ``step-decay``."""
    decay_epochs: float = 30.0
    """Epochs between two decays of ``step-decay``."""
    trust: float = 0.001
    """Trust coefficient of ``lars``: part of their norm by which a layer's weights change at step size 1."""
    beta2: float = 0.999
    """Decay of the mean squared gradient (beta 2), for ``lamb``."""

    def __post_init__(self) -> None:
        for field, values in CHOICES.items():
            if getattr(self, field) not in values:
                raise InputError(f"{field}: {getattr(self, field)!r} is not one of {', '.join(values)}")
        for field in ("step_size", "reference_batch", "decay", "decay_epochs", "trust"):
            if not 0 < getattr(self, field) < math.inf:
                raise InputError(f"{field}: {getattr(self, field)} is not above 0")
        for field in ("momentum", "beta2"):
            if not 0 <= getattr(self, field) < 1:
                raise InputError(f"{field}: {getattr(self, field)} is not from 0 to below 1")
        for field in ("warmup_epochs", "weight_decay"):
            if not 0 <= getattr(self, field) < math.inf:
                raise InputError(f"{field}: {getattr(self, field)} is below 0")

    def peak(self, batch: int) -> float:
        """Return the step size after warm-up; `batch` is the global mini-batch."""
        ratio = batch / self.reference_batch
        return self.step_size * {"none": 1.0, "linear": ratio, "square-root": math.sqrt(ratio)}[self.scaling]


@dataclass(frozen=True, slots=True)
class StepSizeSchedule:
    """Step sizes of one run, from the first step to the last."""

    recipe: Recipe
    batch: int
    """Global mini-batch B."""
    samples: int
    """Number of samples in an epoch."""
    steps: int
    """Largest number of steps of the run."""

    @property
    def warmup_steps(self) -> int:
        """Number of steps in which the step size rises."""
        return round(self.recipe.warmup_epochs * self.samples / self.batch)

    def step_size(self, step: int) -> float:
        """Return the step size in step number `step`, counted from 0."""
        recipe, warmup, peak = self.recipe, self.warmup_steps, self.recipe.peak(self.batch)
        if step < warmup:
            first_size = 0.0 if recipe.scaling == "none" else min(recipe.step_size, peak)
            return first_size + (peak - first_size) * (step + 1) / warmup
        if recipe.schedule == "step-decay":
            return float(peak * recipe.decay ** ((step * self.batch / self.samples) // recipe.decay_epochs))
        if recipe.schedule == "cosine":
            return peak / 2 * (1 + math.cos(math.pi * (step - warmup) / max(1, self.steps - warmup)))
        return peak


@dataclass(frozen=True, slots=True)
class Search:
    """Search of a recipe's best values: a recipe, and ranges for some of its fields."""

    recipe: Recipe
    ranges: Mapping[str, tuple[float, float]]
    """Searched field -> lower and upper end of its range."""
    trials: int = 1
    """Number of points that are tried."""

    def points(self) -> list[Recipe]:
        """Return the recipe of each trial: points of a Sobol sequence over the ranges, except its first, a corner.

        Logarithms of fields are drawn uniformly; for fields in `NEAR_ONE`, logarithms of the distance to 1. The first
        trial is the middle of all ranges. Adding trials does not change earlier ones.
        """
        if not self.ranges:
            return [self.recipe]
        from scipy.stats import qmc  # scipy.stats is imported late: a plan does not need it

        sequence = qmc.Sobol(len(self.ranges), scramble=False)
        sequence.fast_forward(1)
        found = []
        for point in sequence.random(self.trials):
            values: dict[str, Any] = {
                field: _between(field, *ends, float(share))
                for (field, ends), share in zip(self.ranges.items(), point, strict=True)
            }
            found.append(replace(self.recipe, **values))
        return found


NEAR_ONE = ("momentum", "beta2")
"""Fields with values near 1, of which the distance to 1 is searched (Shallue et al. 2019, section 4.2)."""
SEARCHED_FIELDS = ("step_size", "momentum", "weight_decay", "warmup_epochs", "trust", "beta2", "decay")
"""Fields that can be searched."""


def _between(field: str, low: float, high: float, share: float) -> float:
    """Return low · (high / low)^share; for a field in `NEAR_ONE`, the same formula gives the distance to 1."""
    value = 1 - _between("", 1 - low, 1 - high, share) if field in NEAR_ONE else low * (high / low) ** share
    return float(f"{value:.6g}")


@dataclass(frozen=True, slots=True)
class KnownRecipe:
    """A recipe with its description and source."""

    recipe: Recipe
    description: str
    source: str


RECIPES: dict[str, KnownRecipe] = {
    "sgd": KnownRecipe(Recipe("sgd"), "plain, with a constant step", "Robbins & Monro (1951)"),
    "momentum": KnownRecipe(
        Recipe(), "momentum 0.9 and a constant step", "Krizhevsky et al. (2012), without the decay"
    ),
    "nesterov": KnownRecipe(Recipe("nesterov"), "Nesterov's momentum and a constant step", "Sutskever et al. (2013)"),
    "linear-scaling": KnownRecipe(
        Recipe("momentum", "step-decay", "linear", step_size=0.1, warmup_epochs=5.0, weight_decay=1e-4),
        "the step grows with the mini-batch, after 5 epochs of warm-up; a tenth every 30 epochs",
        "Goyal et al. (2017), sections 2 and 5.1",
    ),
    "cosine": KnownRecipe(Recipe("momentum", "cosine"), "momentum and half a cosine", "Loshchilov & Hutter (2017)"),
    "lars": KnownRecipe(
        Recipe("lars", "cosine", "linear", step_size=1.0, warmup_epochs=5.0, weight_decay=5e-4),
        "layer-wise steps, scaled linearly after a warm-up",
        "You, Gitman & Ginsburg (2017), algorithm 1",
    ),
    "lamb": KnownRecipe(
        Recipe("lamb", "cosine", "square-root", step_size=0.001, warmup_epochs=1.0, weight_decay=0.01),
        "layer-wise Adam, scaled by the square root after a warm-up",
        "You et al. (2020), algorithm 2 and section 4",
    ),
    "bvlc-alexnet": KnownRecipe(
        Recipe("momentum", "step-decay", step_size=0.01, weight_decay=5e-4, decay_epochs=20.0),
        "Caffe's solver of AlexNet: a tenth every 20 epochs (100,000 iterations of 256 samples)",
        "Caffe, models/bvlc_alexnet/solver.prototxt; Keuper & Pfreundt (2016), Table II",
    ),
    "larger-steps": KnownRecipe(
        Recipe("momentum", "step-decay", "linear", step_size=0.01, weight_decay=5e-4, decay_epochs=20.0),
        "as bvlc-alexnet, with steps that grow with the mini-batch, without warm-up",
        "Keuper & Pfreundt (2016), Table IV and Fig. 10",
    ),
}
"""Recipes that every study can use, by name."""


def recipes_of(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Search]:
    """Return `RECIPES` and the study's own recipes by name.

    An entry of `config` states its differences from the recipe that it names under ``like``: one of `RECIPES`, or an
    earlier entry. An entry may have ranges to search and a number of trials. `InputError` names the wrong entry.
    """
    found = {name: Search(known.recipe, {}) for name, known in RECIPES.items()}
    for name, entry in config.items():
        key_ = f"recipes.{name}"
        if name in RECIPES:
            raise InputError(f"{key_}: that name is taken; recipes of the study need names of their own")
        if entry["like"] not in found:
            raise InputError(f"{key_}.like: no recipe {entry['like']!r}; known so far: {', '.join(found)}")
        base = found[entry["like"]]
        changes = {key: value for key, value in entry.items() if key not in ("like", "search", "trials")}
        ranges = {field: _range(key_, field, ends) for field, ends in entry.get("search", {}).items()}
        if ("trials" in entry) != bool(ranges):
            raise InputError(f"{key_}: search and trials go together: trials is the number of points that are tried")
        try:
            recipe = replace(base.recipe, **changes)
            for field, ends in ranges.items():
                for end in ends:
                    end_of_field: dict[str, Any] = {field: end}
                    replace(recipe, **end_of_field)  # `Recipe` raises `InputError` for an invalid end of the range
        except InputError as error:
            raise InputError(f"{key_}.{error}") from None
        found[name] = Search(recipe, ranges or base.ranges, entry.get("trials", base.trials))
    return found


def _range(key: str, field: str, ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    if field not in SEARCHED_FIELDS:
        raise InputError(f"{key}.search.{field}: cannot be searched; {', '.join(SEARCHED_FIELDS)} can")
    if not 0 < low < high:
        raise InputError(f"{key}.search.{field}: [{low}, {high}] is no range of numbers above 0, the lower one first")
    return low, high


def recipe_from(values: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the fields `values`, as a cell keeps them; `InputError` for an unknown field."""
    names = [field.name for field in fields(Recipe)]
    if unknown := sorted(set(values) - set(names)):
        raise InputError(f"recipe: unknown {', '.join(unknown)}; known: {', '.join(names)}")
    return Recipe(**values)


def to_values(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe by name, as a cell keeps them."""
    return asdict(recipe)
