"""All that one GPU can show, on a machine without a network: ``make gpu`` or ``python benchmarks/gpu.py [PART ...]``.

Each part is a process of its own, which runs the measuring code of jobs (`stallpoint.measure`) on one rank; one that
fails or hangs is told with its reason, and the others go on. Printed is a table of what ran, with what speaks for it;
results/gpu has it as table.json and table.md, with all records and traces, and gpu.zip holds all of that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from stallpoint.measure import job, resident, synchronisation
from stallpoint.measure.clock import host_mark
from stallpoint.measure.device import device_of
from stallpoint.measure.jobs import co_running, collectives
from stallpoint.measure.jobs.operations import Operations
from stallpoint.measure.jobs.train import Trainer
from stallpoint.measure.machine.sensors import gpu_max_clock
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.synchronisation.assembly import communicating
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.training import allocator
from stallpoint.measure.training.input_pipeline import MiniBatch
from stallpoint.measure.training.precision import allow_only
from stallpoint.measure.world import World
from stallpoint.networks import find_network
from stallpoint.records import parquet
from stallpoint.records.tables import (
    COLLECTIVES,
    CONTENTION,
    COPIES,
    ENVIRONMENTS,
    INSTRUMENTATION,
    ITERATIONS,
    LAYERS,
    MACHINE,
    PEAK_MEMORY,
    RUNS,
    SGEMM,
    VISITS,
    Table,
)
from stallpoint.strategies.options import OPERATIONS, SEND_RECEIVE
from stallpoint.strategies.presets import PRESETS, Preset, to_values
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import kind_of
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.copies_kind import CopiesCell
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint_files.answering import explain_files
from stallpoint_files.file_options import Options

MIB = 2**20
PRECISIONS = ("float32", "tf32", "bf16", "fp16")
RATES = {(8, 0): (128, 1024, 2048), (8, 6): (256, 512, 1024), (8, 9): (256, 1024, 2048), (9, 0): (256, 2048, 4096)}
"""FLOP that a multiprocessor does in a clock in float32, tf32 and half precision, by compute capability (NVIDIA's white
papers of A100, GA102, AD102 and H100)."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    what: str
    figures: str
    speaks_for_it: str = ""
    """What it is compared with."""
    plausible: bool | None = None
    """Whether it is as that says; None: nothing to compare with."""


@dataclass(frozen=True)
class Setting:
    """Where parts run, and how large what they run is."""

    device: str
    folder: Path
    part: str = ""

    @property
    def gpu(self) -> bool:
        """Whether it is one."""
        return self.device != "cpu"

    def network(self, name: str) -> str:
        """The network `name`, or on a CPU a small one that takes the same."""
        small = "stories-15m" if find_network(name).takes.kind == "tokens" else "lenet"
        return name if self.gpu else small

    def size(self, on_gpu: int, on_cpu: int) -> int:
        """The first on a GPU, the other on a CPU."""
        return on_gpu if self.gpu else on_cpu

    def common(self, precision: str = "float32", cudnn: bool | None = None) -> dict[str, Any]:
        """What cells of all kinds are told; those that differ in it are of different hardware entries."""
        entry = "-".join([self.device, precision, *(["cudnn" if cudnn else "no-cudnn"] if cudnn is not None else [])])
        return {
            "hardware": entry, "nodes": 1, "repeat": 1, "workers_per_node": 1, "device": self.device,
            "threads_per_worker": min(8, len(os.sched_getaffinity(0))), "seed": 1, "precision": precision,
            "anonymise": True, "cudnn": cudnn,
        }  # fmt: skip

    def train(
        self, network: str, batch: int, *, sync: str = "none", preset: Preset | None = None, **more: Any
    ) -> TrainCell:
        """A training cell of one worker, whose mini-batch is in memory."""
        steps = {"iterations": self.size(10, 2), "warmup": self.size(3, 1), "prefetch": 0}
        common = self.common(more.pop("precision", "float32"), more.pop("cudnn", None))
        told = {**common, **steps, **more}
        return TrainCell(
            network=network, batch=batch, storage="memory", scaling="weak", sync=sync, worker_batch=batch, readers=4,
            storage_path="", storage_format="memory", preset=to_values(preset or Preset()), own_network=None, **told,
        )  # fmt: skip

    def run(self, cell: Cell, measure: Callable[..., None] | None = None) -> Path:
        """The folder with the records of a visit to `cell`."""
        folder = self.folder / "raw" / self.part / cell.path
        try:
            job.run(cell, measure or kind_of(cell).measure(), folder)
        except SystemExit as end:
            raise RuntimeError(f"{cell.path} ended with exit status {end.code}: see the log of this part") from None
        (run,) = frame(RUNS, folder).to_dict("records")
        if run["reason"]:
            raise RuntimeError(f"{cell.path}: {run['reason']}")
        return folder


