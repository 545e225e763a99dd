"""Formats that are recognised but not read (``unread.yaml``): their names, and which file to give instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stallpoint.errors import InputError
from stallpoint.inputs.documents import head
from stallpoint_files.texts import event_files
from stallpoint_files.texts.yaml_tables import yaml_table

_FILE = Path(__file__).with_name("unread.yaml")


@dataclass(frozen=True)
class Unread:
    """A format that is recognised but not read."""

    what: str
    pattern: re.Pattern[bytes]
    """Pattern that occurs in the first bytes of the file."""
    give: str
    """File to give instead."""
    pasted: bool = False
    """Whether it is often pasted below sentences, which are read instead."""


_EVENTS = Unread(
    "an event file of TensorBoard without rates or times of steps",
    event_files.BEGIN,
    "that of the process that logs them, or the training's log",
)


@cache
def _formats() -> list[Unread]:
    """Return the formats in the order in which they are tried if no reader knows a text."""
    rows = [Unread(**{**one, "pattern": re.compile(one["pattern"].encode())}) for one in yaml_table(_FILE)["formats"]]
    return [_EVENTS, *rows]


def unread(path: Path) -> Unread | None:
    """Return the unread format of a file; None for other files."""
    begin = head(path)
    return next((one for one in _formats() if one.pattern.search(begin)), None)


def refused(path: Path, one: Unread) -> InputError:
    """Return the error that names the file's format and what to give instead."""
    return InputError(f"{path}: {one.what}, which is not read; give {one.give}")
