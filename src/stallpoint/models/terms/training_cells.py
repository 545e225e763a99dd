"""Training cells reduced to what models need: records of any length are read a few cells at a time.

Rows of layers are by far the most: layers x iterations x ranks of every cell. Models need them whole of no cell: their
sum over ranks (`over_ranks`), each layer of every iteration of one worker alone, the messages that several workers
sent, and means of rank 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.models.base.frames import refuse
from stallpoint.models.base.measured import POINT, STEP, kept, over_ranks
from stallpoint.models.base.statistics import Reals, groups
from stallpoint.models.terms.observed import Sending, sending
from stallpoint.records import tables as records
from stallpoint.records.tables import INTERVENED, ITERATIONS, LAYERS, Table

TOTALS = ("forward", "backward", "host_to_device", "update")
COLUMNS: Mapping[Table, Sequence[str] | None] = {
    ITERATIONS: None,
    LAYERS: (
        "cell", "rank", "visit", "iteration", "warmup", "layer_index", "layer", "layer_type", "forward", "backward",
        "all_reduce_start", "all_reduce_end", "gather_start", "gather_end", "gradient_bytes", "bucket",
    ),
    INTERVENED: None,
}  # fmt: skip
"""Tables that grow with iterations, ranks and layers, and the columns read of each (None: all)."""
LAYER = tuple(column.name for column in records.LAYER)
OF_RANK = ("forward", "backward", "all_reduce_start", "all_reduce_end")
"""Columns of a layer that are measured on rank 0."""


@dataclass(frozen=True)
class Layers:
    """The layers of a network, in forward order."""

    names: tuple[str, ...]
    types: npt.NDArray[np.str_]
    gradient_bytes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class MeasuredBatch:
    """A training cell on one rank."""

    name: str
    network: str
    hardware: str
    scaling: str
    prefetch: int
    worker_batch: int
    repeat: int
    seconds: Reals
    """[iterations, quantities]: layers forward, layers backward, then `TOTALS`."""
    visits: tuple[int, ...]
    """The visit that each iteration is from."""


@dataclass(frozen=True)
class TrainingCells:
    """Training cells, without warm-up and disturbed iterations."""

    steps: pd.DataFrame
    """A row for each iteration, from `over_ranks`."""
    networks: Mapping[str, Layers]
    isolated: Mapping[str, MeasuredBatch]
    """Cells on one rank, by name."""
    sending: Mapping[str, Sending]
    """Cells whose ranks sent each other messages, by name."""
    first_ranks: pd.DataFrame
    """A row for each layer of each cell, with the columns of `POINT` and `LAYER`: means over the iterations of rank 0,
    all-reduces since the start of the backward pass."""

    def of(self, cells: Collection[str]) -> TrainingCells:
        """Return those among `cells`."""
        cells = frozenset(cells)
        steps = self.steps[self.steps["cell"].isin(cells)]
        return replace(
            self,
            steps=steps,
            isolated={name: cell for name, cell in self.isolated.items() if name in cells},
            sending={name: cell for name, cell in self.sending.items() if name in cells},
            first_ranks=self.first_ranks[self.first_ranks["cell"].isin(cells)],
        )


def reduced_cells(iterations: pd.DataFrame, layers: pd.DataFrame) -> TrainingCells:
    """Reduce rows of these tables, all of the same cells; raise `InputError` for a time below 0."""
    refuse(layers, "layers", ["forward", "backward"], may_lack=True)
    refuse(iterations, "iterations", [*TOTALS, "read", "decode"], may_lack=True)
    counted, of_layers = kept(iterations), kept(layers)
    of_cell = dict(groups(of_layers, "cell"))
    named = iterations.drop_duplicates("cell").set_index("cell")["network"]
    first = {str(named[cell]): rows for cell, rows in reversed(of_cell.items()) if cell in named}
    cells = [(name, rows, of_cell[name]) for name, rows in groups(counted, "cell") if name in of_cell]
    communicating = {name: sending(rows, there) for name, rows, there in cells if rows["ranks"].iloc[0] > 1}
    return TrainingCells(
        steps=over_ranks(counted, of_layers),
        networks={network: _layers(rows) for network, rows in first.items()},
        isolated={name: _isolated(name, rows, there) for name, rows, there in cells if rows["ranks"].iloc[0] == 1},
        sending={name: cell for name, cell in communicating.items() if cell is not None},
        first_ranks=_first_ranks(counted, of_layers),
    )


def joined(parts: Iterable[TrainingCells]) -> TrainingCells:
    """Return the union of disjoint parts."""
    first, *others = parts
    if not others:
        return first
    every = [first, *others]
    return TrainingCells(
        steps=pd.concat([part.steps for part in every]).sort_values(list(STEP), ignore_index=True),
        networks={name: known for part in reversed(every) for name, known in part.networks.items()},
        isolated={name: cell for part in every for name, cell in part.isolated.items()},
        sending={name: cell for part in every for name, cell in part.sending.items()},
        first_ranks=pd.concat([part.first_ranks for part in every], ignore_index=True),
    )


def _layers(rows: pd.DataFrame) -> Layers:
    first = rows.drop_duplicates("layer_index").sort_values("layer_index")
    return Layers(
        names=tuple(first["layer"]),
        types=first["layer_type"].to_numpy(dtype=np.str_),
        gradient_bytes=first["gradient_bytes"].to_numpy(dtype=np.int64),
    )


def _isolated(name: str, iterations: pd.DataFrame, layers: pd.DataFrame) -> MeasuredBatch:
    table = layers.pivot(index="iteration", columns="layer_index", values=["forward", "backward"])
    rows = iterations.set_index("iteration").reindex(table.index)
    first = iterations.iloc[0]
    return MeasuredBatch(
        name=name,
        network=str(first["network"]),
        hardware=str(first["hardware"]),
        scaling=str(first["scaling"]),
        prefetch=int(first["prefetch"]),
        worker_batch=int(first["worker_batch"]),
        repeat=int(first["repeat"]),
        seconds=np.hstack([table.to_numpy(), rows[list(TOTALS)].to_numpy()]),
        visits=tuple(rows["visit"]),
    )


def _first_ranks(iterations: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    begin = iterations[["data_wait", "host_to_device", "forward"]].sum(axis=1)
    steps = iterations.loc[iterations["rank"] == 0, ["cell", "iteration"]].assign(begin=begin)
    rows = layers[layers["rank"] == 0].merge(steps, on=["cell", "iteration"])
    key = ["cell", "layer_index"]
    values = rows[key].assign(
        forward=rows["forward"],
        backward=rows["backward"],
        all_reduce_start=rows["all_reduce_start"] - rows["begin"],
        all_reduce_end=rows["all_reduce_end"] - rows["begin"],
    )
    means = values.groupby(key, as_index=False).mean()
    points = iterations.drop_duplicates("cell")[["cell", *POINT]]
    return points.merge(rows.drop_duplicates(key)[["cell", *LAYER]], on="cell").merge(means, on=key)
