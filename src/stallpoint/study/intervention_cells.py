"""The cells of interventions: each is a training cell with one thing left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

from stallpoint.strategies.presets import NONE, PRESETS, preset_from, to_values
from stallpoint.study.interventions import NO_COMMUNICATION, possible
from stallpoint.study.kinds.intervention_kind import InterventionCell
from stallpoint.study.kinds.train_kind import TrainCell


def intervention_cells(cell: TrainCell, wanted: Iterable[str]) -> Iterator[TrainCell]:
    """The interventions on `cell` among those `wanted` that are possible there.

    Training without communication is an ordinary cell: presets that differ in nothing else share it.
    """
    if cell.scaling == "compute":
        return
    for name in wanted:
        if not possible(name, preset_from(cell.preset), cell.ranks):
            continue
        if name == NO_COMMUNICATION:
            yield replace(cell, sync=NONE, preset=to_values(PRESETS[NONE].preset))
        else:
            same = {one.name: getattr(cell, one.name) for one in fields(cell)}
            yield InterventionCell(**same, intervention=name)
