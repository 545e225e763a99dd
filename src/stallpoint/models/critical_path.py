"""Where the time of an iteration goes: its critical path, split into parts that add up to the iteration time.

Each part belongs to one *cause*, the word in which losses and conclusions speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from stallpoint.models.measured import FULLY_CONNECTED, Measured
from stallpoint.models.prediction import Basis, Predicted, ScalingCurve
from stallpoint.models.statistics import Ensemble, columns

CAUSES: dict[str, tuple[str, ...]] = {
    "communication": ("communication latency", "communication bandwidth", "communication, undivided"),
    "matrix shapes": ("fully-connected layers", "other matrix layers"),
    "non-scaling layers": ("non-scaling layers",),
    "training data": ("data", "host-to-device"),
    "model update": ("update",),
    "straggling": ("straggling",),
}
"""Causes and their parts. ``undivided``: no fit says how much of the communication is latency."""

CAUSE_OF = {part: cause for cause, members in CAUSES.items() for part in members}


def parts(curve: ScalingCurve, nodes: int, basis: Basis) -> dict[str, Ensemble]:
    """Seconds of the iteration by part, [1 + REPLICATES] each; they add up to the iteration time.

    Only what nothing hides is on the path: of the communication what is exposed after the backward pass, of reading
    ahead what the workers wait for. ``non-scaling layers``: all but convolution and fully-connected layers, and the
    time between layers. ``straggling``: what the slowest rank takes beyond the mean of all. The latency of measured
    communication is its share in the fit of the same scheme and node count.
    """
    point: Measured | Predicted = (curve.measured if basis == "measured" else curve.predicted)[nodes]
    times = point.times
    known = {
        **_communication(times["exposed_communication"], curve.predicted[nodes].times["latency_share"]),
        "fully-connected layers": times[FULLY_CONNECTED],
        "other matrix layers": times["matrix"] - times[FULLY_CONNECTED],
        "non-scaling layers": times["forward"] + times["backward"] - times["matrix"],
        "update": times["update"],
    }
    rest = times["iteration_time"] - sum(known.values())
    if isinstance(point, Measured):
        known |= {"data": times["data_wait"], "host-to-device": times["host_to_device"]}
        return known | {"straggling": rest - times["data_wait"] - times["host_to_device"]}
    straggling = times.get("straggling", np.zeros_like(rest))
    rest = rest - straggling
    # The wait for a mini-batch ends with its copy: what is shorter than the copy is all copy.
    copy = np.clip(times["host_to_device"], 0.0, np.maximum(rest, 0.0))
    return known | {"data": rest - copy, "host-to-device": copy, "straggling": straggling}


def _communication(exposed: Ensemble, latency_share: Ensemble) -> dict[str, Ensemble]:
    if np.isnan(latency_share).any():
        return {"communication, undivided": exposed}
    latency = exposed * latency_share
    return {"communication latency": latency, "communication bandwidth": exposed - latency}


def by_cause(of_parts: Mapping[str, Ensemble]) -> dict[str, Ensemble]:
    """Parts of one cause together, in the order of `CAUSES`."""
    return {
        cause: np.asarray(sum(of_parts[part] for part in members if part in of_parts))
        for cause, members in CAUSES.items()
    }


def table(curves: Iterable[ScalingCurve]) -> list[dict[str, object]]:
    """Rows of the critical_path table: every part at every known node count."""
    return [row for curve in curves for nodes in curve.known for row in _rows(curve, nodes)]


def _rows(curve: ScalingCurve, nodes: int) -> Iterator[dict[str, object]]:
    point, basis = curve.at(nodes), curve.basis(nodes)
    whole = point.times["iteration_time"]
    found = parts(curve, nodes, basis)
    for part in (part for part in CAUSE_OF if part in found):
        yield {
            **point.point.labels("ranks"),
            "basis": basis,
            "part": part,
            "cause": CAUSE_OF[part],
            **columns("seconds", found[part]),
            **columns("share", found[part] / whole),
        }
