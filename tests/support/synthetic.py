"""A made-up study whose causes are known: fits must find them again, predictions must agree with its records.

`study` gives all tidy tables, as the collect stage would. Nothing here uses `stallpoint.models`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from stallpoint.measure.recorder import constants
from stallpoint.records.parquet import write_cell
from stallpoint.records.tables import TABLES, TIDY_TABLES
from stallpoint.strategies.families.servers_family import Served
from stallpoint.strategies.presets import PRESETS, Preset, preset_from
from stallpoint.strategies.presets import to_values as preset_values
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.convergence_kind import MAX_STEPS, TARGET, ConvergenceCell, outcome
from stallpoint.study.kinds.copies_kind import CopiesCell
from stallpoint.study.kinds.intervention_kind import InterventionCell
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.study.kinds.storage_kind import StorageCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.recipes import RECIPES, recipe_from, to_values

MIN_STEPS, CRITICAL = 4.0, 512.0
"""Steps to a target, but for a factor, however large B is; and B from which it needs half of them."""

Rows: TypeAlias = dict[str, list[dict[str, Any]]]
Reals: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """One layer: its times are ``fixed + each * b`` seconds; the backward pass takes twice the forward pass."""

    name: str
    type: str
    fixed: float
    each: float
    gradient_bytes: int = 0


NETWORK = (
    Layer("conv1", "convolution", 0.2e-3, 0.40e-3, 140_000),
    Layer("relu1", "relu", 0.1e-3, 0.02e-3),
    Layer("pool1", "pooling", 0.3e-3, 0.02e-3),
    Layer("conv2", "convolution", 0.2e-3, 0.30e-3, 1_230_000),
    Layer("fc6", "fully-connected", 12e-3, 0.10e-3, 30_000_000),
    Layer("fc7", "fully-connected", 6e-3, 0.05e-3, 12_000_000),
    Layer("loss", "loss", 0.1e-3, 0.001e-3),
)


OPERATIONS = {"stat": 20e-6, "open": 50e-6, "decode": 0.4e-3, "checkpoint write": 0.5}
"""What else is done with a storage, s each."""


@dataclass(frozen=True)
class Truth:
    """What the made-up cluster is like."""

    layers: tuple[Layer, ...] = NETWORK
    alpha: float = 200e-6
    """Latency of one step of the ring all-reduce, s."""
    beta: float = 0.8e-9
    """Time for each byte, s/B."""
    inside: tuple[float, float] | None = None
    """Both inside a node, where the workers of a node reduce before the nodes do; None: ranks are all alike."""
    read: float = 0.10e-3
    """Reading one sample from an idle storage, s."""
    contention: float = 0.5
    """Storage ``shared``: each further node slows every read by this part."""
    decode: float = 0.40e-3
    """Decoding one sample, s."""
    update: float = 4e-3
    """Model update, s."""
    slower: float = 1.0
    """Layers take so many times as long on several ranks as on one: they share caches with the communication."""
    lag: float = 1.0
    """The last of several workers computes so many times as long as the others."""
    delay: float = 0.0
    """In training, each round of a message waits so long for a core, s."""
    factors: tuple[float, float] = (0.01, 2e-9)
    """Of PowerSGD: bytes sent over those of gradients, and the time to make factors of a byte of gradients, s."""
    memory: float = 2e7
    """Memory for each sample, B."""
    noise: float = 0.02
    """Standard deviation of the logarithm of every measured time."""

    @property
    def gradient_bytes(self) -> int:
        """Of all layers."""
        return sum(layer.gradient_bytes for layer in self.layers)

    @property
    def fixed_memory(self) -> float:
        """Memory that does not depend on the mini-batch, B: the process, weights, gradients and momenta."""
        return 3e8 + 3 * self.gradient_bytes

    def all_reduce(self, ranks: int, size: float, per_node: int = 1) -> float:
        """Ring all-reduce of `size` bytes, s; nothing to do for one rank or an empty buffer."""
        if self.inside is None:
            return _ring(ranks, size, self.alpha, self.beta)
        return _ring(per_node, size, *self.inside) + _ring(ranks // per_node, size, self.alpha, self.beta)

    def message(self, ranks: int, size: float, per_node: int = 1, *, factored: bool = False) -> float:
        """The same in training, s; or of what is `factored`, three of them, and making the factors."""
        if factored:
            share, making = self.factors
            return 3 * self.message(ranks, share * size / 3, per_node) + making * size
        return self.all_reduce(ranks, size, per_node) + (self.delay * np.ceil(np.log2(ranks)) if size else 0.0)

    def layer(self, layer: Layer, b: int, ranks: int) -> float:
        """Forward pass of a layer, s; the backward pass takes twice as long."""
        return (layer.fixed + layer.each * b) * (self.slower if ranks > 1 else 1.0)

    def read_seconds(self, storage: str, nodes: int) -> float:
        """Reading one sample while `nodes` nodes read at once, s."""
        return self.read * (1 + self.contention * (nodes - 1) if storage == "shared" else 1)

    def iteration(self, cell: TrainCell) -> float:
        """Iteration without noise (Shi et al., eqs. (2), (3) and (5), with the update kept), s."""
        b = cell.worker_batch
        forward = sum(self.layer(layer, b, cell.ranks) for layer in self.layers)
        ready, done, total = 0.0, 0.0, 0.0
        for layer in reversed(self.layers):
            seconds = (
                self.message(cell.ranks, layer.gradient_bytes, cell.workers_per_node) if cell.sync != "none" else 0.0
            )
            ready += 2 * self.layer(layer, b, cell.ranks)
            done = max(done, ready) + seconds
            total += seconds
        exposed = done - ready if cell.sync == "wfbp" else total
        compute = 3 * forward + exposed + self.update
        data = b * (self.read_seconds(cell.storage, cell.nodes) + self.decode)
        return max(data / cell.readers, compute) if cell.prefetch else data + compute


def _ring(parties: int, size: float, alpha: float, beta: float) -> float:
    return 2 * (parties - 1) * (alpha + beta * size / parties) if size else 0.0


def made_once(make: Callable[..., dict[str, pd.DataFrame]]) -> Callable[..., dict[str, pd.DataFrame]]:
    """`make`, whose last results are kept: tests ask for the same again, and get copies."""
    kept: dict[str, dict[str, pd.DataFrame]] = {}

    @wraps(make)
    def copies(*arguments: Any, **options: Any) -> dict[str, pd.DataFrame]:
        key = repr((arguments, options))
        if key not in kept:
            kept[key] = make(*arguments, **options)
        if len(kept) > 8:
            del kept[next(iter(kept))]
        return {name: rows.copy() for name, rows in kept[key].items()}

    return copies


@made_once
def study(
    truth: Truth | None = None,
    *,
    networks: Sequence[str] = ("alexnet",),
    hardware: str = "cpu",
    nodes: Sequence[int] = (1, 2, 4),
    workers_per_node: int = 1,
    places: Sequence[tuple[int, int]] | None = None,
    batch: int = 64,
    storages: Sequence[str] = ("local", "shared"),
    syncs: Sequence[str] = ("naive", "wfbp"),
    prefetches: Sequence[int] = (0, 2),
    weak: bool = True,
    compute_batches: Sequence[int] = (64, 32, 16, 8, 4),
    larger_batches: Sequence[int] = (1, 4),
    repeats: int = 2,
    iterations: int = 6,
    visits: int = 1,
    seed: int = 0,
) -> dict[str, pd.DataFrame]:
    """All tidy tables of the made-up study: strong, `weak` and compute scaling, sgemm, collectives, storage.

    `places` are nodes and workers on each, in place of all `nodes` with `workers_per_node`. Runs to a target and to
    the end of their epochs have `batch` times each of `larger_batches`.

    Training cells have `iterations` (and warm-up) in each of their `visits`, other cells one visit.

    One train cell at 8 nodes failed for want of memory, and is in ``runs`` alone.
    """
    truth = truth or Truth()
    rng = np.random.default_rng(seed)
    rows: Rows = {table.name: [] for table in TIDY_TABLES}

    places = places or [(n, workers_per_node) for n in nodes]

    def common(n: int, repeat: int, workers: int) -> dict[str, Any]:
        return {
            "hardware": hardware, "nodes": n, "repeat": repeat, "workers_per_node": workers, "device": "cpu",
            "threads_per_worker": 1, "seed": seed, "precision": "float32", "anonymise": False,
        }  # fmt: skip

    def train(network: str, n: int, workers: int, repeat: int, axes: dict[str, Any]) -> TrainCell:
        b = batch // (n * workers) if axes["scaling"] == "strong" else axes["batch"]
        return TrainCell(
            **common(n, repeat, workers), network=network, worker_batch=b, iterations=iterations, warmup=1, readers=2,
            visits=visits,
            storage_path=f"data/{axes['storage']}", storage_format="images",
            preset=preset_values(Preset() if axes["scaling"] == "compute" else PRESETS[axes["sync"]].preset),
            own_network=None, **axes,
        )  # fmt: skip

    for network, repeat in product(networks, range(1, repeats + 1)):
        for place, storage, sync, prefetch in product(places, storages, syncs, prefetches):
            axes = {"scaling": "strong", "batch": batch, "storage": storage, "sync": sync, "prefetch": prefetch}
            _train_rows(truth, train(network, *place, repeat, axes), rng, rows)
        for place in places if weak else []:
            axes = {"scaling": "weak", "batch": batch // 4, "storage": storages[0], "sync": syncs[-1]}
            _train_rows(truth, train(network, *place, repeat, {**axes, "prefetch": prefetches[-1]}), rng, rows)
        for b in compute_batches:
            axes = {"scaling": "compute", "batch": b, "storage": storages[0], "sync": "none"}
            _train_rows(truth, train(network, 1, 1, repeat, {**axes, "prefetch": prefetches[0]}), rng, rows)
        # Of three mini-batches no law is chosen, which takes a fit of many.
        cell = SgemmCell(**common(1, repeat, 1), network=network, batches=[4, 16, 64], samples=5, own_network=None)
        _sgemm_rows(truth, cell, rng, rows)
    for repeat, (n, workers) in product(range(1, repeats + 1), places):
        scheme = {"backend": "mpi", "reduction": "library"}
        sizes = [2**10, 2**14, 2**18, 2**22, 2**26]
        if n * workers > 1:
            _collectives_rows(
                truth,
                CollectivesCell(**scheme, **common(n, repeat, workers), message_bytes=sizes, samples=5),
                rng,
                rows,
            )
        for storage in storages:
            place = {"storage": storage, "storage_path": f"data/{storage}", "storage_format": "images"}
            _storage_rows(truth, StorageCell(**common(n, repeat, workers), samples=40, **place), rng, rows)
    targets = {"momentum": 0.6, "larger-steps": None}
    batches = [batch * larger for larger in larger_batches]
    for network, storage, recipe, b, run in product(networks, storages, targets, batches, range(2)):
        trained = ConvergenceCell(
            **{**common(1, 1, 2), "seed": seed + run}, network=network, batch=b, storage=storage, sync=syncs[0],
            recipe=recipe, trial=1, prefetch=0, readers=1, storage_path="data", storage_format="files",
            validation_storage=storage, validation_path="data", validation_format="files", validation_share=0.1,
            preset=preset_values(PRESETS[syncs[0]].preset), settings=to_values(RECIPES[recipe].recipe),
            own_network=None,
            target=targets[recipe], max_epochs=2.0, evaluation_epochs=0.5, patience=None, max_minutes=None,
            noise_steps=4,
        )  # fmt: skip
        _convergence_rows(trained, rng, rows)
        _staleness_rows(replace(trained, sync="asynchronous"), rows)
    axes = {"scaling": "strong", "batch": batch, "storage": storages[0], "sync": syncs[0], "prefetch": prefetches[0]}
    for repeat in range(1, repeats + 1):
        _copies_rows(truth, CopiesCell(**common(1, repeat, 1), samples=4), rng, rows)
    failed = train(networks[0], 8, workers_per_node, 1, axes)
    _run_row(failed, rows, reason="out of memory on rank 0")
    return _tables(rows)


def records(cells: Iterable[Cell], truth_of: Callable[[str], Truth], seed: int = 0) -> dict[str, pd.DataFrame]:
    """All tidy tables of these cells, each network as `truth_of` its name says; imported cells have none."""
    rng = np.random.default_rng(seed)
    rows: Rows = {table.name: [] for table in TIDY_TABLES}
    anywhere = Truth()
    for cell in cells:
        match cell:
            case InterventionCell():
                pass
            case TrainCell():
                _train_rows(truth_of(cell.network), cell, rng, rows)
            case SgemmCell():
                _sgemm_rows(truth_of(cell.network), cell, rng, rows)
            case CollectivesCell():
                _collectives_rows(anywhere, cell, rng, rows)
            case StorageCell():
                _storage_rows(anywhere, cell, rng, rows)
            case CopiesCell():
                _copies_rows(anywhere, cell, rng, rows)
            case ConvergenceCell():
                _run_row(cell, rows)
                _convergence_rows(cell, rng, rows, samples=60_000, best=0.95)
                if isinstance(preset_from(cell.preset).strategy, Served):
                    _staleness_rows(cell, rows)
    return _tables(rows)


def _tables(rows: Rows) -> dict[str, pd.DataFrame]:
    return {name: pd.DataFrame(rows[name], columns=TABLES[name].names) for name in rows}


def write_raw(tidy: dict[str, pd.DataFrame], cell: str, folder: Path) -> None:
    """Write the folder that the job of one cell of the study would have written."""
    of_cell = {name: frame[frame["cell"] == cell] for name, frame in tidy.items()}
    tables = [table for table in KINDS[of_cell["runs"]["kind"].item()].tables if len(of_cell[table.name])]
    write_cell(folder, {t.name: pa.Table.from_pandas(of_cell[t.name], t.schema, preserve_index=False) for t in tables})


def _run_row(cell: Cell, rows: Rows, reason: str = "") -> None:
    rows["runs"].append({
        **constants(cell), "status": "failed" if reason else "ok", "reason": reason,
        "started": pd.Timestamp("2025-01-01", tz="UTC"), "duration": 1.0, "settings": cell.to_json(),
        "ended": "" if reason else "visits", "source": "",
        "planned": 5.0, "planned_low": 2.5, "planned_high": 10.0,
    })  # fmt: skip
    before = rows["visits"][-1]["position"] if rows["visits"] else 0
    for visit, rank in product(range(1, 1 + cell.visits), range(0 if reason else cell.ranks)):
        position = before + visit
        rows["visits"].append({
            **constants(cell, rank), "visit": visit, "position": position, "concurrent": 0, "duration": 4.0,
            "started": pd.Timestamp("2025-01-01", tz="UTC") + pd.Timedelta(seconds=5 * position),
            "preparing": 0.5, "measuring": 3.0, "kernel": f"node{rank}", "excluded_samples": 0,
            "cpus": "0", "threads": 1, "node_busy_error": 0.005, "product_before": 0.03, "product_after": 0.03,
            "all_reduce_before": 0.1 if cell.ranks > 1 else np.nan,
            "all_reduce_after": 0.1 if cell.ranks > 1 else np.nan,
        })  # fmt: skip
    for rank in range(0 if reason else cell.ranks):
        rows["environments"].append({
            **constants(cell, rank), "node": f"node{rank // cell.workers_per_node}", "device": "cpu",
            "cpu_model": "made-up CPU", "gpu_model": "", "cores_available": 1, "threads": 1, "load_average": 0.1,
            "core_cache_bytes": 2**20, "cache_bytes": 2**25, "memory_bytes": 2**33, "available_memory": 2**33,
            "gpu_available_memory": 11.5e9 if cell.device == "cuda" else np.nan,
            "kernel": "Linux", "python": "3.11", "torch": "2.6", "mpi4py": "4.0",
            "cpu_nominal_clock": 2.5e9, "cpu_max_clock": np.nan, "gpu_max_clock": np.nan,
            "cuda": "", "cudnn": "", "nccl": "", "driver": "", "blas": "MKL 2024.2", "onednn": "3.5.3",
            "cudnn_in_force": cell.device == "cuda" and cell.cudnn is not False,
            "onednn_in_force": cell.device == "cpu" and cell.onednn is not False,
            "precision_in_force": cell.precision,
            "mpi_library": "made-up MPI", "stallpoint": "0", "git_commit": "", "git_dirty": False, "slurm_job_id": "",
        })  # fmt: skip


def _train_rows(truth: Truth, cell: TrainCell, rng: np.random.Generator, rows: Rows) -> None:
    _run_row(cell, rows)
    axes = constants(cell)
    start, each = 0.0, cell.warmup + cell.iterations
    for iteration in range(cell.visits * each):
        warmup = iteration % each < cell.warmup
        slow = 3.0 if warmup else 1.0  # warm-up must not count
        ranks = list(_iteration(truth, cell, rng, slow))
        for rank, (times, layers) in enumerate(ranks):
            label = {**axes, "visit": 1 + iteration // each, "rank": rank, "iteration": iteration, "warmup": warmup}
            rows["iterations"].append({**label, **times, "start": start, "loss": 7.0})
            rows["layers"].extend({**label, **layer} for layer in layers)
        start += max(times["iteration_time"] for times, _ in ranks)
    peak = truth.fixed_memory + truth.memory * cell.worker_batch
    rows["peak_memory"].extend(
        {
            **axes, "visit": visit, "rank": rank, "process": 3e8,
            "device_peak": peak if cell.device == "cuda" else np.nan,
            "weights": truth.gradient_bytes, "gradients": truth.gradient_bytes, "optimiser": truth.gradient_bytes,
            "host_peak": peak,
        }
        for visit, rank in product(range(1, 1 + cell.visits), range(cell.ranks))
    )  # fmt: skip
    rows["instrumentation"].extend(
        {
            **axes, "visit": visit, "rank": rank, "layers": len(truth.layers), "marks": len(truth.layers),
            "timing_cost": 3e-6, "timing_share": 0.001, "forward_closure": 0.999, "backward_closure": 1.0,
        }
        for visit, rank in product(range(1, 1 + cell.visits), range(cell.ranks))
    )  # fmt: skip


def _iteration(
    truth: Truth, cell: TrainCell, rng: np.random.Generator, slow: float
) -> Iterator[tuple[dict[str, float], list[dict[str, Any]]]]:
    """Times of one iteration and its layers, for each rank."""
    b, ranks, count = cell.worker_batch, cell.ranks, len(truth.layers)

    def noisy(seconds: float | Reals, *shape: int) -> Reals:
        return np.asarray(seconds * slow * np.exp(truth.noise * rng.standard_normal(shape)))

    ideal = np.array([truth.layer(layer, b, ranks) for layer in truth.layers])
    lags = np.ones((ranks, 1))
    lags[-1] = truth.lag if ranks > 1 else 1.0
    forward, backward = lags * noisy(ideal, ranks, count), lags * noisy(2 * ideal, ranks, count)
    read = noisy(b * truth.read_seconds(cell.storage, cell.nodes), ranks)
    decode = noisy(b * truth.decode, ranks)
    update = noisy(truth.update, ranks)
    wait = np.zeros(ranks) if cell.prefetch else read + decode
    # Gradients of layer l are complete when the layers behind it and its own are through.
    ready = (wait + forward.sum(1))[:, None] + backward[:, ::-1].cumsum(1)[:, ::-1]
    sends, factored = ranks > 1 and cell.sync != "none", cell.sync == "ddp-powersgd"
    begin, end = np.zeros(count), np.zeros(count)
    free = 0.0
    for index in reversed(range(count)):
        arrived = (ready[:, index] if cell.sync == "wfbp" else ready[:, 0]).max()
        begin[index] = max(free, arrived)
        free = end[index] = begin[index] + noisy(
            truth.message(ranks, truth.layers[index].gradient_bytes, cell.workers_per_node, factored=factored)
            if sends
            else 0.0
        )
    last = max(float(free), float(ready[:, 0].max())) if sends else ready[:, 0]
    exposed = last - ready[:, 0]
    busy = wait + forward.sum(1) + backward.sum(1) + exposed + update
    if cell.prefetch:
        wait = np.maximum(0.0, (read + decode) / cell.readers - busy)
        busy = busy + wait
    backward_order = [index for index in reversed(range(count)) if truth.layers[index].gradient_bytes]
    message = {index: place for place, index in enumerate(backward_order if sends else [])}
    learned = [index for index, layer in enumerate(truth.layers) if layer.gradient_bytes]
    under_way = sum(end[index] - begin[index] for index in learned)
    for rank in range(ranks):
        shift = wait[rank] if cell.prefetch else 0.0
        times = {
            "data_wait": wait[rank], "read": read[rank], "decode": decode[rank], "host_to_device": 0.0,
            "forward": forward[rank].sum(), "backward": backward[rank].sum(), "communication": under_way,
            "exposed_communication": exposed[rank], "update": update[rank], "iteration_time": busy[rank],
        }  # fmt: skip
        layers = [
            {
                "layer_index": index, "layer": layer.name, "layer_type": layer.type,
                "forward": forward[rank, index], "backward": backward[rank, index],
                "gradient_ready": ready[rank, index] + shift,
                "all_reduce_start": begin[index] + shift if index in message else np.nan,
                "all_reduce_end": end[index] + shift if index in message else np.nan,
                "gradient_bytes": layer.gradient_bytes, "bucket": message.get(index, -1),
                "bucket_bytes": (truth.factors[0] if factored else 1) * layer.gradient_bytes if index in message else 0,
                **dict.fromkeys(("gather_start", "gather_end", "gather_again_start", "gather_again_end"), np.nan),
            }
            for index, layer in enumerate(truth.layers)
        ]  # fmt: skip
        yield times, layers


def _sgemm_rows(truth: Truth, cell: SgemmCell, rng: np.random.Generator, rows: Rows) -> None:
    _run_row(cell, rows)
    shapes = [("reference", "fully-connected", 4096, 9216), ("fc7", "fully-connected", 4096, 4096)]
    for (layer, kind, n, k), b, sample in product(shapes, cell.batches, range(cell.samples)):
        seconds = (1e-3 + 2e-4 * b) * np.exp(truth.noise * rng.standard_normal())
        rows["sgemm"].append({
            **constants(cell), "visit": 1,
            "layer": layer, "layer_type": kind, "worker_batch": b, "m": b, "k": k, "n": n, "operations": 1,
            "sample": sample, "seconds": seconds, "gflops": 2 * b * k * n / seconds / 1e9,
        })  # fmt: skip


def _collectives_rows(truth: Truth, cell: CollectivesCell, rng: np.random.Generator, rows: Rows) -> None:
    _run_row(cell, rows)
    for size, sample in product(cell.message_bytes, range(cell.samples + 1)):
        slowest = truth.all_reduce(cell.ranks, size, cell.workers_per_node) * np.exp(
            truth.noise * rng.standard_normal()
        )
        slowest *= 5 if sample == 0 else 1  # warm-up must not count
        for rank in range(cell.ranks):
            rows["collectives"].append({
                **constants(cell, rank), "operation": "all-reduce", "visit": 1,
                "message_bytes": size, "sample": sample, "warmup": sample == 0, "calls": 3,
                "seconds": 3 * slowest * (1.0 if rank == sample % cell.ranks else 0.8),
            })  # fmt: skip


def _storage_rows(truth: Truth, cell: StorageCell, rng: np.random.Generator, rows: Rows) -> None:
    _run_row(cell, rows)
    orders = ("sequential", "shuffled", "random")
    for order, cache, rank in product(orders, ("cold", "warm"), range(cell.ranks)):
        reading = {
            **constants(cell, rank), "visit": 1, "order": order, "cache": cache, "readers": 1,
        }  # fmt: skip
        counted = 100_000 * cell.samples if cache == "cold" else 0
        rows["storage_passes"].append({
            **reading, "filesystem": "ext4", "locality": "local", "source": "", "metadata": cache,
            "resident": 0.0 if cache == "cold" else 1.0, "bytes": 100_000 * cell.samples,
            "node_bytes": 100_000 * cell.samples * cell.workers_per_node, "process_bytes": counted,
            "device_bytes": counted * cell.workers_per_node, "disk_bytes": counted * cell.workers_per_node,
            "server_bytes": None, "network_bytes": 0, "origin": "local device" if cache == "cold" else "page cache",
            "server_cache": "none" if cache == "cold" else "", "uncached": cache == "cold",
            "set_bytes": 10**12, "memory_bytes": 10**11,
        })  # fmt: skip
        typical = truth.read_seconds(cell.storage, cell.nodes) if cache == "cold" else truth.read / 10
        start = 0.0
        for sample in range(cell.samples):
            seconds = typical * np.exp(truth.noise * rng.standard_normal())
            rows["storage_reads"].append({
                **reading, "sample": sample, "start": start, "seconds": seconds, "bytes": 100_000,
            })  # fmt: skip
            start += seconds
    for rank, (operation, typical) in product(range(cell.ranks), OPERATIONS.items()):
        size = 0 if operation in ("stat", "open") else 100_000
        for sample in range(cell.samples):
            rows["storage_operations"].append({
                **constants(cell, rank), "visit": 1, "operation": operation, "metadata": "warm", "origin": "",
                "sample": sample, "seconds": typical * np.exp(truth.noise * rng.standard_normal()), "bytes": size,
            })  # fmt: skip


def _copies_rows(truth: Truth, cell: CopiesCell, rng: np.random.Generator, rows: Rows) -> None:
    _run_row(cell, rows)
    link = {"host to device": 12e9, "device to device": 40e9}
    rates = link if cell.device == "cuda" else {"copy": 16e9, "triad": 20e9}
    for (copy, rate), sample in product(rates.items(), range(cell.samples)):
        seconds = 2**30 / rate * np.exp(truth.noise * rng.standard_normal())
        rows["copies"].append({
            **constants(cell), "visit": 1, "copy": copy,
            "threads": 1, "sample": sample, "bytes": 2**30, "seconds": seconds,
        })  # fmt: skip


def _convergence_rows(
    cell: ConvergenceCell, rng: np.random.Generator, rows: Rows, samples: int = 10_000, best: float = 0.85
) -> None:
    """A run whose accuracy nears `best`, a bit less at larger mini-batches; a target ends it.

    Its steps are in proportion to 1 + `CRITICAL` / B, and so is the noise of the gradients.
    """
    axes = constants(cell)
    steps = max(1, round(cell.max_epochs * samples / cell.batch))
    interval = max(1, round(cell.evaluation_epochs * samples / cell.batch))
    best += -0.01 * np.log2(cell.batch) + 0.002 * rng.standard_normal()
    slowness = MIN_STEPS * (1 + CRITICAL / cell.batch)
    evaluations: list[dict[str, Any]] = []
    for step in [*range(0, steps, interval), steps]:
        accuracy = best - (best - 0.1) * np.exp(-step / slowness)
        evaluations.append({
            "step": step, "samples": step * cell.batch, "seconds": 0.1 * step,
            "train_loss": 2 - accuracy if step else None, "validation_loss": 2 - accuracy,
            "validation_accuracy": accuracy,
        })  # fmt: skip
        if cell.target is not None and accuracy >= cell.target:
            break
    reached = cell.target is not None and evaluations[-1]["validation_accuracy"] >= cell.target
    rows["convergence"] += [axes | one for one in evaluations]
    small, large = (1 + CRITICAL / b for b in (cell.worker_batch, cell.batch))
    rows["gradient_noise"] += [
        {**axes, "step": step, "worker_batch": cell.worker_batch, "small": small, "large": large}
        for step in range(0, evaluations[-1]["step"], cell.noise_steps or steps + 1)
        if cell.noise_steps and cell.ranks > 1
    ]
    recipe = recipe_from(cell.settings)
    warmup_steps = round(recipe.warmup_epochs * samples / cell.batch)
    rows["convergence_runs"].append(
        axes | outcome(evaluations, cell.target, TARGET if reached else MAX_STEPS)
        | {"loss_gap": 0.1, "accuracy_gap": 0.02, "sharpness": 4.0 * np.log2(cell.batch)}
        | {"step_size": recipe.peak(cell.batch), "momentum": recipe.momentum, "warmup_steps": warmup_steps,
           "settings": "{}"}
    )  # fmt: skip


def _staleness_rows(cell: ConvergenceCell, rows: Rows, updates: int = 20) -> None:
    """Equally fast workers come in turns: each finds one update of every other one."""
    axes = {**constants(cell), "visit": 1, "server": 0}
    rows["staleness"] += [
        {**axes, "update": 1 + number, "worker": number % cell.ranks, "staleness": min(number, cell.ranks - 1)}
        for number in range(updates)
    ]


def external_rates() -> pd.DataFrame:
    """Rates as an external table has them: two series, of which 8 and 16 workers are left out to check the laws."""
    workers = np.array([1, 2, 4, 8, 16])
    columns = {"workers": workers, "workers_per_node": 1.0, "batch_per_worker": np.nan}
    rates = {name: fast * workers / (1 + 0.02 * np.log2(workers)) for name, fast in (("slow", 50.0), ("fast", 900.0))}
    series = [pd.DataFrame({"series": name, **columns, "samples_per_second": rate}) for name, rate in rates.items()]
    return pd.concat(series, ignore_index=True)


def network_layers(layers: pd.DataFrame) -> pd.DataFrame:
    """What describes the networks of made-up layers; each learned value is used ten times for a sample."""
    described = layers.drop_duplicates(["network", "layer"])
    described = described[["network", "layer_index", "layer", "layer_type", "gradient_bytes"]]
    parameters = described["gradient_bytes"] // 4
    return described.assign(parameters=parameters, multiply_adds=10 * parameters).reset_index(drop=True)