def frame(table: Table, *folders: Path) -> pd.DataFrame:
    """A table of several cells."""
    return pd.concat([parquet.read(table, folder / f"{table.name}.parquet").to_pandas() for folder in folders])


def counted(table: Table, folder: Path) -> pd.DataFrame:
    """Rows that are no warm-up."""
    rows = frame(table, folder)
    return rows[~rows["warmup"]]


def medians(folder: Path) -> pd.Series[float]:
    """Of the columns of iterations, s."""
    return counted(ITERATIONS, folder).median(numeric_only=True)


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def near(value: float, other: float, by: float) -> bool:
    return abs(value / other - 1) <= by


def machine(on: Setting) -> Iterator[Row]:
    """What jobs record of the machine, its sensors and its sentinel."""
    folder = on.run(on.train("lenet", 64))
    (found,) = frame(ENVIRONMENTS, folder).to_dict("records")
    yield Row("environment", ", ".join(
        f"{name} {found[name]}" for name in
        ("gpu_model", "cpu_model", "torch", "cuda", "cudnn", "nccl", "driver", "mpi_library", "precision_in_force")
    ))  # fmt: skip
    (visit,) = frame(VISITS, folder).to_dict("records")
    before, after = visit["product_before"], visit["product_after"]
    yield Row("sentinel", f"1000 products take {before:.3g} s before and {after:.3g} s after",
              "the machine stays the same: within 20 %", near(before, after, 0.2))  # fmt: skip
    if not on.gpu:
        return
    held, total = found["gpu_available_memory"], torch.cuda.get_device_properties().total_memory
    yield Row("memory of the GPU", f"{held / 2**30:.4g} GiB available",
              f"of {total / 2**30:.4g} GiB, less what the driver holds", bool(0.9 * total < held <= total))  # fmt: skip
    clocks = counted(ITERATIONS, folder)["gpu_clock"]
    throttled = counted(ITERATIONS, folder)["gpu_throttle"].unique().tolist()
    yield Row("clock of the GPU by NVML", f"{clocks.median() / 1e6:.0f} MHz, throttled by {throttled}",
              f"at most {found['gpu_max_clock'] / 1e6:.0f} MHz",
              bool(0 < clocks.median() <= found["gpu_max_clock"]))  # fmt: skip


