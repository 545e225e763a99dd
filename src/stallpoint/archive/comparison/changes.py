"""Changes of all quantities that two studies both measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.archive.comparison import change
from stallpoint.archive.comparison.change import (
    FAMILIES,
    changes,
    judge,
    pair_visits,
    pooled_change,
    relative_to_other_layers,
)
from stallpoint.archive.comparison.compared_results import Results, differences
from stallpoint.base.frames import records
from stallpoint.base.measured import PLACELESS_AXES, POINT, SERIES
from stallpoint.base.section import Change, TableRow
from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import groups
from stallpoint.errors import InputError
from stallpoint.records.tables import COMPARISON, ITERATIONS, STALLING
from stallpoint.study.workers import curves_of

CLEAR_CHANGES = (Change.SLOWER, Change.FASTER, Change.LOWER, Change.HIGHER)
"""Changes that count as moved, that is as significant."""
FAIL_ON = {str(Change.SLOWER): {Change.SLOWER}, "moved": set(CLEAR_CHANGES)}
"""Conditions on which a program may fail, and the changes that meet each."""
_COLUMNS = COMPARISON.names


@dataclass(frozen=True)
class Comparison:
    """Changes from one study to another."""

    old: Results
    new: Results
    between: float
    """Standard deviation between equal studies, of logarithms, beyond their visits' scatter."""
    rows: pd.DataFrame
    """Columns of `tables.COMPARISON`."""
    verdicts: Sequence[Mapping[str, object]]
    """Each curve's values of `SERIES`, its verdict in both studies (old, new), and whether it moved."""
    settings: Sequence[Mapping[str, str]]
    """Differences other than times: rows of `compared_results.differences`."""
    unmatched: Mapping[str, int]
    """Points that only one study measured: old or new -> how many."""
    unit: str = "s"
    """Unit in which times of points are shown to people, such as ``images/s`` if the inputs are rates."""
    notes: Sequence[str] = ()
    """Sentences on the judgement that are specific to this comparison."""

    def of(self, family: str) -> pd.DataFrame:
        return self.rows[self.rows["subject"] == family]

    @property
    def moved(self) -> set[str]:
        """Return the changes of `CLEAR_CHANGES` that occur in any family."""
        return set(self.rows["change"]) & set(CLEAR_CHANGES)


def is_failure(changes: Collection[str], fail_on: str | None) -> bool:
    """Return whether a comparison with the changes `changes` fails; `fail_on` is a condition of `FAIL_ON`, or None."""
    if fail_on and fail_on not in FAIL_ON:
        raise InputError(f"fail_on: {fail_on} is not known; there are {', '.join(FAIL_ON)}")
    return bool(fail_on) and bool(FAIL_ON[str(fail_on)] & set(changes))


def compare(old: Results, new: Results, study_deviation: float = 0.0) -> Comparison:
    """Return the comparison of two studies; raise `InputError` if they have no point in common."""
    first, second = (change.point_times(one.tables) for one in (old, new))
    points = [set(one[list(POINT)].itertuples(index=False, name=None)) for one in (first, second)]
    if not points[0] & points[1]:
        raise InputError(
            f"{old.name} and {new.name} have no measured point in common: {_no_common_point(points, old, new)}"
        )
    layers = pair_visits(change.layer_times(old.tables), change.layer_times(new.tables), change.LAYER)
    rows = rows_of(pair_visits(first, second, POINT), layers, study_deviation)
    return Comparison(
        old=old,
        new=new,
        between=study_deviation,
        rows=rows,
        verdicts=list(_verdicts(old.tables[STALLING.name], new.tables[STALLING.name], rows)),
        settings=differences(old.tables, new.tables),
        unmatched={"old": len(points[0] - points[1]), "new": len(points[1] - points[0])},
    )


def rows_of(points: pd.DataFrame, layers: pd.DataFrame, study_deviation: float = 0.0) -> pd.DataFrame:
    """Return the rows of a comparison. `points` and `layers` are visits of both studies, paired by `pair_visits`."""
    point_changes, pooled, of_layers = [], [], []
    for hardware, here in groups(points, "hardware"):
        found = changes(here, POINT)
        point_changes.append(found)
        pooled.append({"hardware": hardware, "points": len(found), **pooled_change(here, POINT, found)})
    for _, here in groups(layers, "hardware"):
        of_layers.append(_largest_cells(changes(relative_to_other_layers(here, change.LAYER, POINT), change.LAYER)))
    all_points = pd.concat(point_changes, ignore_index=True)
    families = {
        "hardware": judge(pd.DataFrame(pooled), FAMILIES["hardware"], study_deviation),
        "point": judge(all_points, FAMILIES["point"], study_deviation),
        "speedup": _speedups(all_points),
        "layer": _layers(of_layers),
    }
    rows = [frame.assign(subject=name).reindex(columns=_COLUMNS) for name, frame in families.items() if len(frame)]
    return pd.DataFrame([row for frame in rows for row in records(frame)], columns=_COLUMNS)


