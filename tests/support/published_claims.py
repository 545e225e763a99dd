"""What the papers print in numbers, as rows of the model tables that claims read: nothing that only a figure shows.

A number is known to its last printed digit: 0.23 is from 0.225 to 0.235.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from claim_tables import Interval, Rows, evidence

from stallpoint.inputs.layer_trace import from_text
from stallpoint.questions.claims.facts import Facts
from stallpoint.questions.claims.quantity import Evidence, ratio
from stallpoint.records.tables import TABLES
from stallpoint.strategies.presets import PRESETS

TABLE_VI = Path(__file__).parents[2] / "resources/published/shi-2018-table-vi.txt"
FACTS: Facts = {
    "hardware.device": {
        "cpu": "cpu", "knl": "cpu", "k80": "cuda", "titanx": "cuda",
        "k80-2gpu": "cuda", "k80-4gpu": "cuda", "v100-4gpu": "cuda",
    },
    "sync.start": {name: known.preset.start for name, known in PRESETS.items()},
    "sync.gradient_bits": {name: known.preset.gradient_bits for name, known in PRESETS.items()},
    "sync.grouping": {name: known.preset.grouping for name, known in PRESETS.items()},
}  # fmt: skip
"""Compute units of Keuper & Pfreundt, Table I, and clusters of Shi et al., Table II."""


def published() -> dict[str, Evidence]:
    """The tables of each paper that claims something."""
    rows: dict[str, Rows] = {
        "Keuper & Pfreundt (2016)": {
            "stalling": _stalling(),
            "layer_scaling": [*_iterations(), *_shares()],
            "halvings": _halvings(),
            "traffic": _traffic(),
            "network_layers": _networks(),
            "convergence_runs": _large_batches(),
            "largest_batch": _largest_batch(),
        },
        "Shi et al. (2018)": {
            "validation": _validation(),
            "hidden_communication": _of_backward(),
            "critical_path": _bandwidth(),
            "data_share": _data_share(),
            "utilisation": _utilisation(),
            "storage_rates": _storages(),
            "copy_rates": _connections(),
        },
        "Serebryakov (2017)": {},
        "Goyal et al. (2017)": {"convergence_runs": _warm_up(), "predictions": _weak_scaling()},
        "Shallue et al. (2019)": {},
        "McCandlish et al. (2018)": {},
        "Fernandez et al. (2025)": {},
        "An introductory guide on distributed training of neural networks": {"communication": _ring()},
    }
    empty: Rows = {table: [] for table in TABLES}
    return {paper: evidence(empty | tables, FACTS) for paper, tables in rows.items()}


def _printed(text: str) -> Interval:
    """A number as it is printed, from half a last digit below it to half a digit above."""
    value = Decimal(text)
    half = Decimal(5).scaleb(int(value.as_tuple().exponent) - 1)
    return float(value), float(value - half), float(value + half)


def _power(base: Interval, exponent: float) -> Interval:
    value, low, high = (end**exponent for end in base)
    return value, low, high


def _columns(name: str, interval: Interval) -> dict[str, float]:
    """The columns of a number and its interval."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), interval, strict=True))


# --- Keuper & Pfreundt (2016) -----------------------------------------------------------------------


def _stalling() -> list[dict[str, Any]]:
    """Section II: communication bound after 4 to 8 nodes; section V: effective scaling up to 16."""
    curve = {"hardware": "k80", "scaling": "strong", "batch": 256, "largest_considered": 256}
    found = _columns("crossing_ranks", (8, 4, 8)) | _columns("stall_ranks", (16, 16, 16))
    return [curve | found | {"network": network} for network in ("alexnet", "googlenet")]


def _iterations() -> list[dict[str, Any]]:
    """Table I: time per iteration, AlexNet at B = 256, GoogLeNet at B = 32."""
    seconds = {
        ("alexnet", 256): {"cpu": "2", "k80": "0.9", "titanx": "0.2", "knl": "0.6"},
        ("googlenet", 32): {"cpu": "1.3", "k80": "0.36", "knl": "0.32"},
    }
    return [
        {"network": network, "worker_batch": batch, "hardware": unit, "layer_type": "all"}
        | _columns("seconds", _printed(text))
        for (network, batch), units in seconds.items()
        for unit, text in units.items()
    ]


