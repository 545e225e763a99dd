"""Where the time of an iteration goes: its critical path, split into parts that add up to the iteration time.

Each part belongs to one *cause*, the word in which losses and conclusions speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from stallpoint.models.measured import FULLY_CONNECTED, Measured
from stallpoint.models.prediction import Basis, Isolated, Predicted, ScalingCurve
from stallpoint.models.statistics import Ensemble, columns

CAUSES: dict[str, tuple[str, ...]] = {
    "communication": ("communication latency", "communication bandwidth", "communication, undivided"),
    "matrix shapes": ("fully-connected layers", "other matrix layers"),
    "non-scaling layers": ("non-scaling layers",),
    "interference": ("co-running ranks", "communication thread"),
    "compute, undivided": ("compute, undivided",),
    "training data": ("data", "host-to-device"),
    "model update": ("update",),
    "straggling": ("straggling",),
}
"""Causes and their parts. ``undivided``: no fit says how much of the communication is latency, no isolated time how
much of computing is interference."""

CAUSE_OF = {part: cause for cause, members in CAUSES.items() for part in members}

UNDIVIDED = "compute, undivided"
COMPUTING = ("matrix shapes", "non-scaling layers", "interference", UNDIVIDED)
"""Causes that are parts of the forward and the backward pass."""


def parts(curve: ScalingCurve, nodes: int, basis: Basis) -> dict[str, Ensemble]:
    """Seconds of the iteration by part, [1 + REPLICATES] each; they add up to the iteration time.

    Only what nothing hides is on the path: of the communication what is exposed after the backward pass, of reading
    ahead what the workers wait for. Layers count with their isolated times, on one rank at the same b;
    ``non-scaling layers``: all but convolution, attention and fully-connected layers, and the time between layers.
    What computing takes beyond that is interference: by the ``communication thread`` what the backward pass loses
    beside messages, by ``co-running ranks`` the rest. ``straggling``: what the slowest rank takes beyond the mean of
    all. The latency of measured communication is its share in the fit of the same scheme and node count.
    """
    point: Measured | Predicted = (curve.measured if basis == "measured" else curve.predicted)[nodes]
    times = point.times
    known = {
        **_communication(times["exposed_communication"], curve.predicted[nodes].times["latency_share"]),
        **_computing(point, curve.predicted[nodes].isolated),
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


def _computing(point: Measured | Predicted, isolated: Isolated | None) -> dict[str, Ensemble]:
    forward, backward = point.times["forward"], point.times["backward"]
    if point.point.ranks == 1:
        return _layers(forward + backward, point.times["matrix"], point.times[FULLY_CONNECTED])
    if isolated is None:
        return {UNDIVIDED: forward + backward}
    alone = isolated.forward + isolated.backward
    interference, thread = forward + backward - alone, np.zeros_like(alone)
    if isolated.overlaps:
        slower = np.divide(forward, isolated.forward, out=np.ones_like(forward), where=isolated.forward > 0)
        thread = backward - isolated.backward * slower * isolated.backward_over_forward
    return {
        **_layers(alone, isolated.matrix, isolated.fully_connected),
        "co-running ranks": interference - thread,
        "communication thread": thread,
    }


def _layers(computing: Ensemble, matrix: Ensemble, fully_connected: Ensemble) -> dict[str, Ensemble]:
    return {
        "fully-connected layers": fully_connected,
        "other matrix layers": matrix - fully_connected,
        "non-scaling layers": computing - matrix,
    }


def undivided(of_parts: Mapping[str, Ensemble]) -> dict[str, Ensemble]:
    """The same with all parts of computing as one, to compare with a point whose isolated times are not known."""
    computing = [seconds for part, seconds in of_parts.items() if CAUSE_OF[part] in COMPUTING]
    others = {part: seconds for part, seconds in of_parts.items() if CAUSE_OF[part] not in COMPUTING}
    return {UNDIVIDED: np.sum(computing, axis=0), **others}


def _communication(exposed: Ensemble, latency_share: Ensemble) -> dict[str, Ensemble]:
    if np.isnan(latency_share).any():
        return {"communication, undivided": exposed}
    latency = exposed * latency_share
    return {"communication latency": latency, "communication bandwidth": exposed - latency}


def by_cause(of_parts: Mapping[str, Ensemble]) -> dict[str, Ensemble]:
    """Parts of one cause together, in the order of `CAUSES`."""
    return {
        cause: np.sum([of_parts[part] for part in members if part in of_parts], axis=0)
        for cause, members in CAUSES.items()
        if any(part in of_parts for part in members)
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
