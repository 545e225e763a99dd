"""A pipeline: each worker has a stage of the network, for one micro-batch after the other (GPipe)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from stallpoint import load
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import SEND_RECEIVE, FamilyOptions, check_minimum
from stallpoint.strategies.strategy import Placement, PresetEntry, RequestedTraining, Strategy

FORWARD, BACKWARD = "forward", "backward"
Pass = tuple[str, int]
"""Direction of a pass through a stage, and its micro-batch, counted from 1."""


@dataclass(frozen=True)
class PipelineOptions(FamilyOptions):
    """Options of pipelines."""

    micro_batches: int = 1
    """Number of parts of the global mini-batch, which pass through the stages one after the other."""

    def __post_init__(self) -> None:
        check_minimum(self, 1, "micro_batches")


class Pipeline(Strategy):
    """Pipeline with all forward passes first, then all backward passes, the last micro-batch first."""

    value = "stages"
    meaning = (
        "each rank has a stage: layers that follow one another, with about the same multiply-adds in each; "
        "it hands on what they compute, micro-batch by micro-batch, and gets the gradients of that (a pipeline)"
    )
    own = PipelineOptions
    training = "measure.synchronisation.pipeline_stages:Stage.begin"
    iteration = "models.iteration.pipeline_iteration:PipelineIteration"
    independent = False
    first_reads = True
    calibrates = False
    waiting = "bubble"
    no_target = "cuts the network into stages, and runs to a target evaluate and save whole ones; ddp learns the same"
    operations = (SEND_RECEIVE,)
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "pipeline": PresetEntry(
            "model parallelism: each worker has a stage of the network, through which 4 micro-batches go one after "
            "the other; all forward passes first, then all backward passes, the last micro-batch first. Activations "
            "are kept, where the paper computes them again",
            "Huang et al. (2019), GPipe, section 2 and Fig. 2c; the survey, Model parallelism",
            {"start": "after-backward", "micro_batches": 4},
            look=("vermilion", "circle"),
        ),
    }

    @property
    def micro_batches(self) -> int:
        return self.options.family(PipelineOptions).micro_batches

    def schedule(self, stage: int, depth: int) -> Sequence[Pass]:
        """Return the passes of a `stage` in order; stages are counted from 1."""
        parts = range(1, self.micro_batches + 1)
        return [(FORWARD, part) for part in parts] + [(BACKWARD, part) for part in reversed(parts)]

    @override
    def check(self) -> None:
        super().check()
        self.check_fixed_options("backend: mpi, start: after-backward and micro_batches", start="after-backward")

    @override
    def variants(self, factor: int, fused_bytes: int) -> Iterator[Mapping[str, Any]]:
        """Yield `factor` times as many micro-batches, which shortens the time in which stages are idle."""
        yield {"micro_batches": self.micro_batches * factor}

    @override
    def division(self, network: Any, ranks: int) -> Sequence[int]:
        """Return the first layer of each stage."""
        found: Sequence[int] = load("networks.description:pipeline_stages")(network, ranks)
        return found

    @override
    def impossible(self, request: RequestedTraining) -> str:
        if request.ranks == 1:
            return ""
        batch, count = request.worker_batch * request.ranks, self.micro_batches
        if batch % count:
            return f"B = {batch} is not divisible by the {count} micro_batches of preset {request.preset}"
        if request.command:
            return f"preset {request.preset} cuts networks that stallpoint builds, and {request.network} is a command"
        if request.known and request.ranks > request.known.max_stages:
            max_stages = request.known.max_stages
            return f"{request.ranks} stages, but network {request.network} can be cut into {max_stages} at most"
        return ""

    @override
    def known(self, ranks: int, cuts: Cuts | None) -> bool:
        """Return whether the network can be cut into as many stages as ranks."""
        return cuts is not None and ranks <= cuts.max_stages

    @override
    def shards(self, placement: Placement) -> int:
        return placement[0] * placement[1]

    @override
    def divided(
        self, placement: Placement, sizes: Sequence[int], split: Callable[[], Collection[int] | None]
    ) -> tuple[float, float]:
        """Return the parts of the weights and of the optimiser's state: on average, as many as there are stages."""
        return self.shards(placement), self.shards(placement)

    @override
    def equation(self, *, prefetch: bool) -> str:
        return "pipeline"
