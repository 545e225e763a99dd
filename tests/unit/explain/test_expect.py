"""Tests for what can be expected of a training in words."""

from __future__ import annotations

import pytest

from stallpoint.cli import main
from stallpoint.errors import InputError
from stallpoint_files.setups.expect_command import answer
from stallpoint_files.setups.expectation import expectation, reached
from stallpoint_files.setups.words import read_setup

SLOW_LINK = "llama 3 8b bf16, zero 3, 2 x 8 a800, 10 GbE"


def test_parameters_over_a_slow_link_are_the_wall() -> None:
    found = answer(SLOW_LINK)
    assert "wall is communication between nodes" in found.words
    # 3 passes of 15 GB at 1.25 GB/s are 36 s, of which half a second of computing may hide little.
    assert "36 s" in found.causes[0].evidence
    low, high = found.low or 0, found.high or 0
    assert 16 * 2 * 4096 / high > 34
    assert low > 1000
    faster = answer(SLOW_LINK.replace("zero 3", "zero 2"))
    assert (faster.value or 0) > (found.value or 0)
    assert "wall is computing" in answer(SLOW_LINK.replace("10 GbE", "8xhdr")).words


def test_the_run_that_tells_most_is_of_the_wall() -> None:
    assert "all_reduce_perf" in answer(SLOW_LINK).ask[0]
    assert "one node" in answer("resnet-50 ddp, 1 x 8 v100, batch size 128").ask[0]


def test_published_rates_are_inside_without_their_round() -> None:
    rows = [one for one in reached() if "v4.0" in one.source]
    inside, widths = 0, []
    for row in rows:
        batch = f", gbs {row.batch:.0f}" if row.batch else ""
        setup = read_setup(f"{row.model.name}, {row.workers} x {row.chip.name}{batch}")
        low, _, high = expectation(setup, without="v4.0").rate
        inside += low <= row.rate * row.workers <= high
        widths.append(high / low)
    assert len(rows) > 40
    assert inside / len(rows) >= 0.8
    assert sorted(widths)[len(widths) // 2] < 4


@pytest.mark.parametrize(
    ("words", "gigabytes"),
    [("infiniband 400", 50), ("IB 200G", 25), ("roce: 100gbps", 12.5), ("ethernet 25", 3.125), ("ib, 8 gpus", None)],
)
def test_a_link_may_stand_before_its_rate(words: str, gigabytes: float | None) -> None:
    link = read_setup(f"bert-large, 2 x 8 h100, {words}").link
    assert (link and link.bytes_per_second / 1e9) == gigabytes


def test_a_mixture_of_experts_computes_with_some_parameters_and_sends_all() -> None:
    mixture, dense = (read_setup(f"{name}, zero 3, 2 x 8 h100, 100 Gbit/s") for name in ("qwen3 30b-a3b", "qwen3 30b"))
    assert mixture.model
    assert dense.model
    assert mixture.model.parameters == dense.model.parameters == 30e9
    assert (mixture.model.flops, dense.model.flops) == (18e9, 180e9)
    assert any("all-to-all" in note for note in answer("mixtral 8x7b, zero 3, 2 x 8 h200, 100 Gbit/s").notes)
    assert read_setup("mixtral 8x22b").model != read_setup("mixtral 8x7b").model


def test_one_link_of_a_node_is_said_where_each_gpu_may_have_one() -> None:
    (note,) = (one for one in answer("bert-large, 2 x 8 h100, infiniband 400").notes if "for each node" in one)
    assert "one link of 400 Gbit/s" in note
    assert not any("for each node" in one for one in answer("bert-large, 2 x 8 h100, 8xndr").notes)


def test_what_does_not_fit_is_said() -> None:
    for words in ("llama 3 70b, ddp, 1 x 1 a100", "llama 3 8b, ddp, 8 v100"):
        assert any("does not fit" in note for note in answer(words).notes)
    assert any("need 1120 GB on each" in note for note in answer("llama 3 70b, ddp, 8 a100").notes)
    assert not any("does not fit" in note for note in answer("llama 3 8b, zero 3, 2 x 8 a100").notes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("llama 3 8b, 8 a80x", "a80x is not known; did you mean A800"),
        ("resnet-50, 8 v100, bf17", "bf17 is not known; did you mean bf16"),
        ("stable diffusion xl, 16 a100", "xl behind Stable Diffusion v2: another model"),
        ("mixtral 8x7b, 4 nodes x 8 h100 efa", "efa is not known; did you mean efap4d or efap5"),
        ("8 h100", "no model"),
        ("llama 3 8b", "no chip"),
        ("llama 3 8b on tpu v5e-64", "no chip is named .*v5e-64: not known"),
        ("whisper, 8 h100", "no model is named .*whisper: not known"),
        ("resnet-18 on cifar10, 4 v100", "not for CIFAR's"),
        ("deepseek v3, 2048 h800", "depends on the mini-batch"),
        ("gpt-3 175b, tp8 pp8 dp16, 1024 a100", "depends on the mini-batch"),
    ],
)
def test_what_is_unknown_or_lacking_is_named(words: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        answer(words)


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        ("gpt-2, 8 h100", 124e6),
        ("gpt-2 1.5b, 8 h100", 1.5e9),
        ("gpt2-xl, 8 h100", 1558e6),
        ("gpt-3 13b on 300b tokens, 64 a100", 13e9),
        ("mixtral 8x7b, 8 h100, global batch 64", 46.7e9),
        ("yolov8x coco, 4 t4", 68.2e6),
    ],
)
def test_a_size_that_is_said_is_the_models(words: str, parameters: float) -> None:
    setup = read_setup(words)
    assert setup.model
    assert setup.model.parameters == parameters
    assert answer(words).value


