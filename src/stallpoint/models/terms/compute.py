"""Forward and backward time of every layer at any mini-batch b, from training on one rank.

One rank communicates nothing, so its times are those of "free communication" (Keuper & Pfreundt, section III).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.measured import POINT
from stallpoint.base.statistics import (
    INTERVAL,
    MIN_SCATTER,
    Ensemble,
    Reals,
    bootstrap,
    columns_of,
    generator,
    groups,
    scatter,
)
from stallpoint.models.terms.batch_law import BatchTimes, Kernel
from stallpoint.models.terms.training_cells import TOTAL_COLUMNS, IsolatedCell, TrainingCells
from stallpoint.records.disturbances import ONE_WORKER_COLUMNS

_MAX_SWEEPS = 60  # Dykstra's algorithm sweeps over all steps from one b to the next; it converges geometrically
_TOLERANCE = 1e-6  # sweeps end when no step of log time is further than this outside its plausible range


def corrections(batches: Sequence[int], seconds: Ensemble) -> Ensemble:
    """Return the factors that make `seconds` [1 + REPLICATES, len(batches)] plausible; 1 where they already are.

    Times are plausible if t(b) <= t(b') <= (b'/b) · t(b) for b < b': fewer samples take no longer, and a sample is not
    faster in a smaller mini-batch. A slow spell of the machine at one b makes another b look superlinear. If the
    scatter of visits explains an implausible step, the nearest plausible times are taken. Distances are squares of
    logarithms over the variance of each time, so uncertain times move most. Other implausible steps stay, such as
    that of samples that fit into a cache. If any time is not a positive number, all times stay.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(seconds)
    factors = np.ones_like(seconds)
    usable = np.isfinite(logs).all(-1)
    if len(batches) > 1 and usable.all():
        variance = np.maximum(logs[1:].var(0), MIN_SCATTER**2)
        step_bounds = _step_bounds(logs, batches)
        members = _violation(logs, step_bounds) > _TOLERANCE
        factors[members] = np.exp(_nearest_plausible(logs[members], step_bounds[:, members], variance) - logs[members])
    return factors


def _step_bounds(logs: Reals, batches: Sequence[int]) -> Reals:
    """Return the smallest and the largest plausible step of log time to the next b, [2, 1 + REPLICATES, steps]. Steps
    that scatter does not explain count as plausible."""
    steps, linear = np.diff(logs), np.diff(np.log(np.asarray(batches, dtype=np.float64)))
    low, high = np.quantile(steps[1:], ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2), axis=0)
    smallest = np.where(high < -_TOLERANCE, np.minimum(steps, 0.0), 0.0)
    return np.stack([smallest, np.where(low > linear + _TOLERANCE, np.maximum(steps, linear), linear)])


def _violation(logs: Reals, step_bounds: Reals) -> Reals:
    """Return the largest amount by which a step of log time to the next b is outside of its `step_bounds`."""
    steps = np.diff(logs)
    return np.asarray(np.maximum(step_bounds[0] - steps, steps - step_bounds[1]).max(-1))


def _nearest_plausible(logs: Reals, step_bounds: Reals, variance: Reals) -> Reals:
    """Return the nearest plausible times, by projection (Dykstra 1983, "An algorithm for restricted least squares")."""
    low, high = step_bounds
    found, increments = logs.copy(), np.zeros((low.shape[-1], *logs.shape))
    for _ in range(_MAX_SWEEPS):
        for left in range(low.shape[-1]):
            candidate_times = found + increments[left]
            log_step = candidate_times[:, left + 1] - candidate_times[:, left]
            over = log_step - np.clip(log_step, low[:, left], high[:, left])
            both = variance[left] + variance[left + 1]
            found = candidate_times.copy()
            found[:, left] += over * variance[left] / both
            found[:, left + 1] -= over * variance[left + 1] / both
            increments[left] = candidate_times - found
        if (_violation(found, step_bounds) <= _TOLERANCE).all():
            break
    for left in range(low.shape[-1]):  # a last pass removes the violations that the sweeps left
        found[:, left + 1] = np.clip(found[:, left + 1], found[:, left] + low[:, left], found[:, left] + high[:, left])
    return found


ALL_LAYER_TYPES = "all"
"""Sum over all layer types."""


