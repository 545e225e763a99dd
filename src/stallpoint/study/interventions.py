"""Interventions: training with one thing left out, for real. What that saves is what the thing costs.

Each is a cell beside the one that it changes, and takes turns with it. This module imports no tensor library.
"""

from __future__ import annotations

from dataclasses import dataclass

from stallpoint.strategies.presets import Preset

NO_COMMUNICATION = "no-communication"
EMPTY_MESSAGES = "empty-messages"
SYNTHETIC_DATA = "synthetic-data"
FIXED_MINI_BATCH = "fixed-mini-batch"
NO_UPDATE = "no-update"


@dataclass(frozen=True)
class Intervention:
    """What is left out, and which parts of the critical path (`models.answers.causes`) should go with it."""

    description: str
    parts: tuple[str, ...]


_BYTES = ("communication bandwidth", "communication, undivided", "communication thread")

INTERVENTIONS: dict[str, Intervention] = {
    NO_COMMUNICATION: Intervention(
        "the preset none: nothing is sent, and ranks do not wait for each other",
        (*_BYTES, "communication latency", "straggling"),
    ),
    EMPTY_MESSAGES: Intervention(
        "as many messages at the same moments, with one value each: ranks wait for each other, no gradients move",
        _BYTES,
    ),
    SYNTHETIC_DATA: Intervention(
        "mini-batches are put together from a sample in memory: nothing is read or decoded", ("data",)
    ),
    FIXED_MINI_BATCH: Intervention("the first mini-batch again and again: no input pipeline", ("data",)),
    NO_UPDATE: Intervention("weights stay as they are", ("update",)),
}
"""By name; all but the first are cells of their own kind."""


def possible(name: str, preset: Preset, ranks: int) -> bool:
    """Whether there is anything to leave out among so many ranks under a preset, and a way to do it."""
    # No communication: its preset reads ahead into the host's memory alone, and computes all layers of b in one pass.
    if name == NO_COMMUNICATION:
        alike = preset.strategy.independent and preset.one_pass and not preset.device_prefetch
        return ranks > 1 and preset.communicates and alike
    if name == EMPTY_MESSAGES:
        return ranks > 1 and preset.communicates and not preset.strategy.sends_by_itself
    if name == NO_UPDATE:  # a parameter server updates as part of the communication
        return ranks == 1 or not preset.strategy.updates_on_server
    return True
