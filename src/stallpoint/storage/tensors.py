"""Format ``synthetic``: tensors made in memory, as a reference for what training data costs.

Every sample of a mini-batch is a copy of one that was made before: nothing is read, decoded or normalised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stallpoint.networks.inputs import Inputs
from stallpoint.storage.samples import Entry, SampleSet

SAMPLES = 1024


class SyntheticTensors(SampleSet):
    """Whatever a network takes, without a folder."""

    kind = "tensors"
    layout = "no folder: random numbers of the shape that the network takes, copied into each mini-batch"
    in_folder = False

    @classmethod
    def feeds(cls, takes: type[Inputs]) -> bool:
        """All networks."""
        return True

    @classmethod
    def scan(cls, path: Path) -> Iterator[Entry]:
        """Samples of which nothing is stored."""
        return (Entry("", 0, 0, 0) for _ in range(SAMPLES))

    def read(self, index: int) -> bytes:
        """Nothing."""
        return b""

    def extent(self, index: int) -> None:
        """Nothing is read."""

    def files(self) -> list[Path]:
        """None."""
        return []

    def check(self, index: int, data: bytes) -> None:
        """There is nothing to check."""

    def facts(self) -> dict[str, int]:
        """Nothing: what they are depends on the network."""
        return {}
