"""Buckets of a preset: which layers' gradients share a message in an iteration, and the size of the message.

Training and models use the same buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from stallpoint.strategies.options import SYNCHRONOUS, StepOptions

if TYPE_CHECKING:  # numpy takes long to import, and few uses of strategies need it
    import numpy as np
    import numpy.typing as npt

    Reals: TypeAlias = npt.NDArray[np.float64]

INDEX_BYTES = 4
"""Size of a value's index in a sparse message, bytes."""


MergeFunction = Callable[[Sequence[int]], list[list[int]]]
"""Function that maps layers, in the order of sending, to groups of their positions, such as `mg_wfbp.merged_groups`."""


def buckets(
    preset: StepOptions, gradient_bytes: Sequence[int], merge: MergeFunction | None = None, names: Sequence[str] = ()
) -> list[list[int]]:
    """Return the layers of each bucket (positions in forward order); buckets are in the order of sending.

    The last layer is sent first. `gradient_bytes` is 0 for layers without parameters. For grouping ``merged`` the
    function `merge` makes the groups for the cluster; without `merge` each layer is a bucket. The layers' `names` give
    the blocks of sharding. Asynchronous algorithms send all weights or gradients in one bucket.
    """
    if not preset.communicates:
        return []
    if preset.grouping == "block":
        return [group[::-1] for group in reversed(blocks(names, gradient_bytes))]
    trainable_layers = [layer for layer in reversed(range(len(gradient_bytes))) if gradient_bytes[layer]]
    if preset.algorithm != SYNCHRONOUS:
        return [trainable_layers] if trainable_layers else []
    if preset.grouping == "fused":
        groups = fusion_groups([gradient_bytes[layer] for layer in trainable_layers], preset.fusion_bytes)
    elif preset.grouping == "merged" and merge and trainable_layers:
        groups = merge(trainable_layers)
    else:
        return [[layer] for layer in trainable_layers]
    return [[trainable_layers[position] for position in group] for group in groups]


def blocks(names: Sequence[str], gradient_bytes: Sequence[int]) -> list[list[int]]:
    """Return the layers of each block of sharding, in forward order; the list of layers outside of blocks comes first.

    Layers without parameters are left out; `names` are the layers' paths. Each child with layers is a block.
    In a list of numbered modules, each element is a block. If fewer than two blocks result, each layer is a block.
    """
    paths = {layer: names[layer].split(".") for layer in range(len(names)) if gradient_bytes[layer]}
    prefix_length = 0
    while len({path[prefix_length] for path in paths.values() if len(path) > prefix_length + 1}) == 1 and all(
        len(path) > prefix_length + 1 for path in paths.values()
    ):
        prefix_length += 1
    found: dict[tuple[str, ...], list[int]] = {}
    layers_outside: list[int] = []
    for layer, path in paths.items():
        is_numbered = len(path) > prefix_length + 2 and path[prefix_length + 1].isdigit()
        if len(path) > prefix_length + 1:
            found.setdefault(tuple(path[: prefix_length + 1 + is_numbered]), []).append(layer)
        else:
            layers_outside.append(layer)
    if len(found) < 2:
        return [[layer] for layer in paths]
    return [layers_outside, *found.values()] if layers_outside else list(found.values())


def block_paths(names: Sequence[str], gradient_bytes: Sequence[int]) -> list[str]:
    """Return the path of each block's module; for layers outside of blocks the path is empty (the network)."""
    found = []
    for members in blocks(names, gradient_bytes):
        path_components = zip(*(names[layer].split(".") for layer in members), strict=False)
        found.append(".".join(here[0] for here in takewhile(lambda step: len(set(step)) == 1, path_components)))
    return found


def fusion_groups(sizes: Sequence[int], fusion_bytes: int) -> list[list[int]]:
    """Return groups of positions of `sizes` (bytes); each group except the last has `fusion_bytes` or more in total."""
    groups: list[list[int]] = []
    group: list[int] = []
    for position, _ in enumerate(sizes):
        group.append(position)
        if sum(sizes[member] for member in group) >= fusion_bytes:
            groups.append(group)
            group = []
    return [*groups, group] if group else groups


def message_bytes(preset: StepOptions, gradient_bytes: npt.ArrayLike) -> Reals:
    """Return the bytes that a rank sends for gradients, whose sizes in single precision are `gradient_bytes`."""
    import numpy as np

    value_bits = 16 if preset.hook in ("fp16", "bf16") else preset.gradient_bits
    value = np.asarray(gradient_bytes, dtype=np.float64) * value_bits / 32
    if preset.top_k == 1:
        return value
    index_bytes = np.asarray(gradient_bytes, dtype=np.float64) * INDEX_BYTES / 4
    return preset.top_k * (value + index_bytes)
