"""Variants of the presets of a study, each different in one thing that a remedy changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stallpoint.errors import InputError
from stallpoint.strategies.presets import Preset

RAISED = 4
"""Factor on a setting that a remedy raises: mini-batch, mini-batches accumulated, readers, bucket size."""
FUSED_BYTES = 25 * 2**20
"""Bucket size where layers are sent one by one: DistributedDataParallel's."""


@dataclass(frozen=True)
class Variant:
    """A preset that differs from another one in one remedy."""

    like: str
    changes: Mapping[str, Any]
    preset: Preset


def variants(used: Mapping[str, Preset], taken: Collection[str]) -> dict[str, Variant]:
    """The variants of the presets that are `used`, by names that are not `taken`."""
    return {
        name: Variant(like, changes, varied)
        for like, preset in used.items()
        for suffix, changes in _changes(preset)
        if (name := f"{like}-{suffix}") not in taken and (varied := _varied(preset, changes))
    }


def _changes(preset: Preset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Suffix of the name, and changed fields."""
    if not (preset.communicates and preset.synchronous):
        return
    for changes in preset.strategy.variants(RAISED, FUSED_BYTES):
        yield _suffix(*list(changes.items())[-1]), dict(changes)


def _suffix(option: str, value: Any) -> str:
    """How a preset with this option is called."""
    if option == "gradient_bits":
        return f"{value}-bit"
    if option == "fusion_bytes":
        return f"{value / 2**20:g}-mib"
    return f"{option.replace('_', '-')}-{value}"


def _varied(preset: Preset, changes: Mapping[str, Any]) -> Preset | None:
    """`preset` with `changes`; None where they do not go together."""
    try:
        return replace(preset, **changes)
    except InputError:
        return None
