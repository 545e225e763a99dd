"""Training cells reduced to what models need: records of any length are read a few cells at a time.

Most rows are those of layers: layers x iterations x ranks of every cell. Models need only four reduced forms: sums over
the layers of a rank's iteration (`matrix_layer_seconds`), the layers of every iteration of an isolated worker, messages
of the rank that waits least (`BucketTimes`), and means of rank 0. So the rows are read once, in parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.frames import Columns, column_groups, refuse_wrong_rows
from stallpoint.base.lagging import is_waited_for
from stallpoint.base.measured import (
    POINT,
    STEP_COLUMNS,
    kept,
    matrix_layer_seconds,
    reduce_steps,
    with_mean_communication,
)
from stallpoint.base.statistics import Reals, groups
from stallpoint.errors import InputError
from stallpoint.models.terms.observed import ITERATION_COLUMNS, SENT_COLUMNS, BucketTimes, Sending
from stallpoint.records import tables as records
from stallpoint.records.tables import INTERVENED, ITERATIONS, LAYERS, Table

TOTAL_COLUMNS = ("forward", "backward", "host_to_device", "update")
COLUMNS: Mapping[Table, Sequence[str] | None] = {
    ITERATIONS: None,
    LAYERS: (
        "cell", "rank", "visit", "iteration", "warmup", "layer_index", "layer", "layer_type", "forward", "backward",
        "all_reduce_start", "all_reduce_end", "gather_start", "gather_end", "gradient_bytes", "bucket",
        "bucket_bytes",
    ),
    INTERVENED: None,
}  # fmt: skip
"""Tables that grow with iterations, ranks and layers, and the columns read of each (None: all)."""
PART_KEYS: Mapping[Table, Sequence[str]] = {LAYERS: ("cell", "rank", "iteration")}
"""Tables of which a single cell may not fit into memory: its rows are read in parts (`parquet.frames_of_cells`). A part
has all rows with equal values in these columns."""
LAYER = tuple(column.name for column in records.LAYER)
_ISOLATED_COLUMNS = [
    "visit", "iteration", "network", "hardware", "scaling", "prefetch", "worker_batch", "repeat", *TOTAL_COLUMNS,
]  # fmt: skip
"""Columns of iterations that an `IsolatedCell` needs."""
_ISOLATED_LAYER_COLUMNS = ("iteration", "layer_index", "forward", "backward")
FIRST_RANK_COLUMNS = ("forward", "backward", "all_reduce_start", "all_reduce_end")
"""Columns of a layer that are measured on rank 0."""


@dataclass(frozen=True)
class Layers:
    """The layers of a network, in forward order."""

    names: tuple[str, ...]
    types: npt.NDArray[np.str_]
    gradient_bytes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class IsolatedCell:
    """A training cell on one rank."""

    name: str
    network: str
    hardware: str
    scaling: str
    prefetch: int
    worker_batch: int
    repeat: int
    seconds: Reals
    """[iterations, quantities]: layers forward, layers backward, then `TOTAL_COLUMNS`."""
    visits: tuple[int, ...]
    """Visit of each iteration."""


@dataclass(frozen=True)
class TrainingCells:
    """Training cells, without warm-up and disturbed iterations."""

    steps: pd.DataFrame
    """A row for each iteration, from `step_rows`."""
    networks: Mapping[str, Layers]
    isolated: Mapping[str, IsolatedCell]
    """Cells on one rank, by name."""
    sending: Mapping[str, Sending]
    """Cells whose ranks sent each other messages, by name."""
    first_ranks: pd.DataFrame
    """A row for each layer of each cell, with the columns of `POINT` and `LAYER`: means over the iterations of rank 0,
    all-reduces since the start of the backward pass."""

    def of(self, cells: Collection[str]) -> TrainingCells:
        """Return these training cells, but only those named in `cells`."""
        cells = frozenset(cells)
        steps = self.steps[self.steps["cell"].isin(cells)]
        return replace(
            self,
            steps=steps,
            isolated={name: cell for name, cell in self.isolated.items() if name in cells},
            sending={name: cell for name, cell in self.sending.items() if name in cells},
            first_ranks=self.first_ranks[self.first_ranks["cell"].isin(cells)],
        )


def reduced_cells(
    iterations: pd.DataFrame, layers: Iterable[pd.DataFrame], answered_separately: Collection[str] = ()
) -> TrainingCells:
    """Return the training cells of the tables `iterations` and `layers`, reduced; `InputError` for a time below 0.

    `layers` come in parts (`PART_KEYS`); `answered_separately` are presets whose servers answer each worker separately.
    """
    refuse_wrong_rows(iterations, "iterations", [*TOTAL_COLUMNS, "read", "decode"], may_have_gaps=True)
    counted = with_mean_communication(kept(iterations), answered_separately)
    lags = is_waited_for(counted)
    one = (counted["ranks"] == 1).to_numpy()
    single = dict(column_groups(counted.loc[one, ["cell", *_ISOLATED_COLUMNS]], "cell", _ISOLATED_COLUMNS))
    several = counted.loc[~one, ["cell", *ITERATION_COLUMNS, "sync"]]
    buckets = {
        name: BucketTimes(rows, rows["lags"], averaged=rows["sync"][0] in answered_separately)
        for name, rows in column_groups(several.assign(lags=lags[~one]), "cell", [*ITERATION_COLUMNS, "sync", "lags"])
    }
    isolated: dict[str, list[Columns]] = {}
    begin = counted.loc[counted["rank"] == 0, ["cell", "iteration"]].assign(
        begin=counted[["data_wait", "host_to_device", "forward"]].sum(axis=1)
    )
    described_layers, of_first_ranks, sums, seconds = [], [], [], []
    for piece in layers:
        refuse_wrong_rows(piece, "layers", ["forward", "backward"], may_have_gaps=True)
        rows = kept(piece)
        described_layers.append(_first_layer_rows(rows))
        seconds.append(matrix_layer_seconds(rows))
        rows_of_first_rank = rows[rows["rank"] == 0].astype({"cell": "str"})
        of_first_ranks.append(_first_layer_rows(rows_of_first_rank))
        sums.append(_layer_sums(begin, rows_of_first_rank))
        for name, there in column_groups(rows, "cell", ["forward", "backward", *SENT_COLUMNS]):
            if name in buckets:
                buckets[name].add(there)
            elif name in single:
                isolated.setdefault(name, []).append({of: there[of].copy() for of in _ISOLATED_LAYER_COLUMNS})
    _check_contiguous(seconds)
    named = iterations.drop_duplicates("cell").set_index("cell")["network"]
    every = _first_layer_rows(pd.concat(described_layers))
    every = every.assign(network=every["cell"].map(named)).dropna(subset="network")
    leading_cells = every.sort_values("cell", kind="stable").drop_duplicates("network")["cell"]
    sending = {name: found for name, of in buckets.items() if (found := of.sending()) is not None}
    return TrainingCells(
        steps=reduce_steps(counted, pd.concat(seconds)),
        networks={name: _layers(rows) for name, rows in groups(every[every["cell"].isin(leading_cells)], "network")},
        isolated={name: _isolated(name, single[name], times) for name, times in sorted(isolated.items())},
        sending=sending,
        first_ranks=_first_rank_means(counted, _first_layer_rows(pd.concat(of_first_ranks)), pd.concat(sums)),
    )


def _check_contiguous(seconds: Sequence[pd.DataFrame]) -> None:
    """Raise `InputError` if the rows of an iteration of a rank are spread over several parts."""
    key = ["cell", "iteration", "rank"]
    rows = pd.concat([piece[key] for piece in seconds])
    if (twice := rows.duplicated()).any():
        cell, iteration, rank = rows[twice].iloc[0]
        raise InputError(
            f"layers: rows of iteration {iteration} of rank {rank} of cell {cell} do not follow each other; measure "
            "the cell again or leave it out"
        )


def _first_layer_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the first row of each layer of each cell."""
    found = rows[["cell", *LAYER]].drop_duplicates(["cell", "layer_index"])
    return found.astype(dict.fromkeys(("cell", "layer", "layer_type"), "str"))


