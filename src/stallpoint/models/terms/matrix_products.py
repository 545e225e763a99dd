"""Matrix products by b: their speedup (Keuper & Pfreundt, section III-B), and the law that explains it.

A fully-connected layer with I inputs and O outputs multiplies b x I · I x O. At small b, all weights are read from
memory for few operations, so the time has a floor independent of b. The roofline is the shortest time that peak and
bandwidth allow, max(operations / peak, bytes / bandwidth). Both are measured in the same job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from stallpoint.base.frames import refuse_wrong_rows
from stallpoint.base.statistics import Ensemble, bootstrap, columns_of, generator, groups, scatter, visits_of
from stallpoint.models.terms.batch_law import (
    LINEAR_KERNEL,
    MIN_BATCHES_TO_CHOOSE,
    BatchTimes,
    Bend,
    Kernel,
    choose_kernel,
    fit,
    held_out_errors,
)
from stallpoint.records.tables import MACHINE
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.sgemm_kind import SgemmCell

KERNEL_CHOICES = (
    LINEAR_KERNEL,
    *(Kernel(block, sharpness) for block, sharpness in product((1, 2, 4, 8, 16, 32, 64, 128), (1.0, 2.0, 4.0, 8.0))),
    *(Kernel(block, 1.0, min_rows) for block, min_rows in product((1, 2, 4, 8, 16), (2, 3, 4, 8, 16))),
)
"""Candidate kernels, the simplest first."""


@dataclass(frozen=True)
class MachineLimits:
    """Limits of one worker's share of a node, measured in the same job as the products."""

    peak: float
    """Operations per second in a large square product."""
    bandwidth: float
    """Bytes per second when a matrix larger than the caches is read once."""
    value_bytes: int
    """Bytes of each multiplied number."""

    def roofline_seconds(self, m: int, k: int, n: int) -> float:
        """Return the seconds of m x k · k x n as limited only by peak or bandwidth."""
        return max(2.0 * m * k * n / self.peak, self.value_bytes * (k * n + m * (k + n)) / self.bandwidth)


@dataclass(frozen=True)
class MachineProducts:
    """Properties common to all matrix products of a machine."""

    kernel: Kernel
    """The law."""
    bent_kernel: Kernel | None
    """floor + each · b, bent like the product ``rows``, if it was measured."""


@dataclass(frozen=True)
class ShapeTimes:
    """Times of one shape at its mini-batches."""

    name: str
    layer_type: str
    k: int
    n: int
    batches: Sequence[int]
    operations: Sequence[float]
    """Multiplications and additions at each b."""
    seconds: Ensemble
    """[1 + REPLICATES, len(batches), 1]."""
    rows_are_batch: bool
    """Whether b is the number of rows, as in fully-connected layers; else each sample has its own products."""

    def curve(self, library: MachineProducts) -> BatchTimes:
        """Return the times at any b; the library's kernel applies if b is the number of rows.

        Small matrices, which stay in a cache, may not bend like the shape measured at many b; held-out b decide.
        """
        if not self.rows_are_batch:
            return BatchTimes(self.batches, self.seconds)
        kernel = library.kernel
        if library.bent_kernel and len(self.batches) >= MIN_BATCHES_TO_CHOOSE:
            kernel = min(kernel, library.bent_kernel, key=self._held_out_error)
        return BatchTimes(self.batches, self.seconds, kernel)

    def _held_out_error(self, kernel: Kernel) -> float:
        return float(np.mean(held_out_errors(self.batches, self.seconds, kernel)))


