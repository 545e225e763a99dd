"""Forward and backward time of every layer at any mini-batch b, from training on one rank.

One rank communicates nothing, so its times are those of "free communication" (Keuper & Pfreundt, section III).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.models.base.measured import POINT
from stallpoint.models.base.statistics import Ensemble, bootstrap, columns, generator, groups, scatter
from stallpoint.models.terms.batch_law import BatchCurve, Kernel
from stallpoint.models.terms.possible import corrections
from stallpoint.models.terms.trainings import TOTALS, MeasuredBatch, Trainings
from stallpoint.records.disturbances import OF_ONE_WORKER

ALL = "all"
"""Stands for every layer type together."""


@dataclass(frozen=True)
class Times:
    """Computing times of one iteration at one b; ensembles, in s."""

    layers_forward: Ensemble
    """[1 + REPLICATES, layers]."""
    layers_backward: Ensemble
    """[1 + REPLICATES, layers]."""
    forward: Ensemble
    """Whole pass; what is more than its layers passes between them."""
    backward: Ensemble
    host_to_device: Ensemble
    update: Ensemble
    source: str
    """``measured at b``, ``interpolated in b`` or ``extrapolated in b``."""

    @property
    def forward_steps(self) -> Ensemble:
        """Forward times of the layers with the time between layers spread evenly over them."""
        return _spread(self.layers_forward, self.forward)

    @property
    def backward_steps(self) -> Ensemble:
        """The same of the backward pass."""
        return _spread(self.layers_backward, self.backward)

    def in_parts(self, parts: int) -> Times:
        """Of a mini-batch that is computed in so many parts, of which this is one."""
        layers = {name: getattr(self, name) * parts for name in _OF_LAYERS}
        whole = {name: getattr(self, name) * parts for name in ("forward", "backward", "host_to_device")}
        return replace(self, **layers, **whole)

    def recomputing(self, layers: npt.NDArray[np.bool_]) -> Times:
        """With the forward pass of these `layers` done again in the backward pass."""
        again = np.where(layers, self.layers_forward, 0.0)
        return replace(self, layers_backward=self.layers_backward + again, backward=self.backward + again.sum(-1))

    def with_shares(self, other: Times, shares: Mapping[int, float]) -> Times:
        """With these shares of what layers take in `other` in place of what they take here."""
        forward, backward = self.layers_forward.copy(), self.layers_backward.copy()
        for layer, share in shares.items():
            forward[:, layer] = share * other.layers_forward[:, layer]
            backward[:, layer] = share * other.layers_backward[:, layer]
        return replace(
            self,
            layers_forward=forward,
            layers_backward=backward,
            forward=self.forward + (forward - self.layers_forward).sum(-1),
            backward=self.backward + (backward - self.layers_backward).sum(-1),
            source=self.source if self.source != "measured at b" else other.source,
        )

    def scaled(self, factor: float | Ensemble) -> Times:
        """All that is computed times `factor`, one or one for each replicate; copying to the device stays as it is."""
        layers = {name: getattr(self, name) * np.reshape(factor, (-1, 1)) for name in _OF_LAYERS}
        whole = {name: getattr(self, name) * factor for name in ("forward", "backward", "update")}
        return replace(self, **layers, **whole)


_OF_LAYERS = ("layers_forward", "layers_backward")


def _spread(layers: Ensemble, whole: Ensemble) -> Ensemble:
    between = np.maximum(whole - layers.sum(-1), 0.0)
    return np.asarray(layers + (between / layers.shape[-1])[:, None])


class Compute:
    """All single-rank cells, by network and hardware."""

    def __init__(self, trainings: Trainings, seed: int, kernels: Mapping[str, Kernel] | None = None) -> None:
        """`kernels` by hardware, those of `matrix_products.libraries`; without one t(b) is a straight line."""
        self._seed = seed
        self._kernels = kernels or {}
        self._pools: dict[tuple[str, ...], Ensemble] = {}
        self._curves: dict[tuple[tuple[str, ...], ...], BatchCurve] = {}
        self.layers = trainings.networks
        self.cells: dict[tuple[str, str], list[MeasuredBatch]] = {}
        alone = trainings.steps[trainings.steps["ranks"] == 1]
        computing = alone.assign(compute=alone["forward"] + alone["backward"])
        self._usual = {at: scatter(rows, POINT, "compute") for at, rows in groups(computing, "hardware")}
        for cell in sorted(trainings.alone.values(), key=lambda cell: (cell.network, cell.hardware, cell.name)):
            self.cells.setdefault((cell.network, cell.hardware), []).append(cell)

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        """Times at b = `batch`; None when no cell tells (one b was measured, and another is asked for).

        Cells that read ahead as the predicted one does are preferred, then compute cells. `without` names
        cells that may not be used: those whose time is to be predicted.
        """
        cells = [cell for cell in self.cells.get((network, hardware), []) if cell.name not in without]
        pools = [_best(at_b, prefetch) for at_b in _by_batch(cells)]
        if not pools:
            return None
        curve = self._possible(network, pools)
        seconds = curve(batch)
        for_rows = self._products(network)
        if hardware in self._kernels and for_rows.any():
            by_rows = BatchCurve(curve.batches, curve.seconds[..., for_rows], self._kernels[hardware])
            seconds = seconds.copy()
            seconds[:, for_rows] = by_rows(batch)
        if np.isnan(seconds).any():
            return None
        count = len(self.layers[network].names)
        forward, backward, copy, update = (seconds[:, index] for index in range(2 * count, 2 * count + 4))
        preposition = "at" if curve.source(batch) == "measured" else "in"
        return Times(
            layers_forward=seconds[:, :count],
            layers_backward=seconds[:, count : 2 * count],
            forward=forward,
            backward=backward,
            host_to_device=copy,
            update=update,
            source=f"{curve.source(batch)} {preposition} b",
        )

    def by_type(self, network: str, hardware: str) -> tuple[list[int], dict[str, Ensemble]]:
        """Measured b, rising, and forward + backward time of each layer type at each, [1 + REPLICATES, len(b)].

        Compute cells where there are any at that b, else whatever ran on one rank.
        """
        pools = [_best(at_b) for at_b in _by_batch(self.cells.get((network, hardware), []))]
        if not pools:
            return [], {}
        curve = self._curve(pools)
        layers = self.layers[network]
        count = len(layers.names)
        seconds = curve.seconds[..., :count] + curve.seconds[..., count : 2 * count]
        types = {str(kind): seconds[..., layers.types == kind].sum(-1) for kind in np.unique(layers.types)}
        return list(curve.batches), {ALL: seconds.sum(-1), **types}

    def _curve(self, pools: list[list[MeasuredBatch]]) -> BatchCurve:
        return BatchCurve(
            [pool[0].worker_batch for pool in pools], np.stack([self._pool(pool) for pool in pools], axis=1)
        )

    def _possible(self, network: str, pools: list[list[MeasuredBatch]]) -> BatchCurve:
        """The curve with all times of a b multiplied by what makes its forward and backward pass possible."""
        key = tuple(tuple(cell.name for cell in pool) for pool in pools)
        if key not in self._curves:
            curve, count = self._curve(pools), len(self.layers[network].names)
            passes = curve.seconds[..., 2 * count] + curve.seconds[..., 2 * count + 1]
            seconds = curve.seconds * corrections(curve.batches, passes)[..., None]
            self._curves[key] = replace(curve, seconds=seconds)
        return self._curves[key]

    def passes(self, network: str, hardware: str, batch: int) -> Ensemble | None:
        """Forward and backward pass as measured at b = `batch`, s; None where no cell has it."""
        cells = [cell for cell in self.cells.get((network, hardware), []) if cell.worker_batch == batch]
        if not cells:
            return None
        count = len(self.layers[network].names)
        seconds = self._pool(_best(cells))
        return np.asarray(seconds[:, 2 * count] + seconds[:, 2 * count + 1])

    def _products(self, network: str) -> npt.NDArray[np.bool_]:
        """Which quantities are times of matrix products with b rows: forward and backward of fully-connected layers."""
        rows = self.layers[network].types == "fully-connected"
        return np.concatenate([rows, rows, np.zeros(len(TOTALS), dtype=np.bool_)])

    def _pool(self, cells: list[MeasuredBatch]) -> Ensemble:
        key = tuple(cell.name for cell in cells)
        if key not in self._pools:
            values = np.concatenate([cell.seconds for cell in cells])
            repeats = len({cell.repeat for cell in cells}) > 1  # as `statistics.visits_of`
            visits = [
                str(cell.repeat) if repeats else f"{cell.name}/{visit}" for cell in cells for visit in cell.visits
            ]
            random = generator(self._seed, "compute", *key)
            self._pools[key] = bootstrap(values, visits, random, np.mean, self._usual[cells[0].hardware])
        return self._pools[key]


def layer_scaling(compute: Compute, counts: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of the layer_scaling table: share and speedup of each layer type against b; `disturbances.counts`."""
    of_points: dict[tuple[object, ...], dict[str, int]] = {}
    for *point, iterations, disturbed in counts[[*OF_ONE_WORKER, "iterations", "disturbed"]].to_numpy(object):
        here = of_points.setdefault(tuple(point), {"iterations": 0, "disturbed": 0})
        here["iterations"] += iterations
        here["disturbed"] += disturbed
    rows = [row for network, hardware in compute.cells for row in _scaling_rows(compute, network, hardware)]
    return [{**row, **of_points[tuple(row[name] for name in OF_ONE_WORKER)]} for row in rows]


