"""Presets that do the same on the hardware of a study: any difference between their curves is chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from stallpoint.strategies.presets import Preset, preset_from
from stallpoint.text import listed


def alike(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """``hardware`` and ``presets``, two or more, for each group that was measured there; `runs` as the tidy table."""
    measured = runs[(runs["kind"] == "train") & (runs["source"] == "")]
    found: dict[tuple[str, Preset], set[str]] = {}
    for settings in map(json.loads, measured["settings"]):
        if settings["scaling"] != "compute":
            does = preset_from(settings["preset"]).on(settings["device"])
            found.setdefault((settings["hardware"], does), set()).add(settings["sync"])
    groups = sorted((hardware, sorted(presets)) for (hardware, _), presets in found.items() if len(presets) > 1)
    for hardware, presets in groups:
        yield {"hardware": hardware, "presets": presets}


def alike_in_words(entry: Mapping[str, Any]) -> str:
    """``cpu: intelcaffe, mxnet and wfbp do the same; any difference between them is chance``."""
    return f"{entry['hardware']}: {listed(entry['presets'])} do the same; any difference between them is chance"
