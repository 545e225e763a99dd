"""Measured and predicted points of a scaling curve, the `Curve`s through them, and the table rows made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from stallpoint.base.curve import Curve
from stallpoint.base.measured import PLACELESS_AXES, POINT, UNKNOWN_PARTS, Measured, Parts, Point
from stallpoint.base.priors import EXTRAPOLATION
from stallpoint.base.statistics import (
    MAX_DEVIATION,
    REPLICATES,
    Ensemble,
    columns,
    columns_of,
    generator,
    is_duration,
    unknown_ensemble,
)
from stallpoint.models.terms.effects import IsolatedComputing
from stallpoint.models.terms.training_cells import FIRST_RANK_COLUMNS, LAYER

Basis: TypeAlias = Literal["measured", "predicted"]


@dataclass(frozen=True)
class Predicted:
    """A predicted point; NaN where a part of the model was not measured."""

    point: Point
    equation: str
    compute_source: str
    parts: Parts
    reading: Ensemble = field(default_factory=unknown_ensemble)
    """t_io: time to read and decode a mini-batch, hidden or not, s."""
    latency_share: Ensemble = field(default_factory=unknown_ensemble)
    """Share of latency in the exposed communication, or in all communication if none is exposed."""
    isolated: IsolatedComputing | None = None
    """Isolated computing; None if its time at this b is unknown."""
    isolated_communication: Ensemble = field(default_factory=unknown_ensemble)
    """Time of the messages on idle workers, s."""
    backward_over_forward: Ensemble | None = None
    """Slowdown of the backward pass by other ranks over that of the forward pass, without communication; None if no
    message overlaps the backward pass."""
    layers: Mapping[str, object] | None = None
    """Predicted columns of layer_times for each layer, without uncertainty."""
    waiting: str = "straggling"
    """Part of the critical path in which ranks wait for each other (`Strategy.waiting`)."""
    excluded_cells: frozenset[str] = frozenset()
    """Cells of this point whose records the prediction did not use; empty if it used all."""

    def times(self, factor: Ensemble) -> Predicted:
        """Return the point with all parts of its time multiplied by `factor`."""
        scaled_parts = {one.name: getattr(self.parts, one.name) * factor for one in fields(Parts)}
        computing = self.isolated and IsolatedComputing(
            **{one.name: getattr(self.isolated, one.name) * factor for one in fields(IsolatedComputing)}
        )
        return replace(
            self,
            parts=Parts(**scaled_parts),
            isolated=computing,
            isolated_communication=self.isolated_communication * factor,
        )


@dataclass(frozen=True, eq=False)
class CurvePoints:
    """Measured and predicted points of a scaling curve, by worker count; the smallest count is a point of the study."""

    points: Mapping[int, Measured]
    """Points of the study, including those whose iterations are composed of parts."""
    predicted: Mapping[int, Predicted]
    """Points predicted by one model for all worker counts, from all cells."""
    held_out: Mapping[int, Predicted] = field(default_factory=dict)
    """Measured points, each predicted without its own cells."""
    withheld: str = ""
    """Why nothing is predicted beyond the measured points; empty if predictions are shown."""
    modelled: Mapping[int, Predicted] = field(default_factory=dict)
    """Uncorrected predictions of the model, if `predicted` are corrected by measured points."""

    @property
    def corrected_curve(self) -> CurvePoints:
        """Return the curve with predictions corrected by `correction` at all counts that were not measured."""
        corrected = {ranks: one.times(self.correction(ranks)) for ranks, one in self.predicted.items()}
        return replace(self, predicted=corrected, modelled=self.predicted)

    @property
    def uncorrected_curve(self) -> CurvePoints:
        """Return the curve as the model predicts it."""
        return replace(self, predicted=self.modelled or self.predicted)

    def correction(self, ranks: int) -> Ensemble:
        """Return the factor that corrects the predicted time at `ranks`; 1 if `ranks` were measured.

        The factor is the measured over the predicted time at the next smaller measured count. With each doubling beyond
        this count the error may grow, as between measured counts and as by the prior: new costs may begin there.
        """
        nearest = max((n for n in self._comparable_counts if n <= ranks), default=0)
        if not nearest or ranks in self.measured:
            return np.ones(1 + REPLICATES)
        error = self.measured[nearest].parts.iteration_time / self.predicted[nearest].parts.iteration_time
        further_error = self._error_of_doubling * np.log2(ranks / nearest)
        return np.asarray(error * np.exp(np.clip(further_error, -MAX_DEVIATION, MAX_DEVIATION)))

    @cached_property
    def _error_of_doubling(self) -> Ensemble:
        """Logarithm of the error that each doubling beyond the measured counts adds."""
        freedom = EXTRAPOLATION.freedom + len(self.errors)
        drawn = generator(0, "carried", *self.origin.series).standard_t(freedom, REPLICATES)
        return np.asarray(self.growth * np.append(0.0, drawn))

    @cached_property
    def _comparable_counts(self) -> list[int]:
        """Worker counts whose iteration time was both measured and predicted."""
        shared_counts = (n for n in self.measured if n in self.predicted)
        return [n for n in shared_counts if _has_time(self.measured[n]) and _has_time(self.predicted[n])]

    @cached_property
    def errors(self) -> dict[int, Ensemble]:
        """Return log(measured time / held-out prediction) by rising measured count, for more than one worker."""
        held_out_counts = sorted(ranks for ranks in self.held_out if ranks > 1 and ranks in self.measured)
        pairs = {ranks: (self.measured[ranks], self.held_out[ranks]) for ranks in held_out_counts}
        return {
            ranks: np.log(seen.parts.iteration_time / model.parts.iteration_time)
            for ranks, (seen, model) in pairs.items()
            if _has_time(seen) and _has_time(model)
        }

    def error(self, ranks: int) -> float:
        """Return the size of the logarithmic error at a measured count, without its noise; 0 if unknown."""
        found = self.errors.get(ranks)
        return 0.0 if found is None else float(np.sqrt(max(found[0] ** 2 - found[1:].var(), 0.0)))

    @cached_property
    def growth(self) -> float:
        """Return the standard deviation of the growth of the error for each doubling of the workers."""
        known = [(self.base, 0.0), *((ranks, float(error[0])) for ranks, error in self.errors.items())]
        steps = [(after - before) / np.log2(n / m) for (m, before), (n, after) in pairwise(known) if n > m]
        squares = EXTRAPOLATION.freedom * EXTRAPOLATION.deviation**2 + sum(step**2 for step in steps)
        return float(np.sqrt(squares / (EXTRAPOLATION.freedom + len(steps))))

    @cached_property
    def measured(self) -> Mapping[int, Measured]:
        """Return the points whose iterations were measured."""
        return {ranks: point for ranks, point in self.points.items() if not point.composed}

    @property
    def base(self) -> int:
        """Return the smallest worker count, to which speedups refer."""
        return min(self.points)

    @property
    def origin(self) -> Point:
        """Return the point on the fewest workers."""
        return self.points[self.base].point

    @property
    def per_node(self) -> int:
        """Return the workers of a full node."""
        return self.origin.workers_per_node

    @property
    def strong(self) -> bool:
        """Return whether the global mini-batch is split (strong scaling) or grows (weak)."""
        return self.origin.scaling == "strong"

    @cached_property
    def seen(self) -> Curve:
        """Return the measured curve; it has no counts if the iteration time at the smallest count is unknown."""
        usable = self.base not in self.measured or _has_time(self.measured[self.base])
        return self._curve_of(self.measured if usable else {})

    @cached_property
    def model(self) -> Curve:
        """Return the curve predicted at all predictable counts."""
        return self._curve_of(self.predicted)

    @cached_property
    def known(self) -> Curve:
        """Return the curve of measured counts, with predictions at other counts. It has no counts if the time at the
        smallest count is unknown."""
        if self.base in self.measured and self.base not in self.seen.rates:
            return self.seen
        predicted_rates = self.model.rates if self.base in self.model.rates else {}
        return replace(self.seen, rates={**predicted_rates, **self.seen.rates})

    def _curve_of(self, points: Mapping[int, Measured | Predicted]) -> Curve:
        rates = {
            ranks: np.asarray(at.point.global_batch / at.parts.iteration_time)
            for ranks, at in points.items()
            if _has_time(at)
        }
        is_placed_once = any(one.placements == 1 for one in self.measured.values())
        return Curve(rates, float(self.per_node), is_placed_once=is_placed_once)

    def basis(self, ranks: int) -> Basis:
        """Return ``measured`` if `ranks` were measured, else ``predicted``."""
        return "measured" if ranks in self.seen.rates else "predicted"

    def at(self, ranks: int) -> Measured | Predicted:
        """Return the point at `ranks`: measured, else predicted."""
        return self.measured[ranks] if self.basis(ranks) == "measured" else self.predicted[ranks]

    def speedup(self, ranks: int, basis: str) -> Ensemble:
        """Return the throughput at `ranks` over that at the smallest count; both are ``measured`` or ``predicted``, as
        `basis` says. NaN if unknown."""
        curve = self.seen if basis == "measured" else self.model
        return curve.speedup(ranks) if {self.base, ranks} <= curve.rates.keys() else unknown_ensemble()


def _has_time(point: Measured | Predicted) -> bool:
    return is_duration(point.parts.iteration_time)


_COMPARED_PARTS = ("forward", "backward", "communication", "exposed_communication", "update")


def predictions(curves: Iterable[CurvePoints], steps: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of the predictions table; `steps` are the measured iterations (`measured.step_rows`)."""
    times, places = steps["iteration_time"], steps.groupby("cell").indices

    def seconds(cells: Iterable[str]) -> float:
        return float(times.iloc[np.sort(np.concatenate([places[cell] for cell in cells]))].mean())

    return [_row(curve, ranks, seconds) for curve in curves for ranks in curve.predicted]


