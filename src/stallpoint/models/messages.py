"""What a preset sends in one iteration: which layers share a message, and how long it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stallpoint.presets import Preset, fused

INDEX_BYTES = 4
"""Where a value of a sparse message belongs, bytes."""


def messages(preset: Preset, gradient_bytes: Sequence[int]) -> list[list[int]]:
    """Layers (positions in forward order) of each message, in the order of sending: the last layer first.

    `gradient_bytes` holds every layer's, 0 where nothing is learned. Merged groups depend on the cluster; they
    are taken layer by layer.
    """
    learning = [layer for layer in reversed(range(len(gradient_bytes))) if gradient_bytes[layer]]
    if preset.grouping != "fused":
        return [[layer] for layer in learning]
    groups = fused([gradient_bytes[layer] for layer in learning], preset.fusion_bytes)
    return [[learning[position] for position in group] for group in groups]


def message_bytes(preset: Preset, gradient_bytes: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Bytes that one rank sends for gradients of these sizes [...] in single precision."""
    value = np.asarray(gradient_bytes, dtype=np.float64) * preset.gradient_bits / 32
    if preset.top_k == 1:
        return value
    indices = np.asarray(gradient_bytes, dtype=np.float64) * INDEX_BYTES / 4
    return preset.top_k * (value + indices)
