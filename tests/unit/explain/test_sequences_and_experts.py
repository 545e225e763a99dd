"""Planted rings of context parallelism, and experts of uneven load: what each costs, and on twice as many ranks."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from planted_traces import Events, in_words, sent

from stallpoint_traces.rank.rank import read_ranks
from stallpoint_traces.trace_answers import explain

UPDATE = 1e-3
"""Seconds."""


@dataclass(frozen=True)
class Ring:
    """Layers whose attention goes around a ring: each block is sent on while attention computes with it."""

    ranks: int = 4
    layers: int = 3
    dense: float = 8e-3
    """Of a layer on one rank alone, forward, without attention, s; backward it takes twice as long."""
    attention: float = 32e-3
    """Of a layer on one rank alone, forward, s."""
    latency: float = 0.0
    sending: float = 2e-3
    """Of the block of a complete sequence, s; backward it is twice as large."""
    noise: float = 0.0
    told: tuple[str, str] = ("", "")
    """Group and its purpose."""

    def make(self) -> tuple[Events, float]:
        """Return three iterations, and how long one takes, s."""
        made, drawn, begin = Events(workers=self.ranks), random.Random(1), 1.0
        for index in range(3):
            now = begin
            for backward in (False, True):
                first = now
                for _ in range(self.layers):
                    now = self._layer(made, now, 1 + backward, drawn)
                if backward:
                    made.backward(first, now - first)
            made.step(index, begin, now + UPDATE - begin, UPDATE)
            begin = now + UPDATE
        return made, (begin - 1.0) / 3

    def _layer(self, made: Events, now: float, times: int, drawn: random.Random) -> float:
        n, elements = self.ranks, 1_000_000 * times // self.ranks
        block = times * self.attention / n**2
        moved = self.latency + times * self.sending / n
        dense = times * self.dense / n
        made.kernel("gemm", now, dense)
        now += dense
        for step in range(n):
            took, sends = (of * (1 + self.noise * drawn.gauss(0, 1)) for of in (block, moved))
            if step < n - 1:
                called = sent("send", self.told[0], n, elements, self.told[1])
                made.kernel("ncclDevKernel_SendRecv(x)", now, sends, 21, 1e-6, **called)
            made.kernel("flash_fwd_kernel", now, took, early=5e-7)
            now += max(took, sends) if step < n - 1 else took
        return now


def told(folder: Path, *made: Events) -> list[dict[str, Any]]:
    return explain(read_ranks([one.write(folder) for one in made]))


@pytest.mark.parametrize("name", [("", ""), ("cp", "context")])
@pytest.mark.parametrize("ring", [Ring(), Ring(sending=12e-3), Ring(latency=0.4e-3), Ring(noise=0.1)])
def test_a_ring_is_told_and_carried_to_twice_as_many_ranks(ring: Ring, name: tuple[str, str], tmp_path: Path) -> None:
    made, seconds = replace(ring, told=name).make()
    (one,) = told(tmp_path, made)
    assert [group["parallelism"] for group in one["groups"]] == ["context"]
    found = one["ring"]
    assert (found["ranks"], found["exchanges"]) == (4, 2 * 3 * 3)
    hidden = 3 * 3 * (ring.attention / 16)
    exposed = max(0.0, 9 * (ring.latency + ring.sending / 4) - hidden) * 3
    if not ring.noise and not ring.latency:
        assert found["exposed"] == pytest.approx(exposed, abs=1e-5)
    twice = replace(ring, ranks=8).make()[1]
    assert found["twice_as_many"] == found["twice_as_many_high"] == pytest.approx(twice, rel=0.05)
    assert twice < seconds
    assert "Context: a ring of 4 ranks exchanges 18 blocks" in in_words([one])


def test_blocks_of_one_size_do_not_tell_latency(tmp_path: Path) -> None:
    ring = Ring(latency=1e-3, sending=4e-3)
    made, _ = ring.make()
    for event in made.events:
        event["args"].pop("In msg nelems", None)
    (one,) = told(tmp_path, made)
    found, twice = one["ring"], replace(ring, ranks=8).make()[1]
    assert found["twice_as_many"] < twice < found["twice_as_many_high"]
    assert "do not tell their latency" in in_words([one])


@dataclass(frozen=True)
class Experts:
    """Layers whose experts take as long as they get tokens, and whose exchanges take as long as the busiest rank."""

    routed: tuple[tuple[int, ...], ...]
    """Tokens from each rank to each."""
    layers: int = 2
    each: float = 1e-5
    """Of a token's experts, s."""
    sending: float = 2e-6
    """Of a token, s."""
    dense: float = 5e-3

    @property
    def loads(self) -> list[int]:
        """Tokens of each rank."""
        return [sum(row[rank] for row in self.routed) for rank in range(len(self.routed))]

    def seconds(self, most: float) -> float:
        """An iteration if the busiest rank has so many tokens."""
        return 2 * self.layers * (self.dense + (2 * self.sending + self.each) * most) + UPDATE

    def make(self, rank: int) -> Events:
        n, loads, most = len(self.routed), self.loads, max(self.loads)
        there = list(self.routed[rank])
        back = [row[rank] for row in self.routed]
        made = Events(rank, n)
        for index in range(3):
            begin = now = 1.0 + index * self.seconds(most)
            for layer in range(2 * self.layers):
                if layer == self.layers:
                    made.backward(now, 1e-3)
                made.kernel("gemm", now, self.dense)
                now += self.dense
                for first in (True, False):
                    sizes, others = (there, back) if first else (back, there)
                    called = sent("all_to_allv", "ep", n, sum(sizes), "expert", In_split_size=str(sizes),
                                  Out_split_size=str(others), Process_Group_Ranks=str(list(range(n))))  # fmt: skip
                    late = 0.0 if first else self.each * (most - loads[rank])
                    exchanged = late + self.sending * most
                    made.kernel("ncclDevKernel_SendRecv(x)", now, exchanged, 21, 1e-6, **called)
                    now += exchanged
                    if first:
                        made.kernel("grouped_gemm", now, self.each * loads[rank])
                        now += self.each * loads[rank]
            made.step(index, begin, self.seconds(most), UPDATE)
        return made