def _row(curve: CurvePoints, ranks: int, seconds: Callable[[Iterable[str]], float]) -> dict[str, object]:
    """Return the row of a point; the function `seconds` returns the mean iteration time of cells."""
    predicted, measured = curve.predicted[ranks], curve.measured.get(ranks)
    predicted_parts, measured_parts = predicted.parts, measured.parts if measured else UNKNOWN_PARTS
    unknown = unknown_ensemble()
    speedups = {basis: curve.speedup(ranks, basis) for basis in ("predicted", "measured")}
    held_out_point = curve.held_out.get(ranks)
    row: dict[str, Any] = {
        **predicted.point.labels("global_batch", "worker_batch"),
        "equation": predicted.equation,
        "extrapolated": measured is None,
        "compute_source": predicted.compute_source,
        "predicted_data": float(predicted.reading[0]),
        "measured_data": float(measured_parts.data_wait[0]),
        # Measured straggling, the residual of the iteration, is in the table critical_path.
        "predicted_straggling": float(predicted_parts.straggling[0]),
        **{f"predicted_{name}": float(getattr(predicted_parts, name)[0]) for name in _COMPARED_PARTS},
        **{f"measured_{name}": float(getattr(measured_parts, name)[0]) for name in _COMPARED_PARTS},
        **columns("predicted_iteration", predicted_parts.iteration_time),
        **columns("measured_iteration", measured_parts.iteration_time),
        **columns_of({f"{basis}_speedup": one for basis, one in speedups.items()}),
        # Efficiency is speedup over the ratio N of workers: strong t1/(N tN), weak t1/tN (Serebryakov 2017).
        **columns_of({f"{basis}_efficiency": one * curve.base / ranks for basis, one in speedups.items()}),
        **columns("held_out_iteration", held_out_point.parts.iteration_time if held_out_point else unknown),
    }
    reference = _reference_seconds(held_out_point, measured, seconds)
    row["error"] = row["held_out_iteration"] / reference - 1 if reference > 0 else np.nan
    return row


