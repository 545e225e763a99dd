"""Training by a user's command: it is started on the workers, and its records or printed rates are collected.

The ranks of the job start the command by its launcher (`study.commands`) and sleep until it has ended. A probe in the
script writes below the folder in ``STALLPOINT_PROBE`` and ends the script after the cell's number of iterations. If the
command fails, its output and records stay in a folder, which the error message names.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stallpoint.errors import MAX_SEARCH_SECONDS, CannotRun, InputError, search_limit
from stallpoint.measure.job import all_arrive
from stallpoint.measure.machine.node_addresses import GLOO
from stallpoint.measure.machine.sensors import Reading, between, cpu_list
from stallpoint.measure.probe import probe_files
from stallpoint.measure.probe.parallelism import DDP, FSDP2
from stallpoint.measure.probe.probe import BOX, MAX_ITERATIONS
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.synchronisation.rendezvous import interface
from stallpoint.measure.world import World
from stallpoint.records.disturbances import cpu_numbers
from stallpoint.records.tables import ITERATIONS, LAYERS, PEAK_MEMORY, PHASES, PROBES
from stallpoint.schedule.processes import end_with_parent
from stallpoint.strategies.presets import preset_from
from stallpoint.study.commands import CONTAINER_VARIABLE, RATES, WORKER, Process, drop_mpi, launcher_of, process_of
from stallpoint.study.kinds.command_kind import CommandCell

_POLL_INTERVAL = 0.05
"""Time between two checks whether the command has ended, s."""
_GRACE = 10.0
"""Time that the command has to end after SIGTERM, s."""
_LAST_LINES = 15
_LAUNCHER_REPORT = re.compile(
    r"^([WE]\d{4} |\[\d{4}-).*torch[./]distributed[./]elastic"
    r'|^Traceback \(most recent call last\):\n  File ".*/(torchrun|accelerate)"',
    re.MULTILINE,
)
"""First line of a launcher's report on a failed process: torchelastic's log, or a traceback of the launcher."""
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""File with the first and the last ephemeral port of Linux."""
_MAX_TRIES = 100
"""Number of other ports that are tried before an ephemeral port is taken."""
_BACKENDS = {DDP: "ddp", FSDP2: "fsdp"}
"""Backend that a cell's preset must have, by the parallelism that the probe found; any backend for other scripts."""


_MAX_BUSY = 1.5
"""Largest ratio of the CPU time that a worker takes for each thread of its cell to that of its training thread."""


