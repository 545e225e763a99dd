"""Settings of batch scripts that slow training down: each with its line and a correction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stallpoint.findings.finding import Cause, Finding
from stallpoint.inputs.batch_scripts import BatchScript, Command

_DATA = re.compile(r"(?<![\w/])(?:~|\$\{?HOME\}?|/home/[\w.-]+|/users?/[\w.-]+)(?:/[\w./-]*)?", re.IGNORECASE)
_PATHS = {
    "NCCL_IB_DISABLE": "InfiniBand and RoCE: all that crosses nodes goes by IP sockets",
    "NCCL_P2P_DISABLE": "NVLink and PCIe between GPUs of a node",
    "NCCL_SHM_DISABLE": "shared memory between processes of a node",
}
_DATA_OPTION = re.compile(r"(data|dataset|train|imagenet|input|corpus|shards|root)", re.IGNORECASE)


def _runs(script: BatchScript) -> Iterator[Command]:
    return (command for command in script.commands if command.launchers)


def _asked(script: BatchScript, *names: str) -> tuple[str, int] | None:
    return next((script.asked[name] for name in names if name in script.asked), None)


def cpus_not_passed(script: BatchScript) -> Iterator[Cause]:
    """Find an ``srun`` without ``--cpus-per-task``, which it does not take from ``sbatch`` since Slurm 22.05."""
    asked = _asked(script, "--cpus-per-task")
    if not asked or not asked[0].isdigit() or int(asked[0]) < 2 or "SRUN_CPUS_PER_TASK" in script.set:
        return
    for command in _runs(script):
        if command.launchers[0] == "srun" and command.option("--cpus-per-task") is None:
            yield Cause(
                "cpus_per_task",
                f"line {command.line}: srun does not take over --cpus-per-task={asked[0]} of line {asked[1]} "
                f"(since Slurm 22.05): each task has one core; write  srun --cpus-per-task={asked[0]} ...  or  export "
                "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
                None,
                "docs of srun, --cpus-per-task",
            )
            return


def one_task_all_gpus(script: BatchScript) -> Iterator[Cause]:
    """Find one task with several GPUs and no launcher that starts a process for each."""
    asked = _asked(script, "--gpus-per-node", "--gres", "--gpus", "--gpus-per-task")
    gpus = next(
        (
            script.number(name)
            for name in ("--gpus-per-node", "--gres", "--gpus-per-task", "--gpus")
            if name in script.asked
        ),
        None,
    )
    per_node = script.number("--ntasks-per-node")
    tasks = per_node if per_node is not None else script.number("--ntasks") or 1
    if not asked or not gpus or gpus < 2 or tasks > 1 or not script.commands:
        return
    commands = list(_runs(script))
    if any(
        {"torchrun", "deepspeed", "accelerate", "horovodrun", "mpirun", "mpiexec"} & set(one.launchers)
        for one in commands
    ):
        return
    if any(one.option("--ntasks", "--ntasks-per-node") not in (None, "", "1") for one in commands):
        return
    started = next((one for one in commands), None)
    where = f"line {started.line}" if started else "the script"
    yield Cause(
        "one_task",
        f"{where}: one task has all {gpus} GPUs of line {asked[1]}, and nothing starts a process for each: one GPU "
        f"works (or DataParallel in one process); write  #SBATCH --ntasks-per-node={gpus}  or start with  torchrun "
        f"--nproc-per-node={gpus}",
    )


def no_gpu_bind(script: BatchScript) -> Iterator[Cause]:
    """Find several tasks on a node that see all its GPUs in the same order, far ones too."""
    gpus = next((script.number(name) for name in ("--gpus-per-node", "--gres") if name in script.asked), None)
    tasks = script.number("--ntasks-per-node")
    bound = "--gpu-bind" in script.asked or "--gpus-per-task" in script.asked
    for command in _runs(script):
        stated = command.option("--gpu-bind", "--gpus-per-task") is not None
        if command.launchers == ["srun"] and gpus and gpus > 1 and tasks and tasks > 1 and not bound and not stated:
            yield Cause(
                "gpu_bind",
                f"line {command.line}: no --gpu-bind: every task may be far from the GPU that it takes; write  srun "
                "--gpu-bind=closest ...  (or none, where the program itself takes GPU $SLURM_LOCALID and NCCL "
                "needs to see all)",
            )
            return


def nodes_apart(script: BatchScript) -> Iterator[Cause]:
    """Find a ``torchrun`` that does not join the job's nodes: it runs on one of them, or on each for itself."""
    nodes = script.number("--nodes") or 1
    for command in _runs(script):
        if nodes < 2 or "torchrun" not in command.launchers or any(name.startswith("PET_") for name in script.set):
            continue
        where = f"line {command.line}: torchrun"
        rendezvous = '--nnodes=$SLURM_NNODES --rdzv-backend=c10d --rdzv-endpoint="$(hostname):29500"'
        joined = f"write  srun --ntasks-per-node=1 torchrun {rendezvous} ..."
        if command.launchers == ["torchrun"] and not {"ssh", "pdsh", "clush"} & set(command.words):
            yield Cause("nodes_apart", f"{where} without srun runs on the first of {nodes} nodes alone; {joined}")
        elif command.option("--nnodes") in (None, "1", "1:1") or command.option("--standalone") is not None:
            yield Cause(
                "nodes_apart",
                f"{where} has no --nnodes: each of the {nodes} nodes trains for itself, with gradients of its own; "
                f"{joined}",
                None,
                "docs of torchrun, --nnodes",
            )
        elif command.option("--rdzv-endpoint", "--rdzv-conf", "--master-addr") is None:
            yield Cause(
                "nodes_apart",
                f"{where} gets no address where nodes meet (it ignores MASTER_ADDR): each node waits alone; {joined}",
                None,
                "docs of torchrun, --rdzv-endpoint",
            )


