"""Scaling curves predicted from a table of layers and a table of messages, for planners and sweeps.

The task graph is that of a study. It excludes reading, and the time that training adds to its isolated parts. Intervals
come from the differences between repeats; without repeats they come from priors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.base.curve import Curve
from stallpoint.base.frames import refuse_wrong_rows
from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.statistics import REPLICATES, bootstrap, generator, groups
from stallpoint.errors import InputError
from stallpoint.models.iteration.cluster import Cluster, LocalData
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.models.terms import communication
from stallpoint.models.terms.batch_law import BatchTimes
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.training_cells import Layers
from stallpoint.records.tables import COLLECTIVES
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.strategies.presets import PRESETS, Preset

LAYER_COLUMNS = ("layer", "gradient_bytes", "worker_batch", "forward", "backward")
"""Columns of the table of layers: a row for each layer, in forward order, at each worker's mini-batch; bytes and s."""
MESSAGE_COLUMNS = ("nodes", "ranks", "message_bytes", "seconds")
"""Columns of the table of messages: a row for each timed all-reduce; bytes and s."""
_LABEL = "tabled"


def predicted_curve(
    layers: pd.DataFrame,
    messages: pd.DataFrame,
    workers: Iterable[int],
    *,
    batch: int,
    strong: bool = True,
    preset: Preset = PRESETS["wfbp"].preset,
    workers_per_node: int = 1,
    update: float = 0.0,
) -> Curve:
    """Return samples/s by number of workers, with intervals: ``curve.estimate(8)``, ``curve.stall``, ``curve.verdict``.

    `layers` has the columns `LAYER_COLUMNS`, and `messages` the columns `MESSAGE_COLUMNS`. Both may have ``repeat``. If
    the preset sends more than all-reduces, `messages` also has ``operation``. With `strong` scaling, `batch` is the
    mini-batch of all workers, and counts that do not divide it are excluded. Otherwise `batch` is that of each worker.
    `update` is the time to update the weights, s. Counts are also excluded if their messages are unknown, or their
    mini-batch cannot be interpolated from measured ones. Raises `InputError` for a missing column or an invalid time.
    """
    _check("layers", layers, LAYER_COLUMNS, "forward", "backward")
    _check("messages", messages, MESSAGE_COLUMNS, "seconds")
    computing = TabledComputing.of(layers, update)
    links = communication.fit(_timed(messages, preset), seed=0)
    cluster = Cluster(computing, links, LocalData(), {preset.scheme: preset})
    scaling = "strong" if strong else "weak"
    point = Point(_LABEL, _LABEL, "", scaling, preset.scheme, 0, batch, workers_per_node, 1, 1, batch, batch)
    single_worker_point = Measured(point, (), Parts(iteration_time=np.full(1 + REPLICATES, np.nan)), composed=True)
    return DagModel(cluster).curve([single_worker_point], workers, held_out=False).model


@dataclass(frozen=True)
class TabledComputing:
    """Times of layers from a table, interpolated between its mini-batches."""

    layers: Mapping[str, Layers]
    curve: BatchTimes
    """Forward times of the layers, then backward times."""
    update: float

    @classmethod
    def of(cls, table: pd.DataFrame, update: float) -> TabledComputing:
        """Return the times in a table of `LAYER_COLUMNS`."""
        names = tuple(dict.fromkeys(table["layer"]))
        sizes = table.drop_duplicates("layer")["gradient_bytes"].to_numpy(dtype=np.int64)
        rows = table.assign(repeat=table.get("repeat", 0))
        times = []
        for batch, batch_rows in groups(rows, "worker_batch"):
            of_layers = batch_rows.pivot_table(["forward", "backward"], "repeat", "layer")
            times_by_layer = of_layers.reindex(columns=pd.MultiIndex.from_product([("forward", "backward"), names]))
            if times_by_layer.isna().any(axis=None):
                raise InputError(
                    f"layers: at worker_batch {batch} a repeat lacks a layer; give all of {', '.join(names)}"
                )
            times.append(bootstrap(times_by_layer, times_by_layer.index, generator(0, "layers", batch), np.mean))
        curve = BatchTimes(sorted(set(rows["worker_batch"])), np.stack(times, axis=1))
        return cls({_LABEL: Layers(names, np.full(len(names), _LABEL), sizes)}, curve, update)

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        """Return the times of an iteration; None if only another mini-batch was measured. `without` is ignored."""
        forward, backward = np.split(self.curve(batch), 2, axis=-1)
        if np.isnan(forward).any():
            return None
        nothing, update = np.zeros(1 + REPLICATES), np.full(1 + REPLICATES, self.update)
        source = self.curve.source(batch)
        return Times(forward, backward, forward.sum(-1), backward.sum(-1), nothing, update, source)


def _timed(messages: pd.DataFrame, preset: Preset) -> pd.DataFrame:
    """Return the messages as rows of the table collectives."""
    known: dict[str, str | int] = {
        "cell": "", "hardware": _LABEL, "backend": preset.communicator, "reduction": preset.scheme,
        "operation": ALL_REDUCE, "repeat": 0, "rank": 0, "visit": 0, "warmup": False, "calls": 1,
    }  # fmt: skip
    rows = messages.assign(**{name: value for name, value in known.items() if name not in messages})
    rows = rows.assign(workers_per_node=rows["ranks"] // rows["nodes"], sample=np.arange(len(rows)))
    return rows[COLLECTIVES.names]


def _check(name: str, table: pd.DataFrame, columns: Collection[str], *times: str) -> None:
    if lacking := [column for column in columns if column not in table]:
        raise InputError(f"{name}: no column {lacking[0]}; expected are {', '.join(columns)}")
    refuse_wrong_rows(table, name, times)
