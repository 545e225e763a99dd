"""Catalogue of the names that a study can use: its own entries, and the entries of stallpoint's registries.

The schema checks the form of a study; this module checks the names in it, such as names of networks and presets.

The last part checks storage entries. It also finds the shape of an entry's samples, and whether cells stage them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

from stallpoint.errors import InputError
from stallpoint.inputs.all_reduce_logs import FORMATS as LOG_FORMATS
from stallpoint.networks import NETWORKS
from stallpoint.networks.inputs import Inputs
from stallpoint.networks.own import own_network
from stallpoint.storage import FORMATS, Storage
from stallpoint.storage.convert import obstacle
from stallpoint.storage.samples import SampleShape
from stallpoint.strategies.options import COMMUNICATORS, OPERATIONS
from stallpoint.strategies.presets import CHOICES, Preset, presets_of
from stallpoint.study import commands
from stallpoint.study.configuration import check_paths, unknown
from stallpoint.study.job_kind import as_list
from stallpoint.study.recipes import CHOICES as RECIPE_CHOICES
from stallpoint.study.recipes import Search, recipes_of

REGISTRIES: dict[str, Collection[str]] = {
    "storage.<name>.format": FORMATS,
    "hardware.<name>.collectives[].format": LOG_FORMATS,
    "hardware.<name>.collectives[].backend": COMMUNICATORS,
    "hardware.<name>.collectives[].reduction": CHOICES["reduction"],
    **{f"presets.<name>.{choice}": values for choice, values in CHOICES.items()},
    "presets.<name>.backend": COMMUNICATORS,
    **{f"recipes.<name>.{choice}": values for choice, values in RECIPE_CHOICES.items()},
}
"""Registry that has the names allowed under each key of a study; keys are written as in config/README.md."""

TIMED_SECTIONS = ("matrix", "include")
CELL_SECTIONS = (*TIMED_SECTIONS, "convergence")
"""Sections of a study whose entries name the axes of cells."""

SCRIPT_STORAGE = "script"
"""Name that stands for the storage of a command that names no storage, as its script has its own data."""

LIBRARIES = {"cudnn": "cuda", "onednn": "cpu"}
"""Device of each library of kernels that a hardware entry can turn on or off."""


@dataclass(frozen=True)
class Catalogue:
    """Entries that a study can name, by their names."""

    hardware: Mapping[str, Mapping[str, Any]]
    """Hardware entries."""
    storage: Mapping[str, Mapping[str, Any]]
    """Storage entries."""
    own_networks: Mapping[str, dict[str, Any]]
    """The study's entries under ``networks``."""
    commands: Mapping[str, Mapping[str, Any]]
    """The study's entries under ``commands``; elsewhere a command counts as a network."""
    presets: Mapping[str, Preset]
    recipes: Mapping[str, Search]
    unfit_reasons: Mapping[tuple[str, str], str]
    """Network and storage -> why the network cannot train on the storage's samples, if that is known before reading."""
    defaults: Mapping[str, Mapping[str, Any]]
    """Hardware -> fields that all its cells have, from the hardware entry and the study."""

    def common(self, hardware: str, **changes: int) -> dict[str, Any]:
        """Return the values that all cells of `hardware` share, by field; `changes` add or replace values."""
        return {**self.defaults[hardware], **changes}


def resolve(config: Mapping[str, Any]) -> Catalogue:
    """Return the catalogue of a study that is valid by the schema; `InputError` lists entries with unknown names."""
    check_paths(config)
    _refuse_unknown(config, REGISTRIES)
    presets, recipes = presets_of(config["presets"]), recipes_of(config["recipes"])
    networks = _networks(config["networks"])
    _check_commands(config, networks)
    _refuse_unknown(config, _known_names(config, networks, presets, recipes))
    _check_hardware(config)
    check_storage(config["storage"])
    _check_size(config)
    return Catalogue(
        hardware=config["hardware"],
        storage=config["storage"],
        own_networks=config["networks"],
        commands=config["commands"],
        presets=presets,
        recipes=recipes,
        unfit_reasons=dict(_unfit_storages(networks, config["storage"])),
        defaults={name: _default_fields(entry, name, config) for name, entry in config["hardware"].items()},
    )


