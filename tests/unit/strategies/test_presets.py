from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.strategies.buckets import blocks, buckets, fusion_groups, message_bytes
from stallpoint.strategies.families import STRATEGIES
from stallpoint.strategies.presets import PRESETS, SHARED_KEYS, Preset, options_of, preset_from, presets_of, to_values

ROOT = Path(__file__).parents[3]


def test_a_study_s_own_preset_is_another_one_with_changes() -> None:
    presets = presets_of({"half": {"like": "naive", "gradient_bits": 16}, "quarter": {"like": "half", "top_k": 0.5}})
    assert presets["half"] == Preset(start="after-backward", gradient_bits=16)
    assert presets["quarter"] == Preset(start="after-backward", gradient_bits=16, top_k=0.5)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"like": "hovorod"}, "like: no preset 'hovorod'; known so far: naive, wfbp"),
        ({"like": "wfbp", "reduction": "star"}, "reduction: 'star' is not one of library, ring"),
        ({"like": "wfbp", "gradient_bits": 4}, "gradient_bits: 4 is not one of 8, 16, 32"),
        ({"like": "wfbp", "top_k": 0}, "top_k: 0 is not a share"),
        ({"like": "wfbp", "fusion_bytes": 8}, "fusion_bytes: a size above 0 and grouping: fused go"),
        ({"like": "wfbp", "grouping": "fused"}, "fusion_bytes: a size above 0 and grouping: fused go"),
        ({"like": "horovod", "backend": "torch"}, "reduction: backend torch has only library, not ring"),
        ({"like": "ddp", "gradient_bits": 16}, "backend: ddp goes with"),
        ({"like": "fsdp", "grouping": "layer"}, "backend: fsdp, grouping: block and sharding: full or"),
        ({"like": "ddp", "sharding": "full"}, "backend: fsdp, grouping: block and sharding: full or node"),
        ({"like": "fsdp", "top_k": 0.1}, "backend: fsdp goes with start: layer-ready and uncompressed gradients"),
        ({"like": "wfbp", "sharding": "optimiser"}, "sharding: optimiser is only for backend: ddp"),
        ({"like": "ddp", "gather_ahead": 2}, "gather_ahead: applies to sharding full and node, not to none"),
        ({"like": "wfbp", "hook": "bf16"}, "hook: this, bucket_view and static_graph are only for backend: ddp"),
        ({"like": "ddp-fp16", "hook_rank": 2}, "hook_rank: a rank of 1 or more, only for hook: powersgd"),
        ({"like": "ddp", "static_graph": True, "accumulate": 2}, "static_graph: DistributedDataParallel"),
        ({"like": "wfbp", "accumulate": 0}, "accumulate: 0 is not a number from 1 on"),
        ({"like": "pipeline", "grouping": "merged"}, "sharding: stages goes only with backend: mpi, start:"),
        ({"like": "pipeline", "accumulate": 2}, "sharding: stages goes only with backend: mpi, start: after-"),
        ({"like": "one-weird-trick", "accumulate": 2}, "sharding: outputs goes only with backend: mpi, start"),
        ({"like": "one-weird-trick", "reduction": "ring"}, "sharding: outputs goes only with backend: mpi"),
        ({"like": "one-weird-trick", "gradient_bits": 16}, "sharding: outputs goes only with backend: mpi"),
        ({"like": "one-weird-trick", "start": "never"}, "sharding: outputs goes only with backend: mpi, start"),
        ({"like": "tensorflow", "sharding": "outputs"}, "sharding: outputs goes only with backend: mpi"),
        ({"like": "pipeline", "micro_batches": 0}, "micro_batches: 0 is not a number from 1 on"),
        ({"like": "wfbp", "micro_batches": 2}, "micro_batches: applies to sharding stages"),
        ({"like": "horovod", "top_k": 0.1}, "reduction: ring sums uncompressed gradients"),
        ({"like": "wfbp", "segment_bytes": 3}, "segment_bytes: a multiple of 4 bytes"),
        ({"like": "wfbp", "servers": 2}, "servers: a number of ranks, 0 for all, only for reduction: sharded-"),
        ({"like": "sharded-servers", "servers": -1}, "servers: a number of ranks"),
        ({"like": "parameter-server", "top_k": 0.1}, "reduction: a parameter-server sends weights back"),
        ({"like": "local-sgd", "period": 0}, "period: 0 is not a number from 1 on"),
        ({"like": "downpour", "pull_period": 0}, "pull_period: 0 is not a number from 1 on"),
        ({"like": "delayed-gradients", "blocks": 0}, "blocks: 0 is not a number from 1 on"),
        ({"like": "stale-synchronous", "staleness_bound": -1}, "staleness_bound: -1 is below 0; 0 is"),
        ({"like": "soft-synchronous", "gradients_per_update": -2}, "gradients_per_update: -2 is below 0"),
        ({"like": "soft-synchronous", "staleness_bound": 1}, "staleness_bound: counts updates of single"),
        ({"like": "post-local-sgd", "synchronous_steps": -1}, "synchronous_steps: -1 is below 0"),
        ({"like": "diloco", "outer_step": 0}, "outer_step: 0 is not above 0"),
        ({"like": "diloco", "outer_momentum": 1}, "outer_momentum: 1 is not from 0 to below 1"),
        ({"like": "elastic-averaging", "elasticity": 1.5}, "elasticity: 1.5 is not above 0 and at most 1"),
        ({"like": "wfbp", "period": 4}, "period: applies to algorithm averaging and gossip and elastic"),
        ({"like": "gossip", "staleness_bound": 2}, "staleness_bound: applies to algorithm asynchronous, not to"),
        ({"like": "local-sgd", "top_k": 0.1}, "gradient_bits: algorithm averaging sends uncompressed values"),
        ({"like": "local-sgd", "start": "layer-ready"}, "start: algorithm averaging sends all weights"),
        ({"like": "asynchronous", "reduction": "ring"}, "reduction: algorithm asynchronous has servers"),
        ({"like": "asynchronous", "backend": "mpi-copied"}, "backend: the servers of algorithm async"),
        ({"like": "gossip", "reduction": "ring"}, "backend: gossip reduces nothing"),
        ({"like": "asynchronous", "server_optimiser": "lars"}, "server_optimiser: 'lars' is not one of"),
        ({"like": "wfbp", "algorithm": "hogwild"}, "algorithm: 'hogwild' is not one of synchronous,"),
        ({"like": "horovod", "start": "never"}, "start: never goes only with device_prefetch"),
    ],
)
def test_presets_that_cannot_be_are_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        presets_of({"mine": entry})
    assert str(error.value).startswith(f"presets.mine.{message}")


