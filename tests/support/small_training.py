"""Training of a network small enough for tests, on four ranks.

``small_training.py REDUCTION TARGET`` trains under a launcher, with every preset of that reduction scheme.
"""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

from stallpoint.measure import constants
from stallpoint.measure.jobs.train import Iteration, Trainer
from stallpoint.measure.training.input_pipeline import MiniBatch
from stallpoint.measure.world import World
from stallpoint.networks.layers import Classifier, initialise
from stallpoint.strategies.presets import PRESETS, Preset, preset_from, with_options

ITERATIONS = 12
SAMPLES = 8
"""The global mini-batch."""

DDP = PRESETS["ddp"].preset

EXAMPLES: dict[str, Preset] = {
    **{
        name: known.preset
        for name, known in PRESETS.items()
        if known.preset.communicates
        and known.preset.synchronous
        and not known.preset.own.delays
        and known.preset.strategy.independent
    },
    "recursive-doubling": Preset(reduction="recursive-doubling", start="after-backward"),
    "rabenseifner": Preset(reduction="rabenseifner"),
    "tree-merged": Preset(reduction="binary-tree", grouping="merged"),
    "server-fused": Preset(reduction="parameter-server", grouping="fused", fusion_bytes=2000, start="after-backward"),
    "two-servers": Preset(reduction="sharded-servers", servers=2),
    "segmented": Preset(grouping="fused", fusion_bytes=2000, segment_bytes=1024),
    "torch-layers": Preset(backend="torch"),
    "torch-merged": Preset(backend="torch", grouping="merged"),
    "16-bit": Preset(gradient_bits=16),
    "16-bit-copied": Preset(backend="mpi-copied", gradient_bits=16, start="after-backward"),
    "8-bit": Preset(gradient_bits=8, grouping="fused", fusion_bytes=2000),
    "16-bit-torch": Preset(backend="torch", gradient_bits=16, start="after-backward"),
    "8-bit-torch": Preset(backend="torch", gradient_bits=8),
    "accumulate": Preset(accumulate=2),
    "checkpointing": Preset(accumulate=2, activation_checkpointing=True),
    "ddp-powersgd": replace(PRESETS["ddp-powersgd"].preset, fusion_bytes=2000),
    "ddp-static": replace(DDP, static_graph=True),
    "ddp-accumulate": replace(DDP, bucket_view=True, fusion_bytes=2000, accumulate=2),
    "zero-1-accumulate": replace(DDP, sharding="optimiser", accumulate=2),
    "fsdp-plain": preset_from({"backend": "fsdp", "grouping": "block", "sharding": "full", "reshard": False}),
    "fsdp-accumulate": with_options(PRESETS["fsdp"].preset, {"gather_ahead": 2, "accumulate": 2}),
    "fsdp-checkpointing": replace(PRESETS["fsdp"].preset, activation_checkpointing=True),
    "top-k": Preset(top_k=0.25, grouping="merged"),
    "top-k-torch": Preset(backend="torch", top_k=0.25, gradient_bits=16),
}
"""The presets and whatever combinations they leave out."""


def network() -> nn.Module:
    small = Classifier(
        conv=nn.Conv2d(3, 4, 3),
        relu=nn.ReLU(inplace=True),
        norm=nn.LocalResponseNorm(3),
        flatten=nn.Flatten(),
        wide=nn.Linear(4 * 36, 60),  # its weights are sent where they lie
        relu2=nn.ReLU(),
        fc=nn.Linear(60, 6),
    )
    initialise(small, seed=3)
    return small


def batches(world: World, samples: int = SAMPLES, classes: int = 6) -> list[MiniBatch]:
    """This rank's part of the same samples."""
    random = torch.Generator().manual_seed(4)
    found = []
    for _ in range(ITERATIONS):
        images = torch.randn(samples, 3, 8, 8, generator=random).chunk(world.size)[world.rank]
        labels = torch.randint(classes, (samples,), generator=random).chunk(world.size)[world.rank]
        found.append(MiniBatch(images, labels, read=0.0, decode=0.0))
    return found


def train(world: World, preset: Preset, *, disturb: bool = False) -> tuple[dict[str, torch.Tensor], list[Iteration]]:
    """The weights after training, and its iterations; `disturb` changes a weight on one rank before the check."""
    source = iter(batches(world))
    with (
        large_gradients(),
        Trainer(network(), world, preset, torch.device("cpu"), warmup=3, per_node=min(2, world.size)) as trainer,
    ):
        iterations = [trainer.step(lambda: next(source)) for _ in range(ITERATIONS)]
        check_held(preset, world, trainer)
        with trainer.for_evaluation() as trained:
            if disturb:
                trained.state_dict()["fc.bias"][2] += 1e-3 * world.rank
            trainer.check_weights()
            weights = {
                name: getattr(values, "full_tensor", values.clone)() for name, values in trained.state_dict().items()
            }
    return {name.removeprefix("module."): values for name, values in weights.items()}, iterations


@contextmanager
def large_gradients() -> Iterator[None]:
    """A block in which those of the wide layer are sent where they lie."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "IN_PLACE_BYTES", 8192)
        yield


def check_held(preset: Preset, world: World, trainer: Trainer) -> None:
    """All ranks together hold weights, gradients and momenta as often as the preset says that they are not divided."""
    whole = sum(weights.nbytes for weights in network().parameters())
    shards = preset.strategy.shards((world.size // min(2, world.size), min(2, world.size)))
    for name, tensors in trainer.tensors.items() if preset.sharding != "none" else ():
        held = world.comm.allreduce(sum(one.nbytes for one in tensors))
        divided = preset.strategy.in_blocks or name == "optimiser"
        assert held == whole * world.size // (shards if divided else 1), (name, held)


Trained = tuple[dict[str, torch.Tensor], list[Iteration]]


def train_all(world: World, names: Collection[str]) -> dict[tuple[str, int], Trained]:
    """Train with each of `EXAMPLES` named, on all ranks and on pairs of them that share the work."""
    trained = {(name, world.size): train(world, EXAMPLES[name]) for name in names}
    number, rank = divmod(world.rank, 2)
    comm = world.comm.Split(number, rank)
    pair = World(comm, rank, 2, world.reduction)
    trained |= {(name, 2): train(pair, EXAMPLES[name]) for name in list(names)[number::2]}
    comm.Free()
    return trained


def train_with_a_weight_that_differs(world: World) -> None:
    """Train; a weight changes on one rank before the check."""
    train(world, Preset(reduction=world.reduction), disturb=True)


def main(reduction: str, target: str) -> None:
    """Train in every way; save what the first ranks saw."""
    torch.set_num_threads(1)
    world = World.start(4, reduction)
    names = [name for name, preset in EXAMPLES.items() if preset.reduction == reduction]
    everything = world.comm.gather(train_all(world, names))
    if everything:
        torch.save({**everything[2], **everything[0]}, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
