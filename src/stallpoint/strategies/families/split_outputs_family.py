"""Column parallelism of the last fully-connected layers, which are divided among the workers by outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from stallpoint import load
from stallpoint.errors import InputError
from stallpoint.strategies.division import Cuts
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, FamilyOptions
from stallpoint.strategies.strategy import Placement, PresetEntry, RequestedTraining, Strategy


class SplitOutputs(Strategy):
    """Column parallelism by scheme (a) of Krizhevsky."""

    value = "outputs"
    meaning = (
        "each rank has a share of the outputs of the last fully-connected layers and computes them for all "
        "samples, which are gathered; every rank has the other layers, whose gradients are summed"
    )
    own = FamilyOptions
    training = "measure.synchronisation.outputs:SplitLayers.begin"
    iteration = "models.iteration.tensor_parallel_iteration:TensorParallelIteration"
    independent = False
    calibrates = False
    no_target = "splits the outputs of layers, and runs to a target evaluate and save whole ones; ddp learns the same"
    operations = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
    updating = "none"
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "one-weird-trick": PresetEntry(
            "model parallelism of the last fully-connected layers: each worker computes a share of their outputs for "
            "the samples of all, which gather what these layers take; all layers before them are trained as by wfbp",
            "Krizhevsky (2014), sections 3 and 4, scheme (a); the survey, Model parallelism",
            look=("vermilion", "cross"),
        ),
    }

    @override
    def check(self) -> None:
        super().check()
        words = "backend: mpi, start, grouping and device_prefetch"
        self.check_fixed_options(words, "start", "grouping", "fusion_bytes", "device_prefetch")
        if not self.options.communicates:
            raise InputError(f"sharding: outputs goes only with {words}")

    @override
    def impossible(self, request: RequestedTraining) -> str:
        subject = f"preset {request.preset} splits"
        if request.ranks > 1 and request.command:
            return f"{subject} networks that stallpoint builds, and {request.network} is a command"
        if request.ranks > 1 and request.known and not request.known.split_layers:
            return f"{subject} fully-connected layers behind convolutions, and {request.network} has none"
        return ""

    @override
    def division(self, network: Any, ranks: int) -> Sequence[int]:
        """Return the positions of the split layers; they do not depend on the number of ranks."""
        found: Sequence[int] = load("networks.description:split_of")(network)
        return found

    @override
    def divides(self, placement: Placement, cuts: Cuts | None) -> bool:
        return cuts is not None and bool(cuts.split)

    @override
    def known(self, ranks: int, cuts: Cuts | None) -> bool:
        return cuts is not None and bool(cuts.split)

    @override
    def shards(self, placement: Placement) -> int:
        return placement[0] * placement[1]

    @override
    def divided(
        self, placement: Placement, sizes: Sequence[int], split: Callable[[], Collection[int] | None]
    ) -> tuple[float, float] | None:
        """Return into how many parts weights are divided on average; only split layers are divided."""
        if (layers := split()) is None:
            return None
        share = sum(sizes[layer] for layer in layers) / sum(sizes)
        parts = 1 / (1 - share * (1 - 1 / self.shards(placement)))
        return parts, parts

    @override
    def buffers(
        self, placement: Placement, names: Sequence[str], sizes: Sequence[int], cuts: Cuts | None, worker_batch: float
    ) -> float:
        """Return the bytes of the inputs that a worker gathers from all workers, for split layers and for the loss."""
        return sum(cuts.gathered.values()) * worker_batch * self.shards(placement) if cuts else 0.0

    @override
    def equation(self, *, prefetch: bool) -> str:
        return "outputs"