def layers(on: Setting) -> Iterator[Row]:
    """Iterations, phases and layers by events, against each other and against the host's clock."""
    sizes = {"alexnet": (512, 4), "googlenet": (256, 1), "resnet50": (256, 1), "gpt2-small": (8, 1)}
    for network, batches in {on.network(name): batches for name, batches in sizes.items()}.items():
        batch = on.size(*batches)
        folder = on.run(on.train(network, batch))
        rows, of = counted(ITERATIONS, folder), medians(folder)
        parts = ["data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update"]
        yield Row(
            f"{network}, b = {batch}: iteration",
            f"{ms(of.iteration_time)} ({batch / of.iteration_time:,.0f} samples/s): "
            + ", ".join(f"{part} {ms(of[part])}" for part in parts if of[part] > 1e-6),
            "phases add up to the iteration", bool(np.allclose(rows[parts].sum(axis=1), rows["iteration_time"], 1e-3)),
        )  # fmt: skip
        wall = float((rows["start"].diff().shift(-1) / rows["iteration_time"]).median())
        yield Row(f"{network}: the host's clock", f"{wall:.3f} of the events' time from step to step",
                  "1, and a little for sensors and reading the events", bool(0.999 < wall < 1.15))  # fmt: skip
        (told,) = frame(INSTRUMENTATION, folder).to_dict("records")
        closures = told["forward_closure"], told["backward_closure"]
        yield Row(
            f"{network}: layers",
            f"{told['layers']} layers are {closures[0]:.4f} of the forward and {closures[1]:.4f} of the backward pass; "
            f"timing takes {1e6 * told['timing_cost']:.3g} µs a layer, {100 * told['timing_share']:.2g} % of it all",
            "1 within 5 %", all(0.95 < one <= 1.001 for one in closures),
        )  # fmt: skip
        slowest = counted(LAYERS, folder).groupby("layer")[["forward", "backward"]].median().sum(axis=1).nlargest(3)
        yield Row(f"{network}: slowest layers", ", ".join(f"{name} {ms(at)}" for name, at in slowest.items()))


def precisions(on: Setting) -> Iterator[Row]:
    """Training in each precision."""
    for network, batch in ((on.network("resnet50"), on.size(256, 4)), (on.network("gpt2-small"), on.size(8, 1))):
        usual = 0.0
        for precision in PRECISIONS if on.gpu else ("float32", "bf16"):
            folder = on.run(on.train(network, batch, precision=precision))
            of, losses = medians(folder), frame(ITERATIONS, folder).sort_values("iteration")["loss"]
            usual = usual or of.iteration_time
            in_force = frame(ENVIRONMENTS, folder)["precision_in_force"][0]
            faster = usual / of.iteration_time
            yield Row(
                f"{network}, b = {batch}: {precision}",
                f"{ms(of.iteration_time)}, {faster:.3g} × as fast as float32, loss from "
                f"{losses.iloc[0]:.4g} to {losses.iloc[-1]:.4g}",
                "in force, learning, and faster than float32 on a GPU",
                bool(
                    in_force == precision
                    and losses.iloc[-1] < losses.iloc[0]
                    and (faster > 1 or precision == "float32" or not on.gpu)
                ),
            )  # fmt: skip


def cudnn(on: Setting) -> Iterator[Row]:
    """The switch of cuDNN."""
    found = {}
    for used in (True, False):
        folder = on.run(on.train("alexnet", 128, cudnn=used, iterations=5))
        found[used] = medians(folder).iteration_time
        in_force = bool(frame(ENVIRONMENTS, folder)["cudnn_in_force"][0])
        yield Row(f"alexnet, b = 128: cudnn {used}", ms(found[used]), "in force as asked", in_force == used)
    yield Row("what it gains", f"{found[False] / found[True]:.3g} ×", "> 1", found[False] > found[True])


def prefetch(on: Setting) -> Iterator[Row]:
    """Mini-batches copied ahead to the device, against copies in the iteration."""
    batch, found = 512, {}
    size = batch * 3 * find_network("alexnet").takes.size ** 2 * 4
    for ahead in (False, True):
        cell = on.train(
            "alexnet", batch, prefetch=1, sync="ahead" if ahead else "inline", preset=Preset(device_prefetch=ahead)
        )
        of = found[ahead] = medians(on.run(cell))
        yield Row(
            f"alexnet, b = {batch}: {'copied ahead' if ahead else 'copied in line'}",
            f"{ms(of.iteration_time)}, of it waiting {ms(of.data_wait)} and copying {ms(of.host_to_device)}",
        )  # fmt: skip
    rate = size / found[False].host_to_device
    yield Row("rate in line", f"{size / MIB:.0f} MiB at {rate / 1e9:.3g} GB/s",
              "pinned memory over PCIe or NVLink-C2C: 5 to 500 GB/s", bool(5e9 < rate < 500e9))  # fmt: skip
    saved = found[False].iteration_time - found[True].iteration_time
    hidden = 1 - (found[True].data_wait + found[True].host_to_device) / (
        found[False].data_wait + found[False].host_to_device
    )
    yield Row("what it saves", f"{ms(saved)} of an iteration; {100 * hidden:.0f} % of waiting and copying",
              "more than half of it is hidden, iterations are shorter", bool(hidden > 0.5 and saved > 0))  # fmt: skip


