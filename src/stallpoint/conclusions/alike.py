"""Presets that do the same on the hardware of a study: what differs between their curves is chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

OF_DEVICES = ("device_prefetch",)
"""Choices of a preset that change nothing on a CPU."""


def alike(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """``hardware`` and ``presets``, two or more, for each group that was measured there; `runs` as the tidy table."""
    measured = runs[(runs["kind"] == "train") & (runs["source"] == "")]
    found: dict[tuple[str, str], set[str]] = {}
    for settings in map(json.loads, measured["settings"]):
        if settings["scaling"] != "compute":
            idle = OF_DEVICES if settings["device"] == "cpu" else ()
            does = {name: value for name, value in settings["preset"].items() if name not in idle}
            found.setdefault((settings["hardware"], json.dumps(does, sort_keys=True)), set()).add(settings["sync"])
    for (hardware, _), presets in sorted(found.items()):
        if len(presets) > 1:
            yield {"hardware": hardware, "presets": sorted(presets)}


def alike_in_words(entry: Mapping[str, Any]) -> str:
    """``cpu: intelcaffe, mxnet and wfbp do the same there; what differs between them is chance``."""
    *first, last = entry["presets"]
    return f"{entry['hardware']}: {', '.join(first)} and {last} do the same there; what differs between them is chance"
