"""What takes little time: a network, and matrix products that tell about the machine (half a minute of a visit)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stallpoint.measure import constants
from stallpoint.measure.constants import MIB

if TYPE_CHECKING:
    import pytest

CONSTANTS = {"PEAK_SIDE": {"cpu": 256}, "ROWS_BYTES": (MIB, MIB), "BANDWIDTH_BYTES": {"cpu": (16 * MIB, 16 * MIB)}}
"""Values for `stallpoint.measure.constants`, where a test measures, but not how fast the machine is."""
QUICK = {
    "SENTINEL_SECONDS": 0.002, "SENTINEL_PROBE": 0.0005, "BURST_SECONDS": 0.01, "ISOLATED_SECONDS": 0.04,
    "TINY_LAYERS": 20, "PAIRS": 3,
}  # fmt: skip
"""The same, of what is measured for longer than it takes, to be told from what disturbs it."""


NETWORK = """from torch import nn


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
"""
"""A network of 8 x 8 pixels, which is trained in next to no time."""


def source(values: Mapping[str, object] = CONSTANTS) -> str:
    """Lines of Python that set these in the module itself."""
    return "".join(f"{name} = {value}\n" for name, value in values.items())


def put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set them in this process."""
    for name, value in CONSTANTS.items():
        monkeypatch.setattr(constants, name, value)


def be_quick() -> None:
    """Set all of them in this process, for good."""
    from stallpoint.measure.machine import trial_all_reduce

    for name, value in {**CONSTANTS, **QUICK}.items():
        setattr(constants, name, value)
    trial_all_reduce.SECONDS = 0.02
