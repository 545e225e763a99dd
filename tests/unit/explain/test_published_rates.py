"""Rates beside published ones: only where model, precision and GPU agree, and what to look at first."""

import re
from pathlib import Path

import pytest
import yaml

from stallpoint.base.section import Cause
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options
from stallpoint_files.rates import published_rates
from stallpoint_files.rates.published_rates import compared
from stallpoint_files.setups.catalog import chips
from stallpoint_files.setups.words import chip_named

DATA = yaml.safe_load(Path(published_rates.__file__).with_suffix(".yaml").read_text())
TITAN = """\
[rank0]: CUDA capacity: NVIDIA H100 with 94.83GiB memory
[rank0]: Building 1-D device mesh with ['dp_shard'], [8]
[rank0]: Building llama3 8B with TransformerModelArgs(dim=4096, n_layers=32)
{}[rank0]: step:  1  loss: 12.2  memory: 41.00GiB(29%)  tps: 300
[rank0]: step: 10  loss: 10.2  memory: 41.00GiB(29%)  tps: 2,867
[rank0]: step: 20  loss:  9.2  memory: 41.00GiB(29%)  tps: 2,867
"""


def beside(folder: Path, text: str, **options: str) -> list[str]:
    (folder / "file").write_text(text)
    (one,) = explain_files([str(folder / "file")], Options(**options)).answers  # type: ignore[arg-type]
    return [note for note in one.notes if "published" in note]


def table(name: str, rates: dict[int, float], head: str = "images/s") -> str:
    return f"series,gpus,{head}\n" + "".join(f"{name},{count},{rate}\n" for count, rate in rates.items())


def test_a_log_that_names_model_and_gpu_is_compared_once_the_precision_is_known(tmp_path: Path) -> None:
    assert beside(tmp_path, TITAN.format("")) == []
    (said,) = beside(tmp_path, TITAN.format(""), setup="bf16")
    assert said.startswith("you have 43 % of what was published for Llama 3 8B in bf16 on H100: 6,667 tokens/s of each")
    assert said.endswith("the first thing to look at is what a worker does by itself: mini-batch, kernels, data")
    (said,) = beside(tmp_path, TITAN.format("[rank0]: Float8 training active\n"))
    assert said.startswith("you have 34 % of what was published for Llama 3 8B in float8 on H100: 8,532 tokens/s")


def test_of_a_table_that_loses_with_more_workers_the_first_cause_is_named(tmp_path: Path) -> None:
    (said,) = beside(tmp_path, table("resnet50 V100 fp32", {1: 345, 2: 640, 4: 1000, 8: 1300}))
    assert said.startswith("you have 47 % of what was published for ResNet-50 in float32 on V100: 346 images/s of each")
    assert "; the first thing to look at is what comes with more workers, as 1 have 97 %: " in said
    (said,) = beside(tmp_path, table("resnet50 V100 fp32", {1: 350, 2: 690, 4: 1380, 8: 2740}, "samples/s"))
    assert "look at" not in said


@pytest.mark.parametrize(
    "setup",
    [
        "resnet50 V100", "resnet50 fp32", "V100 fp32", "resnet50 L40S2 fp16", "resnet50 V100 bf16",
        "resnet101 V100 fp32", "resnet500 V100 fp32", "resnet50 V100 A100 fp32", "resnet50 bert V100 fp32",
        "resnet50 GH100x fp32", "resnet101 H100", "bert H100 PCIe V100", "",
    ],
)  # fmt: skip
def test_nothing_is_said_unless_model_precision_and_gpu_agree(setup: str) -> None:
    assert compared(setup, "images/s", {8: 1.0}, []) == []


def test_nothing_is_said_of_rates_in_another_unit_or_of_nodes(tmp_path: Path) -> None:
    assert compared("resnet50 V100 fp32", "tokens/s", {8: 1.0}, []) == []
    assert compared("resnet50 V100 fp32", "images/s", {8: 1.0}, [Cause("link", "the link")])
    assert beside(tmp_path, table("resnet50 V100 fp32", {1: 210, 2: 390}).replace("gpus", "nodes")) == []


