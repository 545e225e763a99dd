"""Points of scaling curves, and curves that are predicted to take what was measured."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stallpoint.base.measured import TIMES, Measured, Parts, Point
from stallpoint.base.statistics import REPLICATES, Ensemble
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted


def point(nodes: int, **axes: Any) -> Point:
    """Strong scaling of 64 samples over nodes of one worker, but for the axes given; `batch` as a study has it."""
    of = {"network": "alexnet", "hardware": "cpu", "storage": "local", "scaling": "strong", "sync": "wfbp"}
    values = of | {"prefetch": 0, "batch": 64, "workers_per_node": 1} | axes
    ranks = nodes * values["workers_per_node"]
    b = values["batch"] // ranks if values["scaling"] == "strong" else values["batch"]
    return Point(**values, nodes=nodes, ranks=ranks, global_batch=b * ranks, worker_batch=b)


def measured(at: Point, seconds: Ensemble, *cells: str, visits: int = 1, **parts: Ensemble) -> Measured:
    """A point whose iteration takes so long, all of it forward pass but for other parts."""
    nothing = dict.fromkeys((*TIMES, "matrix", "fully_connected"), np.zeros(1 + REPLICATES))
    whole = Parts.measured(**nothing | {"forward": seconds, "iteration_time": seconds} | parts)
    return Measured(at, cells, whole, visits=visits)


def curve(points: Mapping[int, Measured], largest_measured: int = 10**9) -> CurvePoints:
    """A curve whose predictions are these points; those up to `largest_measured` are measured, too."""
    predicted = {
        nodes: Predicted(one.point, "eq. 5", "measured at b", one.parts, latency_share=np.zeros(1 + REPLICATES))
        for nodes, one in points.items()
    }
    return CurvePoints({nodes: one for nodes, one in points.items() if nodes <= largest_measured}, predicted)
