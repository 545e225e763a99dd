"""What a preset sends in one iteration: which layers share a message, and how long it is.

Training jobs send by it, and models predict by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stallpoint.presets import Preset

INDEX_BYTES = 4
"""Where a value of a sparse message belongs, bytes."""


Merge = Callable[[Sequence[int]], list[list[int]]]
"""From layers in the order of sending to positions among them in groups, as `stallpoint.merging` makes them."""


def messages(preset: Preset, gradient_bytes: Sequence[int], merge: Merge | None = None) -> list[list[int]]:
    """Layers (positions in forward order) of each message, in the order of sending: the last layer first.

    `gradient_bytes` holds every layer's, 0 where nothing is learned. Merged groups depend on the cluster: `merge` makes
    them, and without it layers go one by one. What is not synchronous sends all weights or gradients together.
    """
    if not preset.communicates:
        return []
    learning = [layer for layer in reversed(range(len(gradient_bytes))) if gradient_bytes[layer]]
    if not preset.synchronous:
        return [learning] if learning else []
    if preset.grouping == "fused":
        groups = fused([gradient_bytes[layer] for layer in learning], preset.fusion_bytes)
    elif preset.grouping == "merged" and merge and learning:
        groups = merge(learning)
    else:
        return [[layer] for layer in learning]
    return [[learning[position] for position in group] for group in groups]


def fused(sizes: Sequence[int], fusion_bytes: int) -> list[list[int]]:
    """Positions of `sizes` (bytes) in groups: a group is closed once it holds `fusion_bytes`, or at the end."""
    groups: list[list[int]] = []
    waiting: list[int] = []
    for position, _ in enumerate(sizes):
        waiting.append(position)
        if sum(sizes[member] for member in waiting) >= fusion_bytes:
            groups.append(waiting)
            waiting = []
    return [*groups, waiting] if waiting else groups


def message_bytes(preset: Preset, gradient_bytes: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Bytes that one rank sends for gradients of these sizes [...] in single precision."""
    value = np.asarray(gradient_bytes, dtype=np.float64) * preset.gradient_bits / 32
    if preset.top_k == 1:
        return value
    indices = np.asarray(gradient_bytes, dtype=np.float64) * INDEX_BYTES / 4
    return preset.top_k * (value + indices)