def copies(on: Setting) -> Iterator[Row]:
    """Copies within the host, or between it and the device."""
    rows = frame(COPIES, on.run(CopiesCell(**on.common(), samples=on.size(5, 2))))
    rates = (rows["bytes"] / rows["seconds"]).groupby([rows["copy"], rows["threads"]]).median()
    for (name, threads), rate in rates.items():
        yield Row(f"{name}, {threads} threads", f"{rate / 1e9:.4g} GB/s")
    if on.gpu:
        of = rates.droplevel("threads")
        yield Row("pinned against pageable", f"{of['host to device'] / of['host to device, pageable']:.3g} ×",
                  "> 1", bool(of["host to device"] > of["host to device, pageable"]))  # fmt: skip
        about = torch.cuda.get_device_properties()
        peak = 2e3 * getattr(about, "memory_clock_rate", 0) * getattr(about, "memory_bus_width", 0) / 8
        share = of["within the device"] / peak if peak else math.nan
        yield Row("within the device", f"{100 * share:.3g} % of what its memory can", "50 to 100 %",
                  bool(0.5 < share < 1) if peak else None)  # fmt: skip


def sgemm(on: Setting) -> Iterator[Row]:
    """Matrix products in each precision, against what the card can."""
    for precision in PRECISIONS if on.gpu else ("float32",):
        cell = SgemmCell(
            **on.common(precision),
            network=on.network("alexnet"),
            batches=[on.size(128, 1)],
            samples=3,
            own_network=None,
        )
        rows = frame(SGEMM, on.run(cell))
        of_machine = rows[rows["layer_type"] == MACHINE].groupby("layer").median(numeric_only=True)
        rate, can = 1e9 * of_machine.loc["peak", "gflops"], _can(precision) if on.gpu else None
        yield Row(
            f"peak, {precision}", f"{rate / 1e12:.4g} TFLOP/s",
            f"40 to 102 % of {can / 1e12:.4g} TFLOP/s at its highest clock" if can else "",
            0.4 < rate / can < 1.02 if can else None,
        )  # fmt: skip
        streams = of_machine.loc["bandwidth"]
        value = 2 if precision in ("bf16", "fp16") else 4
        yield Row(f"bandwidth, {precision}", f"{value * streams.k * streams.n / streams.seconds / 1e9:.4g} GB/s")
        best = rows[rows["layer_type"] != MACHINE].groupby("layer")["gflops"].median().nlargest(1)
        yield Row(f"best layer, {precision}", f"{best.index[0]} {best.iloc[0] / 1e3:.4g} TFLOP/s",
                  "no more than peak by a tenth", bool(best.iloc[0] * 1e9 < 1.1 * rate))  # fmt: skip


def _can(precision: str) -> float | None:
    """FLOP/s of the card."""
    about, clock = torch.cuda.get_device_properties(), gpu_max_clock(torch.cuda.current_device())
    rates = RATES.get((about.major, about.minor))
    if rates is None or clock is None:
        return None
    return float(rates[{"float32": 0, "tf32": 1}.get(precision, 2)] * about.multi_processor_count * clock)


