"""Interface of a strategy, the distribution of a step; implementations are in `strategies.families`.

Training, prediction, memory, plan and charts call the interface, and never ask for the family. Functions and classes
that need a tensor library or models are given by name, and imported on use (`stallpoint.load`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from stallpoint.errors import InputError
from stallpoint.strategies.buckets import blocks
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import ALL_REDUCE, DelayOptions, FamilyOptions, StepOptions

if TYPE_CHECKING:  # numpy takes long to import, and few uses of strategies need it
    from stallpoint.strategies.buckets import Reals

Placement = tuple[int, int]
"""Number of nodes, and of workers on each node."""


@dataclass(frozen=True)
class PresetEntry:
    """A built-in preset of a strategy: description, source, and the options that it sets."""

    description: str
    source: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    look: tuple[str, str] = ("grey", "circle")
    """Colour and shape in charts (`theme.PALETTE`, `theme.SHAPES`)."""
    alias_of: str = ""
    """Name of the preset for which this is another name."""


class NetworkProperties(Protocol):
    """Properties of a network before it is built."""

    @property
    def name(self) -> str:
        """Name in a study."""
        ...

    @property
    def max_stages(self) -> int:
        """Maximum number of pipeline stages."""
        ...

    @property
    def split_layers(self) -> int:
        """Number of layers whose outputs can be split."""
        ...


@dataclass(frozen=True)
class RequestedTraining:
    """A training that a study requests."""

    preset: str
    placement: Placement
    worker_batch: int
    network: str
    known: NetworkProperties | None
    """Properties of the network; None for the study's own."""
    command: bool
    """Whether the network is a script."""

    @property
    def ranks(self) -> int:
        return self.placement[0] * self.placement[1]


