"""How training frameworks bring the workers' gradients together, each as a few declared choices.

A preset says what is sent, when, in which groups and by which algorithm; `stallpoint.measure.synchronisation` does it
and `stallpoint.models` predicts it. To add one, add an entry to `PRESETS`, or name it in the study under ``presets``.
This module imports no tensor library, so that a study can be checked in an instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from stallpoint.errors import InputError
from stallpoint.strategies import algorithms
from stallpoint.strategies.algorithms import SYNCHRONOUS

CHOICES: dict[str, dict[str, str]] = {
    "backend": {
        "mpi": "the site's MPI library",
        "mpi-copied": "the same; each message is copied into memory of its own before it is sent, as gRPC serialises, "
        "and what came out of it",
        "torch": "torch.distributed: NCCL between GPUs, Gloo between CPUs",
        "ddp": "PyTorch's DistributedDataParallel, which groups and starts by itself; fusion_bytes is its bucket size",
        "fsdp": "PyTorch's FSDP2 (fully_shard), block by block",
    },
    "reduction": {
        "library": "all-reduce by whatever algorithm the library takes",
        "ring": "all-reduce around a ring",
        "recursive-doubling": "all-reduce by exchanging whole buffers with partners 1, 2, 4, ... ranks away",
        "rabenseifner": "all-reduce as reduce-scatter by recursive halving and all-gather by recursive doubling",
        "binary-tree": "reduce to one rank along a binary tree, then broadcast along one",
        "parameter-server": "every gradient to one rank, which updates the weights and sends them back to each",
        "sharded-servers": "every rank is a server too: it adds its share of each message and sends the sums to each",
    },
    "start": {
        "after-backward": "communication begins after the whole backward pass",
        "layer-ready": "each message goes as soon as its gradients are complete (wait-free back-propagation)",
        "never": "gradients stay where they are, and every rank updates with its own: training without communication",
    },
    "grouping": {
        "layer": "one message for each layer",
        "fused": "layers wait for each other until fusion_bytes are together",
        "merged": "layers are merged where the latency saved outweighs the wait, by the α-β model",
        "block": "one message for each block of layers, and one for the layers outside of blocks; for fsdp alone",
    },
    "sharding": {
        "none": "every rank has all weights, gradients and the whole state of the optimiser",
        "optimiser": "each rank updates its share of the weights alone, and sends it to all (ZeRO-1); for ddp alone",
        "full": "each rank keeps its share of weights, gradients and the optimiser's state; blocks are gathered for "
        "their forward and for their backward pass (ZeRO-3); for fsdp alone",
        "node": "the same among the ranks of a node, and each node has all (hybrid sharding); for fsdp alone",
        "stages": "each rank has a stage: layers that follow one another, with about the same multiply-adds in each; "
        "it hands on what they compute, micro-batch by micro-batch, and gets the gradients of that (a pipeline)",
        "outputs": "each rank has a share of the outputs of the last fully-connected layers and computes them for all "
        "samples, which are gathered; every rank has the other layers, whose gradients are summed",
    },
    "hook": {
        "none": "DistributedDataParallel sums buckets as they are",
        "fp16": "its hook that sends them in half precision",
        "bf16": "its hook that sends them in bfloat16",
        "powersgd": "its hook that sends two factors of low rank (hook_rank), with error feedback",
    },
    "algorithm": algorithms.ALGORITHMS,
    "server_optimiser": algorithms.SERVER_OPTIMISERS,
}
"""Values of the choices a preset makes, and what they mean."""

REDUCTIONS = tuple(CHOICES["reduction"])
SHARDED = "sharded-servers"
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
_LATER = (
    "sharding", "gather_ahead", "reshard", "bucket_view", "static_graph", "hook", "hook_rank", "accumulate",
    "activation_checkpointing", "micro_batches", "algorithm", *algorithms.FIELDS,
)  # fmt: skip
"""Fields that were added after records were made: cells are told of them only where they say something."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to bring the workers' gradients together; see `CHOICES`.

    Raises `InputError` naming the field that has no such value or fits no other.
    """

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

    def __post_init__(self) -> None:
        for field, values in CHOICES.items():
            if getattr(self, field) not in values:
                raise InputError(f"{field}: {getattr(self, field)!r} is not one of {', '.join(values)}")
        if self.gradient_bits not in (8, 16, 32):
            raise InputError(f"gradient_bits: {self.gradient_bits} is not one of 8, 16, 32")
        if not 0 < self.top_k <= 1:
            raise InputError(f"top_k: {self.top_k} is not a share above 0 and at most 1")
        if (self.fusion_bytes > 0) != (self.grouping == "fused"):
            raise InputError("fusion_bytes: a size above 0 and grouping: fused go together")
        if self.communicator == "torch" and self.reduction != "library":
            raise InputError(f"reduction: backend {self.backend} has library alone, not {self.reduction}")
        if self.backend == "ddp" and (self.start, self.grouping, self._whole) != ("layer-ready", "fused", True):
            raise InputError("backend: ddp goes with start: layer-ready, grouping: fused and whole gradients")
        self._check_sharding()
        if not self.communicates and replace(self, start="layer-ready", device_prefetch=False) != Preset():
            raise InputError("start: never goes with device_prefetch alone, as nothing is sent")
        if self.segment_bytes < 0 or self.segment_bytes % 4 or (self.segment_bytes and self.communicator == "torch"):
            raise InputError("segment_bytes: a multiple of 4 bytes, for backends mpi and mpi-copied alone")
        if self.servers < 0 or (self.servers and self.reduction != SHARDED):
            raise InputError(f"servers: a number of ranks, 0 for all, for reduction: {SHARDED} alone")
        if self.reduction == "parameter-server" and not self.lossless:
            raise InputError("reduction: a parameter-server sends weights back, so gradients go whole")
        if self.reduction != "library" and not self.lossless:
            raise InputError(
                f"reduction: {self.reduction} adds whole gradients; compressed ones are exchanged by all-to-all and "
                "all-gather, so they go with library"
            )
        algorithms.check(self)

    def _check_sharding(self) -> None:
        """What the backends of torch.distributed alone can do, and what goes together there."""
        if (self.backend == "fsdp") != (self.grouping == "block") or self.shards_weights != (self.backend == "fsdp"):
            raise InputError("backend: fsdp, grouping: block and sharding: full or node go together")
        if self.backend == "fsdp" and (self.start, self._whole) != ("layer-ready", True):
            raise InputError("backend: fsdp goes with start: layer-ready and whole gradients")
        if self.sharding == "optimiser" and self.backend != "ddp":
            raise InputError("sharding: optimiser is for backend: ddp alone")
        if self.backend != "fsdp" and (self.gather_ahead or not self.reshard):
            raise InputError("gather_ahead: this and reshard are for backend: fsdp alone")
        if self.backend != "ddp" and (self.bucket_view or self.static_graph or self.hook != "none"):
            raise InputError("hook: this, bucket_view and static_graph are for backend: ddp alone")
        if self.static_graph and self.accumulate > 1:
            raise InputError("static_graph: DistributedDataParallel cannot accumulate gradients then (its no_sync)")
        if self.hook_rank < 1 or (self.hook_rank > 1 and self.hook != "powersgd"):
            raise InputError("hook_rank: a rank of 1 or more, for hook: powersgd alone")
        if self.staged and replace(self, sharding="none", micro_batches=1) != Preset(start="after-backward"):
            raise InputError("sharding: stages goes with backend: mpi, start: after-backward and micro_batches alone")
        as_usual: dict[str, Any] = {
            "start": "layer-ready", "grouping": "layer", "fusion_bytes": 0, "device_prefetch": False,
        }  # fmt: skip
        if self.splits_outputs and (not self.communicates or replace(self, sharding="none", **as_usual) != Preset()):
            raise InputError("sharding: outputs goes with backend: mpi, start, grouping and device_prefetch alone")
        if self.micro_batches > 1 and not self.staged:
            raise InputError("micro_batches: is for sharding: stages alone; parts of a worker's own are accumulate")
        for field in ("gather_ahead", "accumulate", "micro_batches"):
            if getattr(self, field) < (least := 0 if field == "gather_ahead" else 1):
                raise InputError(f"{field}: {getattr(self, field)} is not a number of {least} or more")

    @property
    def communicator(self) -> str:
        """What moves the gradients, one of `COMMUNICATORS`: presets that agree in it cost the same for each message."""
        return "torch" if self.backend in ("ddp", "fsdp") else self.backend

    @property
    def shards_weights(self) -> bool:
        """Whether no rank keeps all weights (or none but those of its node do)."""
        return self.sharding in ("full", "node")

    @property
    def staged(self) -> bool:
        """Whether the layers are divided among the ranks."""
        return self.sharding == "stages"

    @property
    def splits_outputs(self) -> bool:
        """Whether the outputs of fully-connected layers are divided among the ranks."""
        return self.sharding == "outputs"

    @property
    def model_parallel(self) -> bool:
        """Whether a rank alone cannot compute the loss of its samples."""
        return self.staged or self.splits_outputs

    @property
    def operations(self) -> tuple[str, ...]:
        """The collective operations that it sends, those of `OPERATIONS`."""
        of_sharding = {
            "optimiser": (ALL_REDUCE, ALL_GATHER),
            "full": (ALL_GATHER, REDUCE_SCATTER),
            "node": (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER),
            "stages": (SEND_RECEIVE,),
            "outputs": (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER),
        }
        return of_sharding.get(self.sharding, (ALL_REDUCE,)) if self.communicates else ()

    @property
    def one_pass(self) -> bool:
        """Whether a worker computes its mini-batch in one forward and one backward pass."""
        return self.accumulate == 1 and not self.activation_checkpointing

    @property
    def gathers(self) -> int:
        """How often the weights, or those of each block, are gathered in an iteration."""
        once = {"none": 0, "optimiser": 1, "stages": 0, "outputs": 0}
        return once.get(self.sharding, self.accumulate * (2 if self.reshard else 1))

    @property
    def predictable(self) -> bool:
        """Whether the models know what it does; they do not know what factoring gradients takes (PowerSGD)."""
        return self.hook != "powersgd"

    def shards(self, nodes: int, workers_per_node: int) -> int:
        """In how many parts the optimiser's state is on so many workers; and weights and gradients, if sharded.

        Of split outputs, those of the layers that are split.
        """
        among = {"none": 1, "node": workers_per_node}
        return among.get(self.sharding, nodes * workers_per_node)

    @property
    def scheme(self) -> str:
        """The reduction scheme, with the number of servers if that is not all ranks."""
        return f"{self.reduction}-{self.servers}" if self.servers else self.reduction

    @property
    def communicates(self) -> bool:
        """Whether gradients are brought together; if not, the ranks' weights differ after the first update."""
        return self.start != "never"

    def on(self, device: str) -> Preset:
        """What it does where `device` computes: on a CPU there is no memory of a device to read ahead into."""
        return replace(self, device_prefetch=False) if device == "cpu" else self

    @property
    def overlaps(self) -> bool:
        """Whether messages go during the backward pass."""
        return self.start == "layer-ready"

    @property
    def lossless(self) -> bool:
        """Whether every gradient value arrives in single precision."""
        return self._whole and self.hook == "none"

    @property
    def _whole(self) -> bool:
        return self.gradient_bits == 32 and self.top_k == 1

    @property
    def synchronous(self) -> bool:
        """Whether all ranks hold the same weights after each iteration."""
        return self.algorithm == SYNCHRONOUS

    @property
    def shares_batches(self) -> bool:
        """Whether the weights depend on the global mini-batch alone, however many workers share it."""
        return self.synchronous and self.lossless

    @property
    def exact(self) -> bool:
        """Whether the weights are those that one worker with the global mini-batch would compute."""
        return self.shares_batches and self.blocks == 1

    @property
    def exact_alone(self) -> bool:
        """Whether they are where there is one worker, which has nobody to wait for or to be ahead of."""
        return self.lossless and self.blocks == 1

    @property
    def served(self) -> bool:
        """Whether servers answer each worker for itself."""
        return self.algorithm in algorithms.SERVED

    @property
    def updates_on_server(self) -> bool:
        """Whether ranks that serve update the weights."""
        of_one = self.synchronous and self.reduction == "parameter-server"
        return of_one or self.algorithm in algorithms.UPDATED_BY_SERVERS

    @property
    def waits(self) -> bool:
        """Whether a worker waits for the slowest one."""
        return not self.served or self.staleness_bound is not None

    def servers_among(self, ranks: int) -> int:
        """How many of the `ranks` serve."""
        return 1 if self.reduction != SHARDED else min(self.servers or ranks, ranks)


