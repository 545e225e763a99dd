"""Does training fit into a worker's memory where nobody ran it: from what one worker alone takes, and what each preset
divides among workers.

    peak(b) = alone(b / k) - (1 - 1/s) (weights + gradients) - (1 - 1/s_o) optimiser + messages

`alone` is the line of one worker that sends nothing (`terms.peaks`), k the parts of a mini-batch, s the parts that
weights and gradients are in (1 unless they are sharded), s_o those of the optimiser's state. Messages, with W the bytes
of all weights and L those of the largest block:

    ddp       W of buckets, unless gradients lie in them
    zero-1    the same, and all weights as they are gathered, a share and the whole: W (1 + 1/n)
    fsdp      a gathered block and `gather_ahead` more, its gradients, and those as they are sent: (3 + ahead) L; with
              k > 1 the gradients of all parts before the last stay whole: W
    others    send gradients from where they lie, or small ones packed: nothing

Rajbhandari et al. (2020), section 3, for what is divided. Activation checkpointing is not predicted: how much of the
slope the blocks are was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from stallpoint.messages import blocks
from stallpoint.models.base.measured import Point
from stallpoint.models.base.statistics import Ensemble, columns, unknown_ensemble
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.models.terms.peaks import DEVICE, HOST, Peaks, predicted
from stallpoint.models.terms.trainings import Layers
from stallpoint.presets import NONE, Preset

YES, NO, UNDECIDED, UNKNOWN = "yes", "no", "undecided", "unknown"


def table(
    curves: Iterable[ScalingCurve],
    memory: Iterable[Peaks],
    networks: Mapping[str, Layers],
    presets: Mapping[str, Preset],
    peak_memory: pd.DataFrame,
    environments: pd.DataFrame,
) -> list[dict[str, object]]:
    """Rows of the fits table: every point of every curve, of the memory that its device computes in."""
    known = {(*peaks.training[:2], *peaks.training[3:5], peaks.memory): peaks for peaks in memory}
    return [row for curve in curves for row in _rows(curve, known, networks, presets, peak_memory, environments)]


def _rows(
    curve: ScalingCurve,
    known: Mapping[tuple[str | int, ...], Peaks],
    networks: Mapping[str, Layers],
    presets: Mapping[str, Preset],
    peak_memory: pd.DataFrame,
    environments: pd.DataFrame,
) -> Iterator[dict[str, object]]:
    for ranks, one in sorted(curve.predicted.items()):
        point = one.point
        key = point.network, point.hardware, NONE
        found = {
            name: known[(*key, prefetch, name)]
            for name in (HOST, DEVICE)
            for prefetch in (0, point.prefetch)
            if (*key, prefetch, name) in known
        }
        name = DEVICE if DEVICE in found else HOST
        peak = unknown_ensemble()
        if name in found and point.network in networks:
            peak = _peak(found[name], point, presets[point.sync], networks[point.network])
        cells = curve.measured[ranks].cells if ranks in curve.measured else ()
        rows = peak_memory[peak_memory["cell"].isin(cells)]
        available = _available(environments, peak_memory, point, name)
        predicted_columns = columns("predicted", peak)
        yield {
            **point.labels("worker_batch"),
            "memory": name,
            **predicted_columns,
            "measured": rows.groupby(["cell", "visit"])[f"{name}_peak"].max().mean() if len(rows) else np.nan,
            "available": available,
            "fits": _verdict(predicted_columns["predicted_low"], predicted_columns["predicted_high"], available),
        }


def _verdict(low: float, high: float, available: float) -> str:
    if np.isnan([low, high, available]).any():
        return UNKNOWN
    return YES if high <= available else NO if low > available else UNDECIDED


def _available(environments: pd.DataFrame, peak_memory: pd.DataFrame, point: Point, memory: str) -> float:
    """What a worker may use on this hardware, with as many workers on a node where any trained so."""
    here = peak_memory[peak_memory["hardware"] == point.hardware]
    alike = here[here["ranks"] // here["nodes"] == point.place[1]]
    cells = (alike if len(alike) else here)["cell"]
    column = "available_memory" if memory == HOST else "gpu_available_memory"
    return float(environments.loc[environments["cell"].isin(cells), column].min())


def _peak(alone: Peaks, point: Point, preset: Preset, layers: Layers) -> Ensemble:
    """The most memory of one of the point's workers, bytes."""
    if preset.activation_checkpointing:
        return unknown_ensemble()
    several = point.ranks > 1
    part = point.worker_batch / preset.accumulate
    whole = alone.measured[:, alone.batches.index(int(part))] if part in alone.batches else predicted(alone, part)
    of_state = preset.shards(*point.place) if several else 1
    of_weights = of_state if preset.shards_weights or preset.staged else 1
    kept = alone.parts[0]
    divided = (1 - 1 / of_weights) * (kept["weights"] + kept["gradients"]) + (1 - 1 / of_state) * kept["optimiser"]
    return np.asarray(whole - divided + (_messages(preset, layers, of_state) if several else 0.0))


def _messages(preset: Preset, layers: Layers, shards: int) -> float:
    """What one worker has of messages beside weights and gradients, bytes."""
    sizes = layers.gradient_bytes
    whole = float(sizes.sum())
    if preset.shards_weights:
        largest = max(_sums(sizes.tolist(), blocks(layers.names, sizes.tolist())), default=0.0)
        return (3 + preset.gather_ahead) * largest + (whole if preset.accumulate > 1 else 0.0)
    buckets = 0.0 if preset.bucket_view or preset.backend != "ddp" else whole
    return buckets + (whole * (1 + 1 / shards) if preset.sharding == "optimiser" else 0.0)


def _sums(sizes: Sequence[int], groups: Iterable[Sequence[int]]) -> list[float]:
    return [float(sum(sizes[layer] for layer in members)) for members in groups]
