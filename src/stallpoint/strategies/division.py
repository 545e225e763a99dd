"""Division of a network among workers, into stages (GPipe, Huang et al. 2019) or by outputs (Krizhevsky 2014).

Training and models use the same division. This module imports no tensor library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from stallpoint.errors import InputError


@dataclass(frozen=True)
class Cuts:
    """Sizes of a network's layers, in forward order, which determine where it can be cut or split."""

    work: tuple[int, ...]
    """Multiply-adds of each layer for one sample."""
    activation_bytes: tuple[int | None, ...]
    """Bytes of one sample's activations after each layer; None where the network cannot be cut."""
    outputs: tuple[int | None, ...] = ()
    """Number of outputs of each fully-connected layer that can be split; None for other layers."""

    @property
    def max_stages(self) -> int:
        """Return the maximum number of stages into which the network can be cut."""
        return 1 + sum(size is not None for size in self.activation_bytes)

    @property
    def split(self) -> dict[int, int]:
        """Return the number of outputs of each layer whose outputs can be split over workers."""
        return {layer: count for layer, count in enumerate(self.outputs) if count}

    @property
    def gathered(self) -> dict[int, int]:
        """Return the bytes that a worker gathers before each layer, for one sample in single precision.

        A split layer gathers its inputs of all workers' samples; the loss gathers the outputs of the last split layer.
        """
        input_bytes = {layer: 4 * self.work[layer] // count for layer, count in self.split.items()}
        loss = len(self.work) - 1
        return input_bytes | {loss: input_bytes.get(loss, 0) + 4 * self.split[max(input_bytes)]} if input_bytes else {}

    def starts(self, count: int) -> tuple[int, ...]:
        """Return the first layer of each of `count` stages, so that the largest stage has as little work as possible.

        Work is the multiply-adds plus one for each layer. Raises `InputError` if there cannot be `count` stages.
        """
        if count > self.max_stages:
            raise InputError(
                f"it can be cut into {self.max_stages} at most: before layers that learn, where one tensor is all "
                "that goes on (no skip connection) and where layers on both sides share no weights"
            )
        return _balanced_starts(self, count)


@lru_cache(256)
def _balanced_starts(cuts: Cuts, count: int) -> tuple[int, ...]:
    """Return each stage's first layer. `bounds[j]` is the largest stage's work in the best division up to border j."""
    import numpy as np  # numpy takes long to import, and few uses of strategies need it

    borders = [0, *(layer + 1 for layer, size in enumerate(cuts.activation_bytes) if size is not None), len(cuts.work)]
    sums = np.concatenate([[0], np.cumsum(np.add(cuts.work, 1, dtype=np.float64))])[borders]
    bounds, best_begins = np.where(sums > 0, np.inf, 0.0), []
    for _ in range(count):
        maxima = np.maximum(bounds[:, None], sums[None, :] - sums[:, None])  # largest work, by begin and end of a stage
        maxima[np.tril_indices(len(borders))] = np.inf
        best_begins.append(maxima.argmin(axis=0))
        bounds = maxima.min(axis=0)
    end, starts = len(borders) - 1, list[int]()
    for begins in reversed(best_begins):
        end = int(begins[end])
        starts.append(borders[end])
    return tuple(reversed(starts))
