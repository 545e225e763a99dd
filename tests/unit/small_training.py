"""Training of a network small enough for tests, on one rank or, started under mpirun with a file to write, on two."""

import sys

import torch
from torch import nn

from stallpoint.measure import SYNCHRONISATIONS
from stallpoint.measure.pipeline import MiniBatch
from stallpoint.measure.train import Trainer
from stallpoint.measure.world import World
from stallpoint.networks.layers import Classifier, initialise

ITERATIONS = 3
SAMPLES = 4
"""The global mini-batch."""


def network() -> nn.Module:
    small = Classifier(
        conv=nn.Conv2d(3, 4, 3),
        relu=nn.ReLU(inplace=True),
        norm=nn.LocalResponseNorm(3),
        flatten=nn.Flatten(),
        fc=nn.Linear(4 * 36, 6),
    )
    initialise(small, seed=3)
    return small


def batches(world: World) -> list[MiniBatch]:
    """This rank's part of the same samples."""
    random = torch.Generator().manual_seed(4)
    found = []
    for _ in range(ITERATIONS):
        images = torch.randn(SAMPLES, 3, 8, 8, generator=random).chunk(world.size)[world.rank]
        labels = torch.randint(6, (SAMPLES,), generator=random).chunk(world.size)[world.rank]
        found.append(MiniBatch(images, labels, read=0.0, decode=0.0))
    return found


def train(world: World, sync: str, *, disturb: bool = False) -> dict[str, torch.Tensor]:
    """The weights after training; `disturb` changes one of them on one rank before they are checked."""
    small = network()
    source = iter(batches(world))
    with Trainer(small, world, sync, torch.device("cpu")) as trainer:
        for _ in range(ITERATIONS):
            trainer.step(lambda: next(source))
        if disturb:
            small.state_dict()["fc.bias"][2] += 1e-3 * world.rank
        trainer.check_weights()
    return small.state_dict()


def main(target: str) -> None:
    """Train on two ranks in every way, and save rank 0's weights; then check that a disturbance is noticed."""
    torch.set_num_threads(1)
    world = World.start(2)
    weights = {sync: train(world, sync) for sync in SYNCHRONISATIONS}
    if world.rank == 0:
        torch.save(weights, target)
    try:
        train(world, "naive", disturb=True)
    except ArithmeticError:
        return
    sys.exit("different weights went unnoticed")


if __name__ == "__main__":
    main(sys.argv[1])
