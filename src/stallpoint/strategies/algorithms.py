"""Data-parallel algorithms beside synchronous SGD: which there are, what each can be told, what does not go together.

`stallpoint.measure.synchronisation` does them, one module for each family. This module imports no tensor library, so
that a study can be checked in an instant.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from stallpoint.errors import InputError

SYNCHRONOUS = "synchronous"
ALGORITHMS: dict[str, str] = {
    SYNCHRONOUS: "every iteration updates all workers with the gradient of the global mini-batch",
    "averaging": "each worker updates its own weights; every period iterations all get their mean",
    "gossip": "each worker updates its own weights; every period iterations it takes the mean of them and its two "
    "neighbours' around a ring",
    "elastic": "each worker updates its own weights; every period iterations these and the server's centre move "
    "towards each other",
    "asynchronous": "each worker sends its gradient to a server, which updates, and gets the server's weights",
    "downpour": "each worker updates its own weights; every period iterations it sends the sum of its gradients to the "
    "servers, and every pull_period it takes their weights",
}  # fmt: skip
"""Values of the choice algorithm, and what they mean."""
SERVER_OPTIMISERS: dict[str, str] = {
    "recipe": "the server updates with the optimiser of the run",
    "adagrad": "the server updates with Adagrad, its step that of the run",
}
_OWN: dict[str, tuple[str, ...]] = {
    SYNCHRONOUS: ("blocks",),
    "averaging": ("period", "synchronous_steps", "outer_step", "outer_momentum"),
    "gossip": ("period",),
    "elastic": ("period", "elasticity"),
    "asynchronous": ("gradients_per_update", "staleness_bound", "server_optimiser"),
    "downpour": ("period", "pull_period", "server_optimiser"),
}
"""Fields of a preset that only some algorithms have."""
FIELDS = tuple(dict.fromkeys(name for names in _OWN.values() for name in names))
"""All of them."""
SERVED = ("elastic", "asynchronous", "downpour")
"""Algorithms with servers that answer each worker for itself."""
UPDATED_BY_SERVERS = ("asynchronous", "downpour")
LAYER_WISE = ("lars", "lamb")
"""Optimisers whose steps need whole layers and the gradient of the weights that they move."""


def check(preset: Any) -> None:
    """Raise `InputError` for a field of `preset` (a `presets.Preset`) that its algorithm lacks or forbids."""
    algorithm = preset.algorithm
    for field in fields(preset):
        foreign = field.name in FIELDS and field.name not in _OWN[algorithm]
        if foreign and getattr(preset, field.name) != field.default:
            known = [name for name, names in _OWN.items() if field.name in names]
            raise InputError(f"{field.name}: is of algorithm {' and '.join(known)}, not of {algorithm}")
    for name in ("period", "pull_period", "blocks"):
        if getattr(preset, name) < 1:
            raise InputError(f"{name}: {getattr(preset, name)} is not a number from 1 on")
    if preset.synchronous_steps < 0:
        raise InputError(f"synchronous_steps: {preset.synchronous_steps} is below 0; 0 is none")
    if preset.gradients_per_update < 0:
        raise InputError(f"gradients_per_update: {preset.gradients_per_update} is below 0; 0 is as many as workers")
    if preset.staleness_bound is not None and preset.staleness_bound < 0:
        raise InputError(
            f"staleness_bound: {preset.staleness_bound} is below 0; 0 is synchronous, and without it there is none"
        )
    if preset.staleness_bound is not None and preset.gradients_per_update != 1:
        raise InputError("staleness_bound: counts updates of single gradients, so gradients_per_update is 1")
    if not 0 < preset.outer_step < math.inf:
        raise InputError(f"outer_step: {preset.outer_step} is not above 0")
    if not 0 <= preset.outer_momentum < 1:
        raise InputError(f"outer_momentum: {preset.outer_momentum} is not from 0 to below 1")
    if not 0 < preset.elasticity <= 1:
        raise InputError(f"elasticity: {preset.elasticity} is not above 0 and at most 1")
    if algorithm != SYNCHRONOUS:
        _check_transport(preset)


def _check_transport(preset: Any) -> None:
    """What carries the one message of all weights or gradients."""
    algorithm = preset.algorithm
    if preset.start != "after-backward" or preset.grouping != "layer":
        raise InputError(
            f"start: algorithm {algorithm} sends all weights or gradients in one message, so it goes with "
            "start: after-backward and grouping: layer"
        )
    if not preset.lossless:
        raise InputError(
            f"gradient_bits: algorithm {algorithm} sends whole values, with gradient_bits: 32 and top_k: 1"
        )
    if algorithm in SERVED:
        if preset.reduction not in ("parameter-server", "sharded-servers"):
            raise InputError(
                f"reduction: algorithm {algorithm} has servers: parameter-server (one) or sharded-servers, not "
                f"{preset.reduction}"
            )
        if preset.backend != "mpi" or preset.segment_bytes:
            raise InputError(f"backend: the servers of algorithm {algorithm} talk through sockets, whole; leave it out")
    if algorithm == "gossip" and (preset.backend, preset.reduction, preset.segment_bytes) != ("mpi", "library", 0):
        raise InputError("backend: gossip reduces nothing; it goes with backend: mpi, reduction: library, no segments")


def rounds(preset: Any) -> int:
    """Iterations after which a preset does the same again: any multiple of them takes as long on average."""
    return math.lcm(preset.period, preset.pull_period)