@dataclass(frozen=True, slots=True)
class KnownPreset:
    """A preset with its description and where that comes from."""

    preset: Preset
    description: str
    source: str


NONE = "none"
"""The preset that does not communicate; compute cells, one worker alone, bear its name."""
_MIB = 1024 * 1024
_SHI = "Shi et al. (2018), section IV-C"

PRESETS: dict[str, KnownPreset] = {
    "naive": KnownPreset(
        Preset(start="after-backward"),
        "layer by layer, after the whole backward pass",
        "Shi et al. (2018), eq. (2)",
    ),
    "wfbp": KnownPreset(
        Preset(),
        "wait-free back-propagation: layer by layer, during the backward pass",
        "Shi et al. (2018), eq. (4); Zhang et al. (2017), Poseidon",
    ),
    "intelcaffe": KnownPreset(
        Preset(),
        "one MPI all-reduce for each layer, hidden behind the computation as long as there is any left",
        "Keuper & Pfreundt (2016), sections I-B2 and II",
    ),
    "firecaffe": KnownPreset(
        Preset(reduction="binary-tree", start="after-backward"),
        "gradients up a binary reduction tree, sums down by broadcast",
        "Iandola et al. (2016), FireCaffe; Keuper & Pfreundt (2016), section II-A and Fig. 3",
    ),
    "caffe-mpi": KnownPreset(
        Preset(device_prefetch=True),
        "wait-free back-propagation; mini-batches are read ahead into the device's memory",
        _SHI,
    ),
    "mxnet": KnownPreset(
        Preset(),
        "wait-free back-propagation; mini-batches are read ahead into the host's memory only; its kvstore dist_sync is "
        "sharded-servers",
        _SHI,
    ),
    "tensorflow": KnownPreset(
        Preset(backend="mpi-copied"),
        "as mxnet, with the copies of gRPC around each message (not its latency); two of its parameter servers are "
        "sharded-servers with servers: 2",
        _SHI,
    ),
    "cntk": KnownPreset(
        Preset(start="after-backward"),
        "communication after the whole backward pass; mini-batches are read ahead into the host's memory only. The "
        "paper says no more; that CNTK packs gradients of up to 32 KiB into one first message is not imitated",
        _SHI,
    ),
    "parameter-server": KnownPreset(
        Preset(reduction="parameter-server"),
        "gradients to one rank as they become ready; it updates the weights and sends them back",
        "Li et al. (2014); Keuper & Pfreundt (2016), footnote 13",
    ),
    "sharded-servers": KnownPreset(
        Preset(reduction="sharded-servers"),
        "a parameter server beside every worker, each for an equal share of every message, as MXNet's dist_sync cuts "
        "large arrays; the servers add gradients, and the workers update their weights",
        "Li et al. (2014); Chen et al. (2015), MXNet",
    ),
    "horovod": KnownPreset(
        Preset(reduction="ring", grouping="fused", fusion_bytes=64 * _MIB),
        "ring all-reduce of fused tensors; groups are fixed by size, without Horovod's timer, as all ranks know them",
        "Sergeev & Del Balso (2018)",
    ),
    "ddp": KnownPreset(
        Preset(backend="ddp", grouping="fused", fusion_bytes=25 * _MIB),
        "PyTorch's DistributedDataParallel with its default buckets: the reference",
        "Li et al. (2020), PyTorch Distributed",
    ),
    "ddp-fp16": KnownPreset(
        Preset(backend="ddp", grouping="fused", fusion_bytes=25 * _MIB, hook="fp16"),
        "ddp with its hook that sends gradients in half precision",
        "Li et al. (2020), PyTorch Distributed; torch.distributed.algorithms.ddp_comm_hooks",
    ),
    "ddp-bf16": KnownPreset(
        Preset(backend="ddp", grouping="fused", fusion_bytes=25 * _MIB, hook="bf16"),
        "ddp with its hook that sends gradients in bfloat16",
        "torch.distributed.algorithms.ddp_comm_hooks",
    ),
    "ddp-powersgd": KnownPreset(
        Preset(backend="ddp", grouping="fused", fusion_bytes=25 * _MIB, hook="powersgd"),
        "ddp with its hook that sends factors of rank 1 of each weight's gradient, from the third iteration on; on a "
        "CPU one bucket after the other",
        "Vogels, Karimireddy & Jaggi (2019), PowerSGD; torch.distributed.algorithms.ddp_comm_hooks",
    ),
    "zero-1": KnownPreset(
        Preset(backend="ddp", grouping="fused", fusion_bytes=25 * _MIB, sharding="optimiser"),
        "ddp, but each rank keeps the momenta of an equal share of the weights and updates it alone; then all gather",
        "Rajbhandari et al. (2020), ZeRO, stage 1",
    ),
    "fsdp": KnownPreset(
        Preset(backend="fsdp", grouping="block", sharding="full", gather_ahead=1),
        "PyTorch's FSDP2: each rank keeps its share of weights, gradients and momenta; each block is gathered "
        "while the one before it computes, and its gradients are summed and scattered. On CPUs, which have no streams, "
        "computing waits for each reduce-scatter; all-gathers are asynchronous there too, but in scripts of one's own",
        "Zhao et al. (2023), PyTorch FSDP; torch.distributed.fsdp.fully_shard",
    ),
    "hsdp": KnownPreset(
        Preset(backend="fsdp", grouping="block", sharding="node", gather_ahead=1),
        "fsdp inside each node, and all-reduces of the shares between the nodes",
        "Zhao et al. (2023), PyTorch FSDP, section 3.2.2: hybrid sharding",
    ),
    "mg-wfbp": KnownPreset(
        Preset(grouping="merged"),
        "wait-free back-propagation with layers merged where the α-β model says that it saves time",
        "Shi, Chu & Li (2019), MG-WFBP",
    ),
    "segmented": KnownPreset(
        Preset(start="after-backward", grouping="fused", fusion_bytes=1024 * _MIB, segment_bytes=_MIB),
        "one message after the backward pass, handed to MPI in segments that stay in the processor's cache",
        "stallpoint: fastest where ranks share memory and all cores compute, see docs/measuring.md",
    ),
    "wfbp-segmented": KnownPreset(
        Preset(grouping="fused", fusion_bytes=25 * _MIB, segment_bytes=_MIB),
        "wait-free back-propagation of fused layers, handed to MPI in segments that stay in the processor's cache",
        "stallpoint, see docs/measuring.md",
    ),
    "parameter-averaging": KnownPreset(
        Preset(start="after-backward", algorithm="averaging", period=16),
        "each worker trains by itself; after every 16 iterations all take the mean of their weights",
        "McDonald, Hall & Mann (2010); the survey, Parameter averaging",
    ),
    "local-sgd": KnownPreset(
        Preset(start="after-backward", algorithm="averaging", period=4),
        "the same with few local steps, 4; momenta stay with their workers",
        "Stich (2019), algorithm 1",
    ),
    "post-local-sgd": KnownPreset(
        Preset(start="after-backward", algorithm="averaging", period=4, synchronous_steps=500),
        "weights are averaged in each of the first 500 iterations (with sgd, momentum and nesterov that is synchronous "
        "SGD), then in every fourth. The paper switches at the first decay of the step size",
        "Lin et al. (2020), section 3",
    ),
    "diloco": KnownPreset(
        Preset(start="after-backward", algorithm="averaging", period=32, outer_step=0.7, outer_momentum=0.9),
        "the mean way of the workers in 32 iterations is the gradient of an outer Nesterov step. The paper's inner "
        "optimiser is AdamW over 500 iterations; here it is that of the recipe",
        "Douillard et al. (2023), DiLoCo, algorithm 1 and section 3",
    ),
    "gossip": KnownPreset(
        Preset(start="after-backward", algorithm="gossip"),
        "decentralised: after each iteration the mean of a worker's weights and its two neighbours' around a ring",
        "Lian et al. (2017), D-PSGD, algorithm 1; mixed after the update",
    ),
    "elastic-averaging": KnownPreset(
        Preset(reduction="parameter-server", start="after-backward", algorithm="elastic", period=10),
        "after every 10 iterations a worker's weights and the server's centre move towards each other, by 0.9/n of "
        "their distance; the centre is what is trained",
        "Zhang, Choromanska & LeCun (2015), algorithm 1 (asynchronous EASGD)",
    ),
    "asynchronous": KnownPreset(
        Preset(reduction="parameter-server", start="after-backward", algorithm="asynchronous"),
        "a server updates with each gradient as it arrives, and answers with its weights; nobody waits for another. "
        "Losses are divided by n, which is the step size over the usual staleness",
        "Zhang et al. (2016), Staleness-aware async-SGD, section 3; Gupta, Zhang & Wang (2016)",
    ),
    "soft-synchronous": KnownPreset(
        Preset(
            reduction="parameter-server", start="after-backward", algorithm="asynchronous", gradients_per_update=0
        ),
        "the same, but the server updates when it has as many gradients as there are workers, whoever sent them",
        "Gupta, Zhang & Wang (2016), 1-softsync",
    ),
    "stale-synchronous": KnownPreset(
        Preset(reduction="parameter-server", start="after-backward", algorithm="asynchronous", staleness_bound=3),
        "asynchronous, but nobody gets more than 3 iterations ahead of the slowest worker",
        "Ho et al. (2013), Stale Synchronous Parallel",
    ),
    "dist-async": KnownPreset(
        Preset(reduction="sharded-servers", start="after-backward", algorithm="asynchronous"),
        "asynchronous, with a server beside every worker, each for an equal share of the weights, as MXNet's "
        "dist_async has them (there array by array, and losses are not divided by n)",
        "Chen et al. (2015), MXNet; Serebryakov (2017)",
    ),
    "downpour": KnownPreset(
        Preset(
            reduction="sharded-servers", servers=2, start="after-backward", algorithm="downpour", period=5,
            pull_period=5, server_optimiser="adagrad",
        ),
        "replicas train by themselves, send the sum of their gradients and take the weights every 5 iterations; 2 "
        "servers update with Adagrad, each its own share. The paper's replicas do not wait for a pull",
        "Dean et al. (2012), Downpour SGD, algorithm 1.1",
    ),
    "delayed-gradients": KnownPreset(
        Preset(blocks=2),
        "wfbp, but the gradients of all blocks of layers before the last are applied later, by an iteration for each "
        "block in between. That blocks then go backward at once needs a device for each, and is not built",
        "Huo et al. (2018), Decoupled Parallel Backpropagation, section 3; the survey",
    ),
    "pipeline": KnownPreset(
        Preset(start="after-backward", sharding="stages", micro_batches=4),
        "model parallelism: each worker has a stage of the network, through which 4 micro-batches go one after the "
        "other; all forward passes first, then all backward passes, the last micro-batch first. Activations are kept, "
        "where the paper computes them again",
        "Huang et al. (2019), GPipe, section 2 and Fig. 2c; the survey, Model parallelism",
    ),
    "one-weird-trick": KnownPreset(
        Preset(sharding="outputs"),
        "model parallelism of the last fully-connected layers: each worker computes a share of their outputs for the "
        "samples of all, which gather what these layers take; all layers before them are trained as by wfbp",
        "Krizhevsky (2014), sections 3 and 4, scheme (a); the survey, Model parallelism",
    ),
    NONE: KnownPreset(
        Preset(start="never"),
        "sends nothing, every rank updates with its own gradients: what another preset takes beyond it is what "
        "communicating costs there; ranks do not train together, so it is none to choose",
        "Serebryakov (2017), TensorFlow's variable update `independent`; see docs/models/interventions.md",
    ),
}  # fmt: skip
"""The presets every study knows, by name."""