def _shares() -> list[dict[str, Any]]:
    """Section III-D: dropout, pooling and LRN take 0.1 % (AlexNet) and 0.3 % (GoogLeNet), so none takes more."""
    return [
        {"network": network, "worker_batch": batch, "hardware": "k80", "layer_type": kind}
        | _columns("share", (share, 0, share))
        for network, batch, share in (("alexnet", 256, 0.001), ("googlenet", 32, 0.003))
        for kind in ("dropout", "pooling", "lrn")
    ]


def _large_batches() -> list[dict[str, Any]]:
    """Table IV: AlexNet's accuracy, each value at both ends of its last digit, twice: fewer rows have no interval."""
    curve = {"network": "alexnet", "hardware": "knl", "recipe": "larger-steps", "ended": "max steps"}
    return [
        curve | {"batch": batch, "best_accuracy": end / 100}
        for batch, text in ((256, "57.2"), (512, "56.4"), (1024, "54.7"), (2048, "52.2"))
        for end in _printed(text)[1:] * 2
    ]


def _warm_up() -> list[dict[str, Any]]:
    """Goyal et al., Table 1: top-1 errors of ResNet-50 in per cent, mean and deviation of five runs.

    Not checked against the printed table, which was not at hand; 782 steps are five epochs of ImageNet at B = 8192.
    """
    curve = {"network": "resnet50", "hardware": "p100", "storage": "imagenet", "ended": "max steps"}
    errors = ((256, 0, 23.60, 0.12), (8192, 0, 24.84, 0.37), (8192, 782, 23.74, 0.09))
    return [
        curve | {"batch": batch, "warmup_steps": steps, "best_accuracy": 1 - (mean + end) / 100}
        for batch, steps, mean, deviation in errors
        for end in (-deviation, deviation) * 2
    ]


def _weak_scaling() -> list[dict[str, Any]]:
    """Goyal et al., abstract: about 90 % efficient from 8 to 256 GPUs."""
    point = {"network": "resnet50", "hardware": "p100", "scaling": "weak", "sync": "wfbp", "extrapolated": False}
    found = {"ranks": 256, "measured_communication": 1.0, **_columns("measured_efficiency", _printed("0.90"))}
    return [point | found]


def _halvings() -> list[dict[str, Any]]:
    """The speedup at n nodes to the power of 1/log2(n).

    Section III-A: fully-connected layers around 32x at 256 nodes, on the GPU. Section III-C: almost perfect linear
    speedup up to 128 nodes at B = 4096, that is from b = 4096 to 32.
    """
    layers = {"network": "alexnet", "basis": "layers"}
    fully_connected = {"hardware": "k80", "layer_type": "fully-connected", "worker_batch": 256, "to_batch": 1}
    whole = {"hardware": "that of Fig. 11", "layer_type": "all", "worker_batch": 4096, "to_batch": 32}
    return [
        layers | fully_connected | _columns("gain", _power(_printed("32"), 1 / 8)),
        layers | whole | _columns("gain", _power(_printed("128"), 1 / 7)),
    ]


