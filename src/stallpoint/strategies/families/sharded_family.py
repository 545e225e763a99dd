"""Sharded data parallelism: ZeRO-1, FSDP and HSDP."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, MIB, REDUCE_SCATTER, DelayOptions, check_minimum
from stallpoint.strategies.strategy import Placement, PresetEntry, RequestedTraining, Strategy, largest_block

_REFUSAL = "shards weights or the optimiser, and runs to a target evaluate and save whole ones; ddp learns the same"


class ShardedOptimiser(Strategy):
    """ZeRO-1: each worker updates its share of the weights."""

    value = "optimiser"
    meaning = "each rank updates its share of the weights alone, and sends it to all (ZeRO-1); for ddp alone"
    training = "measure.synchronisation.zero:ShardedOptimiser.begin"
    no_target = _REFUSAL
    operations = (ALL_REDUCE, ALL_GATHER)
    gathers = 1
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "zero-1": PresetEntry(
            "ddp, but each rank keeps the momenta of an equal share of the weights and updates it alone; then all "
            "gather",
            "Rajbhandari et al. (2020), ZeRO, stage 1",
            {"backend": "ddp", "grouping": "fused", "fusion_bytes": 25 * MIB},
            look=("olive", "triangle-right"),
        ),
    }

    @override
    def check(self) -> None:
        super().check()
        if self.options.backend != "ddp":
            raise InputError("sharding: optimiser is only for backend: ddp")

    @override
    def shards(self, placement: Placement) -> int:
        return placement[0] * placement[1]

    @override
    def buffers(
        self, placement: Placement, names: Sequence[str], sizes: Sequence[int], cuts: Cuts | None, worker_batch: float
    ) -> float:
        """Return the bytes of buckets, a worker's share of the weights and the gathered weights together."""
        buckets = super().buffers(placement, names, sizes, cuts, worker_batch)
        return buckets + float(sum(sizes)) * (1 + 1 / self.shards(placement))


@dataclass(frozen=True)
class ShardedOptions(DelayOptions):
    """Options of fsdp."""

    gather_ahead: int = 0
    """Number of blocks whose weights are gathered while earlier blocks compute; 0: a block is gathered when needed."""
    reshard: bool = True
    """Whether a block's gathered weights are freed after its forward pass, and gathered again for its backward pass."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, 0, "gather_ahead")


class Sharded(Strategy):
    """FSDP: weights, gradients and the optimiser's state are sharded."""

    value = "full"
    meaning = (
        "each rank keeps its share of weights, gradients and the optimiser's state; blocks are gathered for "
        "their forward and for their backward pass (ZeRO-3); for fsdp alone"
    )
    own = ShardedOptions
    training = "measure.synchronisation.fsdp:FullySharded.begin"
    iteration = "models.iteration.sharded_iteration:ShardedIteration"
    in_blocks = True
    no_target = _REFUSAL
    operations: tuple[str, ...] = (ALL_GATHER, REDUCE_SCATTER)
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "fsdp": PresetEntry(
            "PyTorch's FSDP2: each rank keeps its share of weights, gradients and momenta; each block is gathered "
            "while the one before it computes, and its gradients are summed and scattered. On CPUs, which have no "
            "streams, computing waits for each reduce-scatter; all-gathers are asynchronous there too, but in scripts "
            "of one's own",
            "Zhao et al. (2023), PyTorch FSDP; torch.distributed.fsdp.fully_shard",
            {"backend": "fsdp", "grouping": "block", "gather_ahead": 1},
            look=("pink", "square"),
        ),
    }

    @override
    def check(self) -> None:
        super().check()
        if (self.options.start, self.options.uncompressed) != ("layer-ready", True):
            raise InputError("backend: fsdp goes with start: layer-ready and uncompressed gradients")

    @property
    @override
    def gathers(self) -> int:
        """Return the number of gathers: one for each forward pass, and one for each backward pass if `reshard`."""
        return self.options.accumulate * (2 if self.options.family(ShardedOptions).reshard else 1)

    @override
    def shards(self, placement: Placement) -> int:
        """Return the number of shards: one for each worker of a group."""
        nodes, workers = self.group(placement)
        return nodes * workers

    @override
    def divides(self, placement: Placement, cuts: Cuts | None) -> bool:
        return self.shards(placement) > 1

    @override
    def divided(
        self, placement: Placement, sizes: Sequence[int], split: Callable[[], Collection[int] | None]
    ) -> tuple[float, float]:
        """Return the number of shards, which is the same for weights, gradients and the optimiser's state."""
        return self.shards(placement), self.shards(placement)

    @override
    def buffers(
        self, placement: Placement, names: Sequence[str], sizes: Sequence[int], cuts: Cuts | None, worker_batch: float
    ) -> float:
        """Return the bytes of communication buffers; each buffer is as large as the largest block.

        Buffers hold the weights of the present block and of each block ahead, a block's gradients, and a copy to send.
        If a mini-batch has several parts, unsharded gradients of all blocks are added.
        """
        total = float(sum(sizes)) if self.options.accumulate > 1 else 0.0
        return (3 + self.options.family(ShardedOptions).gather_ahead) * largest_block(names, sizes) + total

    @override
    def equation(self, *, prefetch: bool) -> str:
        return "sharded"


class HybridSharded(Sharded):
    """Hybrid sharding (HSDP): shards inside a node, all-reduces between nodes."""

    value = "node"
    meaning = "the same among the ranks of a node, and each node has all (hybrid sharding); for fsdp alone"
    operations = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "hsdp": PresetEntry(
            "fsdp inside each node, and all-reduces of the shares between the nodes",
            "Zhao et al. (2023), PyTorch FSDP, section 3.2.2: hybrid sharding",
            {"backend": "fsdp", "grouping": "block", "gather_ahead": 1},
            look=("pink", "triangle-right"),
        ),
    }

    @override
    def group(self, placement: Placement) -> Placement:
        return 1, placement[1]

    @override
    def places(self, placement: Placement) -> Mapping[Placement, Collection[str]]:
        """Return the operations inside a node, and the all-reduce of equal shards between nodes."""
        nodes, workers = placement
        shard_groups = {} if nodes == 1 else {(nodes, 1): (ALL_REDUCE,), placement: ()}
        return {(1, workers): self.operations, **shard_groups}

    @override
    def impossible(self, request: RequestedTraining) -> str:
        if request.placement[1] == 1 and request.placement[0] > 1:
            return f"preset {request.preset} shards inside a node, which has one worker; fsdp shards over all"
        return ""