def largest(on: Setting) -> Iterator[Row]:
    """Peaks of memory by mini-batch, and the largest mini-batch that they predict, tried."""
    from stallpoint.models.answers.fits import largest_batch
    from stallpoint.models.terms import peaks

    def of(batch: int) -> TrainCell:
        return on.train(on.network("resnet50"), batch, iterations=2, warmup=1)

    batches = [64, 128, 192]
    folders = [on.run(of(batch)) for batch in batches]
    for batch, folder in zip(batches, folders, strict=True):
        (row,) = frame(PEAK_MEMORY, folder).to_dict("records")
        peak = row["device_peak"] if on.gpu else row["host_peak"]
        known = sum(row[name] for name in ("weights", "gradients", "optimiser"))
        yield Row(f"{on.network('resnet50')}, b = {batch}", f"peak {peak / MIB:,.0f} MiB",
                  f"more than weights, gradients and momenta: {known / MIB:,.0f} MiB", bool(peak > known))  # fmt: skip
    found = [one for one in peaks.fit(frame(PEAK_MEMORY, *folders), frame(RUNS, *folders), 1)
             if one.memory == (peaks.DEVICE if on.gpu else peaks.HOST)]  # fmt: skip
    (row,) = largest_batch(found, frame(RUNS, *folders), frame(ENVIRONMENTS, *folders))
    wanted, low, high = (row[f"largest_batch{end}"] for end in ("", "_low", "_high"))
    yield Row("largest mini-batch, predicted", f"{wanted:,.0f} [{low:,.0f}, {high:,.0f}]", str(row["note"]))
    if not on.gpu:
        return
    held = 256
    predicted = float(peaks.predicted(found[0], held)[0])
    peak = float(frame(PEAK_MEMORY, on.run(of(held)))["device_peak"][0])
    yield Row(f"resnet50, b = {held}, predicted",
              f"{predicted / MIB:,.0f} MiB, measured {peak / MIB:,.0f} MiB",
              "within 5 %", near(predicted, peak, 0.05))  # fmt: skip
    fits = {}
    for share in (0.9, 1.0, 1.1):
        batch = int(wanted * share)
        try:
            (row,) = frame(PEAK_MEMORY, on.run(of(batch))).to_dict("records")
            fits[share], told = True, f"fits, peak {row['device_peak'] / MIB:,.0f} MiB"
        except RuntimeError as reason:
            fits[share], told = False, str(reason).partition(": ")[2][:150]
        yield Row(f"resnet50, b = {batch}, {share} × the predicted", told)
        torch.cuda.empty_cache()
    yield Row("largest mini-batch, tried", f"{fits}", "0.9 of it fits, 1.1 does not", fits[0.9] and not fits[1.1])


def nccl(on: Setting) -> Iterator[Row]:
    """Collectives on one rank, isolated and co-running, as a communication thread calls them."""
    names = [name for name in OPERATIONS if name != SEND_RECEIVE]
    cell = CollectivesCell(
        **on.common(), backend="torch", reduction="library", message_bytes=[1024, MIB, 64 * MIB], samples=3,
        operations=names,
    )  # fmt: skip

    def measure(cell: CollectivesCell, world: World, keep: Recorder) -> None:
        collectives.measure(cell, world, keep)
        device = device_of(cell)
        communicates = communicator(cell.backend, cell.reduction, 0, world, device)
        co_running.measure(cell, world, Operations(communicates, max(cell.message_bytes), device), keep)
        communicates.close()

    folder = on.run(cell, measure)
    rows = counted(COLLECTIVES, folder)
    for name, of in rows.groupby("operation"):
        each = (of["seconds"] / of["calls"]).groupby(of["message_bytes"]).median()
        yield Row(f"{name} to itself",
                  ", ".join(f"{size / 1024:,.0f} KiB {1e6 * at:.3g} µs" for size, at in each.items()),
                  "finished, and took less than a second", bool((each < 1).all()))  # fmt: skip
    beside = counted(CONTENTION, folder)
    slower = (beside["computing"] / beside["operations"]) / (
        beside["isolated_computing"] / beside["isolated_operations"]
    )
    yield Row("computing meanwhile", f"takes {slower.median():.3g} × as long as isolated",
              "at least 0.9 ×", bool(slower.median() > 0.9))  # fmt: skip