MAX_SCENARIOS = 1000
"""Largest number of scenarios in one block of what_if: each is a prediction for every curve and node count."""
MAX_COMBINATIONS = 100_000
"""Largest number of training cells in one block of the matrix, with repeats; planning 10,000 takes seconds."""


def _check_size(config: Mapping[str, Any]) -> None:
    """Raise `InputError` for a block with too many combinations, before any combination is made."""
    for section, max_count, noun in (
        ("matrix", MAX_COMBINATIONS, "training cells"),
        ("what_if", MAX_SCENARIOS, "scenarios"),
    ):
        for index, block in enumerate(config[section]):
            count = math.prod(len(as_list(value)) for value in block.values())
            if section == "matrix":
                count *= block.get("repeats", config["repeats"])
            if count > max_count:
                raise InputError(f"{section}[{index}]: {count:,} {noun}; at most {max_count:,} of one block")


def _known_names(
    config: Mapping[str, Any], networks: Collection[str], presets: Collection[str], recipes: Collection[str]
) -> dict[str, Collection[str]]:
    """Return, for each key of a study (written as in `REGISTRIES`), the names that are allowed under this key."""
    names_of_axes = {"network": networks, "hardware": config["hardware"], "storage": config["storage"], "sync": presets}
    names_of_timed_axes = {
        **names_of_axes,
        "network": [*networks, *config["commands"]],
        "storage": [*config["storage"], *([SCRIPT_STORAGE] if config["commands"] else [])],
    }
    return {
        **{f"{section}[].{axis}": names for section in TIMED_SECTIONS for axis, names in names_of_timed_axes.items()},
        **{f"convergence[].{axis}": names for axis, names in names_of_axes.items()},
        "convergence[].recipe": recipes,
        "storage.<name>.convert_from": config["storage"],
        "sgemm.networks": networks,
        "collectives.operations": OPERATIONS,
        "storage_reads.also": config["storage"],
        "what_if[].storage": config["storage"],
        "what_if[].sync": presets,
        "hardware.<name>.traces[].sync": presets,
    }


def _refuse_unknown(config: Mapping[str, Any], known_names: Mapping[str, Collection[str]]) -> None:
    """Raise `InputError` for unknown names in the study; `known_names` maps a key to the names allowed under it."""
    positions: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for key, names in known_names.items():
        last_part = key.rsplit(".", 1)[1]
        noun = {
            "sync": "preset", "networks": "network", "operations": "operation", "also": "storage",
            "convert_from": "storage",
        }.get(last_part, last_part)  # fmt: skip
        for where, value in _values(config, key.replace("[]", ".[]").split(".")):
            for name in as_list(value):
                if name not in names:
                    positions.setdefault((noun, tuple(names), name), []).append(where)
    if positions:
        raise InputError("\n".join(_unknown_name_lines(positions)))


def _unknown_name_lines(unknown_names: Mapping[tuple[str, tuple[str, ...], str], list[str]]) -> Iterator[str]:
    """Yield an error for each unknown name, with positions. Known names of a kind, e.g. presets, are listed once."""
    listed_kinds = set()
    for (noun, names, name), places in unknown_names.items():
        remainder = f" and {len(places) - 3} more" if len(places) > 3 else ""
        line = unknown(name, names, ", ".join(places[:3]) + remainder, noun)
        yield line.partition("; known: ")[0] if (noun, names) in listed_kinds else line
        listed_kinds.add((noun, names))


def _values(value: Any, key: list[str], position: str = "") -> Iterator[tuple[str, Any]]:
    """Yield position and value of each entry under `key`, which is a list such as ``["what_if", "[]", "sync"]``."""
    if not key:
        yield position, value
        return
    first_part, *other_parts = key
    if first_part == "[]":
        for index, item in enumerate(value):
            yield from _values(item, other_parts, f"{position}[{index}]")
    elif first_part == "<name>":
        for name, item in value.items():
            yield from _values(item, other_parts, f"{position}.{name}")
    elif first_part in value:
        yield from _values(value[first_part], other_parts, f"{position}.{first_part}" if position else first_part)


def _networks(own_networks: Mapping[str, Mapping[str, Any]]) -> dict[str, Inputs]:
    """Return the inputs that networks of the registry and of the study take, by name of the network."""
    inputs = {name: network.takes for name, network in NETWORKS.items()}
    for name, entry in own_networks.items():
        if name in NETWORKS:
            raise InputError(f"networks.{name}: is a network of stallpoint already; give yours another name")
        inputs[name] = own_network(name, entry).takes
    return inputs