def measure(cell: CommandCell, world: World, recorder: Recorder) -> None:
    """Run the command once, and record ``cell.warmup + cell.iterations`` iterations of each rank.

    Raises `CannotRun` if the command fails or takes too long, `InputError` if its records do not suit the cell.
    """
    folder = world.comm.bcast(_folder(recorder) if world.rank == 0 else None)
    name, address = interface(world)
    port = world.comm.bcast(_free_port() if world.rank == 0 else None)
    process = process_of(cell, world.rank, address, port, os.environ.get(CONTAINER_VARIABLE, ""))
    cpus = _cpus_of_nodes(world, cell)
    end = _run(process, cell, folder, world.rank, name, cpus[world.rank // cell.workers_per_node]) if process else None
    all_arrive(world.comm, math.inf)
    end_time = datetime.now(UTC)
    _check([one for one in world.comm.allgather(end) if one], cell, folder)
    if cell.rate:
        printed = (folder / _output(0)).read_text(errors="replace") if world.rank == 0 else ""
        rows = world.comm.bcast(_printed_seconds(printed, cell, folder) if world.rank == 0 else None)
        if isinstance(rows, InputError):
            raise rows
        _keep_rates(rows, cell, recorder)
    else:
        _keep_records(cell, world, recorder, folder, cpus)
    recorder.prepared = end_time - timedelta(seconds=recorder.measuring)
    all_arrive(world.comm, math.inf)
    if world.rank == 0:
        shutil.rmtree(folder)


# --- running --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ProcessEnd:
    rank: int
    status: int
    """Exit status; if negative, minus the signal that ended the process."""
    because: str = ""
    """Why stallpoint ended the process; empty if the process ended by itself."""


def _folder(recorder: Recorder) -> Path:
    """Make and return the folder, on a file system of all nodes, for this visit's records and output."""
    if recorder.checkpoint is None:
        return Path(tempfile.mkdtemp(prefix="stallpoint-command-"))
    folder = (recorder.checkpoint.parent / f"command~{recorder.visit}").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _output(rank: int) -> str:
    return f"output~{rank}.txt"


def _failed(folder: Path) -> Path:
    """Return the file that appears when a process of the command fails. The ranks then end the other processes."""
    return folder / "failed"


def _cpus_of_nodes(world: World, cell: CommandCell) -> list[set[int]]:
    """Return for each node the CPUs on which any of the node's workers may run."""
    rank_cpus = world.comm.allgather(os.sched_getaffinity(0))
    return [
        set().union(*rank_cpus[first : first + cell.workers_per_node])
        for first in range(0, cell.ranks, cell.workers_per_node)
    ]


def _run(
    process: Process, cell: CommandCell, folder: Path, rank: int, interface_name: str, cpus: Collection[int]
) -> _ProcessEnd:
    """Start a process of the command and wait until it ends; end it if another process failed, or time is up.

    A process that is a launcher of several workers may run on all `cpus` of the node's workers.
    """
    is_launcher = launcher_of(cell.launch).each != WORKER

    def begin() -> None:
        end_with_parent()
        if is_launcher:
            with suppress(OSError):
                os.sched_setaffinity(0, cpus)

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = {**drop_mpi(os.environ), "PATH": path, probe_files.FOLDER: str(folder), BOX: "0"} | process.variables
    if not cell.rate:
        variables[MAX_ITERATIONS] = str(cell.warmup + cell.iterations)
    variables[GLOO] = interface_name
    deadline = time.monotonic() + 60 * cell.max_minutes
    with (folder / _output(rank)).open("wb") as output:
        try:
            running = subprocess.Popen(
                process.arguments,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=begin,
                start_new_session=True,
            )
        except OSError as error:
            _failed(folder).touch()
            return _ProcessEnd(rank, 127, f"{process.arguments[0]!r}: {error.strerror}")
    while (status := running.poll()) is None:
        cause = "another process of it failed" if _failed(folder).exists() else ""
        if time.monotonic() > deadline:
            cause = f"it had not ended after {cell.max_minutes:g} min (max_minutes)"
        if cause:
            _end(running)
            return _ProcessEnd(rank, running.returncode, cause)
        time.sleep(_POLL_INTERVAL)
    if status:
        _failed(folder).touch()
    return _ProcessEnd(rank, status)


def _end(running: subprocess.Popen[bytes]) -> None:
    """End a process and all its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        with suppress(subprocess.TimeoutExpired):
            running.wait(_GRACE)


def _free_port() -> int:
    """Return a free port below the ephemeral ports: srun could take an ephemeral port before the command uses it."""
    first = int(_EPHEMERAL_PORTS.read_text().split()[0]) if _EPHEMERAL_PORTS.exists() else 32768
    for port in (*random.sample(range(max(1024, first - 10_000), first), _MAX_TRIES), 0):
        with socket.socket() as any_socket, suppress(OSError):
            any_socket.bind(("", port))
            return int(any_socket.getsockname()[1])
    raise CannotRun("no port is free on this node")


def _check(ends: Sequence[_ProcessEnd], cell: CommandCell, folder: Path) -> None:
    """Raise an error if a process failed. Processes that stallpoint ended count only if no process failed by itself."""
    failures = sorted((end for end in ends if end.status or end.because), key=lambda end: bool(end.because))
    if not failures:
        return
    first = failures[0]
    if first.status == 127 and first.because:
        raise InputError(f"commands.{cell.network}: no program {first.because}")
    reason = f"ended with exit status {first.status}" if first.status > 0 else f"was killed (signal {-first.status})"
    if first.because:
        reason = f"{first.because}{_progress(cell, folder)}"
    raise CannotRun(
        f"command {cell.network}: {reason}; records and output so far are in {folder}; the output ends with\n"
        f"{_last_words(folder / _output(first.rank))}"
    )


def _progress(cell: CommandCell, folder: Path) -> str:
    """Return words for the error message: how many workers of the command had opened a probe."""
    if cell.rate:
        return ""
    opened = [one for rank in range(cell.ranks) if (one := probe_files.read(folder, rank))]
    return f", and {len(opened)} of {cell.ranks} worker(s) had opened a probe"


def _last_words(file: Path) -> str:
    """Return the last lines that the script printed. The launcher's report on the failed process is left out."""
    printed = file.read_text(errors="replace")
    report = _LAUNCHER_REPORT.search(printed)
    script_lines = printed[: report.start()] if report else printed
    return "\n".join((script_lines if script_lines.strip() else printed).splitlines()[-_LAST_LINES:])


# --- records of a probe ---------------------------------------------------------------------------


def _keep_records(
    cell: CommandCell, world: World, recorder: Recorder, folder: Path, node_cpus: Sequence[Collection[int]]
) -> None:
    found = probe_files.read(folder, world.rank)
    probes = world.comm.allgather(found and found.probe)
    _check_records(probes, cell, folder)
    _check_exchange(probes, cell)
    if cell.device == "cpu":
        _check_threads(probes, cell, node_cpus)
    assert found
    count = cell.warmup + cell.iterations
    before = (recorder.visit - 1) * count
    iterations, layers = (_first(found.tables[table.name], count) for table in (ITERATIONS, LAYERS))
    recorder.measuring += sum(iterations["iteration_time"])
    warmup = [is_warmup or index < cell.warmup for index, is_warmup in enumerate(iterations.pop("warmup"))]
    number = [before + one for one in iterations.pop("iteration")]
    recorder.add(ITERATIONS, iteration=number, warmup=warmup, **iterations)
    if layers["iteration"]:
        layer_iterations = layers.pop("iteration")
        layers.pop("warmup")
        recorder.add(
            LAYERS,
            iteration=[before + one for one in layer_iterations],
            warmup=[warmup[one] for one in layer_iterations],
            **layers,
        )
    for table, rows in ((PEAK_MEMORY, found.tables[PEAK_MEMORY.name].to_pylist()), (PROBES, [dict(found.probe)])):
        for row in rows:
            recorder.add(table, **row)


def _first(table: pa.Table, count: int) -> dict[str, list[Any]]:
    """Return the columns of `table`, with the rows of the first `count` iterations."""
    rows = table.filter(pc.less(table["iteration"], count))
    columns: dict[str, list[Any]] = rows.to_pydict()
    return columns


def _check_records(probes: Sequence[Any], cell: CommandCell, folder: Path) -> None:
    """Raise `InputError` unless the records suit the cell: number of ranks, parallelism, number of iterations."""
    entry, wanted = f"commands.{cell.network}", cell.warmup + cell.iterations
    stepped_probes = [probe for probe in probes if probe and probe["iterations"]]
    if not stepped_probes:
        raise InputError(
            f"{entry}: the command ended without an iteration: put `with stallpoint.probe(model, optimizer) as probe:` "
            "around its training loop and `probe.step()` behind each update, or give a `rate` that it prints; output "
            f"in {folder}"
        )
    sizes = sorted({probe["script_ranks"] for probe in stepped_probes} - {cell.ranks})
    if sizes:
        raise InputError(
            f"{entry}: the script trains on {sizes[0]} worker(s) where the study has {cell.ranks}: it has to call "
            f"torch.distributed.init_process_group, or launch: {cell.launch} does not suit it"
        )
    found = {probe["parallelism"]: rank for rank, probe in reversed(list(enumerate(probes))) if probe}
    if len(found) > 1:
        parallelisms = ", ".join(f"{name} on rank {rank}" for name, rank in reversed(found.items()))
        raise InputError(f"{entry}: the script's workers synchronise gradients differently: {parallelisms}")
    (parallelism,) = found
    backend, expected_backend = preset_from(cell.preset).backend, _BACKENDS.get(parallelism)
    if expected_backend and expected_backend != backend:
        raise InputError(
            f"{entry}: the script trains by {parallelism}, and its cells say sync: {cell.sync}, of backend {backend}: "
            f"name a preset of backend {expected_backend} there, such as {expected_backend}"
        )
    if missing := [rank for rank, probe in enumerate(probes) if not (probe and probe["iterations"])]:
        raise InputError(
            f"{entry}: no records of rank(s) {', '.join(map(str, missing))} of {cell.ranks}: every worker has to open "
            f"a probe and step it; those of the others are in {folder}"
        )
    if (fewest := min(probe["iterations"] for probe in probes)) < wanted:
        raise InputError(
            f"{entry}: the script made {fewest} iterations; the study asks for warmup + iterations = {wanted}: let it "
            "train longer ({steps} in its command says how long), or lower these"
        )


def _check_exchange(probes: Sequence[Mapping[str, Any]], cell: CommandCell) -> None:
    """Raise `InputError` if each worker trains a model of its own, although the cell's preset sums gradients."""
    preset = preset_from(cell.preset)
    sums_gradients = preset.synchronous and preset.communicates and preset.strategy.independent
    if cell.ranks == 1 or not sums_gradients:
        return
    silent = [rank for rank, probe in enumerate(probes) if probe["collectives"] == 0]
    odd = [rank for rank, probe in enumerate(probes) if probe["checksum"] != probes[0]["checksum"]]
    if silent:
        found = f"rank(s) {', '.join(map(str, silent))} of {cell.ranks} called no collective"
    elif odd and None not in {probe["checksum"] for probe in probes}:
        found = f"at the end the weights of rank(s) {', '.join(map(str, odd))} of {cell.ranks} are not those of rank 0"
    else:
        return
    raise InputError(
        f"commands.{cell.network}: {found}: each trains an independent model, and the cell says sync: {cell.sync}; "
        "wrap the model in DistributedDataParallel, or tell the framework of the workers (Lightning: "
        f'Trainer(devices={cell.workers_per_node}, num_nodes={cell.nodes}, strategy="ddp"))'
    )


def _check_threads(probes: Sequence[Mapping[str, Any]], cell: CommandCell, masks: Sequence[Collection[int]]) -> None:
    """Raise `InputError` if the script computes with more or fewer threads than the cell, or on too few CPUs.

    `masks` holds for each node the CPUs on which the ranks of the job may run.
    """
    entry, wanted = f"commands.{cell.network}", cell.threads_per_worker
    setting = f"hardware.{cell.hardware} says threads_per_worker: {wanted}"
    for rank, probe in enumerate(probes):
        if probe["threads"] != wanted:
            raise InputError(
                f"{entry}: the script computes with {probe['threads']} thread(s) on rank {rank} of {cell.ranks} "
                f"(torch.get_num_threads()), and {setting}: let it set none by itself, or those of "
                "{threads_per_worker}, or change the study"
            )
    for node, cpus in enumerate(masks):
        node_probes = probes[node * cell.workers_per_node :][: cell.workers_per_node]
        found = [cpu_numbers(probe["cpus"]) for probe in node_probes]
        for workers, cores in [*((1, one) for one in found), (len(found), set().union(*found))]:
            if len(cores) < min(workers * wanted, len(cpus)):
                raise InputError(
                    f"{entry}: {workers} worker(s) of the script may run on {len(cores)} CPU(s) of node {node} "
                    f"({cpu_list(sorted(cores))}), and {setting}: launch: {cell.launch} binds them; let it bind to "
                    "none (mpirun --bind-to none, srun --cpu-bind=none)"
                )
    busy, max_busy = probes[0]["busy_threads"], _MAX_BUSY * wanted + (cell.readers if cell.prefetch else 0)
    if cell.ranks == 1 and busy and busy > max_busy:  # with several workers, communication threads are busy, too
        raise InputError(
            f"{entry}: the script's process takes {busy:.1f} times the CPU time of the thread that trains, and "
            f"{setting}: another library than PyTorch computes in it with threads of its own"
        )


# --- printed rates --------------------------------------------------------------------------------


def _printed_seconds(printed: str, cell: CommandCell, folder: Path) -> list[float] | InputError:
    """Return the seconds of each iteration from the printed rates; return an error if rates are missing or invalid."""
    entry, wanted = f"commands.{cell.network}.rate", cell.warmup + cell.iterations
    try:
        with search_limit(MAX_SEARCH_SECONDS, entry):
            found = [match.groupdict() for match in re.finditer(cell.rate, printed, re.MULTILINE)]
    except InputError as late:
        return late
    if len(found) < wanted:
        return InputError(
            f"{entry}: {cell.rate!r} matches {len(found)} times in what rank 0 printed; warmup + iterations = {wanted} "
            f"are needed; output in {folder}"
        )
    try:
        return [_seconds(groups, cell) for groups in found[:wanted]]
    except (ValueError, ZeroDivisionError, TypeError):
        return InputError(f"{entry}: {cell.rate!r} matches what is no number above 0; output in {folder}")


def _seconds(groups: dict[str, str], cell: CommandCell) -> float:
    """Return the time of an iteration, s, from the rate or time that the command printed."""
    name = next(name for name in RATES if name in groups)
    value = float(groups[name])
    if not 0 < value < math.inf:
        raise ValueError
    match name:
        case "rate":
            return cell.global_batch / value
        case "worker_rate":
            return cell.worker_batch / value
        case "seconds":
            return value
        case _:
            return value / 1e3


def _keep_rates(seconds: Sequence[float], cell: CommandCell, recorder: Recorder) -> None:
    """Record iterations of known duration; the times of their phases are unknown."""
    first = (recorder.visit - 1) * len(seconds)
    unknown = float("nan")
    unmeasured = (*PHASES, "read", "decode", "communication", "loss")
    starts = [sum(seconds[:index]) for index in range(len(seconds))]
    recorder.measuring += sum(seconds)
    recorder.add(
        ITERATIONS,
        iteration=[first + index for index in range(len(seconds))],
        warmup=[index < cell.warmup for index in range(len(seconds))],
        start=starts,
        iteration_time=list(seconds),
        **dict.fromkeys(unmeasured, unknown),
        **between(Reading(), Reading()),
    )
