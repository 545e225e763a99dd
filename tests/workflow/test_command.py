"""Scripts of the user's in a study, one with a probe, one that prints rates: measured and modelled like any other."""

from collections.abc import Callable

import pytest
from checkout import Checkout

from stallpoint.records.parquet import read
from stallpoint.records.tables import ITERATIONS, LAYERS, NETWORK_LAYERS, PROBES, RUNS, STALLING

PRINTS = """
import os
import sys
assert os.environ["NCCL_SOCKET_IFNAME"] == "=lo"
for step in range(8):
    print(f"step {step}: {float(sys.argv[1]):.1f} images/s")
"""
BLOCK = {"hardware": "local", "nodes": [1, 2], "batch": 32, "scaling": "strong", "sync": "ddp", "prefetch": 0}
STUDY = {
    "commands": {
        "mine": {"run": "python examples/ddp.py --batch {worker_batch} --seed {seed}", "launch": "torchrun"},
        "launched": {"run": "python examples/ddp.py --batch {worker_batch} --seed {seed}", "launch": "accelerate"},
        "printing": {"run": "python prints.py {ranks}00", "launch": "mpirun", "rate": r"(?P<rate>[\d.]+) images/s"},
    },
    "matrix": [{"network": ["mine", "printing"], **BLOCK}],
}
TARGETS = [f"results/tiny/{name}.parquet" for name in ("models/stalling", "networks/mine")]


@pytest.fixture(scope="module")
def study(new_checkout: Callable[..., Checkout]) -> Checkout:
    checkout = new_checkout(**STUDY)
    (checkout.folder / "prints.py").write_text(PRINTS)
    ran = checkout.snakemake(*TARGETS, "--default-resources", "interface='lo'")  # as a profile names it
    assert ran.status == 0, ran.text
    return checkout


def test_commands_are_measured_like_networks(study: Checkout) -> None:
    runs = read(RUNS, study.results("tables/runs.parquet")).to_pandas()
    assert runs.groupby("kind").size().to_dict()["command"] == 4
    assert set(runs["status"]) == {"ok"}
    iterations = read(ITERATIONS, study.results("tables/iterations.parquet")).to_pandas()
    printed = iterations[iterations["network"] == "printing"]
    assert (printed["iteration_time"] * 100 * printed["ranks"]).tolist() == pytest.approx([32.0] * len(printed))
    layers = read(LAYERS, study.results("tables/layers.parquet")).to_pandas()
    assert set(layers["network"]) == {"mine"}
    assert (layers.loc[layers["ranks"] == 2, "bucket"] >= 0).any()
    probes = read(PROBES, study.results("tables/probes.parquet")).to_pandas()
    assert set(probes["parallelism"]) == {"none", "ddp"}
    assert set(probes["threads"]) == {1}, "those of the study, whatever Snakemake gives its shells"
    together = probes[probes["ranks"] > 1]
    assert (together["collectives"] > 0).all()
    assert together["checksum"].nunique() == 1


def test_they_have_answers(study: Checkout) -> None:
    stalling = read(STALLING, study.results("models/stalling.parquet")).to_pandas()
    assert set(stalling["network"]) == {"mine", "printing"}
    described = read(NETWORK_LAYERS, study.results("networks/mine.parquet")).to_pandas()
    assert described["gradient_bytes"].sum() == 4 * (3 * 16 * 9 + 16 + 16 * 32 * 9 + 32 + 8192 * 256 + 256 + 2560 + 10)


@pytest.mark.night
def test_accelerate_starts_what_torchrun_does(new_checkout: Callable[..., Checkout]) -> None:
    checkout = new_checkout(**{**STUDY, "matrix": [{"network": "launched", **BLOCK}]})
    ran = checkout.snakemake("results/tiny/tables/probes.parquet")
    assert ran.status == 0, ran.text
    probes = read(PROBES, checkout.results("tables/probes.parquet")).to_pandas()
    assert set(zip(probes["script_ranks"], probes["parallelism"], strict=True)) == {(1, "none"), (2, "ddp")}
