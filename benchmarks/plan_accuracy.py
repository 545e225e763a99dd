"""Planned against used node-hours: three small studies of tiny networks, first without any record, then with their own.

Each study is measured twice, as the workflow measures it: before the first time the plan knows of no visit on this
machine, but the networks were described (`snakemake results/<study>/networks/<network>.parquet`); before the second it
knows the visits of the first. Nothing of it depends on rounds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from paired import Figure, Timing, figure

from stallpoint.networks.description import describe
from stallpoint.networks.own import own_network
from stallpoint.records.parquet import write
from stallpoint.records.tables import NETWORK_LAYERS
from stallpoint.schedule import requested, visit_durations
from stallpoint.schedule.agenda import Agenda, Limits
from stallpoint.schedule.plan import Job, planned
from stallpoint.schedule.processes import THIS_MACHINE
from stallpoint.schedule.session import measure_cells
from stallpoint.storage import Storage
from stallpoint.storage.generate import prepare
from stallpoint.study.kinds import MEASURED
from stallpoint.study.study import expand

NAME = "planned against used"
SCHEMA = Path(__file__).parents[1] / "workflow/schemas/study.schema.yaml"
NETWORKS = """
from torch import nn


def shallow():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(784, 10))


def wide():
    hidden = [nn.Linear(3072, 2000), nn.ReLU(), nn.Linear(2000, 2000), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(2000, 10))


def deep():
    blocks = [[nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()] for _ in range(8)]
    layers = [layer for block in blocks for layer in block]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), *layers, *last)
"""
BLOCK = {"hardware": "here", "nodes": [1, 2], "storage": "raw", "scaling": ["strong", "compute"]}


def studies(scratch: Path) -> dict[str, dict[str, Any]]:
    """A convolution and linear layers at several mini-batches; synchronised in several ways; to a precision."""
    file = scratch / "tiny.py"
    file.write_text(NETWORKS)
    common = {
        "seed": 1,
        "anonymise": True,
        "precision": 0,
        "visits": 2,
        "hardware": {"here": {"device": "cpu", "nodes": 2}},
        "storage": {"raw": {"path": str(scratch / "images"), "format": "raw", "generate": 256}},
    }
    networks = {name: {"build": f"{file}:{name}", "image_size": size} for name, size in SIZES.items()}
    return {
        "batches": {
            **common,
            "networks": {name: networks[name] for name in ("shallow", "wide")},
            "matrix": [{**BLOCK, "network": ["shallow", "wide"], "batch": [8, 32], "sync": "wfbp"}],
            "storage_reads": {"samples": 50},
        },
        "presets": {
            **common,
            "iterations": 10,
            "networks": {"wide": networks["wide"]},
            "matrix": [{**BLOCK, "network": "wide", "batch": 16, "sync": ["naive", "wfbp"]}],
            "sgemm": {"batches": [1, 8], "samples": 1},
            "collectives": {"largest": 1048576, "samples": 2},
        },
        "precision": {
            **common,
            "iterations": 10,
            "precision": 0.1,
            "networks": {"deep": networks["deep"]},
            "matrix": [{**BLOCK, "network": "deep", "batch": 16, "sync": "wfbp"}],
        },
    }


SIZES = {"shallow": 32, "wide": 32, "deep": 48}


def benchmark(scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Timings and lines to print."""
    scratch.mkdir(exist_ok=True)
    ratios: dict[str, list[float]] = {"no records": [], "its own records": []}
    inside: dict[str, list[float]] = {known: [] for known in ratios}
    timings: list[Timing | Figure] = []
    lines = [f"{NAME}, {len(ratios)} measurements of each study"]
    for name, config in studies(scratch).items():
        for number, known in enumerate(ratios):
            job, used, within = measured(name, config, scratch / name, again=number > 0)
            hours = [value * job.nodes / 3600 for value in (*job.seconds.values(), used)]
            ratios[known].append(job.seconds.typical / used)
            inside[known] += within
            timings += [
                Timing(NAME, f"{name}, {known}, planned", number, job.seconds.typical),
                Timing(NAME, f"{name}, {known}, used", number, used),
            ]
            low, typical, high, spent = (f"{value:.4f}" for value in hours)
            lines.append(f"  {f'{name}, {known}':<36}{typical} node-hours [{low}, {high}] planned, {spent} used")
    wanted = {"no records": "0.5 to 2", "its own records": "0.8 to 1.25"}
    found = [
        figure(NAME, known, "planned over used node-hours, each study", ratios[known], wanted[known])
        for known in ratios
    ]
    for known, cells in inside.items():
        share = sum(cells) / len(cells)
        found.append(
            Figure(NAME, known, f"share of {len(cells)} cells inside their interval", share, share, share, ">= 0.9")
        )
    return [*timings, *found], [*lines, *(one.line(digits=2) for one in found)]


def measured(name: str, config: Mapping[str, Any], folder: Path, *, again: bool) -> tuple[Job, float, list[float]]:
    """Plan and measure one study; its job, the seconds it took, and for each cell 1 where it was planned rightly."""
    study = expand({"study": name, **config}, yaml.safe_load(SCHEMA.read_text()))
    for storage, entry in study.config["storage"].items():
        prepare(Storage(storage, Path(entry["path"]), entry["format"]), generate=entry["generate"], seed=1)
    for network, entry in study.config["networks"].items():
        write(NETWORK_LAYERS, describe(own_network(network, entry)), folder / "networks" / f"{network}.parquet")
    cells = [cell for cell in study.cells.values() if cell.kind in MEASURED]
    measurements = [requested.measurement(cell, folder / "visits", again=again) for cell in cells]
    ((block, orders),) = requested.blocks(measurements, requested.Asked(), str(folder)).items()
    limits = Limits(study.config["precision"])
    (job,) = planned(name, {block: orders}, limits, folder, storages=study.config["storage"], cores=os.cpu_count()).jobs
    agenda = Agenda.of(orders, limits, study.config["seed"])
    took = folder / "schedule" / visit_durations.FOLDER / f"{block}.json"
    measure_cells(agenda, launcher=THIS_MACHINE, log=folder / "log", took=took)
    found = visit_durations.Durations.read(took)
    within = []
    for order in job.orders:
        low, _, high = order.seconds.values()
        visits = found.cells[order.cell.path].durations
        within.append(float(low <= sum(visits) <= high))
    return job, found.sittings[-1].wall, within
