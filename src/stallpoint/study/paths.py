"""Checks of the files and folders that a study names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stallpoint.errors import InputError
from stallpoint.networks.own import file_of

MAX_PATH, MAX_PART = 4095, 255
"""Largest length of a path, and of each name in it, bytes."""
PAPERS = "papers"
"""Entry under ``claims`` of a study for all files of resources/claims."""
_NO_CHARACTER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_paths(config: Mapping[str, Any]) -> None:
    """Raise `InputError` for invalid paths, and for folders in place of files.

    Missing files are reported by their readers, as an archive has none of the imported files.
    """
    files = list(_files(config))
    storages = [(f"storage.{name}.path", path) for name, entry in config["storage"].items() if (path := entry["path"])]
    wrong = [f"{where}: {why}" for where, path in (*files, *storages) if (why := _impossible(path))]
    if not wrong:
        braces = [(where, path) for where, path in files if "{" in path or "}" in path]
        wrong = [
            f"{where}: {path} has a brace, which the workflow takes for a wildcard; rename it" for where, path in braces
        ]
    if not wrong:
        wrong = [f"{where}: {path} is a folder; a file is expected" for where, path in files if os.path.isdir(path)]
    if wrong:
        raise InputError("\n".join(wrong))


def list_folders(config: Mapping[str, Any]) -> None:
    """Replace each folder of traces by its files, in the order of the numbers in their names; an archive lacks the
    folder.

    YAML files are not traces: an exported run has its study beside them.
    """
    for entry in config["hardware"].values():
        for trace in entry.get("traces", []):
            if isinstance(folder := trace["files"], str) and os.path.isdir(folder):
                names = [one.name for one in os.scandir(folder) if one.is_file() and one.name[0] != "."]
                traces = [name for name in names if not name.endswith((".yaml", ".yml"))]
                trace["files"] = [os.path.join(folder, name) for name in sorted(traces, key=_by_numbers)] or folder


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key by which ``rank2`` is before ``rank10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def is_file(entry: Any) -> bool:
    """Return whether an entry of a study's ``claims`` names a file of the study's own."""
    return isinstance(entry, str) and entry != PAPERS


def _files(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every named file, with its entry."""
    for name, entry in config["hardware"].items():
        for index, trace in enumerate(entry.get("traces", [])):
            files = trace["files"] if isinstance(trace["files"], list) else [trace["files"]]
            yield from ((f"hardware.{name}.traces[{index}].files", file) for file in files)
        for index, log in enumerate(entry.get("collectives", [])):
            yield f"hardware.{name}.collectives[{index}].file", log["file"]
    for name, entry in config["networks"].items():
        if file := file_of(entry):
            yield f"networks.{name}.build", str(file)
    yield from ((f"external_tables.{name}", file) for name, file in config["external_tables"].items())
    yield from ((f"claims[{index}]", entry) for index, entry in enumerate(config["claims"]) if is_file(entry))


def _impossible(path: str) -> str:
    """Return why `path` is invalid; empty if it is valid."""
    if not path.strip():
        return "an empty path"
    if _NO_CHARACTER.search(path):
        return f"{path[:80]!r} has characters that no path has; one on a single line is expected"
    if len(os.fsencode(path)) > MAX_PATH or any(len(os.fsencode(part)) > MAX_PART for part in Path(path).parts):
        return f"{path[:80]}... is longer than file systems take: {MAX_PART} bytes a name, {MAX_PATH:,} in all"
    return ""