def presets_of(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Preset]:
    """`PRESETS` and those a study defines: name -> fields that differ from preset ``like``.

    Raises `InputError` naming the entry. An entry may build on one before it.
    """
    presets = {name: known.preset for name, known in PRESETS.items()}
    for name, entry in config.items():
        where = f"presets.{name}"
        if name in PRESETS:
            raise InputError(f"{where}: that name is taken; presets of the study need names of their own")
        changes = {key: value for key, value in entry.items() if key != "like"}
        if entry["like"] not in presets:
            raise InputError(f"{where}.like: no preset {entry['like']!r}; known so far: {', '.join(presets)}")
        try:
            presets[name] = replace(presets[entry["like"]], **changes)
        except InputError as error:
            raise InputError(f"{where}.{error}") from None
    return presets


def to_values(preset: Preset) -> dict[str, Any]:
    """The fields of a preset, as a cell is told them; those of `_LATER` only where they say something."""
    said = {field.name: (getattr(preset, field.name), field.default) for field in fields(preset)}
    return {name: value for name, (value, default) in said.items() if name not in _LATER or value != default}


def preset_from(values: Mapping[str, Any]) -> Preset:
    """The preset a cell was told; raises `InputError` for a field it does not know."""
    names = [field.name for field in fields(Preset)]
    if unknown := sorted(set(values) - set(names)):
        raise InputError(f"preset: unknown {', '.join(unknown)}; known: {', '.join(names)}")
    return Preset(**values)
