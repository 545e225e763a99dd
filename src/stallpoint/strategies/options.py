"""What a preset can choose, and what follows from the choices themselves, whatever family of strategies makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

SYNCHRONOUS = "synchronous"
MIB = 1024 * 1024
SHARDED = "sharded-servers"
"""The reduction scheme with a server on several ranks."""
UNFORCED = ("library", "parameter-server", SHARDED)
"""Reduction schemes that leave the choice of algorithms to the MPI library."""


def forced(scheme: str) -> str:
    """The scheme that an MPI library has to be told before it is initialised; empty where it chooses itself."""
    return "" if scheme.startswith(UNFORCED) else scheme


def servers_of(scheme: str) -> int:
    """Servers of a scheme of sharded servers (`Preset.scheme`); 0 for one on every rank."""
    return int(scheme.removeprefix(SHARDED).removeprefix("-") or 0)


COMMUNICATORS = ("mpi", "mpi-copied", "torch")
"""What moves gradients, and the backends a study can choose: ``ddp`` and ``fsdp`` are those of presets alone."""
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
SEND_RECEIVE = "send-receive"
OPERATIONS = {
    ALL_REDUCE: "every rank gets the sum of all ranks' messages",
    ALL_GATHER: "every rank gets all ranks' parts, which together are the message",
    REDUCE_SCATTER: "every rank gets its part of the sum of all ranks' messages",
    "broadcast": "every rank gets the first one's message",
    "all-to-all": "every rank gets a part of each rank's message",
    SEND_RECEIVE: "every rank sends its message to the next one, and gets that of the one before",
}
"""Collective operations whose times are measured, by message size: that of the whole message."""


@dataclass(frozen=True, slots=True)
class Options:
    """One way to distribute a step, as far as it can be chosen; see `presets.CHOICES`."""

    backend: str = "mpi"
    reduction: str = "library"
    servers: int = 0
    """Ranks that serve a share of each message, the first ones; 0 for all. For reduction sharded-servers alone."""
    start: str = "layer-ready"
    grouping: str = "layer"
    fusion_bytes: int = 0
    """Size at which a group is sent, bytes; 0 unless groups are fused."""
    segment_bytes: int = 0
    """Longest piece of a message handed to the MPI library at once, bytes; 0 hands over whole messages."""
    device_prefetch: bool = False
    """Mini-batches read ahead are also copied ahead to the device."""
    gradient_bits: int = 32
    """Bits for each gradient value sent: 32, 16 (half precision) or 8 (scaled integers)."""
    top_k: float = 1.0
    """Share of each message's values that is sent, the largest ones; what is left out is added next time."""
    sharding: str = "none"
    gather_ahead: int = 0
    """Blocks whose weights are gathered while others compute; 0: none is before it is needed. For fsdp alone."""
    reshard: bool = True
    """Gathered weights of a block are freed after its forward pass, and gathered again; for fsdp alone."""
    bucket_view: bool = False
    """Gradients lie in the buckets that are sent, which saves a copy of them; for ddp alone."""
    static_graph: bool = False
    """DistributedDataParallel is told that every iteration does the same; for ddp alone."""
    hook: str = "none"
    hook_rank: int = 1
    """Rank of PowerSGD's factors."""
    accumulate: int = 1
    """Parts that a worker's mini-batch is computed in, one after the other; gradients are sent after the last."""
    activation_checkpointing: bool = False
    """Blocks free what they compute in their forward pass, and compute it again before their backward pass."""
    micro_batches: int = 1
    """Parts of the global mini-batch that go through the stages one after the other; for sharding: stages alone."""
    algorithm: str = SYNCHRONOUS
    period: int = 1
    """Iterations from one exchange to the next; of downpour, from push to push."""
    pull_period: int = 1
    """Of downpour: iterations from pull to pull."""
    synchronous_steps: int = 0
    """Of averaging: iterations at the beginning after each of which weights are averaged."""
    outer_step: float = 1.0
    """Of averaging: part of the way to the mean that is gone; with momentum the step of the outer optimiser."""
    outer_momentum: float = 0.0
    """Of averaging: Nesterov momentum of the outer optimiser, whose gradient is the way from mean to start."""
    gradients_per_update: int = 1
    """Of asynchronous: gradients that the server collects for an update; 0 for as many as workers."""
    staleness_bound: int | None = None
    """Of asynchronous: iterations by which a worker may be ahead of the slowest one; None for any."""
    server_optimiser: str = "recipe"
    elasticity: float = 0.9
    """Of elastic: n times the part of their distance by which weights and centre move in each exchange of n workers."""
    blocks: int = 1
    """Of synchronous: blocks of layers; the gradients of each are applied an iteration later than those of the next."""

    @property
    def communicator(self) -> str:
        """What moves the gradients, one of `COMMUNICATORS`: presets that agree in it cost the same for each message."""
        return "torch" if self.backend in ("ddp", "fsdp") else self.backend

    @property
    def one_pass(self) -> bool:
        """Whether a worker computes its mini-batch in one forward and one backward pass."""
        return self.accumulate == 1 and not self.activation_checkpointing

    @property
    def predictable(self) -> bool:
        """Whether the models know what it does; they do not know what factoring gradients takes (PowerSGD)."""
        return self.hook != "powersgd"

    @property
    def scheme(self) -> str:
        """The reduction scheme, with the number of servers if that is not all ranks."""
        return f"{self.reduction}-{self.servers}" if self.servers else self.reduction

    @property
    def communicates(self) -> bool:
        """Whether gradients are brought together; if not, the ranks' weights differ after the first update."""
        return self.start != "never"

    @property
    def rounds(self) -> int:
        """Iterations after which it does the same again: any multiple of them takes as long on average."""
        return math.lcm(self.period, self.pull_period)

    def on(self, device: str) -> Self:
        """What it does where `device` computes: on a CPU there is no memory of a device to read ahead into."""
        return replace(self, device_prefetch=False) if device == "cpu" else self

    @property
    def overlaps(self) -> bool:
        """Whether messages go during the backward pass."""
        return self.start == "layer-ready"

    @property
    def whole_values(self) -> bool:
        """Whether gradients are sent as they are, all of them, where no hook compresses them."""
        return self.gradient_bits == 32 and self.top_k == 1

    @property
    def lossless(self) -> bool:
        """Whether every gradient value arrives in single precision."""
        return self.whole_values and self.hook == "none"

    def servers_among(self, ranks: int) -> int:
        """How many of the `ranks` serve."""
        return 1 if self.reduction != SHARDED else min(self.servers or ranks, ranks)
