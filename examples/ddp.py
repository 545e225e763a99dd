"""Trains a small network on random images by DistributedDataParallel, under any launcher."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import stallpoint

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16, help="samples of one worker's mini-batch")
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(arguments.seed)
model = DistributedDataParallel(
    nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16 * 16, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
loader = DataLoader(data, arguments.batch, sampler=DistributedSampler(data), drop_last=True)

with stallpoint.probe(model, optimizer) as probe:
    for _epoch in range(100):
        for images, classes in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), classes)
            loss.backward()
            optimizer.step()
            probe.step()
