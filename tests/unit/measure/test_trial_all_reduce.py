"""The all-reduce of `stallpoint check` on one node: what it gives, and that one that fails is no answer."""

import multiprocessing
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from stallpoint.measure.machine import trial_all_reduce
from stallpoint.measure.machine.trial_all_reduce import between_local_processes


def test_two_processes_all_reduce_and_none_of_them_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_all_reduce, "SECONDS", 0.02)
    rate = between_local_processes()
    assert rate is not None
    assert rate > 0
    assert multiprocessing.active_children() == []


def test_processes_that_fail_give_no_rate_and_say_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(all_reduce: Callable[[torch.Tensor], object], ranks: int) -> float:
        raise RuntimeError(f"a planted defect, {ranks} ranks")

    monkeypatch.setattr(trial_all_reduce, "_rate", fails)
    assert between_local_processes() is None
    assert capfd.readouterr().err == ""
    assert not dist.is_initialized()
