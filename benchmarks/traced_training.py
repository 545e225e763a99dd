"""A small training over Gloo, traced by torch.profiler: ``srun ... traced_training.py HOW FOLDER``, a rank a task.

HOW is ddp-dense, ddp-convolutions or fsdp-dense. Each rank writes FOLDER/rank<r>.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
from stallpoint.measure.world import World

WARMUP, TRACED = 3, 8
BATCH, WIDTH, DEPTH = 64, 512, 8


def main(how: str, folder: Path) -> None:
    world = World.start(int(os.environ["SLURM_NTASKS"]))
    torch.set_num_threads(1)
    torch.manual_seed(2018)
    communicator = TorchCommunicator(world, torch.device("cpu"))
    network, images = _network(how)
    if how.startswith("fsdp"):
        for layer in network:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        trained: nn.Module = fully_shard(network)
    else:
        trained = DistributedDataParallel(network, bucket_cap_mb=2)
    optimiser = torch.optim.SGD(trained.parameters(), lr=0.01)
    labels = torch.randint(0, 10, (len(images),))
    steps = schedule(wait=0, warmup=WARMUP, active=TRACED, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, record_shapes=True) as profiler:
        for _ in range(WARMUP + TRACED):
            optimiser.zero_grad()
            nn.functional.cross_entropy(trained(images), labels).backward()
            optimiser.step()
            profiler.step()
    profiler.export_chrome_trace(str(folder / f"rank{world.rank}.json"))
    communicator.close()


def _network(how: str) -> tuple[nn.Sequential, torch.Tensor]:
    if how.endswith("convolutions"):
        layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU()]
        for channels in (32, 64, 128, 256):
            layers += [nn.Conv2d(channels, 2 * channels, 3, 2, 1), nn.ReLU()]
        pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
        return nn.Sequential(*layers, *pooled), torch.randn(16, 3, 64, 64)
    dense: list[nn.Module] = []
    for _ in range(DEPTH):
        dense += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*dense, nn.Linear(WIDTH, 10)), torch.randn(BATCH, WIDTH)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