def with_value_bytes(sgemm: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `sgemm` with ``value_bytes``, the bytes of a value in the precision of each row's cell."""
    rows = runs[runs["kind"] == SgemmCell.kind]
    cells = zip(rows["cell"], map(cell_from_json, rows["settings"]), strict=True)
    sizes = {path: cell.value_bytes for path, cell in cells}
    return sgemm.assign(value_bytes=sgemm["cell"].map(sizes))


def machine(sgemm: pd.DataFrame) -> MachineLimits | None:
    """Return peak and bandwidth, from the rows of `sgemm` (`with_value_bytes`) that measured them; None without any."""
    rows = sgemm[sgemm["layer_type"] == MACHINE]
    peak, bandwidth = (rows[rows["layer"] == name] for name in ("peak", "bandwidth"))
    if peak.empty or bandwidth.empty:
        return None
    size = bandwidth["k"] * bandwidth["n"] + bandwidth["m"] * (bandwidth["k"] + bandwidth["n"])
    return MachineLimits(
        peak=float(peak["gflops"].median()) * 1e9,
        bandwidth=float((bandwidth["value_bytes"] * size * bandwidth["operations"] / bandwidth["seconds"]).median()),
        value_bytes=int(bandwidth["value_bytes"].iloc[0]),
    )


def shapes(sgemm: pd.DataFrame, seed: int) -> list[ShapeTimes]:
    """Return the times of each shape in `sgemm` (of one hardware entry), except peak and bandwidth.

    Raises `InputError` for a time that is not above 0.
    """
    refuse_wrong_rows(sgemm, "sgemm", ["seconds"], above_zero=True)
    found = []
    usual = scatter(sgemm, ["layer", "worker_batch"], "seconds")
    # Rows are grouped by layer. Layers of equal shape bear the name of the first; which are equal may depend on b.
    for name, rows in groups(sgemm[~sgemm["layer"].isin(["peak", "bandwidth"])], "layer"):
        rows_by_batch = dict(groups(rows, "worker_batch"))
        samples = [
            bootstrap(at_b["seconds"], visits_of(at_b), generator(seed, "sgemm", name, b), prior=usual)
            for b, at_b in rows_by_batch.items()
        ]
        first = rows.iloc[0]
        work = [2.0 * float((at_b[["m", "k", "n", "operations"]].iloc[0]).prod()) for at_b in rows_by_batch.values()]
        found.append(
            ShapeTimes(
                name=str(name),
                layer_type=str(first["layer_type"]),
                k=int(first["k"]),
                n=int(first["n"]),
                batches=[int(b) for b in rows_by_batch],
                operations=work,
                seconds=np.stack(samples, axis=1)[..., None],
                rows_are_batch=bool((rows["m"] == rows["worker_batch"]).all()),
            )
        )
    return found


def products(sgemm: pd.DataFrame, seed: int) -> dict[tuple[str, str], list[ShapeTimes]]:
    """Return the times of each shape by network and hardware; shapes that only describe the machine are excluded."""
    network_rows = sgemm[sgemm["layer_type"] != MACHINE]
    return {key: shapes(rows, seed) for key, rows in groups(network_rows, ["network", "hardware"])}


def libraries(sgemm: pd.DataFrame, seed: int) -> dict[str, MachineProducts]:
    """Return the kernel models of each hardware entry, from the matrix products of all networks."""
    return {hardware: _library(shapes(_pooled(rows), seed)) for hardware, rows in groups(sgemm, "hardware")}


def _library(measured: Sequence[ShapeTimes]) -> MachineProducts:
    """Return a kernel for all shapes with b rows, and one with the bends of the shape that was measured at many b."""
    law = choose_kernel([(shape.batches, shape.seconds) for shape in measured if shape.rows_are_batch], KERNEL_CHOICES)
    return MachineProducts(law, next((_bent_kernel(shape) for shape in measured if shape.layer_type == MACHINE), None))


def _bent_kernel(rows: ShapeTimes) -> Kernel | None:
    """Return the kernel that reproduces the measured times of the shape `rows`; None if only one b was measured."""
    if len(rows.batches) < 2:
        return None
    off = rows.seconds[0, :, 0] / fit(rows.batches, rows.seconds)(rows.batches)[0, :, 0]
    return Kernel(bend=Bend(tuple(map(float, rows.batches)), tuple(off.tolist())))


def _pooled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the products of all networks under distinct names; shapes of the machine belong to all networks."""
    is_network_product = ~rows["layer_type"].eq(MACHINE) & ~rows["layer"].eq("reference")
    return rows.assign(layer=rows["layer"].where(~is_network_product, rows["network"] + "/" + rows["layer"]))


def sgemm_speedup(sgemm: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Return the rows of the sgemm_speedup table: matrix products by b (Keuper & Pfreundt, section III-B)."""
    return [row for key, rows in groups(sgemm, ["network", "hardware"]) for row in _speedup_rows(key, rows, seed)]


def _speedup_rows(key: tuple[str, str], rows: pd.DataFrame, seed: int) -> Iterator[dict[str, object]]:
    known = machine(rows)
    for shape in shapes(rows[rows["layer_type"] != MACHINE], seed):
        largest = shape.seconds[:, -1, 0]
        for index, b in enumerate(shape.batches):
            seconds = shape.seconds[:, index, 0]
            labels = {"network": key[0], "hardware": key[1], "layer": shape.name, "layer_type": shape.layer_type}
            quantities = {
                "seconds": seconds,
                "gflops": shape.operations[index] / seconds / 1e9,
                "speedup": largest / seconds,
            }
            roofline = known.roofline_seconds(b, shape.k, shape.n) if known and shape.rows_are_batch else np.nan
            yield {**labels, "worker_batch": b, **columns_of(quantities), "roofline": roofline}
