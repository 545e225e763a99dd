"""Checkpoints: the state from which an interrupted run continues, in one file that is complete or absent.

A checkpoint begins with the SHA-256 of the rest, and names its cell. Rank 0 writes and reads it.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from stallpoint.errors import InputError, Unavailable
from stallpoint.measure.world import World
from stallpoint.records.atomic import atomic
from stallpoint.study.cells import Cell

FORMAT = 3
"""Version of the state; other versions are not read."""
_DIGEST = 64
"""Characters of the checksum."""


def write(file: Path, cell: Cell, state: dict[str, Any]) -> None:
    """Write a state of tensors, numbers, texts, and lists and dictionaries of these."""
    sink = io.BytesIO()
    torch.save({"cell": cell.to_json(), "format": FORMAT, **state}, sink)
    content = sink.getvalue()
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic(file) as scratch:
        scratch.write_bytes(hashlib.sha256(content).hexdigest().encode() + content)


def read(file: Path, cell: Cell, world: World) -> dict[str, Any] | None:
    """Return the state on all ranks, which all call this; None if there is no file.

    Raises `InputError` on all of them for a file that is damaged, or of another cell or other settings.
    """
    found: bytes | InputError | None = None
    if world.rank == 0 and file.exists():
        try:
            found = _complete(file, cell)
        except InputError as error:
            found = error
    found = world.comm.bcast(found)
    if isinstance(found, InputError):
        raise found
    return None if found is None else _loaded(found)


def _complete(file: Path, cell: Cell) -> bytes:
    again = "delete it, and the run begins anew"
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Unavailable(f"{file}: a checkpoint that cannot be read ({error.strerror})") from error
    digest, content = data[:_DIGEST], data[_DIGEST:]
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise InputError(f"{file}: a checkpoint that is damaged (its checksum differs); {again}")
    state = _loaded(content)
    if state.get("format") != FORMAT:
        raise InputError(f"{file}: a checkpoint of another version of stallpoint; {again}")
    if (of := state["cell"]) != cell.to_json():
        raise InputError(f"{file}: a checkpoint of other settings ({of[:200]}...), not of {cell.path}; {again}")
    return content


def _loaded(content: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state
