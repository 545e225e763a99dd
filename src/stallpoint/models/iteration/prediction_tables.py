"""Tables of predictions and of the measurements they are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.models.base.measured import POINT, Measured
from stallpoint.models.base.parts import UNKNOWN_PARTS
from stallpoint.models.base.statistics import columns, unknown_ensemble
from stallpoint.models.iteration.curve import Predicted, ScalingCurve
from stallpoint.models.terms.training_cells import LAYER, OF_RANK

_COMPARED = ("forward", "backward", "communication", "exposed_communication", "update")


def predictions(curves: Iterable[ScalingCurve], steps: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of the predictions table; `steps` come from `measured.over_ranks`."""
    return [_row(curve, ranks, steps) for curve in curves for ranks in curve.predicted]


def _row(curve: ScalingCurve, ranks: int, steps: pd.DataFrame) -> dict[str, object]:
    predicted, measured = curve.predicted[ranks], curve.measured.get(ranks)
    ours, theirs = predicted.parts, measured.parts if measured else UNKNOWN_PARTS
    unknown = unknown_ensemble()
    held_out = curve.held_out.get(ranks)
    row: dict[str, Any] = {
        **predicted.point.labels("global_batch", "worker_batch"),
        "equation": predicted.equation,
        "extrapolated": measured is None,
        "compute_source": predicted.compute_source,
        "predicted_data": float(predicted.reading[0]),
        "measured_data": float(theirs.data_wait[0]),
        # Measured straggling is the residual of the iteration: see critical_path.
        "predicted_straggling": float(ours.straggling[0]),
        **{f"predicted_{name}": float(getattr(ours, name)[0]) for name in _COMPARED},
        **{f"measured_{name}": float(getattr(theirs, name)[0]) for name in _COMPARED},
        **columns("predicted_iteration", ours.iteration_time),
        **columns("predicted_speedup", curve.speedup(ranks, "predicted")),
        **columns("predicted_efficiency", curve.efficiency(ranks, "predicted")),
        **columns("measured_iteration", theirs.iteration_time),
        **columns("measured_speedup", curve.speedup(ranks, "measured") if measured else unknown),
        **columns("measured_efficiency", curve.efficiency(ranks, "measured") if measured else unknown),
        **columns("held_out_iteration", held_out.parts.iteration_time if held_out else unknown),
    }
    reference = _reference(held_out, measured, steps)
    row["error"] = row["held_out_iteration"] / reference - 1 if reference > 0 else np.nan
    return row


def _reference(predicted: Predicted | None, measured: Measured | None, steps: pd.DataFrame) -> float:
    """Return the measured iteration time of the cells that the prediction did not use."""
    if measured is None or predicted is None:
        return float("nan")
    if not predicted.excluded_cells:
        return float(measured.parts.iteration_time[0])
    return float(steps.loc[steps["cell"].isin(list(predicted.excluded_cells)), "iteration_time"].mean())


def layer_times(first_ranks: pd.DataFrame) -> pd.DataFrame:
    """Return the layer_times table, from `TrainingCells.first_ranks`."""
    key = [*POINT, *LAYER]
    return first_ranks.groupby(key, as_index=False)[list(OF_RANK)].mean()
