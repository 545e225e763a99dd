"""A user's training commands: their placeholders, and their launch on the workers of a cell.

A command is a text with placeholders in braces. It is split into words as by a shell, but run without a shell. A
launcher is a text of the same form, and is run once for each worker, once for each node, or once for the job.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from string import Formatter

from stallpoint.errors import InputError
from stallpoint.study.kinds.command_kind import CommandCell

WORKER, NODE, JOB = "worker", "node", "job"
"""Values of `Launcher.each`."""
CELL_PLACEHOLDERS = {
    "nodes": "nodes",
    "workers_per_node": "workers on each of them",
    "ranks": "workers in all",
    "threads_per_worker": "threads of each",
    "batch": "the mini-batch as the matrix says it",
    "global_batch": "B, samples in all workers' mini-batches together",
    "worker_batch": "b, samples in one worker's mini-batch",
    "iterations": "iterations of a visit that are kept for statistics",
    "warmup": "iterations before them",
    "steps": "both together: as many updates as the script is to make",
    "prefetch": "mini-batches to be read ahead",
    "seed": "seed of the study",
    "precision": "what matrix products are computed in",
    "device": "cpu or cuda",
    "sync": "name of the preset that the script's synchronisation is taken for",
    "storage_path": "folder of the storage that the matrix names",
}
"""Placeholders of a command, with their meaning."""
PROCESS_PLACEHOLDERS = {
    "node": "number of this node in the job, from 0",
    "rank": "rank of this worker, where it is started by itself",
    "local_rank": "the same on its node",
    "address": "address of the first node",
    "port": "a port that is free there",
}
"""Further placeholders of a launcher or a command, with their meaning."""


@dataclass(frozen=True)
class Launcher:
    """Program that starts the processes of a command, such as torchrun or mpirun."""

    each: str
    """Whether the launcher is run once for each `WORKER`, for each `NODE`, or for the `JOB`."""
    text: str
    """Text before the command; empty if the command is run unchanged."""
    several: str = ""
    """Text added to `text` if there are several workers."""
    announces_single: bool = True
    """Whether the launcher gives a single process the variables of rank 0 of 1, which ``init_process_group`` needs."""


LAUNCHERS = {
    "workers": Launcher(WORKER, ""),
    "torchrun": Launcher(
        NODE,
        "torchrun --no-python --nnodes {nodes} --node-rank {node} --nproc-per-node {workers_per_node} "
        "--master-addr {address} --master-port {port}",
    ),
    "accelerate": Launcher(
        NODE,
        "accelerate launch --no_python --num_machines {nodes} --machine_rank {node} --num_processes {ranks} "
        "--main_process_ip {address} --main_process_port {port} --mixed_precision no --dynamo_backend no",
        "--multi_gpu",  # without --multi_gpu, accelerate starts a single process, even on CPUs
        announces_single=False,
    ),
    "srun": Launcher(
        JOB,
        "srun --overlap --nodes {nodes} --ntasks {ranks} --ntasks-per-node {workers_per_node} "
        "--cpus-per-task {threads_per_worker} --kill-on-bad-exit=1",
    ),
    "mpirun": Launcher(JOB, "mpirun --oversubscribe --bind-to none -n {ranks}"),
}
"""Launchers by name; ``workers`` starts each process with the variables that torchrun would give it."""

CONTAINER_VARIABLE = "STALLPOINT_CONTAINER"
"""Environment variable with the container in which commands run; the profile sets it."""
RATES = {
    "rate": "samples/s of all workers together",
    "worker_rate": "samples/s of one worker",
    "seconds": "seconds of an iteration",
    "milliseconds": "milliseconds of an iteration",
}
"""Named groups that the regular expression of a command may have, with their meaning."""


THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",  # in PyTorch with MKL, MKL_NUM_THREADS overrides OMP_NUM_THREADS
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Environment variables with the number of threads of a process; Snakemake sets them to the threads of the rule."""


def thread_variables(threads: int) -> dict[str, str]:
    """Return the variables that limit a process to a number of `threads` in any library."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def launcher_of(launcher_text: str) -> Launcher:
    """Return the launcher with the name `launcher_text`. Any other text is itself a launcher, run once for the job."""
    return LAUNCHERS.get(launcher_text) or Launcher(JOB, launcher_text)


def check(commands: Mapping[str, Mapping[str, object]]) -> None:
    """Raise `InputError` naming the first entry of a study's ``commands`` that is wrong."""
    for name, entry in commands.items():
        where = f"commands.{name}"
        run, launch, rate = (str(entry[key]) for key in ("run", "launch", "rate"))
        if launch not in LAUNCHERS and " " not in launch.strip():
            names = ", ".join(LAUNCHERS)
            raise InputError(
                f"{where}.launch: unknown launcher {launch!r}; known: {names}, or a text such as 'mpirun -n {{ranks}}'"
            )
        for key, text in (("run", run), ("launch", launch)):
            check_template(f"{where}.{key}", text, {**CELL_PLACEHOLDERS, **PROCESS_PLACEHOLDERS})
        if not run.strip():
            raise InputError(f"{where}.run: an empty command")
        if rate:
            _check_rate(f"{where}.rate", rate)


