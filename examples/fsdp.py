"""Trains a small transformer on random tokens, each of its blocks sharded by FSDP2, under any launcher."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import stallpoint

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4, help="samples of one worker's mini-batch")
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
WORDS, LENGTH, WIDTH = 1000, 32, 64

dist.init_process_group("gloo")
torch.manual_seed(arguments.seed)
blocks = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(3)]
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.Linear(WIDTH, WORDS))
for block in blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randint(0, WORDS, (512, LENGTH + 1)))
loader = DataLoader(data, arguments.batch, sampler=DistributedSampler(data), drop_last=True)

with stallpoint.probe(model, optimizer) as probe:
    for _epoch in range(100):
        for (tokens,) in loader:
            optimizer.zero_grad()
            scores = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            probe.step()