def synchronising(on: Setting) -> Iterator[Row]:
    """Presets on one rank that sends to itself: streams, threads, hooks and staging as among several."""
    batch = on.size(128, 1)
    network = on.network("resnet50")
    alone = medians(on.run(on.train(network, batch))).iteration_time
    tried = {
        "wfbp-nccl": Preset(backend="torch"),
        "naive-nccl": Preset(backend="torch", start="after-backward"),
        "wfbp": Preset(),
        "merged-nccl": Preset(backend="torch", grouping="merged"),
        "half-nccl": Preset(backend="torch", gradient_bits=16),
        "top-k-nccl": Preset(backend="torch", top_k=0.01),
        **{name: PRESETS[name].preset for name in ("ddp", "ddp-fp16", "zero-1", "fsdp")},
    }
    for name, preset in tried.items():
        cell = on.train(network, batch, sync=name, preset=preset)
        try:
            with ExitStack() as as_several:
                as_several.enter_context(patch.object(synchronisation, "begin", communicating))
                folder = on.run(cell)
        except Exception as error:
            print(traceback.format_exc(), file=sys.stderr)
            yield Row(name, f"FAILED: {error}", "", False)
            continue
        of, rows = medians(folder), counted(LAYERS, folder)
        if preset.strategy.in_blocks:
            yield Row(name, f"{ms(of.iteration_time)}, {of.iteration_time / alone:.3g} × isolated",
                      "no shards among one rank, so FSDP2 sends nothing: an isolated iteration within a tenth",
                      bool(0.9 < of.iteration_time / alone < 1.1 and of.communication == 0))  # fmt: skip
            continue
        sent = rows[rows["bucket"] >= 0]
        learning = rows[rows["gradient_bytes"] > 0]
        ordered = bool(
            len(sent) == len(learning)
            and (sent["all_reduce_start"] >= sent["gradient_ready"] - 1e-6).all()
            and (sent["all_reduce_end"] >= sent["all_reduce_start"]).all()
        )
        steps = counted(ITERATIONS, folder).set_index("iteration")
        ended = sent["iteration"].map(steps["iteration_time"] - steps["update"] - steps["exposed_communication"])
        overlapping = float((sent["all_reduce_start"] < ended - 1e-6).mean())
        yield Row(
            name,
            f"{ms(of.iteration_time)}, {of.iteration_time / alone:.3g} × isolated; communication "
            f"{ms(of.communication)}, exposed {ms(of.exposed_communication)}; {100 * overlapping:.0f} % of layers sent "
            "before the backward pass ends",
            "each layer's gradients are ready, sent, summed, in this order", ordered,
        )  # fmt: skip


def waits(on: Setting) -> Iterator[Row]:
    """Where a step makes the host wait for the device, as PyTorch says."""
    device = device_of(on.train("alexnet", 1))
    with Training(on, "alexnet", 64, device) as (trainer, batch):
        for _ in range(3):
            trainer.step(lambda: batch)
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            trainer.step(lambda: batch)
        torch.cuda.set_sync_debug_mode("default")
    found = sorted({f"{Path(one.filename).name}:{one.lineno}" for one in heard if "synchroniz" in str(one.message)})
    yield Row("of a step", ", ".join(found) or "none",
              "the loss alone is read, in train.py, when the step has ended",
              all("train.py" in one for one in found))  # fmt: skip
    print(*{str(one.message) for one in heard}, sep="\n")


class Training:
    """A trainer of one worker, and a mini-batch in pinned memory."""

    def __init__(self, on: Setting, network: str, batch: int, device: torch.device) -> None:
        allocator.keep_freed()
        allow_only("float32")
        known = find_network(network)
        inputs, labels = known.takes.example(batch, torch.device("cpu"))
        inputs = torch.randn_like(inputs) if inputs.is_floating_point() else inputs
        if on.gpu:
            inputs, labels = inputs.pin_memory(), labels.pin_memory()
        self._batch = MiniBatch(inputs, labels, read=0.0, decode=0.0)
        self._trainer = Trainer(resident.network(known, 1, device), World.start(1), Preset(), device)

    def __enter__(self) -> tuple[Trainer, MiniBatch]:
        return self._trainer.__enter__(), self._batch

    def __exit__(self, *ended: Any) -> None:
        self._trainer.__exit__(*ended)