@pytest.mark.parametrize(
    ("words", "chip"), [("4 l40s", "L40S"), ("4 l40", "L40"), ("8 h100s", "H100"), ("2 a10g", "A10G")]
)
def test_an_s_may_belong_to_the_name_of_a_chip(words: str, chip: str) -> None:
    setup = read_setup(f"llama 3 8b, {words}")
    assert setup.chip
    assert setup.chip.name == chip


@pytest.mark.parametrize(
    ("words", "parameters", "chip", "strategy"),
    [
        ("fsdp 7b, 8 h100", 7e9, "H100", "FSDP"),
        ("zero-3 13b on 16 a100", 13e9, "A100", "ZeRO-3"),
        ("ddp, 8 h100 7b", 7e9, "H100", "DDP"),
        ("deepseek-coder 33b, zero3, 8 x a6000", 33e9, "RTX A6000", "ZeRO-3"),
        ("bert base, ddp, 4 x v100", 110e6, "V100", "DDP"),
        ("stable diffusion 2, ddp, 2x RTX 3090", 865e6, "RTX 3090", "DDP"),
    ],
)
def test_words_before_a_size_keep_their_meaning(words: str, parameters: float, chip: str, strategy: str) -> None:
    setup = read_setup(words)
    assert setup.model
    assert setup.chip
    assert (setup.model.parameters, setup.chip.name, setup.strategy) == (parameters, chip, strategy)


def test_the_memory_that_is_said_is_the_chips() -> None:
    assert not any("does not fit" in note for note in answer("llama 2 13b, zero-2, 8x a100").notes)
    assert any("which has 40" in note for note in answer("llama 2 13b, zero-2, 8x a100 40gb").notes)


def test_sums_over_a_tensor_group_take_longer_over_nodes_and_between_stages() -> None:
    inside, over, staged = (
        expectation(read_setup(f"llama 2 7b, {split}, 4 x 8 h100, 8xndr, mbs 1, gradient accumulation steps 64"))
        for split in ("tp 8", "tp 16", "tp 8 pp 2")
    )
    rates = [one.rate[1] for one in (inside, over, staged)]
    assert rates[0] > 1.2 * rates[1]
    assert rates[0] > 1.2 * rates[2]


def test_words_that_are_not_understood_are_left_out_and_named() -> None:
    found = answer("resnet-50 with fused lars, imagenet, single node, 8 v100")
    assert "left out, as it is not understood: fused, lars" in found.notes
    assert found.value == answer("resnet-50, 1 node, 8 v100").value


def test_workers_are_the_product_of_degrees_where_no_count_is_said() -> None:
    assert read_setup("llama 2 70b, tp 8 pp 4 dp 2, h100").workers == 64
    assert read_setup("llama 2 70b, tp 8, 16 h100").workers == 16


def test_the_program_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expect", SLOW_LINK]) == 0
    assert "its wall is communication" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("link", "gigabytes"),
    [
        ("10 gigabit", 1.25),
        ("25 Gbit ethernet", 3.125),
        ("3.2 Tb/s EFA", 400),
        ("gigabit ethernet", 0.125),
        ("800 Gbps", 100),
    ],
)
def test_a_links_rate_in_any_unit_is_that_of_the_link(link: str, gigabytes: float) -> None:
    setup = read_setup(f"t5 11b ddp, 4 x 8 a100, {link}")
    assert setup.link
    assert setup.link.bytes_per_second == pytest.approx(gigabytes * 1e9)
    assert setup.replicas == 0
    assert not setup.unknown


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("gpt-3 175b, tp8 pp8, 1024 a100, global batch 1536, sequences of 2048", 1024 * 140e12 / 1050e9),
        ("deepseek v3, 2048 h800, global batch 15360", 14.8e12 / (2.664e6 * 3600) * 2048),
        ("nanogpt 124m on 8 a100, batch size 12, block size 1024, 5 gradient accumulation steps", 8 * 61440 / 0.562),
        ("baichuan-7b on 1000 a800, batches of 4M tokens, sequence length 4096", 1000 * 182e12 / 42e9),
        ("glm-130b, 96 dgx a100 40gb, tp 4 pp 8, batch 4224 sequences of 2048", 768 * 0.325 * 312e12 / 780e9),
        ("llama2 7b, 16 nodes x 8 h100, hsdp, bf16, seq len 4096, batch size 2 per gpu", 128 * 9600),
    ],
)
def test_what_was_trained_lies_in_the_interval(words: str, rate: float) -> None:
    """Narayanan et al. 2021, table 1 (140 TFLOP/s for each GPU); DeepSeek-AI 2024, table 1 (GPU hours); nanoGPT, issue
    110 (562 ms an iteration); Baichuan's README (182 TFLOP/s); GLM-130B (32.5 % of the peak); fms-fsdp's README (9600
    tokens/s of each GPU)."""
    found = answer(words)
    assert found.low is not None
    assert found.high is not None
    assert found.low < rate < found.high


