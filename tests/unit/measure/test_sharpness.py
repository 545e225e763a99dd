"""Sharpness of planted minima."""

import pytest
import torch
from torch import nn

from stallpoint.measure.training.evaluation import EPSILON, sharpness


def test_the_largest_loss_of_a_bowl_is_in_the_corner_of_the_box_that_is_farthest_from_its_bottom() -> None:
    """The sum of a (x - c)^2, each part of which rises most towards the end of the box that is farther from c."""
    curvature, bottom = torch.tensor([1.0, 30.0, 500.0, 0.2]), torch.tensor([0.1, -2.0, 0.5, 3.0])
    at = bottom + torch.tensor([1e-3, -2e-4, 5e-5, 0.3])
    weights = nn.Parameter(at.clone())

    def loss() -> list[torch.Tensor]:
        return [(curvature[part] * (weights - bottom)[part].square()).sum() for part in (slice(2), slice(2, 4))]

    begin = sum(part.item() for part in loss())
    reach = EPSILON * (at.abs() + 1)
    highest = (curvature * ((at - bottom).abs() + reach).square()).sum().item()
    assert sharpness([weights], loss) == pytest.approx(100 * (highest - begin) / (1 + begin), rel=1e-3)
    assert torch.equal(weights, at)


def test_a_steeper_bowl_is_sharper_and_a_loss_that_overflows_is_infinitely_sharp() -> None:
    weights = nn.Parameter(torch.full((5,), 0.01))
    flat, steep = (sharpness([weights], lambda by=by: [by * weights.square().sum()]) for by in (1.0, 40.0))
    assert 0 < flat < steep
    assert sharpness([weights], lambda: [torch.where(weights > 0.0105, torch.inf, weights).sum()]) == torch.inf
