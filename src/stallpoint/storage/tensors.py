"""Formats ``synthetic`` and ``memory``: tensors in memory, as references for the cost of training data.

Every sample of a mini-batch is a copy of a sample made in advance: nothing is read, decoded or normalised. ``memory``
reuses the complete mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from stallpoint.networks.inputs import Inputs
from stallpoint.storage.samples import IndexEntry, SampleSet

SAMPLES = 1024


class SyntheticTensors(SampleSet):
    """Samples with the inputs of any network, made in memory."""

    kind = "tensors"
    layout = "no folder: random numbers of the shape that the network takes, copied into each mini-batch"
    in_folder = False

    @classmethod
    @override
    def feeds(cls, takes: type[Inputs]) -> bool:
        """Return True for all networks."""
        return True

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield samples without stored bytes."""
        return (IndexEntry("", 0, 0, 0) for _ in range(SAMPLES))

    @override
    def read(self, index: int) -> bytes:
        return b""

    @override
    def extent(self, index: int) -> None:
        """Return None: nothing is read."""

    @override
    def files(self) -> list[Path]:
        return []

    @override
    def check(self, index: int, data: bytes) -> None:
        """Do nothing: there is nothing to check."""

    @override
    def facts(self) -> dict[str, int]:
        """Return no facts, as samples depend on the network."""
        return {}


class OneBatch(SyntheticTensors):
    """A mini-batch with the inputs of any network, made in memory."""

    layout = "no folder: one mini-batch of random numbers, used again and again"