@dataclass(frozen=True)
class Times:
    """Computing times of one iteration at one b; ensembles, s."""

    layers_forward: Ensemble
    """[1 + REPLICATES, layers]."""
    layers_backward: Ensemble
    """[1 + REPLICATES, layers]."""
    forward: Ensemble
    """Complete pass; the excess over the layers is spent between them."""
    backward: Ensemble
    host_to_device: Ensemble
    update: Ensemble
    source: str
    """``measured at b``, ``interpolated in b`` or ``extrapolated in b``."""

    @property
    def forward_steps(self) -> Ensemble:
        """Return the forward times of the layers, with the time between layers spread evenly over them."""
        return _spread(self.layers_forward, self.forward)

    @property
    def backward_steps(self) -> Ensemble:
        """Return the backward times of the layers, with the time between layers spread evenly over them."""
        return _spread(self.layers_backward, self.backward)

    def in_parts(self, parts: int) -> Times:
        """Return the times of a mini-batch that is computed in `parts` parts, each of which takes these times."""
        layers = {name: getattr(self, name) * parts for name in _LAYER_FIELDS}
        totals = {name: getattr(self, name) * parts for name in ("forward", "backward", "host_to_device")}
        return replace(self, **layers, **totals)

    def with_added_backward(self, seconds: Ensemble, shares: Reals) -> Times:
        """Return the times with `seconds` added to the backward pass, divided among layers by `shares`."""
        layers = self.layers_backward + seconds[:, None] * shares
        return replace(self, layers_backward=layers, backward=self.backward + seconds)

    def with_recomputation(self, layers: npt.NDArray[np.bool_]) -> Times:
        """Return the times with the forward pass of `layers` repeated in the backward pass."""
        forward = np.where(layers, self.layers_forward, 0.0)
        return replace(self, layers_backward=self.layers_backward + forward, backward=self.backward + forward.sum(-1))

    def with_layer_shares(self, other: Times, shares: Mapping[int, float]) -> Times:
        """Return the times with each layer in `shares` replaced by that share of its times in `other`."""
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

    def scaled(self, factor: float) -> Times:
        """Return the times, except copying, multiplied by `factor`."""
        scaled_fields = ("forward", "backward", "update", *_LAYER_FIELDS)
        return replace(self, **{name: getattr(self, name) * factor for name in scaled_fields})


_LAYER_FIELDS = ("layers_forward", "layers_backward")


def _spread(layers: Ensemble, total: Ensemble) -> Ensemble:
    between = np.maximum(total - layers.sum(-1), 0.0)
    return np.asarray(layers + (between / layers.shape[-1])[:, None])


class Compute:
    """Computing times of networks by b, from all single-rank cells."""

    def __init__(self, training_cells: TrainingCells, seed: int, kernels: Mapping[str, Kernel] | None = None) -> None:
        """Take `kernels` by hardware (of `matrix_products.libraries`); without a kernel, t(b) is a straight line."""
        self._seed = seed
        self._kernels = kernels or {}
        self._pools: dict[tuple[str, ...], Ensemble] = {}
        self._curves: dict[tuple[tuple[str, ...], ...], BatchTimes] = {}
        self.layers = training_cells.networks
        self.cells: dict[tuple[str, str], list[IsolatedCell]] = {}
        isolated = training_cells.steps[training_cells.steps["ranks"] == 1]
        computing = isolated.assign(compute=isolated["forward"] + isolated["backward"])
        self._usual = {at: scatter(rows, POINT, "compute") for at, rows in groups(computing, "hardware")}
        for cell in sorted(training_cells.isolated.values(), key=lambda cell: (cell.network, cell.hardware, cell.name)):
            self.cells.setdefault((cell.network, cell.hardware), []).append(cell)

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        """Return the times at b = `batch`; None if only another b was measured.

        Cells that prefetch like the predicted one are preferred, then compute cells; cells in `without` are not used.
        """
        cells = [cell for cell in self.cells.get((network, hardware), []) if cell.name not in without]
        cell_pools = [_most_similar_cells(at_b, prefetch) for at_b in _cells_by_batch(cells)]
        if not cell_pools:
            return None
        curve = self._corrected_curve(network, cell_pools)
        seconds = curve(batch)
        is_row_product = self._products(network)
        if hardware in self._kernels and is_row_product.any():
            row_product_times = BatchTimes(curve.batches, curve.seconds[..., is_row_product], self._kernels[hardware])
            seconds = seconds.copy()
            seconds[:, is_row_product] = row_product_times(batch)
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

    def seconds_by_layer_type(self, network: str, hardware: str) -> tuple[list[int], dict[str, Ensemble]]:
        """Return the measured b, rising, and forward + backward time of each layer type, [1 + REPLICATES, len(b)].

        At each b the times are from compute cells; without these, from all cells on one rank.
        """
        cell_pools = [_most_similar_cells(at_b) for at_b in _cells_by_batch(self.cells.get((network, hardware), []))]
        if not cell_pools:
            return [], {}
        curve = self._curve(cell_pools)
        layers = self.layers[network]
        count = len(layers.names)
        seconds = curve.seconds[..., :count] + curve.seconds[..., count : 2 * count]
        types = {str(kind): seconds[..., layers.types == kind].sum(-1) for kind in np.unique(layers.types)}
        return list(curve.batches), {ALL_LAYER_TYPES: seconds.sum(-1), **types}

    def _curve(self, cell_pools: list[list[IsolatedCell]]) -> BatchTimes:
        return BatchTimes(
            [pool[0].worker_batch for pool in cell_pools], np.stack([self._pool(pool) for pool in cell_pools], axis=1)
        )

    def _corrected_curve(self, network: str, cell_pools: list[list[IsolatedCell]]) -> BatchTimes:
        """Return the times by b. `corrections` of forward + backward gives one factor on all times at a b."""
        key = tuple(tuple(cell.name for cell in pool) for pool in cell_pools)
        if key not in self._curves:
            curve, count = self._curve(cell_pools), len(self.layers[network].names)
            passes = curve.seconds[..., 2 * count] + curve.seconds[..., 2 * count + 1]
            seconds = curve.seconds * corrections(curve.batches, passes)[..., None]
            self._curves[key] = replace(curve, seconds=seconds)
        return self._curves[key]

    def passes(self, network: str, hardware: str, batch: int) -> Ensemble | None:
        """Return the measured time of forward + backward pass at b = `batch`, s; None if no cell has this b."""
        cells = [cell for cell in self.cells.get((network, hardware), []) if cell.worker_batch == batch]
        if not cells:
            return None
        count = len(self.layers[network].names)
        seconds = self._pool(_most_similar_cells(cells))
        return np.asarray(seconds[:, 2 * count] + seconds[:, 2 * count + 1])

    def _products(self, network: str) -> npt.NDArray[np.bool_]:
        """Return whether each time is that of a matrix product with b rows, as in fully-connected layers."""
        rows = self.layers[network].types == "fully-connected"
        return np.concatenate([rows, rows, np.zeros(len(TOTAL_COLUMNS), dtype=np.bool_)])

    def _pool(self, cells: list[IsolatedCell]) -> Ensemble:
        key = tuple(cell.name for cell in cells)
        if key not in self._pools:
            values = np.concatenate([cell.seconds for cell in cells])
            repeats = len({cell.repeat for cell in cells}) > 1  # several repeats count as visits (`visits_of`)
            visits = [
                str(cell.repeat) if repeats else f"{cell.name}/{visit}" for cell in cells for visit in cell.visits
            ]
            random = generator(self._seed, "compute", *key)
            self._pools[key] = bootstrap(values, visits, random, np.mean, self._usual[cells[0].hardware])
        return self._pools[key]


