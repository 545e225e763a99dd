"""Parameters and examples of tests: those of every run, and those that are tried only at night."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

LARGE = ("gpt2-medium", "gpt2-large", "resnet101", "resnet152", "tiny-llama")
"""Networks whose families have smaller ones, which every run tries."""


def by_day(values: Iterable[Any], chosen: Callable[[Any], bool]) -> list[Any]:
    """Return the values (or tuples of them), those that are not `chosen` marked for the night."""
    return [one if chosen(one) else _by_night(one) for one in values]


def first_by_day(values: Iterable[Any]) -> list[Any]:
    """Return the values (or tuples of them), all but the first marked for the night."""
    first, *others = values
    return [first, *map(_by_night, others)]


def fewer_examples(part: int) -> settings:
    """Return settings of a property whose examples take long: one `part`-th of those of others, day and night."""
    return settings(max_examples=settings.default.max_examples // part)


def examples(by_day: int, at_night: int) -> settings:
    """Return settings of a property that is tried so often by day and at night."""
    day = settings.get_profile("day").max_examples == settings.default.max_examples
    return settings(max_examples=by_day if day else at_night)


def _by_night(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.night)
