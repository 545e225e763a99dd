"""Storage entries of a study: consistency, shape of samples, and fields of cells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

from stallpoint.errors import InputError
from stallpoint.storage import FORMATS, Storage
from stallpoint.storage.convert import cannot_become
from stallpoint.storage.samples import SampleShape

SHAPE_KEYS = {kind.shape: [field.name for field in fields(kind.shape)] for kind in FORMATS.values() if kind.shape}
"""Shapes of generated samples, and the keys of a storage entry that set them."""

NODE_DISK = "$TMPDIR"
"""Default folder for staging."""


def check_storage(storage: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `InputError` naming an entry that contradicts its format, its other keys, or other entries.

    A folder, however spelt, holds one set of samples; only generated samples have a configurable shape.
    """
    owners: dict[str, str] = {}
    for name, entry in storage.items():
        if not FORMATS[entry["format"]].in_folder:
            if entry["path"] or "generate" in entry:
                which = "path" if entry["path"] else "generate"
                raise InputError(f"storage.{name}.{which}: format {entry['format']} has no folder; leave it out")
            continue
        if not entry["path"].strip():
            raise InputError(f"storage.{name}: missing path; format {entry['format']} is a folder")
        if os.path.exists(entry["path"]) and not os.path.isdir(entry["path"]):
            raise InputError(f"storage.{name}.path: {entry['path']} is no folder, as format {entry['format']} has it")
        other = owners.setdefault(os.path.realpath(entry["path"]), name)
        first, path = storage[other], f"storage.{name}.path: {entry['path']}"
        if first["format"] != entry["format"]:
            raise InputError(f"{path} already holds the {first['format']} samples of storage.{other}")
        if {"generate"} <= first.keys() & entry.keys() and _generated(first) != _generated(entry):
            raise InputError(f"{path} already holds the samples that storage.{other} generates, which are others")
        if first["max_corrupt"] != entry["max_corrupt"]:
            raise InputError(f"{path} is that of storage.{other}, but max_corrupt is another; they share an index")
        if not entry["stage"] and (said := [key for key in ("stage_to", "stage_keep") if entry.get(key)]):
            raise InputError(f"storage.{name}.{said[0]}: applies only to a storage with stage: true; leave it out")
        for of_format, keys in SHAPE_KEYS.items():
            here = FORMATS[entry["format"]].shape is of_format and entry.keys() & {"generate", "convert_from"}
            if not here and (said := [key for key in keys if key in entry]):
                known = ", ".join(format_ for format_, kind in FORMATS.items() if kind.shape is of_format)
                raise InputError(f"storage.{name}.{said[0]}: applies only to format {known}; leave it out")

    for name in storage:
        _check_conversion(name, storage)


def _check_conversion(name: str, storage: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `InputError` unless the entry can be converted from the one it names, and that one exists."""
    entry = storage[name]
    if "convert_from" not in entry:
        return
    source, where = entry["convert_from"], f"storage.{name}.convert_from: {entry['convert_from']}"
    if "generate" in entry:
        raise InputError(f"{where}: its samples are those of {source} or generated, not both; leave generate out")
    made, of = (Storage(one, Path(storage[one]["path"]), storage[one]["format"]) for one in (name, source))
    if problem := cannot_become(of, made):
        raise InputError(f"{where}: {problem}")
    line = [name]
    while (before := storage[line[-1]].get("convert_from")) is not None:
        if before in line:
            raise InputError(f"{where}: {' from '.join([*line, before])}: they are converted from each other")
        line.append(before)


def _generated(entry: Mapping[str, Any]) -> list[Any]:
    return [entry.get(key) for key in ("generate", *chain.from_iterable(SHAPE_KEYS.values()))]


def shape(entry: Mapping[str, Any]) -> SampleShape | None:
    """Return the shape of a storage entry's generated samples; None if its format has many shapes."""
    of_format = FORMATS[entry["format"]].shape
    return of_format(**{key: entry[key] for key in SHAPE_KEYS[of_format] if key in entry}) if of_format else None


def staging(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of cells for the staging of a storage entry."""
    return {"stage_to": entry.get("stage_to", NODE_DISK), "stage_keep": entry["stage_keep"]} if entry["stage"] else {}


def made_before(name: str, storage: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the entries that must be ready before this one: the previous one in the same folder, and its source."""
    folders = {one: os.path.realpath(entry["path"]) for one, entry in storage.items()}
    same = [one for one, folder in folders.items() if folder == folders[name]]
    index = same.index(name)
    source = storage[name].get("convert_from")
    return [*(same[index - 1 : index] if index else []), *([source] if source else [])]