def _traffic() -> list[dict[str, Any]]:
    """Section IV-A: 15 TB of samples, 450000 x 250 MB x 2(n-1) of gradients and updates; n = 2 is the least."""
    point = {"network": "alexnet", "hardware": "k80", "scaling": "strong", "batch": 256, "nodes": 2, "ranks": 2}
    return [point | {"data_bytes": 15 * 10**12 // 450_000, "gradient_bytes": 2 * 250 * 10**6}]


def _networks() -> list[dict[str, Any]]:
    """Table II: models of 250 MB and 50 MB, 55 million weights in AlexNet's fully-connected layers."""
    weights = 55 * 10**6
    return [
        {"network": "alexnet", "layer_type": "fully-connected", "parameters": weights, "gradient_bytes": 4 * weights},
        {"network": "alexnet", "layer_type": "others", "gradient_bytes": 250 * 10**6 - 4 * weights},
        {"network": "googlenet", "layer_type": "all", "gradient_bytes": 50 * 10**6},
    ]


# --- Shi et al. (2018) ------------------------------------------------------------------------------


def _validation() -> list[dict[str, Any]]:
    """Section V-D: average errors on both clusters, against Caffe-MPI; each stands for the points it is the mean of."""
    errors = {"alexnet": 0.094, "googlenet": 0.047, "resnet50": 0.046}
    return [
        {"network": network, "hardware": hardware, "sync": "caffe-mpi", "scaling": "weak", "error": error}
        for network, error in errors.items()
        for hardware in ("k80-4gpu", "v100-4gpu")
        for _ in range(4)
    ]


def _of_backward() -> list[dict[str, Any]]:
    """Section V-C2: gradient communication and back-propagation of ResNet-50 with Caffe-MPI."""
    point = {"network": "resnet50", "sync": "caffe-mpi", "scaling": "weak", "nodes": 4, "ranks": 16}
    seconds = {"k80-4gpu": ("0.23", "0.243"), "v100-4gpu": ("0.0797", "0.0625")}
    return [
        {**point, "hardware": hardware} | _columns("communication_over_backward", ratio(*map(_printed, both)))
        for hardware, both in seconds.items()
    ]


def _bandwidth() -> list[dict[str, Any]]:
    """Section V-C2: 9.6 % of the bandwidth is used, so as much of the communication's time is transfer."""
    point = {"network": "resnet50", "hardware": "v100-4gpu", "sync": "caffe-mpi", "nodes": 4, "ranks": 16}
    value, low, high = _printed("9.6")
    parts = {
        "communication bandwidth": (value, low, high),
        "communication latency": (100 - value, 100 - high, 100 - low),
    }
    return [{**point, "part": part} | _columns("seconds", interval) for part, interval in parts.items()]


def _largest_batch() -> list[dict[str, Any]]:
    """Footnote 10: limits on GPUs with 12 GB."""
    gpu = {"hardware": "k80", "memory": "device", "available": 12e9}
    limits = {"alexnet": 256.0, "googlenet": 128.0}
    return [{**gpu, "network": name, **_columns("largest_batch", (b, b, b))} for name, b in limits.items()]


def _utilisation() -> list[dict[str, Any]]:
    """Section V-C2: 9.6 % of the InfiniBand."""
    point = {"network": "resnet50", "hardware": "v100", "sync": "caffe-mpi", "nodes": 4, "ranks": 16}
    return [point | _columns("link_share", _power(_printed("0.096"), 1))]


def _storages() -> list[dict[str, Any]]:
    """Table II: NFS of cluster 1, SSD of cluster 2, by dd."""
    read = {"order": "sequential", "cache": "cold", "readers": 1, "nodes": 1, "ranks": 1}
    rates = {
        "k80-4gpu": _columns("bytes_per_second", _printed("1.1e9")),
        "v100-4gpu": _columns("bytes_per_second", _printed("367.30e6")),
    }
    return [{"hardware": hardware, **read, **rate} for hardware, rate in rates.items()]


def _connections() -> list[dict[str, Any]]:
    """Table II: PCIe of cluster 1, NVLink of cluster 2."""
    return [
        {"hardware": hardware, "copy": "device to device", "threads": 1} | _columns("bytes_per_second", _printed(text))
        for hardware, text in {"k80-4gpu": "15e9", "v100-4gpu": "95e9"}.items()
    ]


def _data_share() -> list[dict[str, Any]]:
    """Table VI: what of the iteration on the K80 cluster the data layer takes."""
    (iteration,) = from_text(TABLE_VI.read_text(encoding="utf-8"), TABLE_VI.name)
    computing = sum(layer.forward + layer.backward for layer in iteration.layers)
    share = iteration.data_wait / (iteration.data_wait + computing)
    point = {
        "network": "alexnet",
        "hardware": "k80-2gpu",
        "scaling": "weak",
        "batch": 1024,
        "prefetch": 1,
        "nodes": 1,
        "ranks": 2,
    }
    return [point | _columns("share", (share, share, share))]


# --- the survey -------------------------------------------------------------------------------------


def _ring() -> list[dict[str, Any]]:
    """Section Ring AllReduce: 2(N-1)K/N for K elements, on 1 to 128 GPUs; 2 are the fewest that communicate."""
    times = {workers: 2 * (workers - 1) / workers for workers in (2, 128)}
    return [
        {"hardware": "gpus", "reduction": "ring", "operation": "all-reduce", "fit": "place"}
        | {"nodes": workers, "ranks": workers}
        | _columns("beta", (time, time, time))
        for workers, time in times.items()
    ]