def _by_batch(cells: list[MeasuredBatch]) -> list[list[MeasuredBatch]]:
    """Cells of the same b together, b rising."""
    batches = sorted({cell.worker_batch for cell in cells})
    return [[cell for cell in cells if cell.worker_batch == batch] for batch in batches]


def _best(cells: list[MeasuredBatch], prefetch: int | None = None) -> list[MeasuredBatch]:
    """The cells that resemble the predicted one most."""

    def likeness(cell: MeasuredBatch) -> tuple[bool, bool]:
        return prefetch is None or (cell.prefetch > 0) == (prefetch > 0), cell.scaling == "compute"

    best = max(map(likeness, cells))
    return [cell for cell in cells if likeness(cell) == best]


def _scaling_rows(compute: Compute, network: str, hardware: str) -> Iterator[dict[str, object]]:
    batches, seconds = compute.by_type(network, hardware)
    for kind, times in seconds.items():
        for index, batch in enumerate(batches):
            labels = {"network": network, "hardware": hardware, "layer_type": kind, "worker_batch": batch}
            here, largest = times[:, index], times[:, -1]
            with np.errstate(
                divide="ignore", invalid="ignore"
            ):  # no share of nothing, no speedup of what takes no time
                share, speedup = here / seconds[ALL][:, index], largest / here
            yield labels | _columns({"seconds": here, "share": share, "speedup": speedup})


def _columns(quantities: Mapping[str, Ensemble]) -> dict[str, object]:
    return {column: value for name, ensemble in quantities.items() for column, value in columns(name, ensemble).items()}
