"""Convergence cells of a study: a run for each combination of a block's values, each trial and each seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from stallpoint.errors import InputError
from stallpoint.storage import FORMATS
from stallpoint.strategies.families.servers_family import server_optimiser
from stallpoint.strategies.presets import to_values as preset_values
from stallpoint.study.catalogue import Catalogue
from stallpoint.study.configuration import known
from stallpoint.study.job_kind import as_list
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.matrix import Exclusion, full, impossible
from stallpoint.study.recipes import to_values

AXES = ("network", "hardware", "nodes", "workers_per_node", "batch", "storage", "sync", "recipe")
LAYER_WISE_RULES = ("lars", "lamb")
"""Optimisers that need complete layers, and gradients at the current weights."""
MAX_RUNS = 100_000
"""Largest number of runs in one block."""


def convergence_cells(
    config: Mapping[str, Any], catalogue: Catalogue
) -> tuple[list[ConvergenceCell], tuple[Exclusion, ...]]:
    """Return the cells of the blocks under ``convergence``, and the excluded combinations."""
    cells: dict[str, ConvergenceCell] = {}
    excluded = []
    for index, block in enumerate(config["convergence"]):
        entry = f"convergence[{index}]"
        _check(block, catalogue, entry)
        named_axes = [axis for axis in AXES if axis in block]
        for values in product(*(as_list(block[axis]) for axis in named_axes)):
            axes = full(dict(zip(named_axes, values, strict=True)), catalogue)
            if reason := _impossible(axes, block, catalogue):
                excluded.append(Exclusion(axes, reason))
                continue
            for cell in _runs(axes, block, config, catalogue):
                if cell.path in cells:
                    raise InputError(f"{entry}: {cell.path} is already in an earlier block; remove it from one of them")
                cells[cell.path] = cell
    return list(cells.values()), tuple(excluded)


def _check(block: Mapping[str, Any], catalogue: Catalogue, where: str) -> None:
    """Raise `InputError` for values with which no combination of the block could run."""
    if isinstance(block["validation"], str):
        known(block["validation"], list(catalogue.storage), f"{where}.validation", "storage")
    validation_storages = block["validation"] if isinstance(block["validation"], str) else []
    for key, names in (("storage", block["storage"]), ("validation", validation_storages)):
        for name in as_list(names):
            entry = catalogue.storage[name]
            if not FORMATS[entry["format"]].in_folder:
                raise InputError(f"{where}.{key}: storage {name} holds random numbers, of which nothing can be learned")
            if entry["stage"]:
                raise InputError(
                    f"{where}.{key}: storage {name} is staged, and runs to a target are not; name an entry with the "
                    "same path and without stage"
                )
    for sync in as_list(block["sync"]):
        if not catalogue.presets[sync].communicates:
            raise InputError(
                f"{where}.sync: preset {sync} does not communicate: its ranks would train independent networks"
            )
        if reason := catalogue.presets[sync].strategy.no_target:
            raise InputError(f"{where}.sync: preset {sync} {reason}")
        _check_server(sync, block, catalogue, where)
    recipe_trials = sum(len(catalogue.recipes[recipe].points()) for recipe in as_list(block["recipe"]))
    other_combinations = math.prod(len(as_list(block[axis])) for axis in AXES if axis in block and axis != "recipe")
    if (runs := recipe_trials * other_combinations * block["seeds"]) > MAX_RUNS:
        raise InputError(f"{where}: {runs:,} runs; at most {MAX_RUNS:,} of one block")


def _check_server(sync: str, block: Mapping[str, Any], catalogue: Catalogue, position: str) -> None:
    """Raise `InputError` if the block has a recipe with an optimiser that servers of the preset `sync` cannot use."""
    preset = catalogue.presets[sync]
    servers_update = not preset.synchronous and preset.strategy.updates_on_server
    if not servers_update or server_optimiser(preset) != "recipe":
        return
    for recipe in as_list(block["recipe"]):
        optimiser = catalogue.recipes[recipe].recipe.optimiser
        if optimiser in LAYER_WISE_RULES:
            raise InputError(
                f"{position}.recipe: {recipe} updates by {optimiser}, whose steps follow the norms of complete layers; "
                f"the servers of preset {sync} have shares of weights and gradients of older ones. sgd, momentum and "
                "nesterov go with it"
            )


def _impossible(axes: Mapping[str, Any], block: Mapping[str, Any], catalogue: Catalogue) -> str | None:
    """Return why a combination of a block's values cannot run; None if no reason is known."""
    if unfit_reason := catalogue.unfit_reasons.get((axes["network"], _validation(axes, block))):
        return unfit_reason
    if reason := impossible({**axes, "scaling": "strong"}, catalogue):
        return reason
    samples, batch = catalogue.storage[axes["storage"]].get("generate"), axes["batch"]
    if samples and batch > (count := training_samples(samples, _share(block))):
        return f"B = {batch}, but storage {axes['storage']} has {count} training samples"
    return None


def training_samples(samples: int, share: float) -> int:
    """Return the number of training samples that remain if a `share` of `samples` is set apart for validation."""
    return samples - (max(1, round(share * samples)) if share else 0)


def _share(block: Mapping[str, Any]) -> float:
    return 0.0 if isinstance(block["validation"], str) else float(block["validation"])


def _validation(axes: Mapping[str, Any], block: Mapping[str, Any]) -> str:
    return str(block["validation"] if isinstance(block["validation"], str) else axes["storage"])


def _runs(
    axes: Mapping[str, Any], block: Mapping[str, Any], config: Mapping[str, Any], catalogue: Catalogue
) -> Iterator[ConvergenceCell]:
    training_entry = catalogue.storage[axes["storage"]]
    validation_storage = _validation(axes, block)
    validation_entry = catalogue.storage[validation_storage]
    placement = {axis: axes[axis] for axis in ("nodes", "workers_per_node")}
    common_fields = catalogue.common(axes["hardware"], **placement, repeat=1, visits=1)
    points = catalogue.recipes[axes["recipe"]].points()
    for (trial, recipe), seed in product(enumerate(points, 1), range(block["seeds"])):
        yield ConvergenceCell(
            network=axes["network"],
            batch=axes["batch"],
            storage=axes["storage"],
            sync=axes["sync"],
            recipe=axes["recipe"],
            trial=trial,
            prefetch=block["prefetch"],
            readers=config["readers"],
            storage_path=training_entry["path"],
            storage_format=training_entry["format"],
            validation_storage=validation_storage,
            validation_path=validation_entry["path"],
            validation_format=validation_entry["format"],
            validation_share=_share(block),
            preset=preset_values(catalogue.presets[axes["sync"]]),
            settings=to_values(recipe),
            own_network=catalogue.own_networks.get(axes["network"]),
            target=block.get("target"),
            max_epochs=block["max_epochs"],
            evaluation_epochs=block["evaluation_epochs"],
            patience=block.get("patience"),
            max_minutes=block.get("max_minutes"),
            noise_steps=block.get("noise_steps"),
            sharpness_samples=block.get("sharpness_samples"),
            **{**common_fields, "seed": config["seed"] + seed},
        )