def trace(on: Setting) -> Iterator[Row]:
    """What `stallpoint explain` says of a trace of our own iterations, against their events."""
    from torch.profiler import ProfilerActivity, profile, schedule

    device, size, traced = device_of(on.train("resnet50", 1)), on.size(128, 4), 4
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on.gpu else [])]
    file = on.folder / "traces" / "rank0.json.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    network = on.network("resnet50")
    with Training(on, network, size, device) as (trainer, batch):
        plain = [trainer.step(lambda: batch).phases for _ in range(2 + 2 * traced)][2:]
        steps = schedule(wait=0, warmup=2, active=traced, repeat=1)
        with profile(activities=activities, schedule=steps) as profiler:
            beside = []
            for _ in range(2 + traced):
                beside.append(trainer.step(lambda: batch).phases)
                profiler.step()
        profiler.export_chrome_trace(str(file))
    by_events, profiled = (float(np.median([one["iteration_time"] for one in of])) for of in (plain, beside[2:]))
    computing = float(np.median([one["forward"] + one["backward"] + one["update"] for one in beside[2:]]))
    found = explain_files([str(file)], Options(batch=size))
    print(found.in_words())
    (told,) = found.traced.explained
    yield Row(f"{network}: iteration",
              f"{ms(told['iteration_seconds'])} in the trace, {ms(profiled)} by events meanwhile, {ms(by_events)} "
              f"without the profiler; {told['iterations']} iterations",
              "trace and events within 15 %", near(told["iteration_seconds"], profiled, 0.15))  # fmt: skip
    if on.gpu:
        busy = told["iteration_seconds"] * (1 - told["shares"]["idle"] / 100)
        yield Row(f"{network}: the device is busy",
                  f"{ms(busy)} of an iteration in the trace, computing by events takes {ms(computing)}",
                  "70 % of computing at least, no more than the iteration",
                  bool(0.7 * computing < busy < 1.1 * profiled))  # fmt: skip
    yield Row("in words", " ".join(found.in_words().split())[:300])


def probing(on: Setting) -> Iterator[Row]:
    """A probe in a plain training loop."""
    import stallpoint

    device, width = device_of(on.train("alexnet", 1)), on.size(4096, 512)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    folder = on.folder / "probe"
    inputs = torch.randn(on.size(4096, 64), width, device=device)
    with stallpoint.probe(model, optimizer, folder=folder) as probe:
        for _ in range(8):
            begin = host_mark()
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            probe.step()
    last = 1e-9 * (host_mark() - begin)
    rows = pd.concat([pd.read_parquet(file) for file in sorted(folder.rglob("iterations*.parquet"))])
    of = rows.median(numeric_only=True)
    yield Row("eight linear layers",
              f"{len(rows)} iterations of {ms(of.iteration_time)}: forward {ms(of.forward)}, backward "
              f"{ms(of.backward)}, update {ms(of['update'])}; by the host's clock {ms(last)}",
              "backward is 1.2 to 3 × forward", bool(1.2 < of.backward / of.forward < 3))  # fmt: skip
    peak = pd.concat([pd.read_parquet(file) for file in sorted(folder.rglob("peak_memory*.parquet"))])
    yield Row("peak of memory", ", ".join(f"{name} {peak[name].iloc[0]}" for name in ("host_peak", "device_peak")))


PARTS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "machine": machine, "layers": layers, "precisions": precisions, "cudnn": cudnn, "prefetch": prefetch,
    "copies": copies, "sgemm": sgemm, "memory": largest, "nccl": nccl, "synchronisation": synchronising,
    "waits": waits, "trace": trace, "probe": probing,
}  # fmt: skip
OF_GPUS = ("cudnn", "prefetch", "waits")
"""Parts that a CPU has nothing for."""


def run_part(on: Setting) -> None:
    """Run the part in this process; its rows go to a file as they come."""
    rows = []
    if on.gpu:
        torch.cuda.set_device(0)
    for row in PARTS[on.part](on):
        plausible = None if row.plausible is None else bool(row.plausible)  # results may be numpy booleans
        rows.append({**asdict(row), "plausible": plausible})
        print(f"{row.what}: {row.figures}", flush=True)
        (on.folder / "parts" / f"{on.part}.json").write_text(
            json.dumps(rows, indent=1, default=lambda scalar: scalar.item())
        )