def _largest_cells(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the layers of one cell for each network: the cell with the largest mini-batch of a worker.

    If several cells have this mini-batch, the cell with the most visits is chosen. More than one cell is no help: their
    visits may all be in the same slow rounds, which the scatter between visits would not show.
    """
    largest_cells = []
    for _, rows in layers.groupby("network"):
        cells = rows.assign(visits=rows[["old_visits", "new_visits"]].min(axis=1)).groupby(list(POINT))["visits"].min()
        sorted_cells = cells.reset_index().sort_values(["worker_batch", "visits"], kind="stable")
        largest_cells.append(rows.merge(sorted_cells[list(POINT)].tail(1), on=list(POINT)))
    return pd.concat(largest_cells, ignore_index=True)


def _layers(found: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return judge(pd.concat(found, ignore_index=True), FAMILIES["layer"]) if found else pd.DataFrame()


def _speedups(points: pd.DataFrame) -> pd.DataFrame:
    """Return the changes of speedups over the fewest workers in both studies. A slowdown of all points cancels."""
    rows = list(_speedup_rows(points[points["scaling"] != "compute"]))
    if not rows:
        return pd.DataFrame()
    found = judge(pd.DataFrame(rows), FAMILIES["speedup"])
    return found.assign(change=found["change"].replace({Change.SLOWER: Change.HIGHER, Change.FASTER: Change.LOWER}))


def _speedup_rows(points: pd.DataFrame) -> Iterator[dict[str, object]]:
    for base, others, per_node in _curves(points):
        for other in others:
            batch_ratio = other["global_batch"] / base["global_batch"]
            errors = np.array([base["error"], other["error"]]) ** 2
            freedom = errors.sum() ** 2 / (errors**2 / [base["freedom"], other["freedom"]]).sum()
            yield {
                **other,
                "workers_per_node": per_node,
                **{study: batch_ratio * base[study] / other[study] for study in ("old", "new")},
                "log": base["log"] - other["log"], "error": np.sqrt(errors.sum()), "freedom": freedom,
            }  # fmt: skip


def _curves(points: pd.DataFrame) -> Iterator[tuple[TableRow, list[TableRow], int]]:
    """Yield each scaling curve: the point with the fewest workers, the other points, and the workers per node."""
    for _, series in groups(points, PLACELESS_AXES):
        row_at = {(row["nodes"], row["workers_per_node"]): row for row in records(series)}
        for per_node, places in curves_of(row_at).items():
            base, *others = (row_at[place] for place in places)
            yield base, others, per_node


def _verdicts(old: pd.DataFrame, new: pd.DataFrame, rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield each curve with its verdicts in both studies, and whether the verdict moved.

    A verdict moved if it differs and a speedup of the curve changed. Near the threshold, verdicts may differ by chance.
    """
    series = list(SERIES)
    speedups = rows[(rows["subject"] == "speedup") & rows["change"].isin((Change.LOWER, Change.HIGHER))]
    moved_curves = set(speedups[series].itertuples(index=False, name=None))
    for row in records(old.merge(new, on=series, suffixes=("_old", "_new"))):
        first, second = (_verdict(row, study) for study in ("old", "new"))
        curve = {name: row[name] for name in series}
        yield {**curve, "old": first, "new": second, "moved": first != second and tuple(curve.values()) in moved_curves}


def _verdict(row: Mapping[str, object], study: str) -> str:
    verdict, ranks = Verdict(str(row[f"verdict_{study}"])), row[f"verdict_ranks_{study}"]
    return {Verdict.STALLS: f"stalls at {ranks:g}", Verdict.SCALES: f"scales to {ranks:g}"}.get(verdict, verdict)


def _no_common_point(points_of_studies: Sequence[set[tuple[object, ...]]], old: Results, new: Results) -> str:
    """Return in words why two studies share no point, such as an axis on which they have no value in common."""
    for one, points in zip((old, new), points_of_studies, strict=True):
        if not points and len(one.tables[ITERATIONS.name]):
            return f"{one.name} measured no iteration: its own are composed of the times of layers"
    for place, axis in enumerate(POINT):
        first, second = ({point[place] for point in points} for points in points_of_studies)
        if not first & second:
            values_of = ((old, first), (new, second))
            return "; ".join(f"{axis} {', '.join(sorted(map(str, values)))} in {one.name}" for one, values in values_of)
    return "no combination of network, hardware, storage, batch and nodes is in both"
