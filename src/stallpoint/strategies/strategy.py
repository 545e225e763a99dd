"""What a strategy is: how a step is distributed, and all that others ask of it; each stands in `strategies.families`.

Nobody else branches by it: training, prediction, memory, plan and charts ask. What needs a tensor library or models is
named here, and loaded once it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from stallpoint.errors import InputError
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.messages import blocks
from stallpoint.strategies.options import ALL_REDUCE, Options

if TYPE_CHECKING:  # names are known without numpy
    from stallpoint.strategies.messages import Reals

Place = tuple[int, int]
"""Nodes, and workers on each."""


@dataclass(frozen=True)
class Entry:
    """A preset as its family knows it: what it chooses, what it does, and where that comes from."""

    description: str
    source: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    look: tuple[str, str] = ("grey", "circle")
    """Colour and shape in charts (`theme.PALETTE`, `theme.SHAPES`)."""
    alias_of: str = ""
    """The preset that it is another name of."""


class Trained(Protocol):
    """What is known of a network before it is built."""

    @property
    def name(self) -> str:
        """As in a study."""
        ...

    @property
    def most_stages(self) -> int:
        """Into how many stages it can be cut."""
        ...

    @property
    def split_layers(self) -> int:
        """Layers whose outputs can be split."""
        ...


@dataclass(frozen=True)
class Asked:
    """Training that a study asks for."""

    preset: str
    place: Place
    worker_batch: int
    network: str
    known: Trained | None
    """None for a network of the study's own."""
    command: bool
    """Whether the network is a script."""

    @property
    def ranks(self) -> int:
        """All workers."""
        return self.place[0] * self.place[1]


