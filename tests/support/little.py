"""Matrix products that tell about the machine, small: those that no cache holds take half a minute of a visit."""

import pytest

from stallpoint.measure import constants
from stallpoint.measure.constants import MIB

CONSTANTS = {
    "PEAK_SIDE": {"cpu": 256},
    "ROWS_BYTES": (MIB, MIB),
    "BANDWIDTH_BYTES": {"cpu": (16 * MIB, 16 * MIB)},
}
"""Values for `stallpoint.measure.constants`, where a test measures, but not how fast the machine is."""


def source(module: str = "") -> str:
    """Lines of Python that set them, in the module itself or by its name."""
    return "".join(f"{module and f'{module}.'}{name} = {value}\n" for name, value in CONSTANTS.items())


def put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set them in this process."""
    for name, value in CONSTANTS.items():
        monkeypatch.setattr(constants, name, value)
