"""Whether the training data keeps workers busy: the time they do not wait for it, and the readers that takes.

Accelerator utilisation is what MLPerf Storage calls so (MLCommons, benchmark rules v2.0, section 3): the time that
accelerators compute over the time that training takes. The benchmark replaces computing by a pause; here it is the
iteration without its wait for data, communication included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from stallpoint.models.base.measured import trained
from stallpoint.models.base.parts import Parts
from stallpoint.models.base.statistics import Ensemble, columns, unknown_ensemble
from stallpoint.models.iteration.curve import ScalingCurve

BUSY = 0.9
"""Accelerator utilisation from which on a worker counts as kept busy: the same rules' table 1 asks it of ResNet-50."""


def table(curves: Iterable[ScalingCurve], runs: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of the feeding table, for every place of a curve; `runs` is the tidy table of this name."""
    readers = {path: cell.readers if cell.prefetch else 1 for path, cell in trained(runs).items()}
    return [row for curve in curves for row in _rows(curve, readers)]


def utilisation(parts: Parts) -> Ensemble:
    """Part of an iteration in which its workers do not wait for data; not a number where that is not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 1 - parts.data_wait / parts.iteration_time


def _rows(curve: ScalingCurve, readers: Mapping[str, int]) -> Iterator[dict[str, object]]:
    has = readers[curve.points[curve.base].cells[0]]
    for place in curve.known:
        here, predicted = curve.at(place), curve.predicted.get(place)
        unknown = unknown_ensemble()
        by_one = has * predicted.reading if predicted else unknown
        busy = here.parts.iteration_time - here.parts.data_wait
        held_out = curve.held_out.get(place, predicted)
        yield {
            **here.point.labels("worker_batch"),
            "basis": curve.basis(place),
            **columns("utilisation", utilisation(here.parts)),
            **columns("predicted_utilisation", utilisation(held_out.parts) if held_out else unknown),
            "readers": has,
            **columns("read_time", by_one),
            **columns("busy_time", busy),
            **columns("readers_needed", by_one / busy),
        }
