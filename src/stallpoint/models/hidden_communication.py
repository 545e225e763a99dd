"""How much of the communication the backward pass hides (Shi et al., 2018, section IV-C: t_c^no against t_c).

Both times come from the same iterations of the same rank, so their ratio is taken in each replicate.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stallpoint.models.measured import Measured
from stallpoint.models.statistics import columns


def table(points: Iterable[Measured]) -> list[dict[str, object]]:
    """Rows of the hidden_communication table: every measured point of more than one rank."""
    return [_row(measured) for measured in points if measured.point.ranks > 1]


def _row(measured: Measured) -> dict[str, object]:
    communication, exposed = (measured.times[name] for name in ("communication", "exposed_communication"))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {
            "hidden_share": 1 - exposed / communication,
            "of_backward": communication / measured.times["backward"],
        }
    return {
        **measured.point.labels("ranks"),
        **columns("communication", communication),
        **columns("exposed", exposed),
        **{column: value for name, share in shares.items() for column, value in columns(name, share).items()},
    }