def check_template(key: str, text: str, known: Collection[str]) -> None:
    """Raise `InputError` if `text`, under the key `key`, is no command or has a placeholder that is not in `known`."""
    if "\0" in text:
        raise InputError(f"{key}: holds a NUL byte, which no command can")
    try:
        fields = [(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(text) if name is not None]
        shlex.split(text)
    except ValueError as error:
        raise InputError(f"{key}: {text!r}: {error}; braces that are no placeholder are written twice") from None
    for name, spec, conversion in fields:
        if spec or conversion:
            raise InputError(f"{key}: a placeholder is only a name, such as {{ranks}}, without format or conversion")
        if name not in known:
            similar_names = get_close_matches(name, known, 1)
            hint = f"did you mean {{{similar_names[0]}}}?" if similar_names else f"known: {', '.join(known)}"
            raise InputError(f"{key}: unknown placeholder {{{name}}}; {hint}")


def _check_rate(key: str, rate: str) -> None:
    try:
        groups = re.compile(rate).groupindex
    except re.error as error:
        raise InputError(f"{key}: {rate!r} is no regular expression: {error}") from None
    if len(groups.keys() & RATES.keys()) != 1:
        raise InputError(f"{key}: {rate!r} needs one group named {', '.join(RATES)}, such as (?P<rate>[0-9.]+)")


@dataclass(frozen=True)
class Process:
    """A process that a worker starts for a command."""

    arguments: list[str]
    variables: dict[str, str]
    """Environment variables in addition to those of the job."""


def process_of(cell: CommandCell, rank: int, address: str, port: int, container_text: str = "") -> Process | None:
    """Return the process that worker `rank` starts for the cell; None if the worker itself starts no process.

    `container` stands before the command, e.g. ``apptainer exec IMAGE``. Options of srun, e.g. pyxis'
    ``--container-image=IMAGE``, stand after ``srun``.
    """
    launcher = launcher_of(cell.launch)
    node, local = divmod(rank, cell.workers_per_node)
    if (launcher.each == NODE and local) or (launcher.each == JOB and rank):
        return None
    values: dict[str, object] = {
        **{name: getattr(cell, name) for name in CELL_PLACEHOLDERS if name != "steps"},
        "steps": cell.warmup + cell.iterations,
        "node": node,
        "rank": rank,
        "local_rank": local,
        "address": address,
        "port": port,
    }
    launcher_text = f"{launcher.text} {launcher.several}" if cell.ranks > 1 else launcher.text
    start, words = (shlex.split(text.format(**values)) for text in (launcher_text, cell.run))
    container_words = shlex.split(container_text)
    if container_text.startswith("--"):
        if start[:1] != ["srun"]:
            raise InputError(
                f"resource container: {container_text} is for srun; commands.{cell.network} has launch: {cell.launch}"
            )
        start, container_words = [*start, *container_words], []
    # A launcher that runs once on each node runs inside the container; a launcher for the job runs outside.
    arguments = [*start, *container_words, *words] if launcher.each == JOB else [*container_words, *start, *words]
    variables = {"MASTER_ADDR": address, "MASTER_PORT": str(port), **thread_variables(cell.threads_per_worker)}
    if launcher.each == WORKER or (cell.ranks == 1 and not launcher.announces_single):
        variables |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(cell.ranks),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(cell.workers_per_node),
            "GROUP_RANK": str(node),
        }
    return Process(arguments, variables)


_MPI_VARIABLE = re.compile(r"(OMPI|OPAL|PMIX|PMI|PRTE|PRRTE|MPI|MPIR|HYDRA|HYDI|I_MPI_HYDRA)_")


def drop_mpi(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without those of MPI: the command's processes are no ranks of the measuring job."""
    return {
        name: value
        for name, value in variables.items()
        if not _MPI_VARIABLE.match(name) or name.startswith("OMPI_ALLOW_RUN_AS_ROOT")
    }


def files_of(run: str) -> list[Path]:
    """Return the files that a command names; once the content of a file changes, the command is measured again."""
    try:
        words = shlex.split(run)
    except ValueError:
        return []
    return [Path(word) for word in words if os.path.isfile(word)]
