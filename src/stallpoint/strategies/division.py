"""How a network can be divided among workers: into stages of a pipeline (GPipe, Huang et al. 2019), and by the outputs
of its last layers (Krizhevsky 2014).

Training cuts by it and models predict by it. This module imports no tensor library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from stallpoint.errors import InputError


@dataclass(frozen=True)
class Cuts:
    """What is counted of the layers of a network, in forward order."""

    work: tuple[int, ...]
    """Multiply-adds of one sample."""
    handed_on: tuple[int | None, ...]
    """Bytes that a stage which ends with this layer hands on for one sample; None where the network cannot be cut."""
    outputs: tuple[int | None, ...] = ()
    """Of the fully-connected layers whose outputs can be split; None for others."""

    @property
    def most_stages(self) -> int:
        """Into how many stages the network can be cut."""
        return 1 + sum(size is not None for size in self.handed_on)

    @property
    def split(self) -> dict[int, int]:
        """The layers whose outputs can be split, and how many each has."""
        return {layer: count for layer, count in enumerate(self.outputs) if count}

    @property
    def gathered(self) -> dict[int, int]:
        """What each layer takes that is gathered where outputs are split, bytes of one sample in single precision: all
        that are split, and the loss, which takes what the last one of them gives."""
        taken = {layer: 4 * self.work[layer] // count for layer, count in self.split.items()}
        loss = len(self.work) - 1
        return taken | {loss: taken.get(loss, 0) + 4 * self.split[max(taken)]} if taken else {}

    def starts(self, stages: int) -> tuple[int, ...]:
        """The first layer of each of so many stages, of which the one with most work has as little as can be.

        Where nothing is multiplied, layers are counted. Raises `InputError` where there are fewer places to cut.
        """
        if stages > self.most_stages:
            raise InputError(
                f"it can be cut into {self.most_stages} at most: before layers that learn, where one tensor is all "
                "that goes on (no skip connection) and where layers on both sides share no weights"
            )
        return _balanced(self, stages)


@lru_cache(256)
def _balanced(cuts: Cuts, stages: int) -> tuple[int, ...]:
    """`least[j]` is the largest stage's work where the layers before the j-th place are in k stages."""
    import numpy as np  # names of strategies are known without it

    places = [0, *(layer + 1 for layer, size in enumerate(cuts.handed_on) if size is not None), len(cuts.work)]
    before = np.concatenate([[0], np.cumsum(np.add(cuts.work, 1, dtype=np.float64))])[places]
    least, chosen = np.where(before > 0, np.inf, 0.0), []
    for _ in range(stages):
        with_last = np.maximum(least[:, None], before[None, :] - before[:, None])  # [the last stage's place, its end]
        with_last[np.tril_indices(len(places))] = np.inf
        chosen.append(with_last.argmin(axis=0))
        least = with_last.min(axis=0)
    end, starts = len(places) - 1, list[int]()
    for best in reversed(chosen):
        end = int(best[end])
        starts.append(places[end])
    return tuple(reversed(starts))