def joined(parts: Iterable[TrainingCells]) -> TrainingCells:
    """Return the training cells of all `parts`, which have no cell in common."""
    first, *others = parts
    if not others:
        return first
    every = [first, *others]
    return TrainingCells(
        steps=pd.concat([part.steps for part in every]).sort_values(list(STEP_COLUMNS), ignore_index=True),
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


def _isolated(name: str, iterations: Columns, parts: Sequence[Columns]) -> IsolatedCell:
    """Return the cell of an isolated worker; `parts` have a row for each of its layers in each iteration."""
    times = {of: np.concatenate([part[of] for part in parts]) for of in _ISOLATED_LAYER_COLUMNS}
    steps, row = np.unique(times["iteration"], return_inverse=True)
    places, column = np.unique(times["layer_index"], return_inverse=True)
    seconds = np.full((len(steps), 2, len(places)), np.nan)
    for at, side in enumerate(("forward", "backward")):
        seconds[row, at, column] = times[side]
    order = np.argsort(iterations["iteration"])
    rows = order[np.searchsorted(iterations["iteration"], steps, sorter=order)]
    totals = np.stack([iterations[of][rows] for of in TOTAL_COLUMNS], axis=1)
    first = {of: values[0] for of, values in iterations.items()}
    return IsolatedCell(
        name=name,
        network=str(first["network"]),
        hardware=str(first["hardware"]),
        scaling=str(first["scaling"]),
        prefetch=int(first["prefetch"]),
        worker_batch=int(first["worker_batch"]),
        repeat=int(first["repeat"]),
        seconds=np.hstack([seconds.reshape(len(steps), -1), totals]),
        visits=tuple(iterations["visit"][rows].tolist()),
    )


def _layer_sums(begin: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Return sum and count of `FIRST_RANK_COLUMNS` by layer of each cell; times of all-reduces count from `begin`."""
    rows = layers[["cell", "layer_index", "iteration", *FIRST_RANK_COLUMNS]].merge(begin, on=["cell", "iteration"])
    for name in ("all_reduce_start", "all_reduce_end"):
        rows[name] -= rows["begin"]
    return rows.groupby(["cell", "layer_index"])[list(FIRST_RANK_COLUMNS)].agg(["sum", "count"])


def _first_rank_means(iterations: pd.DataFrame, layer_rows: pd.DataFrame, sums: pd.DataFrame) -> pd.DataFrame:
    totals = sums.groupby(level=[0, 1]).sum()
    means = totals.xs("sum", axis=1, level=1) / totals.xs("count", axis=1, level=1)
    points = iterations.drop_duplicates("cell")[["cell", *POINT]]
    return points.merge(layer_rows, on="cell").merge(means.reset_index(), on=["cell", "layer_index"])