def _reference_seconds(
    held_out_point: Predicted | None, measured: Measured | None, seconds: Callable[[Iterable[str]], float]
) -> float:
    """Return the measured iteration time of the cells held out from the prediction."""
    if measured is None or held_out_point is None:
        return float("nan")
    if not held_out_point.excluded_cells:
        return float(measured.parts.iteration_time[0])
    return seconds(held_out_point.excluded_cells)


def rates(curves: Iterable[CurvePoints]) -> list[dict[str, object]]:
    """Return the rows of the rates table, to which laws are fitted: every measured point of every curve."""
    return [
        {
            "series": "/".join(map(str, at.point.series)),
            "workers": at.point.ranks,
            "workers_per_node": at.point.ranks / at.point.nodes,
            "batch_per_worker": float(at.point.worker_batch),
            "samples_per_second": at.point.global_batch / float(at.parts.iteration_time[0]),
        }
        for curve in curves
        for at in curve.measured.values()
        if 0 < float(at.parts.iteration_time[0]) < np.inf
    ]


def layer_times(curves: Iterable[CurvePoints], first_ranks: pd.DataFrame) -> pd.DataFrame:
    """Return the layer_times table, from `TrainingCells.first_ranks`; a point of several curves is predicted once."""
    measured = first_ranks.groupby([*POINT, *LAYER], as_index=False)[list(FIRST_RANK_COLUMNS)].mean()
    predicted_frames = [
        pd.DataFrame({**of.layers, **of.point.labels("global_batch", "worker_batch")})
        for curve in curves
        for of in curve.held_out.values()
        if of.layers is not None
    ]
    if not predicted_frames:
        return measured
    key = [*PLACELESS_AXES, "nodes", "ranks", "global_batch", "worker_batch", "layer_index"]
    predicted_rows = pd.concat(predicted_frames).drop(columns="workers_per_node").drop_duplicates(key)
    return measured.merge(predicted_rows, on=key, how="left")