def _check_commands(config: Mapping[str, Any], networks: Collection[str]) -> None:
    """Raise `InputError` for invalid commands, for clashing names, and for networks that are trained without data."""
    commands.check(config["commands"])
    for name in config["commands"]:
        if name in networks:
            raise InputError(f"commands.{name}: is a network already; give the command another name")
    if config["commands"] and SCRIPT_STORAGE in config["storage"]:
        raise InputError(f"storage.{SCRIPT_STORAGE}: is the name of commands' own data; choose another name")
    for section in TIMED_SECTIONS:
        for index, block in enumerate(config[section]):
            trained_networks = [name for name in as_list(block["network"]) if name not in config["commands"]]
            if trained_networks and SCRIPT_STORAGE in as_list(block.get("storage", SCRIPT_STORAGE)):
                raise InputError(f"{section}[{index}]: missing storage, which {trained_networks[0]} is trained from")


def _check_hardware(config: Mapping[str, Any]) -> None:
    """Raise `InputError` for a hardware entry that is both imported and measured, or that contradicts itself."""
    for section in CELL_SECTIONS:
        for index, block in enumerate(config[section]):
            for name in as_list(block["hardware"]):
                if "traces" in config["hardware"][name]:
                    raise InputError(
                        f"{section}[{index}].hardware: {name} is imported, its runs are those under "
                        f"hardware.{name}.traces; what is measured needs a hardware entry of its own"
                    )
    for name, entry in config["hardware"].items():
        failures = entry.get("failures", {"checkpoint_seconds": None})
        if "checkpoint_seconds" not in failures and "checkpoint_bytes" not in config.get("storage_reads", {}):
            raise InputError(
                f"hardware.{name}.failures: checkpoint_seconds is missing; give it, or measure it with "
                "storage_reads.checkpoint_bytes"
            )
        if entry["precision"] in ("tf32", "fp16") and entry["device"] != "cuda":
            raise InputError(
                f"hardware.{name}.precision: {entry['precision']} is only for CUDA devices; a CPU has float32 and bf16"
            )
        for library, device in LIBRARIES.items():
            if library in entry and (entry["device"] != device or "traces" in entry):
                contradiction_in_words = "is imported" if "traces" in entry else f"has device: {entry['device']}"
                raise InputError(
                    f"hardware.{name}.{library}: only applies to what is measured here on device: {device}, "
                    f"but {name} {contradiction_in_words}; leave it out"
                )


