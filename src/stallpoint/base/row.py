"""A row of a table, whose quantities have intervals."""

from __future__ import annotations

import math
from typing import Any

from stallpoint.base.statistics import Estimate


class TableRow(dict[str, Any]):
    """A row of a table by column."""

    def estimate(self, name: str) -> Estimate | None:
        """Return a quantity with the ends of its interval, of which unbounded ones are infinite; None if unknown."""
        if math.isnan(value := self[name]):
            return None
        return Estimate(*(float(end) for end in (value, self[f"{name}_low"], self[f"{name}_high"])))
