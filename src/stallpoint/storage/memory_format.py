"""Format ``memory``: one mini-batch that stays in memory, the reference that costs nothing at all."""

from __future__ import annotations

from stallpoint.storage.tensors import SyntheticTensors


class OneBatch(SyntheticTensors):
    """A mini-batch of whatever a network takes, without a folder."""

    layout = "no folder: one mini-batch of random numbers, used again and again"
