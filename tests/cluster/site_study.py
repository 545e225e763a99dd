"""A study that holds every kind of job, storage and hardware of the test cluster, and a checkout for that site."""

import json
from pathlib import Path
from typing import Any

import little
import yaml
from checkout import Checkout
from cluster import HOME, Cluster
from storage_node import DATABASE_PORT, VOLUME

from stallpoint.strategies.presets import PRESETS

TIMED = [
    name
    for name, one in PRESETS.items()
    if one.preset.own.rounds == 1
    and not getattr(one.preset.own, "synchronous_steps", 0)
    and one.preset.sharding != "node"
]
"""Presets that do the same in each iteration; the others train to a target, or need several workers on a node."""
ALGORITHMS = [name for name, one in PRESETS.items() if one.preset.communicates and not one.preset.exact]
OF_EACH_FAMILY = (
    ["wfbp", "ddp", "fsdp", "pipeline", "one-weird-trick", "gossip", "asynchronous"],
    ["local-sgd", "dist-async"],
)
"""One preset of each family that is timed: data parallel by MPI and by PyTorch, sharded, pipeline, split outputs,
averaging, servers; and of those that train to a target."""

LOCAL = HOME / "local"
"""Each node's own disk."""
RAW = {"path": str(VOLUME / "images"), "format": "raw", "image_size": 64, "generate": 16}
STORAGES = ["digits", "volume", "staged", "database"]
NETWORKS = '''
import time
from pathlib import Path

from torch import nn


def small():
    layers = [nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*layers)


class Held(nn.Sequential):
    """Stands nearly still once as many visits to it have ended as the file `held` says."""

    def forward(self, images):
        ended = len([*Path("results/small/visits/train/network~held").rglob("visit~*")])
        time.sleep(0.5 if ended >= int(Path("held").read_text()) else 0)
        return super().forward(images)


def held():
    return Held(nn.AvgPool2d(7), nn.Flatten(), nn.Linear(48, 10))
'''
BLOCK: dict[str, Any] = {"network": "small", "hardware": "cpu", "batch": 4, "storage": "digits", "scaling": "strong"}
STUDY: dict[str, Any] = {
    "study": "small",
    "seed": 1,
    "iterations": 1,
    "warmup": 0,
    "visits": 1,
    "precision": 0,
    "hardware": {
        "cpu": {"device": "cpu", "nodes": 4},
        "slow": {"device": "cpu", "nodes": 2, "workers_per_node": 2},
        "odd": {"device": "cpu", "nodes": 2},
    },
    "storage": {
        "digits": {"path": "digits", "format": "idx", "generate": 80},
        "volume": {**RAW, "shared_link": True},
        "staged": {**RAW, "stage": True, "stage_to": str(LOCAL)},
        "database": {"path": "database/images", "format": "redis", "generate": 16, "shared_link": True},
    },
    "networks": {
        "small": {"build": "networks.py:small", "image_size": 28},
        "held": {"build": "networks.py:held", "image_size": 28},
    },
    "commands": {
        "own": {
            "run": "sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python examples/ddp.py'",
            "launch": "srun",
        },
    },
    "matrix": [
        {"network": "own", "hardware": "cpu", "nodes": 2, "batch": 16, "scaling": "weak", "sync": "ddp"},
        {**BLOCK, "nodes": [1, 4], "storage": STORAGES, "sync": "wfbp"},
        {**BLOCK, "nodes": 2, "sync": OF_EACH_FAMILY[0]},
        {**BLOCK, "nodes": 4, "scaling": "compute"},
        {**BLOCK, "hardware": "slow", "nodes": [1, 2]},
        {**BLOCK, "hardware": "slow", "nodes": 1, "scaling": "compute"},
        {**BLOCK, "hardware": "odd", "nodes": 2},
    ],
    "convergence": [
        {
            "network": "lenet",
            "hardware": "cpu",
            "nodes": 4,
            "batch": 16,
            "storage": "digits",
            "sync": OF_EACH_FAMILY[1],
            "recipe": "sgd",
            "max_epochs": 1,
            "seeds": 1,
        },
    ],
    "sgemm": {"batches": [1, 2], "samples": 1},
    "collectives": {"largest": 65536, "samples": 2},
    "storage_reads": {"samples": 4},
}
"""Every kind of job, storage and hardware, on one, two and four nodes."""
TABLES = "results/small/tables/runs.parquet"
"""Made when everything is measured, with all other tables of records."""


def new_checkout(folder: Path, **changes: Any) -> Checkout:
    """A checkout with the study, some of its entries changed, and the profile of the site.

    Jobs find their partitions; the profile is wrong about how MPI is launched on `odd`, and where `lost` is. Nodes of
    `slow` are shared and ask for GPUs.
    """
    checkout = Checkout(folder, {**STUDY, **changes})
    (folder / "networks.py").write_text(NETWORKS)
    server = Cluster.read(Path(__file__).with_name("storage.toml")).storage
    assert server
    (folder / "database").mkdir()
    (folder / "database/redis.json").write_text(json.dumps({"url": f"redis://{server.address}:{DATABASE_PORT}"}))
    with (folder / "src/stallpoint/measure/constants.py").open("a") as constants:
        constants.write(little.source(little.QUICK))
    file = folder / "profiles/slurm/config.yaml"
    profile = yaml.safe_load(file.read_text())
    defaults = profile["default-resources"]
    defaults["slurm_partition"] = "{'slow': 'slow', 'lost': 'nosuch'}.get(wildcards.get('hardware'), '')"
    defaults["gres"] = "{'slow': 'gpu:2'}.get(wildcards.get('hardware'), '')"
    defaults["slurm_extra"] = "'--exclusive' if wildcards.get('hardware', 'slow') != 'slow' else ''"
    right = defaults["launcher"]
    wrong = right.replace("--mpi=pmix", "--mpi=none")
    defaults["launcher"] = f"{{'odd': {wrong}}}.get(wildcards.get('hardware'), {right})"
    file.write_text(yaml.safe_dump(profile))
    return checkout