def run_apart(name: str, on: Setting, patience: float) -> tuple[list[Row], str, float]:
    """Rows of a part that runs in a process of its own, why it failed if it did, and seconds it took."""
    begin = time.monotonic()
    log, found = on.folder / "logs" / f"{name}.log", on.folder / "parts" / f"{name}.json"
    found.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--part", name, "--device", on.device, "--folder", str(on.folder)]
    why = ""
    with log.open("w") as printed:
        try:
            code = subprocess.run(command, stdout=printed, stderr=subprocess.STDOUT, timeout=patience).returncode
        except subprocess.TimeoutExpired:
            code, why = 1, f"not done within {patience:.0f} s"
    if code and not why:
        why = next(
            (line for line in reversed(log.read_text(errors="replace").splitlines()) if line.strip()),
            f"exit status {code}",
        )
    rows = [Row(**row) for row in json.loads(found.read_text())] if found.exists() else []
    return rows, why, time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all, unless some are named")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, default=Path("results") / "gpu", help="where records go (%(default)s)")
    parser.add_argument("--patience", type=float, default=120, help="seconds a part may take (%(default)s)")
    parser.add_argument("--part", choices=PARTS, help="run this part in this process")
    arguments = parser.parse_args()
    on = Setting(arguments.device, arguments.folder, arguments.part or "")
    for name in ("parts", "logs"):
        (on.folder / name).mkdir(parents=True, exist_ok=True)
    if arguments.part:
        run_part(on)
        return
    table: list[dict[str, Any]] = []
    for name in arguments.parts or PARTS:
        rows, why, seconds = (
            ([], "", 0.0) if name in OF_GPUS and not on.gpu else run_apart(name, on, arguments.patience)
        )
        state = "FAILED" if why else "ran" if rows else "needs a GPU"
        table.append(
            {"part": name, "state": state, "why": why, "seconds": seconds, "rows": [asdict(row) for row in rows]}
        )
        (on.folder / "table.json").write_text(json.dumps(table, indent=1))
        (on.folder / "table.md").write_text("\n".join(markdown(table)) + "\n")
        print(*lines_of(table[-1:]), sep="\n", flush=True)
    archive(on.folder)
    implausible = [row for one in table for row in one["rows"] if row["plausible"] is False]
    failed = [one["part"] for one in table if one["state"] == "FAILED"]
    print(f"{len(table)} parts; failed: {', '.join(failed) or 'none'}; {len(implausible)} lines are not as expected")
    print(f"{on.folder / 'gpu.zip'}: all records, traces and logs, and this table")


def lines_of(table: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The table for people."""
    for one in table:
        why = f": {one['why']}" if one["why"] else ""
        yield f"{one['part']} — {one['state']} ({one['seconds']:.0f} s){why}"
        for row in one["rows"]:
            expected = f"  [{row['speaks_for_it']}]" if row["speaks_for_it"] else ""
            yield f"  {_sign(row['plausible'])} {row['what']}: {row['figures']}{expected}"


def markdown(table: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The same as a table of Markdown."""
    yield "| part | what | figures | expected | as expected |"
    yield "| --- | --- | --- | --- | --- |"
    for one in table:
        yield f"| **{one['part']}** | {one['state']}, {one['seconds']:.0f} s | {one['why']} | | |"
        for row in one["rows"]:
            cells = (one["part"], row["what"], row["figures"], row["speaks_for_it"], _sign(row["plausible"]))
            yield f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def _sign(plausible: bool | None) -> str:
    return {True: "yes", False: "NO ", None: "   "}[plausible]


def archive(folder: Path) -> None:
    """Everything in `folder`, in one file."""
    with zipfile.ZipFile(folder / "gpu.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name != "gpu.zip":
                packed.write(file, file.relative_to(folder))


if __name__ == "__main__":
    main()
