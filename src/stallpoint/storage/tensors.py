"""Formats ``synthetic`` and ``memory``: tensors in memory, with which the cost of reading training data is compared.

Format ``synthetic`` copies samples made in advance into each mini-batch, without reading, decoding or normalising.
Format ``memory`` does not even copy: all iterations use the same mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from stallpoint.networks.inputs import Inputs
from stallpoint.storage.samples import IndexEntry, SampleSet

SAMPLE_COUNT = 1024


class SyntheticTensors(SampleSet):
    """Samples in memory, with the shape that the network's inputs have."""

    kind = "tensors"
    layout = "no folder: random numbers of the shape that the network takes, copied into each mini-batch"
    in_folder = False

    @classmethod
    @override
    def feeds(cls, takes: type[Inputs]) -> bool:
        """Return True: the tensors get the shape that the network takes."""
        return True

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield entries of samples without stored bytes."""
        return (IndexEntry("", 0, 0, 0) for _ in range(SAMPLE_COUNT))

    @override
    def read(self, index: int) -> bytes:
        return b""

    @override
    def extent(self, index: int) -> None:
        """Return None, because no file is read."""

    @override
    def files(self) -> list[Path]:
        return []

    @override
    def check(self, index: int, data: bytes) -> None:
        """Do nothing, because there are no stored bytes to decode."""

    @override
    def facts(self) -> dict[str, int]:
        """Return an empty dictionary: classes and sizes are those of the network."""
        return {}


class OneBatch(SyntheticTensors):
    """One mini-batch in memory, with the shape that the network's inputs have."""

    layout = "no folder: one mini-batch of random numbers, used again and again"
