"""The finding above a chart names what was planted: the curve, the count and the value, and nothing beside them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sample_cells import SGEMM

from stallpoint.report.charts import CHARTS

NO = np.nan
BOTH = ["alexnet", "alexnet", "googlenet", "googlenet"]


def planted(**columns: Any) -> pd.DataFrame:
    """A table of curves that differ in `columns` alone; intervals are 10 % to each side unless given."""
    curve = {
        "network": "alexnet", "hardware": "cpu", "storage": "local", "scaling": "strong", "sync": "wfbp",
        "prefetch": 0, "batch": 64, "workers_per_node": 1, "basis": "measured",
    }  # fmt: skip
    length = max(len(values) for values in columns.values() if isinstance(values, list))
    frame = pd.DataFrame({**curve, **columns}, index=range(length))
    if "ranks" in frame and "nodes" not in frame:
        frame["nodes"] = frame["ranks"] // frame["workers_per_node"]
    for name in frame.select_dtypes("float"):
        for end, part in (("_low", 0.9), ("_high", 1.1)):
            if f"{name}{end}" not in frame and not name.endswith(("_low", "_high")):
                frame[f"{name}{end}"] = part * frame[name]
    return frame


def predictions(ranks: list[int], measured: list[float], **columns: Any) -> pd.DataFrame:
    """Iterations of a mini-batch of 64, of which those that are NaN were predicted to take 0.1 s."""
    parts = {f"{of}_{name}": columns.pop(name, 0.0) for of in ("measured", "predicted") for name in ("data", "forward",
             "update")}  # fmt: skip
    return planted(
        ranks=ranks, global_batch=64, measured_iteration=measured, predicted_iteration=0.1, measured_speedup=1.0,
        predicted_speedup=1.0, **parts, **columns,
    )  # fmt: skip


def both(name: str, values: list[float]) -> dict[str, list[float]]:
    """Values that were measured, and as many that were predicted."""
    return {f"measured_{name}": values, f"predicted_{name}": values}


STALLING = planted(
    network=list("abcde"), verdict=["stalls", "scales", "undecided", "withheld", "stalls"],
    verdict_ranks=[4, 8, 4, 1, 2], workers_per_node=[1, 2, 1, 1, 1], stall_ranks=[9.0] * 5, one_machine=False,
)  # fmt: skip
LAYERS = planted(
    layer_type=["convolution", "fully-connected", "relu"] * 3, worker_batch=[64] * 3 + [16] * 3 + [4] * 3,
    share=[0.59, 0.4, 0.01, 0.3, 0.69, 0.01, 0.19, 0.8, 0.01], speedup=[1.0, 1.0, 1.0, 2.0, 1.2, 1.0, 3.0, 1.5, 1.0],
)  # fmt: skip
ACCURACIES = {
    "batch": [16, 16, 16, 64, 64, 64], "seed": [0, 0, 1, 0, 0, 1], "recipe": "momentum", "trial": 0, "nodes": 1,
    "ranks": 1, "validation_accuracy": [0.5, 0.7, 0.72, 0.64, 0.3, 0.6],
}  # fmt: skip
STORAGE = planted(
    storage=["local", "shared", "local", "shared"], cache=["cold", "cold", "warm", "cold"],
    order=["shuffled", "shuffled", "shuffled", "sequential"], samples_per_second=[100.0, 40.0, 1000.0, 10.0],
    bytes_per_second=1.0, readers=1, ranks=1, origin="local device", server_cache="none", resident=NO,
    uncached=[True, False, True, True], latency_p50=1.0, latency_p95=1.0, latency_p99=1.0,
)  # fmt: skip
CRITICAL = planted(
    network=["googlenet", "alexnet"], recipe="momentum", target=0.5, ranks=1, batches=[2, 3], largest_reaching=256,
    critical_batch=[700.0, 100.0], noise_over_critical=[NO, 0.5],
)  # fmt: skip


def fed(ranks: list[int], utilisation: list[float], **columns: Any) -> pd.DataFrame:
    return planted(
        ranks=ranks, utilisation=utilisation, worker_batch=16, read_time=1.0, busy_time=1.0,
        **{"readers_needed": 1.0, "readers": 1, **columns},
    )  # fmt: skip


PLANTED: list[tuple[str, dict[str, pd.DataFrame], str]] = [
    ("speedup", {"stalling": STALLING},
     "a stops getting faster at 4 nodes; e stops getting faster at 2 nodes; c undecided beyond 4 nodes; "
     "b still gets faster at 8 workers (4 nodes) and 1 more"),
    ("speedup", {"stalling": STALLING.iloc[:4]},
     "a stops getting faster at 4 nodes; c undecided beyond 4 nodes; b still gets faster at 8 workers (4 nodes); "
     "d withheld"),
    ("speedup", {"stalling": planted(network="a", batch=[2, 16], verdict=["scales", "stalls"], verdict_ranks=[2, 1],
     one_machine=True)},
     "a at mini-batch 16 stops getting faster at 1 process; a at mini-batch 2 still gets faster at 2 processes"),
    ("costs", {"costs": planted(ranks=[1, 2], goal="epoch", time=[9.0, 3.0], node_hours=[3.0, 2.0], price=NO)},
     "alexnet: an epoch is fastest and cheapest on 2 nodes"),
    ("speedup", {"stalling": planted(sync=["naive", "wfbp"], verdict="stalls", verdict_ranks=[2, 4],
     one_machine=False),
     "predictions": predictions([4, 4, 2, 8], [2.0, 1.0, 3.0, NO], sync=["naive", "wfbp", "naive", "naive"])},
     "alexnet stops getting faster at 4 nodes"),
    ("critical-path", {"critical_path": planted(ranks=[2, 8, 8, 8, 8], basis="predicted", share=[0.9, 0.2, 0.15, 0.3,
     0.35], cause=["communication", "communication", "communication", "training data", "computing"])},
     "alexnet: communication takes 35 % of each iteration at 8 nodes (predicted)"),
    ("causes", {"causes": planted(ranks=[2, 4, 4, 8], cause=["a", "b", "c", "d"], share=[0.5, 0.2, 0.3, 0.6],
     lost=[5.0, 2.0, 3.0, 6.0], verdict=["dominant", "dominant", "overlaps", "dominant"],
     basis=["measured"] * 3 + ["predicted"])}, "alexnet: b costs most, 20 % of each iteration at 4 nodes"),
    ("causes", {"causes": planted(ranks=[2, 4], cause="a", share=[0.5, 0.2], lost=[5.0, 2.0], verdict=["dominant",
     "overlaps"])}, "No single cause dominates at 4 nodes: their intervals overlap"),
    ("what-if", {"what_if": planted(ranks=[2, 8, 8, 8, 8], scenario=["a", "b", "c", "d", "as measured"], gain=[3.0,
     1.5, 2.0, 1.3, 9.0], gain_low=[2.0, 1.2, 0.9, 1.2, 9.0])},
     "alexnet: b gains most, 1.5 times at 8 nodes (predicted)"),
    ("what-if", {"what_if": planted(ranks=[2, 8], scenario=["a", "b"], gain=[3.0, 1.5], gain_low=[2.0, 1.0])},
     "No scenario gains for sure: every interval holds ×1"),
    ("throughput", {"predictions": predictions([1, 4, 8, 1, 4], [1.0, 0.5, NO, 1.0, 0.3],
     network=["alexnet"] * 3 + BOTH[2:])}, "alexnet: a sample costs 2 times the node-hours at 4 nodes"),
    ("throughput", {"predictions": predictions([1, 4], [1.0, 0.25])},
     "alexnet: a sample costs as many node-hours at 4 nodes as on the fewest"),
    *(("costs", {"costs": planted(ranks=[1, 2, 4, 8], goal="epoch", time=[100.0, 60.0, 40.0, 20.0], node_hours=[0.5,
     0.6, 0.8, 1.0], price=price, basis=["measured"] * 3 + ["predicted"])},
     f"alexnet: an epoch on 4 nodes costs {times} times as much as on 1 node, and is 2.5 times as fast") for price,
     times in ((NO, "1.6"), ([0.5, 0.6, 1.6, 2.0], "3.2"))),
    ("utilisation", {"utilisation": planted(network=BOTH, ranks=[1, 4, 1, 4], flops=1.0, flops_share=[0.1, 0.3, 0.5,
     0.25], link=NO, link_share=NO)}, "googlenet: 25 % of the rated FLOP/s on 4 nodes"),
    *(("communication", {"predictions": predictions([2, 4, 8], [0.5, NO, NO], **both("backward", [0.2, 0.2, 0.2]),
     **both("communication", sent), **both("exposed_communication", [0.05, 0.05, 0.05]))}, found) for sent,
     found in (([0.1, 0.2, 0.15], "Communication stays below compute up to 8 nodes"), ([0.1, 0.3, 0.4],
     "alexnet: communication takes longer than compute from 4 nodes on (predicted)"), ([0.3, 0.3, 0.4],
     "alexnet: communication takes longer than compute from 2 nodes on"))),
    ("all-reduce", {"collectives": planted(cell="c", ranks=[4, 4, 2, 4, 4], workers_per_node=2,
     message_bytes=[1_000, 10**6, 10**6, 10**6, 10**6], rank=[0, 0, 0, 1, 0], seconds=[2e-5, 5e-4, 1e-4, 1e-3, 1e-9],
     warmup=[False] * 4 + [True], calls=1, sample=0, backend="mpi", reduction="library", operation="all-reduce")},
     "On 4 workers (2 nodes) an all-reduce moves at most 1 GB/s and takes 20 µs at least"),
    ("overlap", {"median_iterations": planted(cell="c", ranks=2, rank=[0, 1], iteration=3, visit=1, wall=0.1,
     iterations=5, communication=[0.01, 0.03], exposed_communication=[0.002, 0.008])},
     "alexnet, wfbp on 2 nodes: of 20 ms of communication 25 % is exposed, the rest overlaps the backward pass"),
    ("overlap", {"median_iterations": planted(cell=["c", "d"], sync=["wfbp", "naive"], ranks=2, rank=0, iteration=3,
     visit=1, wall=0.1, iterations=5, communication=[0.02, 0.05], exposed_communication=[0.02, 0.01])},
     "alexnet, wfbp on 2 nodes: all 20 ms of communication are exposed"),
    ("free-communication", {"layer_scaling": planted(network=["googlenet"] * 3 + BOTH[:2], layer_type="all",
     worker_batch=[64, 16, 4, 64, 16], speedup=[1.0, 3.0, 4.0, 1.0, 2.0])},
     "googlenet: with free communication 16 workers reach 4 times"),
    ("layer-share", {"layer_scaling": LAYERS}, "alexnet: fully-connected grows from 40 % to 80 % of the compute time"),
    ("layer-speedup", {"layer_scaling": LAYERS},
     "alexnet: fully-connected gains least, 1.5 times; not drawn, below 2 % of the time: relu"),
    ("sgemm", {"sgemm_speedup": planted(layer=["reference", "a", "b", "c", "a"], layer_type="convolution",
     worker_batch=[4, 4, 4, 4, 64], speedup=[16.0, 8.0, 10.0, 15.0, 1.0], gflops=1.0)},
     "At b = 4 the median layer's products are 10 times as fast as at b = 64, not 16"),
    ("roofline", {
        "layer_times": planted(ranks=[1, 1, 1, 1, 2], worker_batch=[16, 16, 16, 4, 16], layer=list("abcab"),
                               layer_type=["convolution", "dense", "softmax", "convolution", "dense"],
                               forward=[6e-3, 3e-2, 5e-4, 1.0, 1.0], backward=[3.6e-3, 1.8e-2, 5e-4, 1.0, 1.0]),
        "network_layers": planted(layer=["a", "b", "c"], gradient_bytes=4, multiply_adds=[10**5, 10**6, 10**3]),
        "sgemm": planted(cell=SGEMM.path, layer=["peak", "bandwidth"], layer_type="machine", gflops=[20.0, 1.0],
                         m=1, k=9, n=9, operations=1, seconds=1e-3),
        "runs": planted(kind=[SGEMM.kind], cell=SGEMM.path, settings=SGEMM.to_json()),
     }, "alexnet: convolution layers reach 5 % of the measured peak"),
    ("amdahl", {"amdahl": planted(network=["alexnet", "googlenet", "alexnet", "alexnet"], layer_type=["all", "all",
     "relu", "all"], basis=["compute"] * 3 + ["measured"], serial_fraction=[0.1, 0.2, 0.9, 0.5], speedup_limit=[10.0,
     5.0, 1.1, 2.0])},
     "googlenet: 20.0 % of its compute time does not shrink with the mini-batch, which limits the speedup to 5"),
    ("memory", {"largest_batch": planted(network=["a", "b", "c"], largest_batch=[100.0, 50.0, NO], basis=["measured",
     "predicted", ""])}, "b on cpu: b up to 50 (45 to 55) fits (predicted)"),
    ("memory", {"largest_batch": planted(largest_batch=[NO])}, ""),
    ("storage", {"storage_rates": STORAGE},
     "local delivers 2.5 times the samples of shared when read cold; caches may have answered for shared"),
    ("storage", {"storage_rates": STORAGE.iloc[2:].assign(uncached=False)},
     "local delivers 100 times the samples of shared; caches may have answered for all of them"),
    ("storage", {"storage_rates": STORAGE.iloc[:1]}, "local delivers 100 samples/s"),
    ("data-share", {"feeding": fed([2, 4, 8], [0.99, 0.8, 0.5], basis=["measured", "measured", "predicted"])},
     "alexnet from local starves from 4 nodes on: workers wait 20 % of each iteration"),
    ("data-share", {"feeding": fed([2, 8], [0.99, 0.5], basis=["measured", "predicted"])},
     "alexnet from local starves from 8 nodes on: workers wait 50 % of each iteration, as predicted"),
    ("data-share", {"feeding": fed([2, 4, 8], [0.99, 0.94, 0.97])},
     "alexnet from local: workers wait 6 % of each iteration at 4 nodes"),
    ("data-share", {"feeding": fed([2, 4], [0.999, 0.999], utilisation_low=0.995)},
     "Workers wait for training data in less than 1 % of any iteration: it costs nothing here"),
    ("readers", {"feeding": fed([2, 4], [0.5, 0.9], prefetch=2, readers=[4, 2], readers_needed=[6.0, 5.0])},
     "alexnet from local needs 5 readers for b = 16 on each worker at 4 nodes, and has 2"),
    ("readers", {"feeding": fed([2, 4], [0.99, 0.4], readers_needed=[3.0, 1.4])},
     "alexnet from local reads in line; 2 readers ahead would keep a worker busy at 4 nodes"),
    ("readers", {"feeding": fed([2, 4], [0.99, 0.4], prefetch=2, readers=2, readers_needed=[2.0, 2.1])},
     "Every worker is fed by the readers that it has"),
    ("prediction", {"predictions": predictions([2, 4, 8, 16], [1.0, 1.0, 1.0, NO], network=list("abcd"), error=[0.02,
     -0.3, 0.1, NO])}, "Predictions are 10 % off (median of 3 points), most for b (wfbp) at 4 nodes: -30 %"),
    ("time-to-target", {"target_times": planted(ranks=[4, 2, 2, 8], sync=["naive", "wfbp", "naive", "naive"],
     recipe="momentum", target=0.5, time=[5.0, 9.0, 12.0, 1.0], slower=1.0, more_steps=1.0, longer_steps=1.0,
     verdict=["fastest", "fastest", "slower", "not reached"])},
     "alexnet is fastest at the target with wfbp on 2 nodes (9 s), naive on 4 nodes (5 s)"),
    ("time-to-accuracy", {"time_to_accuracy": planted(network=["alexnet", "alexnet", *BOTH[1:]], ranks=[1, 2, 4, 1,
     2], global_batch=[16, 32, 64, 16, 32], steps_ranks=1, steps_storage="local", steps_sync="wfbp",
     recipe="momentum", target=0.5, throughput_speedup=[1.0, 2.0, 4.0, 1.0, 4.0], speedup=[1.0, 0.5, 2.0, 1.0, 3.8])},
     "alexnet: on 4 nodes, 4 times the throughput makes 2 times the speed to the target"),
    ("steps-to-target", {"critical_batches": CRITICAL, "steps_to_target": planted(recipe="momentum", target=0.5,
     ranks=1, batch=[128, 64, 256, 512], samples=[1200.0, 1000.0, 3000.0, NO])},
     "alexnet, momentum: critical mini-batch 100 (90 to 110); B = 256 takes 3 times the samples of B = 64"),
    ("noise-scale", {"critical_batches": CRITICAL, "noise_scale": planted(recipe="momentum", part=[1, 2, 4],
     noise_scale=[100.0, 900.0, 300.0])},
     "alexnet: the noise scale grows 3 times during training; it is 0.5 (0.45 to 0.55) times the critical mini-batch"),
    ("convergence", {"convergence": planted(**ACCURACIES)}, "alexnet, momentum: 62 % at B = 64, 71 % at 16"),
    ("convergence", {"convergence": planted(**ACCURACIES).query("batch == 16")}, "alexnet reaches 71 % at B = 16"),
    ("staleness", {"staleness_shares": planted(sync="asynchronous", ranks=[2, 2, 4, 4], staleness=[0, 1, 0, 4],
     gradients=[1, 9, 1, 1])}, "alexnet, asynchronous on 4 workers: 2 updates on average"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tables", "finding"), PLANTED, ids=[name for name, *_ in PLANTED])
def test_a_finding_is_what_was_planted(name: str, tables: dict[str, pd.DataFrame], finding: str) -> None:
    assert CHARTS[name].finding(tables) == finding
