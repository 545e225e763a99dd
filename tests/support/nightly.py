"""Parameters of tests: values that every run tries, and values that the night tries beside."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

LARGE = ("gpt2-medium", "gpt2-large", "resnet101", "resnet152", "tiny-llama")
"""Networks whose families have smaller ones, which every run tries."""


def by_day(values: Iterable[Any], chosen: Callable[[Any], bool]) -> list[Any]:
    """Return the values (or tuples of them), those that are not `chosen` marked for the night."""
    return [one if chosen(one) else _by_night(one) for one in values]


def first_by_day(values: Iterable[Any]) -> list[Any]:
    """Return the values (or tuples of them), all but the first marked for the night."""
    first, *others = values
    return [first, *map(_by_night, others)]


def _by_night(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.night)
