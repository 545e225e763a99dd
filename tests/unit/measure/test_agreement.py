from dataclasses import replace

import pytest
import torch
from visiting_cells import train

from stallpoint.errors import CannotRun
from stallpoint.measure import agreement
from stallpoint.networks import find_network
from stallpoint.strategies.presets import PRESETS, to_values

WFBP = to_values(PRESETS["wfbp"].preset)


def test_ranks_that_were_told_different_presets_are_named() -> None:
    agreement.same_preset([WFBP, {**WFBP, "accumulate": 1}, WFBP])
    with pytest.raises(CannotRun, match=r"disagree on the preset: accumulate is None on rank 0 and 2 on rank 1"):
        agreement.same_preset([WFBP, {**WFBP, "accumulate": 2}])
    with pytest.raises(CannotRun, match=r"start is layer-ready on rank 0 and after-backward on rank 2"):
        agreement.same_preset([WFBP, WFBP, to_values(PRESETS["naive"].preset)])


def test_weights_that_do_not_fit_are_told_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    network, device = find_network("gpt2-small"), torch.device("cpu")
    kept = 3 * network.gradient_bytes
    monkeypatch.setattr(agreement.available_memory, "host_memory", lambda sharing: kept // 2 // sharing)
    whole = train(nodes=2, network="gpt2-small")
    told = agreement.memory_problem(whole, network, device)
    assert told.startswith("out of memory: ")
    assert "gpt2-small take 1.49 GB of each worker, which may use 0.747 GB" in told
    sharded = replace(whole, preset=to_values(PRESETS["fsdp"].preset))
    assert agreement.memory_problem(sharded, network, device) == ""


def test_of_split_layers_a_worker_keeps_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    network, device = find_network("alexnet"), torch.device("cpu")
    split = 9216 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000
    kept = 3 * 4 * (network.parameters - split // 2)
    trick = replace(train(nodes=2), preset=to_values(PRESETS["one-weird-trick"].preset))
    for available, fits in ((kept + 8, True), (kept - 8, False)):
        monkeypatch.setattr(agreement.available_memory, "host_memory", lambda _, size=available: size)
        assert (agreement.memory_problem(trick, network, device) == "") == fits
    assert "alexnet take 0.73" in agreement.memory_problem(replace(trick, preset=WFBP), network, device)