@dataclass(frozen=True)
class Strategy:
    """A way to distribute a step with a preset's `options`; unless overridden, all is as in data-parallel SGD."""

    options: StepOptions

    choice: ClassVar[str] = "sharding"
    """Choice of a preset that selects the strategy: sharding or algorithm."""
    value: ClassVar[str] = "none"
    """Value of `choice` that selects the strategy."""
    meaning: ClassVar[str] = "every rank has all weights, gradients and the whole state of the optimiser"
    own: ClassVar[type[FamilyOptions]] = DelayOptions
    """Class of the options that only the strategy's family has."""
    presets: ClassVar[Mapping[str, PresetEntry]] = {}
    """Built-in presets by name."""
    training: ClassVar[str] = "measure.synchronisation.assembly:replicas"
    """Name of the function that makes a worker's synchronisation: ``(preset, worker) -> Synchronisation``."""
    iteration: ClassVar[str] = "models.iteration.replicas:Replicas"
    """Name of the class that predicts iterations, constructed from a cluster and a point."""
    synchronous: ClassVar[bool] = True
    """Whether all ranks hold the same weights after each iteration."""
    independent: ClassVar[bool] = True
    """Whether a worker can compute the loss of samples without others, so that communication can be excluded."""
    first_reads: ClassVar[bool] = False
    """Whether the first rank reads the samples of all ranks."""
    in_blocks: ClassVar[bool] = False
    """Whether passes gather the weights of each block and wait for the gathers."""
    answered_separately: ClassVar[bool] = False
    """Whether servers answer each worker separately, so that messages do not end on all ranks at once."""
    calibrates: ClassVar[bool] = True
    """Whether training cells with the strategy calibrate the slowdown of training relative to isolated parts."""
    waiting: ClassVar[str] = "straggling"
    """Name of the part of the critical path in which ranks wait for each other."""
    no_target: ClassVar[str] = ""
    """Reason why the strategy cannot train to a target; empty if it can."""

    # --- options --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `InputError` for options that cannot be combined."""
        options = self.options
        if (options.backend == "fsdp", options.grouping == "block") != (self.in_blocks, self.in_blocks):
            raise InputError("backend: fsdp, grouping: block and sharding: full or node go together")
        if options.backend != "ddp" and (options.bucket_view or options.static_graph or options.hook != "none"):
            raise InputError("hook: this, bucket_view and static_graph are only for backend: ddp")
        if options.static_graph and options.accumulate > 1:
            raise InputError("static_graph: DistributedDataParallel cannot accumulate gradients then (its no_sync)")
        if options.hook_rank < 1 or (options.hook_rank > 1 and options.hook != "powersgd"):
            raise InputError("hook_rank: a rank of 1 or more, only for hook: powersgd")

    def check_fixed_options(self, words: str, *free: str, **fixed: Any) -> None:
        """Raise `InputError` if an option differs from its value in `fixed`; other options need their defaults.

        Options in `free` and options of the family may have any value. The error's message ends with `words`.
        """
        for option in fields(self.options):
            if option.name == "own":
                continue
            required_value = fixed.get(option.name, option.default)
            if option.name not in (self.choice, *free) and getattr(self.options, option.name) != required_value:
                raise InputError(f"{self.choice}: {self.value} goes only with {words}")

    def variants(self, factor: int, fused_bytes: int) -> Iterator[Mapping[str, Any]]:
        """Yield alternative changes of options, each of which may make training faster.

        Numbers are multiplied or divided by `factor`. Buckets of `fused_bytes` replace layers that are sent alone.
        """
        options = self.options
        if options.lossless:
            yield {"gradient_bits": 16}
        if options.grouping == "layer":
            yield {"grouping": "fused", "fusion_bytes": fused_bytes}
        elif options.grouping == "fused":
            for size in (options.fusion_bytes // factor, options.fusion_bytes * factor):
                yield {"fusion_bytes": size}
        yield {"accumulate": options.accumulate * factor}

    # --- requirements ---------------------------------------------------------------------------

    def impossible(self, request: RequestedTraining) -> str:
        """Return why the strategy cannot do the requested training; empty if it can."""
        return ""

    def divides(self, placement: Placement, cuts: Cuts | None) -> bool:
        """Return whether the strategy can divide the network on `placement`; True if it never divides networks."""
        return True

    def known(self, ranks: int, cuts: Cuts | None) -> bool:
        """Return whether it is known how the network with these `cuts` is divided among `ranks`."""
        return True

    def division(self, network: Any, ranks: int) -> Sequence[int]:
        """Return positions of layers that divide the network: first layers of stages, or layers with split outputs."""
        return ()

    # --- communication --------------------------------------------------------------------------

    @property
    def operations(self) -> tuple[str, ...]:
        return (ALL_REDUCE,)

    def places(self, placement: Placement) -> Mapping[Placement, Collection[str]]:
        """Map the placement of each group of ranks to the group's operations; `placement` is that of all ranks."""
        return {placement: self.operations}

    def group(self, placement: Placement) -> Placement:
        """Return the placement of the ranks that share one copy of the weights, within `placement`."""
        return placement

    @property
    def gathers(self) -> int:
        """Return how often weights are gathered in an iteration."""
        return 0

    @property
    def frequency(self) -> float:
        """Return the number of exchanges per iteration."""
        return 1.0

    def exchanged(self, latency: Reals, transfer: Reals, ranks: int, computing: Reals) -> tuple[Reals, Reals]:
        """Return the latency and transfer time of an exchange, s; an all-reduce takes `latency` and `transfer`."""
        return latency, transfer

    @property
    def waits(self) -> bool:
        """Return whether a worker waits for the slowest worker."""
        return True

    @property
    def updates_on_server(self) -> bool:
        return self.synchronous and self.options.reduction == "parameter-server"

    @property
    def sends_by_itself(self) -> bool:
        """Return whether messages cannot be made empty for an experiment: the strategy or PyTorch sends them."""
        return not (self.synchronous and self.independent) or self.options.backend in ("ddp", "fsdp")

    # --- memory ---------------------------------------------------------------------------------

    def shards(self, placement: Placement) -> int:
        """Return the number of parts of the optimiser's state; sharded weights and split layers have as many."""
        return 1

    def divided(
        self, placement: Placement, sizes: Sequence[int], split: Callable[[], Collection[int] | None]
    ) -> tuple[float, float] | None:
        """Return the number of parts of weights and gradients, and of parts of the optimiser's state; None if unknown.

        `sizes` are the bytes of each layer's gradients; `split` returns the layers whose outputs can be split.
        """
        return 1, self.shards(placement)

    def buffers(
        self, placement: Placement, names: Sequence[str], sizes: Sequence[int], cuts: Cuts | None, worker_batch: float
    ) -> float:
        """Return the bytes of a worker's communication buffers."""
        return 0.0 if self.options.bucket_view or self.options.backend != "ddp" else float(sum(sizes))

    def kept(self, placement: Placement) -> float:
        """Return the share of a worker's samples whose activations are in memory at once."""
        return 1 / self.options.accumulate

    # --- names ----------------------------------------------------------------------------------

    @property
    def updating(self) -> str:
        """Return the name of the kind of weight update."""
        return self.options.sharding

    def equation(self, *, prefetch: bool) -> str:
        """Name the equation for an iteration without slowdown, such as ``eq. 2`` of Shi et al. (2018)."""
        if not prefetch:
            return "eq. 2 with t_c^no" if self.options.overlaps else "eq. 2"
        return "eq. 5" if self.options.overlaps else "eq. 3"


def largest_block(names: Sequence[str], sizes: Sequence[int]) -> float:
    """Return the bytes of the largest of the network's `blocks`."""
    return max((float(sum(sizes[layer] for layer in members)) for members in blocks(names, sizes)), default=0.0)
