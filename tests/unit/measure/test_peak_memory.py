"""The most memory of training, in a process that does more than train one network."""

import json
import subprocess
import sys
from typing import Any

import pytest
from launching import ENVIRONMENT

pytestmark = pytest.mark.ranks

PLANTED = 200 * 2**20
"""Bytes; of memory that another visit freed, and of what this one takes at most."""
PLANT = f"""
import sys
import torch
from torch import nn
from stallpoint.measure import resident
from stallpoint.measure.machine.peak_memory import PeakMemory
from stallpoint.measure.training import allocator as memory

class Known:
    name = "planted"
    def build(self, seed):
        return nn.Linear(1024, 5 * 1024)  # 20 MiB

memory.keep_freed()
cpu = torch.device("cpu")
network, found = resident.network(Known(), 0, cpu), []
kept = [resident.network(Known(), seed, cpu) for seed in range(1, 3)]
for take in (0, {PLANTED}, 0, {PLANTED // 2}):
    peak = PeakMemory(cpu)
    taken = torch.ones(take // 4)
    del taken
    found.append(peak.row({{"weights": network.parameters(), "gradients": [], "optimiser": []}}))
import json
print(json.dumps(found))
"""


def printed(*arguments: str) -> Any:
    """What a Python process of its own printed last, from JSON."""
    ran = subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, text=True, capture_output=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_planted_memory_is_found_whatever_was_taken_before() -> None:
    nothing, most, nothing_again, half = printed("-c", PLANT)
    assert nothing["weights"] == 4 * (1024 * 5 * 1024 + 5 * 1024)
    assert most["host_peak"] - nothing["host_peak"] == pytest.approx(PLANTED, rel=0.05)
    assert half["host_peak"] - nothing["host_peak"] == pytest.approx(PLANTED / 2, rel=0.05)
    assert nothing_again["host_peak"] == pytest.approx(nothing["host_peak"], abs=0.05 * PLANTED)
    for row in (nothing, most, nothing_again, half):
        assert row["device_peak"] is None
        assert row["process"] == pytest.approx(nothing["host_peak"] - nothing["weights"], rel=0.1)