def test_a_name_stallpoint_uses_is_not_taken_again() -> None:
    with pytest.raises(InputError, match=r"presets\.ddp: that name is taken"):
        presets_of({"ddp": {"like": "wfbp"}})


def test_like_may_change_the_family() -> None:
    """Options that the other family does not have must be back at their defaults."""
    changes = {"like": "local-sgd", "algorithm": "synchronous"}
    assert presets_of({"mine": {**changes, "period": 1}})["mine"] == PRESETS["naive"].preset
    with pytest.raises(InputError, match=r"presets\.mine\.period: applies to algorithm averaging and gossip"):
        presets_of({"mine": changes})


def test_a_cell_s_preset_comes_back() -> None:
    for known in PRESETS.values():
        assert preset_from(options_of(known.preset)) == preset_from(to_values(known.preset)) == known.preset
    told = to_values(PRESETS["wfbp"].preset)
    assert not {"algorithm", "sharding", "accumulate"} & set(told), "records made before there were any say the same"
    with pytest.raises(InputError, match="preset: unknown speed"):
        preset_from({"speed": 1})


def test_the_schema_knows_the_same_fields() -> None:
    schema = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
    entry = schema["properties"]["presets"]["additionalProperties"]["properties"]
    assert set(entry) == {"like", *SHARED_KEYS, *(option.name for one in STRATEGIES for option in fields(one.own))}


@given(st.lists(st.integers(1, 100)), st.integers(1, 150))
def test_fused_groups_are_as_large_as_wanted_and_no_larger_than_needed(sizes: list[int], wanted: int) -> None:
    groups = fusion_groups(sizes, wanted)
    assert [position for group in groups for position in group] == list(range(len(sizes)))
    for group in groups[:-1]:
        assert sum(sizes[position] for position in group) >= wanted
    for group in groups:
        assert sum(sizes[position] for position in group[:-1]) < wanted


def test_messages_go_from_the_last_layer_to_the_first() -> None:
    assert buckets(Preset(), [10, 0, 20, 30]) == [[3], [2], [0]]
    assert buckets(PRESETS["none"].preset, [10, 0, 20, 30]) == []
    assert buckets(PRESETS["local-sgd"].preset, [10, 0, 20, 30]) == [[3, 2, 0]]
    assert buckets(Preset(grouping="fused", fusion_bytes=40), [10, 0, 20, 30]) == [[3, 2], [0]]
    assert buckets(Preset(grouping="merged"), [10, 0, 20, 30]) == [[3], [2], [0]]
    assert buckets(Preset(grouping="merged"), [10, 0, 20, 30], lambda layers: [[0], [1, 2]]) == [[3], [2, 0]]


def test_compressed_messages_are_shorter() -> None:
    assert message_bytes(Preset(gradient_bits=8), [400]).tolist() == [100]
    assert message_bytes(Preset(top_k=0.1), [400]).tolist() == [80]  # a value and its place for each
    assert message_bytes(Preset(top_k=0.1, gradient_bits=16), [400]).tolist() == pytest.approx([60])


def test_half_as_many_bits_are_half_the_bytes_whoever_compresses() -> None:
    assert message_bytes(PRESETS["ddp-bf16"].preset, [400]).tolist() == [200]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["conv1", "relu", "fc6", "fc7"], [[0], [2], [3]]),
        (["embedding", "block1.qkv", "block1.fc", "block2.qkv", "norm"], [[0, 4], [1, 2], [3]]),
        (["network.embedding", "network.block1.qkv", "network.block2.qkv"], [[0], [1], [2]]),
        (["model.h.0.qkv", "model.h.0.fc", "model.h.1.qkv", "model.norm"], [[3], [0, 1], [2]]),
        (["conv2.0.conv1", "conv2.1.conv1", "fc"], [[2], [0], [1]]),
    ],
)
def test_blocks_are_the_modules_that_a_network_consists_of(names: list[str], expected: list[list[int]]) -> None:
    sizes = [0 if name == "relu" else 4 for name in names]
    assert blocks(names, sizes) == expected
    fsdp = PRESETS["fsdp"].preset
    assert buckets(fsdp, sizes, names=names) == [group[::-1] for group in reversed(expected)]