ALIKE = Experts(((700, 100, 100, 100),) * 4)
APART = Experts(((700, 100, 100, 100), (100, 700, 100, 100), (400, 400, 100, 100), (400, 200, 200, 200)))


@pytest.mark.parametrize(("experts", "ranks"), [(ALIKE, 1), (ALIKE, 4), (APART, 4)])
def test_uneven_experts_cost_what_evenly_spread_ones_would_save(experts: Experts, ranks: int, tmp_path: Path) -> None:
    found = told(tmp_path, *(experts.make(rank) for rank in range(ranks)))
    saved = experts.seconds(max(experts.loads)) - experts.seconds(1000)
    for one in found:
        of = one["imbalance"]
        assert (of["ranks"], of["all_traced"]) == (4, ranks == 4)
        assert of["busiest"] == pytest.approx(max(experts.loads) / 1000)
        assert of["computing"] + of["exchanging"] == pytest.approx(saved, rel=2e-3)
    words = in_words(found)
    assert f"Experts: the busiest of 4 ranks gets{'' if ranks == 4 else ', if all route as this one,'}" in words


def test_even_or_unknown_sizes_tell_no_imbalance(tmp_path: Path) -> None:
    made = ALIKE.make(0)
    for event in made.events:
        event["args"].update({"In split size": "[]", "Out split size": "[1, 2, ...]"})
    (one,) = told(tmp_path, made)
    assert one["imbalance"] is None
    (even,) = told(tmp_path, Experts(((250,) * 4,) * 4).make(0))
    assert even["imbalance"]["computing"] == even["imbalance"]["exchanging"] == 0