def switched_off(script: BatchScript) -> Iterator[Cause]:
    """Find paths between GPUs that the environment keeps NCCL from using."""
    for name, path in _PATHS.items():
        value, line = script.set.get(name, ("", 0))
        if value not in ("", "0"):
            yield Cause(
                "switched_off",
                f"line {line}: {name}={value} keeps NCCL from {path}; drop the line, or measure what it costs:  "
                "all_reduce_perf -b 64M -e 256M -f 2  with and without it",
                None,
                "docs of NCCL, environment variables",
            )


def one_thread(script: BatchScript) -> Iterator[Cause]:
    """Find ``OMP_NUM_THREADS=1`` with several cores for each task."""
    value, line = script.set.get("OMP_NUM_THREADS", ("", 0))
    asked = _asked(script, "--cpus-per-task")
    if value == "1" and (not asked or asked[0] != "1"):
        cores = f"the {asked[0]} cores of line {asked[1]}" if asked else "the cores of a task"
        yield Cause(
            "one_thread",
            f"line {line}: OMP_NUM_THREADS=1 leaves {cores} idle in decoding and in computing on the CPU; write  "
            "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
        )


def launcher_in_launcher(script: BatchScript) -> Iterator[Cause]:
    """Find a launcher that starts many launchers."""
    per_node = script.number("--ntasks-per-node")
    for command in _runs(script):
        first, *others = command.launchers
        if not others:
            continue
        tasks = command.option("--ntasks-per-node") or (str(per_node) if per_node else "")
        each = command.option("--nproc-per-node", "--nproc_per_node") or ""
        if first == "srun" and others[0] in ("torchrun", "accelerate", "deepspeed"):
            if tasks.isdigit() and int(tasks) > 1 and each != "1":
                yield Cause(
                    "launcher_in_launcher",
                    f"line {command.line}: srun starts {tasks} times {others[0]} on each node, and each of "
                    f"these starts {each or 'its'} processes; write  srun --ntasks-per-node=1 {others[0]} ...",
                )
        else:
            yield Cause(
                "launcher_in_launcher",
                f"line {command.line}: {first} starts {others[0]}, which starts processes too: every "
                f"process comes several times; start with one of the two",
            )


def data_at_home(script: BatchScript) -> Iterator[Cause]:
    """Find training data in a home directory."""
    for name, (value, line) in script.set.items():
        if (
            _DATA_OPTION.search(name)
            and _DATA.match(value)
            and not re.search(r"venv|conda|\.py$|out|log|ckpt|checkpoint", value, re.I)
        ):
            yield _home(line, f"{name}={value}")
            return
    for command in script.commands:
        for place, word in enumerate(command.words):
            name, equal, value = word.partition("=")
            value = value if equal else (command.words[place + 1] if place + 1 < len(command.words) else "")
            if word.startswith("-") and _DATA_OPTION.search(name) and _DATA.match(value):
                yield _home(command.line, f"{name} {value}")
                return


def _home(line: int, what: str) -> Cause:
    return Cause(
        "data_at_home",
        f"line {line}: {what} is on a home directory, which one server serves to all nodes; copy it to "
        "$TMPDIR or a parallel file system first",
    )


CHECKS: tuple[Callable[[BatchScript], Iterator[Cause]], ...] = (
    cpus_not_passed,
    one_task_all_gpus,
    nodes_apart,
    switched_off,
    launcher_in_launcher,
    one_thread,
    data_at_home,
    no_gpu_bind,
)
"""Checks of a script, the costliest problem first."""


def answer(name: str, script: BatchScript) -> Finding:
    """Return what is wrong in the script."""
    causes = tuple(cause for check in CHECKS for cause in check(script))
    count = len(causes)
    headline = (
        f"{count} line{'' if count == 1 else 's'} to mend"
        if causes
        else f"none of {len(CHECKS)} usual mistakes is in it (cores, launchers, nodes, NCCL, threads, data, GPUs)"
    )
    return Finding("script", name, headline, causes=causes)
