"""Trains a small network on random images by a Trainer of Lightning, under any launcher."""

import argparse
import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stallpoint.measure.probe.pytorch_lightning import ProbeCallback

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16, help="samples of one worker's mini-batch")
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
# Lightning does not take these from torchrun: with devices=1 each worker would train a model of its own.
workers = int(os.environ.get("WORLD_SIZE", 1))
workers_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))


class Classifier(lightning.LightningModule):
    """A network, its loss and its optimiser."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, 10),
        )

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a mini-batch."""
        images, classes = batch
        return nn.functional.cross_entropy(self.network(images), classes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


lightning.seed_everything(arguments.seed, verbose=False)
data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=workers_per_node,
    num_nodes=workers // workers_per_node,
    strategy="ddp" if workers > 1 else "auto",
    max_epochs=100,
    callbacks=[ProbeCallback()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Classifier(), DataLoader(data, arguments.batch, shuffle=True, drop_last=True))