def _unfit_storages(
    networks: Mapping[str, Inputs], storage: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each pair (network, storage) where the network cannot train on the storage's samples, and the reason."""
    for name, entry in storage.items():
        format_ = FORMATS[entry["format"]]
        generated = shape(entry) if entry.keys() & {"generate", "convert_from"} else None
        for network, inputs in networks.items():
            if not format_.feeds(type(inputs)):
                yield (network, name), f"network {network} takes {inputs.kind}, but storage {name} holds {format_.kind}"
            elif generated and not generated.suits(inputs):
                yield (network, name), f"network {network} takes {inputs}, but storage {name} holds {generated}"


def _default_fields(entry: Mapping[str, Any], hardware: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that all cells of a hardware entry share, by field of the cells."""
    return {
        "hardware": hardware,
        "device": entry["device"],
        "threads_per_worker": entry["threads_per_worker"],
        "workers_per_node": entry["workers_per_node"],
        "seed": config["seed"],
        "precision": entry["precision"],
        "anonymise": config["anonymise"],
        "visits": config["visits"],
        "shared_cpus": entry.get("shared_cpus", False),
        **{library: entry.get(library) for library in LIBRARIES},
    }


# --- storages -------------------------------------------------------------------------------------

SHAPE_KEYS = {kind.shape: [field.name for field in fields(kind.shape)] for kind in FORMATS.values() if kind.shape}
"""Keys of a storage entry that set the shape of generated samples, by the class of the shape."""

NODE_DISK = "$TMPDIR"
"""Default folder on nodes to which a storage is staged."""


def check_storage(storage: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `InputError` naming a storage entry that contradicts its format, its other keys, or other entries.

    Entries with the same folder, even if they spell its path differently, must agree on the samples. A shape can be set
    only for samples that stallpoint generates or converts.
    """
    owners: dict[str, str] = {}
    for name, entry in storage.items():
        if not FORMATS[entry["format"]].in_folder:
            if entry["path"] or "generate" in entry:
                wrong_key = "path" if entry["path"] else "generate"
                raise InputError(f"storage.{name}.{wrong_key}: format {entry['format']} has no folder; leave it out")
            continue
        if not entry["path"].strip():
            raise InputError(f"storage.{name}: missing path; format {entry['format']} is a folder")
        if os.path.exists(entry["path"]) and not os.path.isdir(entry["path"]):
            raise InputError(f"storage.{name}.path: {entry['path']} is no folder, as format {entry['format']} has it")
        owner = owners.setdefault(os.path.realpath(entry["path"]), name)
        owner_entry, path = storage[owner], f"storage.{name}.path: {entry['path']}"
        if owner_entry["format"] != entry["format"]:
            raise InputError(f"{path} already holds the {owner_entry['format']} samples of storage.{owner}")
        if {"generate"} <= owner_entry.keys() & entry.keys() and _generation(owner_entry) != _generation(entry):
            raise InputError(f"{path} already holds the samples that storage.{owner} generates, which are others")
        if owner_entry["max_corrupt"] != entry["max_corrupt"]:
            raise InputError(f"{path} is that of storage.{owner}, but max_corrupt is another; they share an index")
        if not entry["stage"] and (unused := [key for key in ("stage_to", "stage_keep") if entry.get(key)]):
            raise InputError(f"storage.{name}.{unused[0]}: applies only to a storage with stage: true; leave it out")
        for shape_class, keys in SHAPE_KEYS.items():
            fits = FORMATS[entry["format"]].shape is shape_class and entry.keys() & {"generate", "convert_from"}
            if not fits and (unused := [key for key in keys if key in entry]):
                format_names = ", ".join(format_ for format_, kind in FORMATS.items() if kind.shape is shape_class)
                raise InputError(f"storage.{name}.{unused[0]}: applies only to format {format_names}; leave it out")

    for name in storage:
        _check_conversion(name, storage)


def _check_conversion(name: str, storage: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `InputError` if the entry `name` cannot be converted from the entry that its key ``convert_from`` names."""
    entry = storage[name]
    if "convert_from" not in entry:
        return
    source, key = entry["convert_from"], f"storage.{name}.convert_from: {entry['convert_from']}"
    if "generate" in entry:
        raise InputError(f"{key}: its samples are those of {source} or generated, not both; leave generate out")
    converted, original = (Storage(one, Path(storage[one]["path"]), storage[one]["format"]) for one in (name, source))
    if problem := obstacle(original, converted):
        raise InputError(f"{key}: {problem}")
    chain_of_names = [name]
    while (origin := storage[chain_of_names[-1]].get("convert_from")) is not None:
        if origin in chain_of_names:
            raise InputError(f"{key}: {' from '.join([*chain_of_names, origin])}: they are converted from each other")
        chain_of_names.append(origin)


def _generation(entry: Mapping[str, Any]) -> list[Any]:
    return [entry.get(key) for key in ("generate", *chain.from_iterable(SHAPE_KEYS.values()))]


def shape(entry: Mapping[str, Any]) -> SampleShape | None:
    """Return the shape of a storage entry's generated samples; None for a format whose samples vary in shape."""
    shape_class = FORMATS[entry["format"]].shape
    return shape_class(**{key: entry[key] for key in SHAPE_KEYS[shape_class] if key in entry}) if shape_class else None


def staging(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of cells that copy the storage to their nodes; an empty dictionary for an unstaged storage."""
    return {"stage_to": entry.get("stage_to", NODE_DISK), "stage_keep": entry["stage_keep"]} if entry["stage"] else {}


def entries_made_before(name: str, storage: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the entries to prepare before `name`: the previous entry of the same folder, and its ``convert_from``."""
    folders = {one: os.path.realpath(entry["path"]) for one, entry in storage.items()}
    in_folder = [one for one, folder in folders.items() if folder == folders[name]]
    index = in_folder.index(name)
    source = storage[name].get("convert_from")
    return [*(in_folder[index - 1 : index] if index else []), *([source] if source else [])]
