"""Records that no model can be fitted to: refused by name instead of giving numbers that mean nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from stallpoint.errors import InputError


def refuse(
    frame: pd.DataFrame, table: str, columns: Sequence[str], *, above_zero: bool = False, may_lack: bool = False
) -> None:
    """Raise `InputError` naming the first of `columns` and the cell whose value is not finite or below 0.

    `above_zero` refuses 0 as well; `may_lack` lets NaN, not measured, pass.
    """
    for column in columns:
        values = frame[column].to_numpy(dtype=np.float64)
        low = values <= 0 if above_zero else values < 0
        wrong = low | np.isinf(values) | (np.isnan(values) & (not may_lack))
        if wrong.any():
            first = int(wrong.argmax())
            cell = f" of cell {frame['cell'].iloc[first]}" if "cell" in frame else ""
            wanted = "finite and above 0" if above_zero else "finite and not below 0"
            raise InputError(
                f"{table}: {column} is {values[first]:g} in {int(wrong.sum())} row(s), first in one{cell}; "
                f"it should be {wanted}: measure the cell again or leave it out"
            )
