"""Options of presets, and properties that follow from them in every family of strategies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeVar

from typing_extensions import override

from stallpoint.errors import InputError

SYNCHRONOUS = "synchronous"
MIB = 1024 * 1024
SHARDED_SERVERS = "sharded-servers"
"""Name of the reduction scheme with servers on several ranks."""
FREE_SCHEMES = ("library", "parameter-server", SHARDED_SERVERS)
"""Reduction schemes that leave the choice of algorithms to the MPI library."""


def forced_scheme(scheme: str) -> str:
    """Return the reduction scheme to request before an MPI library is initialised; empty if the library may choose."""
    return "" if scheme.startswith(FREE_SCHEMES) else scheme


def sharded_servers(scheme: str) -> int:
    """Return the number of servers in a scheme's name: 2 for ``sharded-servers-2``; 0 if every rank is a server."""
    return int(scheme.removeprefix(SHARDED_SERVERS).removeprefix("-") or 0)


COMMUNICATORS = ("mpi", "mpi-copied", "torch")
"""Libraries that communicate gradients; also the backends that a study can choose (presets have ddp and fsdp too)."""
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
"""Collective operations whose times are measured, by the size of the complete message."""


@dataclass(frozen=True)
class FamilyOptions:
    """Base of the options that only one family of strategies has. Raises `InputError` for values out of range."""

    @property
    def rounds(self) -> int:
        """Return after how many iterations exchanges repeat, such as 4 if every fourth iteration has an exchange."""
        return 1

    @property
    def delays(self) -> bool:
        """Return whether some gradients are applied in a later iteration."""
        return False


Family = TypeVar("Family", bound=FamilyOptions)


def check_minimum(options: FamilyOptions | StepOptions, minimum: int, *names: str) -> None:
    """Raise `InputError` if one of the options `names` is below `minimum`."""
    for name in names:
        if getattr(options, name) < minimum:
            raise InputError(f"{name}: {getattr(options, name)} is not a number from {minimum} on")


@dataclass(frozen=True)
class DelayOptions(FamilyOptions):
    """Options of synchronous strategies whose workers have all layers."""

    blocks: int = 1
    """Number of blocks of layers; each block's gradients are applied one iteration later than the next block's."""

    def __post_init__(self) -> None:
        check_minimum(self, 1, "blocks")

    @property
    @override
    def delays(self) -> bool:
        return self.blocks > 1


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Options that all strategies have for the distribution of a step; see `presets.CHOICES`."""

    backend: str = "mpi"
    reduction: str = "library"
    servers: int = 0
    """Number of servers (the first ranks), each of a share of each message; 0: all ranks. Only for sharded-servers."""
    start: str = "layer-ready"
    grouping: str = "layer"
    fusion_bytes: int = 0
    """Size at which a fused group is sent, bytes; 0 unless groups are fused."""
    segment_bytes: int = 0
    """Maximum size of a segment of a message that the MPI library gets at once, bytes; 0: complete messages."""
    device_prefetch: bool = False
    """Whether prefetched mini-batches are also copied to the device ahead of time."""
    gradient_bits: int = 32
    """Bits for each gradient value sent: 32, 16 (half precision) or 8 (scaled integers)."""
    top_k: float = 1.0
    """Share of each message's values that is sent, the largest ones; the residual is added to the next message."""
    momentum_correction: float = 0.0
    """Momentum of the recipe that ranks apply before they choose values to send (top_k); 0 if applied after the sum."""
    sparse_warmup: int = 0
    """Number of iterations in which the sent share falls from 1 to top_k by equal factors."""
    sharding: str = "none"
    bucket_view: bool = False
    """Whether gradients are views of the buckets, which saves a copy; only for ddp."""
    static_graph: bool = False
    """Whether DistributedDataParallel assumes that all iterations are equal; only for ddp."""
    hook: str = "none"
    hook_rank: int = 1
    """Rank of PowerSGD's factors."""
    accumulate: int = 1
    """Number of parts of a worker's mini-batch, computed one by one; gradients are sent after the last part."""
    activation_checkpointing: bool = False
    """Whether blocks free their activations and recompute them before their backward pass."""
    algorithm: str = SYNCHRONOUS
    own: FamilyOptions = FamilyOptions()
    """Options that only the strategy's family has; its defaults unless given."""

    @property
    def communicator(self) -> str:
        """Return the library, one of `COMMUNICATORS`, that sends the gradients; it determines what messages cost."""
        return "torch" if self.backend in ("ddp", "fsdp") else self.backend

    @property
    def one_pass(self) -> bool:
        """Return whether a worker computes its mini-batch in one forward and one backward pass."""
        return self.accumulate == 1 and not self.activation_checkpointing

    @property
    def factored(self) -> bool:
        """Return whether factors of gradients are sent (PowerSGD). Only training cells measure how long they take."""
        return self.hook == "powersgd"

    @property
    def scheme(self) -> str:
        """Return the name of the reduction scheme, followed by the number of servers unless all ranks are servers."""
        return f"{self.reduction}-{self.servers}" if self.servers else self.reduction

    @property
    def communicates(self) -> bool:
        """Return whether gradients are synchronised; if not, the ranks' weights differ after the first update."""
        return self.start != "never"

    def family(self, kind: type[Family]) -> Family:
        """Return the options of the strategy's family, an object of the class `kind`."""
        if not isinstance(self.own, kind):
            raise TypeError(f"{type(self.own).__name__} instead of {kind.__name__}")
        return self.own

    def on(self, device: str) -> Self:
        """Return the options as used on `device`: a CPU has no device prefetch."""
        return replace(self, device_prefetch=False) if device == "cpu" else self

    @property
    def overlaps(self) -> bool:
        """Return whether the backward pass goes on while buckets are reduced; PowerSGD on a CPU interrupts it."""
        return self.start == "layer-ready" and not self.factored

    @property
    def uncompressed(self) -> bool:
        """Return whether no option compresses gradients; a hook of DistributedDataParallel may still change them."""
        return self.gradient_bits == 32 and self.top_k == 1

    @property
    def lossless(self) -> bool:
        """Return whether all gradients arrive unchanged, in single precision."""
        return self.uncompressed and self.hook == "none"

    def servers_among(self, ranks: int) -> int:
        return 1 if self.reduction != SHARDED_SERVERS else min(self.servers or ranks, ranks)
