"""Packages that extend the core. They are found by entry points, and imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from stallpoint.errors import InputError

Entry = TypeVar("Entry")


class MissingPackage(InputError):
    """Error that a package which extends the core is not installed."""


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Return the entry points ``stallpoint.GROUP`` of all installed packages, by name."""
    return {one.name: one for one in entry_points(group=f"stallpoint.{group}")}


def with_others(group: str, core: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the registry `core` and the entries of other packages; raise `InputError` if a name is in both."""
    other_entries = {name: load(point) for name, point in entries(group).items()}
    if twins := sorted(other_entries.keys() & core.keys()):
        raise InputError(f"stallpoint.{group}: {', '.join(twins)} is stallpoint's own; give the package's another name")
    return {**core, **other_entries}


def load(point: EntryPoint) -> Any:
    """Import the object that an entry point names; raise `MissingPackage` if the object's package is missing."""
    package = point.module.partition(".")[0]
    try:
        return point.load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingPackage(f"{package} is not installed, which has {point.name!r} of {point.group}") from None


def load_named(group: str, name: str) -> Any:
    """Import the object of an entry by its group and name; raise `MissingPackage` if no package has the entry."""
    if (point := entries(group).get(name)) is None:
        raise MissingPackage(f"no package is installed that has {name!r} of stallpoint.{group}")
    return load(point)