@dataclass(frozen=True)
class Strategy:
    """One way to distribute a step, by the `options` of a preset. What is not said otherwise is data-parallel SGD."""

    options: Options

    choice: ClassVar[str] = "sharding"
    """The choice of a preset that names it: sharding or algorithm."""
    value: ClassVar[str] = "none"
    """The value of this choice that is its name."""
    meaning: ClassVar[str] = "every rank has all weights, gradients and the whole state of the optimiser"
    own: ClassVar[tuple[str, ...]] = ("blocks",)
    """Choices that not every strategy has."""
    presets: ClassVar[Mapping[str, Entry]] = {}
    """The presets that every study knows of it, by name."""
    training: ClassVar[str] = "measure.synchronisation.assembly:replicas"
    """Begins a worker's part: ``(preset, worker) -> Synchronisation``."""
    iteration: ClassVar[str] = "models.iteration.replicas:Replicas"
    """Predicts iterations: a class made of a cluster and a point."""
    synchronous: ClassVar[bool] = True
    """Whether all ranks hold the same weights after each iteration."""
    independent: ClassVar[bool] = True
    """Whether a worker computes the loss of samples by itself: communication can then be left out."""
    first_reads: ClassVar[bool] = False
    """Whether the first rank reads the samples of all."""
    in_blocks: ClassVar[bool] = False
    """Whether passes gather the weights of each block, and wait for them."""
    calibrates: ClassVar[bool] = True
    """Whether its training cells show what training takes beyond its isolated parts."""
    waiting: ClassVar[str] = "straggling"
    """The part of the critical path that ranks wait for each other."""
    no_target: ClassVar[str] = ""
    """Why it is not trained to a target; empty where it is."""

    # --- what can be chosen ---------------------------------------------------------------------

    def check(self) -> None:
        """Raise `InputError` for options that do not go together; for those of its own, and what they need."""
        options = self.options
        if (options.backend == "fsdp", options.grouping == "block") != (self.in_blocks, self.in_blocks):
            raise InputError("backend: fsdp, grouping: block and sharding: full or node go together")
        if options.backend != "ddp" and (options.bucket_view or options.static_graph or options.hook != "none"):
            raise InputError("hook: this, bucket_view and static_graph are for backend: ddp alone")
        if options.static_graph and options.accumulate > 1:
            raise InputError("static_graph: DistributedDataParallel cannot accumulate gradients then (its no_sync)")
        if options.hook_rank < 1 or (options.hook_rank > 1 and options.hook != "powersgd"):
            raise InputError("hook_rank: a rank of 1 or more, for hook: powersgd alone")

    def goes_with(self, words: str, *free: str, **fixed: Any) -> None:
        """Raise `InputError` where options differ from their defaults, but for the `free` and the `fixed` ones."""
        for option in fields(self.options):
            wanted = fixed.get(option.name, option.default)
            if option.name not in (self.choice, *free) and getattr(self.options, option.name) != wanted:
                raise InputError(f"{self.choice}: {self.value} goes with {words} alone")

    def variants(self, raised: int, fused_bytes: int) -> Iterator[Mapping[str, Any]]:
        """Changes of one option that may make it faster: numbers `raised` times as high, messages of `fused_bytes`."""
        options = self.options
        if options.lossless:
            yield {"gradient_bits": 16}
        if options.grouping == "layer":
            yield {"grouping": "fused", "fusion_bytes": fused_bytes}
        elif options.grouping == "fused":
            for size in (options.fusion_bytes // raised, options.fusion_bytes * raised):
                yield {"fusion_bytes": size}
        yield {"accumulate": options.accumulate * raised}

    # --- where it can run -----------------------------------------------------------------------

    def impossible(self, asked: Asked) -> str:
        """Why it cannot train what is asked for; empty where it can."""
        return ""

    def divides(self, place: Place, cuts: Cuts | None) -> bool:
        """Whether there is anything to divide among the workers of `place`, where it divides weights or layers."""
        return True

    def known(self, ranks: int, cuts: Cuts | None) -> bool:
        """Whether `cuts` tell how a network is divided among so many ranks."""
        return True

    def division(self, network: Any, ranks: int) -> Sequence[int]:
        """The positions of layers where `network` is divided among several ranks; empty where it is not."""
        return ()

    # --- what it sends --------------------------------------------------------------------------

    @property
    def operations(self) -> tuple[str, ...]:
        """The collective operations that it sends."""
        return (ALL_REDUCE,)

    def places(self, place: Place) -> Mapping[Place, Collection[str]]:
        """Where on `place` which of them go."""
        return {place: self.operations}

    def group(self, place: Place) -> Place:
        """Where on `place` the ranks are that hold all weights together, once or, of replicas, each."""
        return place

    @property
    def gathers(self) -> int:
        """How often the weights, or those of each block, are gathered in an iteration."""
        return 0

    @property
    def frequency(self) -> float:
        """Exchanges in an iteration."""
        return 1 / self.options.period

    def exchanged(self, latency: Reals, rest: Reals, ranks: int, computing: Reals) -> tuple[Reals, Reals]:
        """What of a message's all-reduce, `latency` and the `rest`, an iteration takes beside `computing`, s."""
        return latency, rest

    @property
    def waits(self) -> bool:
        """Whether a worker waits for the slowest one."""
        return True

    @property
    def updates_on_server(self) -> bool:
        """Whether ranks that serve update the weights."""
        return self.synchronous and self.options.reduction == "parameter-server"

    @property
    def sends_by_itself(self) -> bool:
        """Whether it decides what is in a message, so that none can be sent empty."""
        return not (self.synchronous and self.independent) or self.options.backend in ("ddp", "fsdp")

    # --- what a worker keeps --------------------------------------------------------------------

    def shards(self, place: Place) -> int:
        """In how many parts the optimiser's state is; and weights and gradients, if sharded.

        Of split outputs, those of the layers that are split.
        """
        return 1

    def divided(
        self, place: Place, sizes: Sequence[int], split: Callable[[], Collection[int] | None]
    ) -> tuple[float, float] | None:
        """In how many parts weights and gradients are, and the optimiser's state; None where that is not known.

        `sizes` are those of the layers' gradients, `split` gives the layers whose outputs can be split.
        """
        return 1, self.shards(place)

    def buffers(
        self, place: Place, names: Sequence[str], sizes: Sequence[int], cuts: Cuts | None, worker_batch: float
    ) -> float:
        """What a worker has of messages beside weights and gradients, bytes."""
        return 0.0 if self.options.bucket_view or self.options.backend != "ddp" else float(sum(sizes))

    def kept(self, place: Place) -> float:
        """The part of a worker's samples whose activations are in memory at once."""
        return 1 / self.options.accumulate

    # --- what it is called ----------------------------------------------------------------------

    @property
    def updating(self) -> str:
        """Those of one name update alike."""
        return self.options.sharding

    def equation(self, *, prefetch: bool) -> str:
        """The equation of Shi et al. (2018) that its task graph is, where nothing slows anything down; or a name."""
        if not prefetch:
            return "eq. 2 with t_c^no" if self.options.overlaps else "eq. 2"
        return "eq. 5" if self.options.overlaps else "eq. 3"


def load(name: str) -> Any:
    """What stands under a name such as ``measure.synchronisation.assembly:replicas``."""
    module, _, attribute = name.partition(":")
    return attrgetter(attribute)(import_module(f"stallpoint.{module}"))


def largest_block(names: Sequence[str], sizes: Sequence[int]) -> float:
    """Bytes of the largest block of layers (`messages.blocks`)."""
    return max((float(sum(sizes[layer] for layer in members)) for members in blocks(names, sizes)), default=0.0)


def at_least(options: Options, least: int, *names: str) -> None:
    """Raise `InputError` for an option below the least that it can be."""
    for name in names:
        if getattr(options, name) < least:
            raise InputError(f"{name}: {getattr(options, name)} is not a number from {least} on")