def test_divided_mini_batches_are_compared_on_about_as_many_workers() -> None:
    """For H100 and RetinaNet 64 and 2,528 are published, each with a small part of a mini-batch on each GPU."""
    (said,) = compared("retinanet H100", "samples/s", {64: 200.6, 512: 165.0}, [], {64: 256, 512: 1024})
    assert said.startswith("your 64 have 100 % of what was published for RetinaNet on H100: 200.6 samples/s")
    assert compared("retinanet H100", "samples/s", {512: 165.0}, [], {512: 1024}) == []


def test_every_published_rate_has_a_source_and_is_found_by_its_names() -> None:
    for one in DATA["rates"]:
        assert one["source"]
        setup = f"{one['model']}, {one['precision']}, {one['hardware']}"
        (said,) = compared(setup, one["unit"], one["rates"], [])
        assert re.match(r"you have 100 % of .*\)$", said)
    for one in DATA["runs"]:
        setup = f"{one['model']} {one['hardware']}"
        (said,) = compared(
            setup, one.get("unit", "samples/s"), {one["gpus"]: one["rate"]}, [], {one["gpus"]: one["batch"]}
        )
        assert said.startswith("you have 100 % of")
        assert said.endswith(f", mini-batch {one['batch']:,} (MLPerf Training {one['source']})")
    assert len(DATA["rates"]) + len(DATA["runs"]) >= 60


def test_runs_are_compared_at_their_mini_batch() -> None:
    """MLPerf Training v5.0, Dell, GB200, Llama-2 70B LoRA: 64 take 1.772 min for 3,072 samples, 8 in a mini-batch."""
    rate = 3072 / 1.772165 / 60 / 64
    (said,) = compared("llama2_70b_lora gb200", "samples/s", {64: 0.83 * rate}, [], {64: 8})
    assert "you have 83 % of what was published for Llama 2 70B LoRA on GB200: 0.4514 samples/s of each of 64" in said


def test_a_spread_within_the_run_is_looked_at_first(tmp_path: Path) -> None:
    lines = [f"[rank0]: step: {step}  loss: 9  tps: {2800 + 90 * (step % 5)}\n" for step in range(1, 40)]
    head, _, _ = TITAN.partition("{}")
    (said,) = beside(tmp_path, head + "".join(lines), setup="bf16")
    assert re.search(r"spread within the run is \d+ times as large as in public runs: .* uneven ranks$", said)
    steady = [line.replace(line.split()[-1], "2980") for line in lines]
    (said,) = beside(tmp_path, head + "".join(steady), setup="bf16")
    assert said.endswith("mini-batch, kernels, data")


def test_gpt_3_is_published_in_tokens_and_not_compared_with_sequences() -> None:
    # 767 tokens/s of each are 0.37 sequences/s of 2,048: 0.8 of 989 TFLOP/s, at 6 operations for each parameter
    assert compared("GPT-3 175B, H100", "samples/s", {512: 0.37}, []) == []
    (said,) = compared("GPT-3 175B, H100", "tokens/s", {512: 767.4}, [])
    assert "767.4 tokens/s of each of 512" in said


def test_chips_with_names_alike_have_their_own_data_sheets() -> None:
    halves = {chip.name: chip.peak("half") / 1e12 for chip in chips()}
    assert (halves["A10"], halves["A10G"]) == (125, 70)
    assert (halves["L40"], halves["L40S"]) == (181, 362)
    assert [chip_named(text).name for text in ("l40", "L40S", "a10g", "A10", "h100-nvl", "H100 PCIe")] == [
        "L40", "L40S", "A10G", "A10", "H100 NVL", "H100 PCIe",
    ]  # fmt: skip
