"""Variants of a study's presets, each with one change that a remedy makes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stallpoint.errors import InputError
from stallpoint.strategies.presets import Preset, with_options

RAISED = 4
"""Factor on settings that remedies raise: mini-batch, accumulated mini-batches, readers, bucket size."""
FUSED_BYTES = 25 * 2**20
"""Bucket size for presets without fusion: the default of DistributedDataParallel."""


@dataclass(frozen=True)
class Variant:
    """A preset with one change."""

    like: str
    changes: Mapping[str, Any]
    preset: Preset


def variants(used: Mapping[str, Preset], taken: Collection[str]) -> dict[str, Variant]:
    """Return the variants of the `used` presets, by names that are not `taken`."""
    return {
        name: Variant(like, changes, varied)
        for like, preset in used.items()
        for suffix, changes in _changes(preset)
        if (name := f"{like}-{suffix}") not in taken and (varied := _varied(preset, changes))
    }


def _changes(preset: Preset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the suffix of the name and the changed fields."""
    if not (preset.communicates and preset.synchronous):
        return
    for changes in preset.strategy.variants(RAISED, FUSED_BYTES):
        yield _suffix(*list(changes.items())[-1]), dict(changes)


def _suffix(option: str, value: Any) -> str:
    """Return the name suffix of a preset with this option."""
    if option == "gradient_bits":
        return f"{value}-bit"
    if option == "fusion_bytes":
        return f"{value / 2**20:g}-mib"
    return f"{option.replace('_', '-')}-{value}"


def _varied(preset: Preset, changes: Mapping[str, Any]) -> Preset | None:
    try:
        return with_options(preset, changes)
    except InputError:
        return None