def test_a_small_mini_batch_that_decides_is_said() -> None:
    assert any("the mini-batch decides" in note for note in answer("llama 3 8b, zero 3, 2 x 8 a800, 10 GbE").notes)
    assert not any(
        "decides" in note for note in answer("llama 3 8b, zero 3, 2 x 8 a800, 10 GbE, global batch 64").notes
    )


def test_parameters_pass_once_for_each_mini_batch_that_follows_from_the_global_one() -> None:
    said = answer("llama 3 8b, zero 3, mbs 2, gradient accumulation 16, 2 x 8 a800, 10 GbE")
    follows = answer("llama 3 8b, zero 3, mbs 2, global batch 512, 2 x 8 a800, 10 GbE")
    assert (follows.low, follows.high) == (said.low, said.high)
    assert any("a step has 48 " in cause.evidence for cause in follows.causes)


@pytest.mark.parametrize(
    ("words", "sequences"),
    [
        ("mpt-7b fsdp, 64 a100, sequence length 2048, global batch 4M tokens", 4e6 / 2048),
        ("gpt-2 124m, 8 a100, block size 1024, total batch size 524288 tokens", 512),
        ("gpt-2 124m, 8 a100, context length 1024, 491520 tokens per iteration", 480),
        ("llama 2 7b on 2t tokens, 64 a100, batch of 4M tokens", 4e6 / 4096),
    ],
)
def test_a_mini_batch_in_tokens_is_that_of_all(words: str, sequences: float) -> None:
    assert expectation(read_setup(words)).setup.global_batch == pytest.approx(sequences)


def test_a_micro_batch_is_a_workers() -> None:
    setup = read_setup("llama 2 13b, zero 2, 16 a100, micro batch 4, gradient accumulation 8")
    assert (setup.batch, setup.bare_batch, setup.accumulation) == (4, None, 8)


@pytest.mark.parametrize(
    ("words", "gigabytes"),
    [("8x400 Gbit/s roce", 400), ("4 x 100 Gbps", 50), ("400G", 50), ("200Gb roce", 25), ("a100 80GB roce", None)],
)
def test_several_links_of_a_node_carry_their_sum(words: str, gigabytes: float | None) -> None:
    link = read_setup(f"llama 3 8b, 2 x 8 a100, {words}").link
    assert (link and link.bytes_per_second / 1e9) == gigabytes


def test_chips_behind_a_count_are_no_clock() -> None:
    setup = read_setup("qwen 2.5 32b, zero-3, 4 nodes of 8 H20")
    assert setup.chip
    assert (setup.chip.name, setup.workers) == ("H20", 32)


def test_degrees_and_accumulation_are_read_as_people_write_them() -> None:
    setup = read_setup("llama 3.1 405b fp8, tp8 pp8 cp2 vp4, 1024 rtx pro 6000, 5 gradient accumulation steps, gbs 512")
    assert (setup.tensor, setup.pipeline, setup.context, setup.interleaved) == (8, 8, 2, 4)
    assert (setup.accumulation, setup.global_batch, setup.workers, setup.unknown) == (5, 512, 1024, [])
    assert read_setup("llama 3 70b, tp4 pp4 cp2 dp2, h100").workers == 64


def test_parts_of_stages_that_take_turns_wait_less() -> None:
    words = "llama 3 70b, 64 h100, tp4 pp8, mbs 1, gbs 32"
    assert (answer(f"{words} vp5").value or 0) > (answer(words).value or 0)


def test_products_of_16_bits_reach_more_of_their_peak_than_those_of_8() -> None:
    wide, narrow = (expectation(read_setup(f"llama 2 70b lora, 8 h100, gbs 8, {bits}")) for bits in ("bf16", "fp8"))
    assert narrow.part_of_peak.median < wide.part_of_peak.median < 0.6
    assert wide.rate[1] < narrow.rate[1]  # as their peaks are half as high
