"""Where the time of an iteration goes: its critical path, split into parts that add up to the iteration time.

Each part belongs to one *cause*, the word in which losses and conclusions speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from stallpoint.models.base.measured import Measured
from stallpoint.models.base.parts import Parts
from stallpoint.models.base.statistics import Ensemble, columns
from stallpoint.models.iteration.curve import Basis, Predicted, ScalingCurve

CAUSES: dict[str, tuple[str, ...]] = {
    "communication": ("communication latency", "communication bandwidth", "communication, undivided"),
    "matrix shapes": ("fully-connected layers", "other matrix layers"),
    "non-scaling layers": ("non-scaling layers",),
    "interference": ("co-running ranks", "communication thread"),
    "compute, undivided": ("compute, undivided",),
    "training data": ("data", "host-to-device"),
    "model update": ("update",),
    "straggling": ("straggling",),
    "pipeline bubble": ("bubble",),
}
"""Causes and their parts. ``undivided``: no fit says how much of the communication is latency, no isolated time how
much of computing is interference."""

CAUSE_OF = {part: cause for cause, members in CAUSES.items() for part in members}

UNDIVIDED = "compute, undivided"
COMPUTING = ("matrix shapes", "non-scaling layers", "interference", UNDIVIDED)
"""Causes that are parts of the forward and the backward pass."""


def path(curve: ScalingCurve, ranks: int, basis: Basis) -> dict[str, Ensemble]:
    """Seconds of the iteration by part, [1 + REPLICATES] each; they add up to the iteration time.

    Only what nothing hides is on the path: of the communication what is exposed after the backward pass, of reading
    ahead what the workers wait for. Layers count with their isolated times, on one rank at the same b;
    ``non-scaling layers``: all but convolution, attention and fully-connected layers, and the time between layers.
    What computing takes beyond that is interference: by the ``communication thread`` what the backward pass loses
    beside messages, by ``co-running ranks`` the rest. The latency of measured communication is its share in the fit of
    the same scheme and worker count. In a pipeline ranks wait for other stages: what else is straggling is ``bubble``.
    """
    point: Measured | Predicted = (curve.measured if basis == "measured" else curve.predicted)[ranks]
    parts, model = point.parts, curve.predicted[ranks]
    return {
        **_communication(parts.exposed_communication, model.latency_share),
        **_computing(point.point.ranks, parts, model),
        "update": parts.update,
        "data": parts.data_wait,
        "host-to-device": parts.host_to_device,
        "bubble" if model.staged else "straggling": parts.straggling,
    }


def _computing(ranks: int, parts: Parts, model: Predicted) -> dict[str, Ensemble]:
    computing = parts.forward + parts.backward
    if ranks == 1:
        return _layers(computing, parts.matrix, parts.fully_connected)
    isolated = model.isolated
    if isolated is None:
        return {UNDIVIDED: computing}
    whole = isolated.forward + isolated.backward
    thread = np.zeros_like(whole)
    if model.backward_over_forward is not None:
        forward = parts.forward
        slower = np.divide(forward, isolated.forward, out=np.ones_like(forward), where=isolated.forward > 0)
        thread = parts.backward - isolated.backward * slower * model.backward_over_forward
    return {
        **_layers(whole, isolated.matrix, isolated.fully_connected),
        "co-running ranks": computing - whole - thread,
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
    """Rows of the critical_path table: every part at every known worker count."""
    return [row for curve in curves for ranks in curve.known for row in _rows(curve, ranks)]


def _rows(curve: ScalingCurve, ranks: int) -> Iterator[dict[str, object]]:
    point, basis = curve.at(ranks), curve.basis(ranks)
    whole = point.parts.iteration_time
    found = path(curve, ranks, basis)
    for part in (part for part in CAUSE_OF if part in found):
        yield {
            **point.point.labels(),
            "basis": basis,
            "part": part,
            "cause": CAUSE_OF[part],
            **columns("seconds", found[part]),
            **columns("share", found[part] / whole),
        }