def layer_scaling(compute: Compute, counts: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of the layer_scaling table: layer types by b. `counts` are those of `disturbances.counts`."""
    counts_by_point: dict[tuple[object, ...], dict[str, int]] = {}
    for *point, iterations, disturbed in counts[[*ONE_WORKER_COLUMNS, "iterations", "disturbed"]].to_numpy(object):
        here = counts_by_point.setdefault(tuple(point), {"iterations": 0, "disturbed": 0})
        here["iterations"] += iterations
        here["disturbed"] += disturbed
    rows = [row for network, hardware in compute.cells for row in _scaling_rows(compute, network, hardware)]
    return [{**row, **counts_by_point[tuple(row[name] for name in ONE_WORKER_COLUMNS)]} for row in rows]


def _cells_by_batch(cells: list[IsolatedCell]) -> list[list[IsolatedCell]]:
    """Return the cells in groups of equal b, by rising b."""
    batches = sorted({cell.worker_batch for cell in cells})
    return [[cell for cell in cells if cell.worker_batch == batch] for batch in batches]


def _most_similar_cells(cells: list[IsolatedCell], prefetch: int | None = None) -> list[IsolatedCell]:
    """Return the cells most like the predicted one: equal prefetching counts first, then being a compute cell."""

    def similarity(cell: IsolatedCell) -> tuple[bool, bool]:
        return prefetch is None or (cell.prefetch > 0) == (prefetch > 0), cell.scaling == "compute"

    best = max(map(similarity, cells))
    return [cell for cell in cells if similarity(cell) == best]


def _scaling_rows(compute: Compute, network: str, hardware: str) -> Iterator[dict[str, object]]:
    batches, seconds = compute.seconds_by_layer_type(network, hardware)
    for kind, times in seconds.items():
        for index, batch in enumerate(batches):
            labels = {"network": network, "hardware": hardware, "layer_type": kind, "worker_batch": batch}
            here, largest = times[:, index], times[:, -1]
            with np.errstate(divide="ignore", invalid="ignore"):  # the divisors may be 0
                share, speedup = here / seconds[ALL_LAYER_TYPES][:, index], largest / here
            yield labels | columns_of({"seconds": here, "share": share, "speedup": speedup})
