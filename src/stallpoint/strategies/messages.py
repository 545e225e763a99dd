"""What a preset sends in one iteration: which layers share a message, and how long it is.

Training jobs send by it, and models predict by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from stallpoint.strategies.options import SYNCHRONOUS, Options

if TYPE_CHECKING:  # names are known without numpy
    import numpy as np
    import numpy.typing as npt

    Reals: TypeAlias = npt.NDArray[np.float64]

INDEX_BYTES = 4
"""Where a value of a sparse message belongs, bytes."""


Merge = Callable[[Sequence[int]], list[list[int]]]
"""From layers in the order of sending to positions among them in groups, as `mg_wfbp` makes them."""


def messages(
    preset: Options, gradient_bytes: Sequence[int], merge: Merge | None = None, names: Sequence[str] = ()
) -> list[list[int]]:
    """Layers (positions in forward order) of each message, in the order of sending: the last layer first.

    `gradient_bytes` holds every layer's, 0 where nothing is learned. Merged groups depend on the cluster: `merge` makes
    them, and without it layers go one by one. Blocks follow from the layers' `names`. What is not synchronous sends all
    weights or gradients together.
    """
    if not preset.communicates:
        return []
    if preset.grouping == "block":
        return [group[::-1] for group in reversed(blocks(names, gradient_bytes))]
    learning = [layer for layer in reversed(range(len(gradient_bytes))) if gradient_bytes[layer]]
    if preset.algorithm != SYNCHRONOUS:
        return [learning] if learning else []
    if preset.grouping == "fused":
        groups = fused([gradient_bytes[layer] for layer in learning], preset.fusion_bytes)
    elif preset.grouping == "merged" and merge and learning:
        groups = merge(learning)
    else:
        return [[layer] for layer in learning]
    return [[learning[position] for position in group] for group in groups]


def blocks(names: Sequence[str], gradient_bytes: Sequence[int]) -> list[list[int]]:
    """Layers that learn in the blocks that they are sharded by, in forward order; what no block holds comes first.

    `names` are the layers' paths. Blocks are the modules that the network consists of, where two of them or more hold
    layers: those of a list, for modules that are lists of numbered ones. Otherwise each layer is one.
    """
    paths = {layer: names[layer].split(".") for layer in range(len(names)) if gradient_bytes[layer]}
    depth = 0
    while len({path[depth] for path in paths.values() if len(path) > depth + 1}) == 1 and all(
        len(path) > depth + 1 for path in paths.values()
    ):
        depth += 1
    found: dict[tuple[str, ...], list[int]] = {}
    outside: list[int] = []
    for layer, path in paths.items():
        numbered = len(path) > depth + 2 and path[depth + 1].isdigit()
        if len(path) > depth + 1:
            found.setdefault(tuple(path[: depth + 1 + numbered]), []).append(layer)
        else:
            outside.append(layer)
    if len(found) < 2:
        return [[layer] for layer in paths]
    return [outside, *found.values()] if outside else list(found.values())


def block_paths(names: Sequence[str], gradient_bytes: Sequence[int]) -> list[str]:
    """The path of the module that each of `blocks` is; empty for the network, which holds what no block holds."""
    found = []
    for members in blocks(names, gradient_bytes):
        steps = zip(*(names[layer].split(".") for layer in members), strict=False)
        found.append(".".join(here[0] for here in takewhile(lambda step: len(set(step)) == 1, steps)))
    return found


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


def message_bytes(preset: Options, gradient_bytes: npt.ArrayLike) -> Reals:
    """Bytes that one rank sends for gradients of these sizes [...] in single precision."""
    import numpy as np

    bits = 16 if preset.hook in ("fp16", "bf16") else preset.gradient_bits
    value = np.asarray(gradient_bytes, dtype=np.float64) * bits / 32
    if preset.top_k == 1:
        return value
    indices = np.asarray(gradient_bytes, dtype=np.float64) * INDEX_BYTES / 4
    return preset.top_k * (value + indices)
