"""Checks of batch scripts for settings that slow training down, each with its line and a correction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stallpoint.base.section import Cause, Finding
from stallpoint.measure.machine.node_addresses import NCCL_PATHS
from stallpoint_files.jobs.batch_scripts import BatchScript, Command, Start

_DATA = re.compile(r"(?<![\w/])(?:~|\$\{?HOME\}?|/home/[\w.-]+|/users?/[\w.-]+)(?:/[\w./-]*)?", re.IGNORECASE)
_DATA_OPTION = re.compile(r"(data|dataset|train|imagenet|input|corpus|shards|root)", re.IGNORECASE)


_PLACED = re.compile(r"\b(?:none|no|(?:mask|map)_\w+)\b")
"""Values of ``--cpu-bind`` that give tasks other cores than Slurm's default."""
_PROCESSES = re.compile(r"gpu|device|nproc|world|parallel|distributed|strategy", re.IGNORECASE)
"""Options of a training program that starts processes itself."""
_C10D = '--rdzv-backend=c10d --rdzv-endpoint="$(hostname):29500"'
_ON_ALL_NODES = {
    "torchrun": ("--nnodes", "torchrun --nnodes=$SLURM_NNODES " + _C10D),
    "accelerate launch": (
        "--num-machines",
        "accelerate launch --num-machines=$SLURM_NNODES --rdzv-backend=c10d --main-process-ip=$(hostname) "
        "--main-process-port=29500",
    ),
    "deepspeed": ("--hostfile", "torchrun --nnodes=$SLURM_NNODES --nproc-per-node=gpu " + _C10D),
}
"""Launchers that use one node by default: the option that names further nodes, and a command for all nodes."""
_EACH_NODE = ("--ppn", "-ppn", "-npernode", "--npernode", "-N")
"""Options of mpiexec and mpirun for the number of processes on each node."""
_OWN_RANK = re.compile(r"\$\{?SLURM_(?:NODEID|PROCID)\}?")


def _runs(script: BatchScript) -> Iterator[Command]:
    """Yield the understood commands that start a training."""
    return (command for command in script.commands if command.understood)


def _asked(script: BatchScript, *names: str) -> tuple[str, int] | None:
    return next((script.asked[name] for name in names if name in script.asked), None)


def _binds_cores(script: BatchScript, step: Start) -> bool:
    """Return whether the script itself binds tasks to cores, for example those near GPU $SLURM_LOCALID."""
    default = _asked(script, "--cpu-bind") or script.set.get("SLURM_CPU_BIND") or ("", 0)
    return bool(_PLACED.search(step.option("--cpu-bind") or default[0]))


def cpus_not_passed(script: BatchScript) -> Iterator[Cause]:
    """Find tasks that get one core each: the default, which ``srun`` takes even if ``sbatch`` asks for more cores by
    ``--cpus-per-task`` (since Slurm 22.05)."""
    asked = _asked(script, "--cpus-per-task")
    commands: list[Command] = []
    if asked and asked[0].isdigit() and int(asked[0]) > 1:
        why = f"srun does not take over --cpus-per-task={asked[0]} of line {asked[1]} (since Slurm 22.05)"
        cores, variable = asked[0], "$SLURM_CPUS_PER_TASK"
        commands = list(_runs(script)) or [one for one in script.commands if one.program and not one.prepares][-1:]
    elif not asked and not _asked(script, "--cpus-per-gpu", "--exclusive"):
        why = "nothing asks for cores (--cpus-per-task), and Slurm's default is one"
        cores = variable = "N"
        of_srun = [one for one in _runs(script) if one.launchers == ["srun"]]
        commands = [one for one in of_srun if (script.tasks_per_node(one.step) or 1) > 1]
    for command in commands if "SRUN_CPUS_PER_TASK" not in script.set else ():
        step = command.step
        if step and step.option("--cpus-per-task", "--cpus-per-gpu") is None and not _binds_cores(script, step):
            yield Cause(
                "cpus_per_task",
                f"line {command.line}: {why}: each task has one core; write  srun --cpus-per-task={cores} ...  or  "
                f"export SRUN_CPUS_PER_TASK={variable}",
                None,
                "docs of srun, --cpus-per-task",
            )
            return


def one_task_all_gpus(script: BatchScript) -> Iterator[Cause]:
    """Find a single task with several GPUs and no launcher that starts a process for each GPU.

    A program without ``srun``, or with options for GPUs, may use all GPUs by itself (a mirrored strategy).
    """
    names = ("--gpus-per-node", "--gres", "--gpus-per-task", "--gpus")
    asked = _asked(script, *names)
    gpus = next((script.number(name) for name in names if name in script.asked), None)
    steps = [command for command in script.commands if command.step]
    if not asked or not gpus or gpus < 2 or not all(one.understood or one.prepares for one in steps):
        return
    runs = [command for command in _runs(script) if command.launchers]
    if any(
        command.launchers != ["srun"]
        or script.tasks_per_node(command.step) != 1
        or (command.step and command.step.option(*names, "--nodelist", "-w") is not None)
        or any(word.startswith("$") or (word.startswith("-") and _PROCESSES.search(word)) for word in command.program)
        for command in runs
    ):
        return
    for command in runs[:1]:
        yield Cause(
            "one_task",
            f"line {command.line}: one task has all {gpus} GPUs of line {asked[1]}, and nothing starts a process for "
            f"each: one GPU works, unless {command.program[0]} itself uses all; write  #SBATCH "
            f"--ntasks-per-node={gpus}  or start with  torchrun --nproc-per-node={gpus}",
        )


def no_gpu_bind(script: BatchScript) -> Iterator[Cause]:
    """Find several tasks on a node without GPU binding: each sees all GPUs in the same order, also distant ones."""
    gpus = next((script.number(name) for name in ("--gpus-per-node", "--gres") if name in script.asked), None)
    if not gpus or gpus < 2 or _asked(script, "--gpu-bind", "--gpus-per-task") or script.local_ranks:
        return
    for command in _runs(script):
        step = command.step
        if (
            step
            and command.launchers == ["srun"]
            and (script.tasks_per_node(step) or 1) > 1
            and step.option("--gpu-bind", "--gpus-per-task") is None
            and not _binds_cores(script, step)
            and not {"numactl", "taskset"} & {one.name for one in command.starts}
        ):
            yield Cause(
                "gpu_bind",
                f"line {command.line}: no --gpu-bind: every task may be far from the GPU that it takes; write  srun "
                "--gpu-bind=closest ...  (or none, where the program itself takes GPU $SLURM_LOCALID and NCCL "
                "needs to see all)",
            )
            return


def nodes_apart(script: BatchScript) -> Iterator[Cause]:
    """Find a launcher that does not join the job's nodes, but runs on only one node, or on each node separately."""
    if any(name.startswith("PET_") for name in script.set):
        return
    working, of_job = [one for one in script.commands if not one.prepares], script.nodes(None) or 1
    if of_job > 1 and all(one.understood and not one.launchers for one in working):
        for command in working[:1]:
            once = f"is started once, on the first of {of_job} nodes, and the others are idle"
            yield Cause("nodes_apart", f"line {command.line}: {command.program[0]} {once}; write  srun python ...")
    for command in _runs(script):
        launcher, nodes = command.starts[-1], script.nodes(command.step)
        if launcher.name not in _ON_ALL_NODES or not nodes or nodes < 2 or launcher.option("--config-file") is not None:
            continue
        option, on_all = _ON_ALL_NODES[launcher.name]
        where = f"line {command.line}: {launcher.name}"
        joined = f"write  srun --ntasks-per-node=1 {on_all} ..."
        alone = _one_node_option(launcher, option)
        if launcher.name == "deepspeed" and (not alone or "DLTS_HOSTFILE" in script.set):
            continue  # deepspeed itself starts on the hosts in its host file
        if command.launchers == [launcher.name] and "ssh" not in (one.name for one in command.starts):
            if any(one.step and launcher.name in one.launchers for one in script.commands):
                continue  # this command is the script's branch for one node; another command uses srun
            yield Cause("nodes_apart", f"{where} without srun runs on the first of {nodes} nodes alone; {joined}")
        elif alone:
            yield Cause(
                "nodes_apart",
                f"{where} has {alone}: each of the {nodes} nodes trains for itself, with gradients of its own; "
                f"{joined}",
                None,
                f"docs of {launcher.name}, {option}",
            )
        elif launcher.name == "torchrun" and not _has_rendezvous(launcher):
            ignored = "--master-addr" if launcher.option("--master-addr") else "MASTER_ADDR"
            yield Cause(
                "nodes_apart",
                f"{where} gets no address where nodes meet (it ignores {ignored}): each node waits alone; {joined}",
                None,
                "docs of torchrun, --rdzv-endpoint",
            )


def _has_rendezvous(launcher: Start) -> bool:
    """Return whether torchrun gets a rendezvous address; ``--master-addr`` counts only for a static rendezvous."""
    static = launcher.option("--rdzv-backend") in (None, "static")
    return bool(launcher.option("--rdzv-endpoint", "--rdzv-conf", *(("--master-addr",) if static else ())))


def same_rank(script: BatchScript) -> Iterator[Cause]:
    """Find a node-rank variable that the batch script's shell expands on the first node, before ``srun`` runs."""
    for command in _runs(script):
        launcher, nodes = command.starts[-1], script.nodes(command.step)
        rank = launcher.option("--node-rank", "--machine-rank") or ""
        if (
            command.step
            and nodes
            and nodes > 1
            and _OWN_RANK.fullmatch(rank)
            and "c10d" not in f"{launcher.option('--rdzv-backend')} {launcher.option('--rdzv-conf')}"
            and not {"bash", "sh", "zsh"} & {one.name for one in command.starts}
        ):
            yield Cause(
                "same_rank",
                f"line {command.line}: {rank} is filled in on the first node, before srun starts {launcher.name} on "
                f"all: each of the {nodes} nodes gets rank 0, and they wait for the others; write  srun ... bash -c "
                f"'{launcher.name} ... {rank} ...'  in single quotes",
            )


def _one_node_option(launcher: Start, option: str) -> str:
    """Return the option, or lack of `option`, that keeps a launcher on one node; empty if none does."""
    if launcher.option("--standalone") is not None:
        return "--standalone"
    nodes = launcher.option(option)
    return f"no {option}" if nodes is None else f"{option}={nodes}" if nodes in ("1", "1:1") else ""


def switched_off(script: BatchScript) -> Iterator[Cause]:
    """Find environment variables that keep NCCL from using a path between GPUs."""
    other_net = script.set.get("NCCL_NET", ("", 0))[0].upper() not in ("", "IB", "SOCKET")
    for name, path in NCCL_PATHS.items():
        value, line = script.set.get(name, ("", 0))
        if value not in ("", "0") and not (other_net and name == "NCCL_IB_DISABLE"):  # a plugin's net is not that
            yield Cause(
                "switched_off",
                f"line {line}: {name}={value} keeps NCCL from {path}; drop the line, or measure what it costs:  "
                "all_reduce_perf -b 64M -e 256M -f 2  with and without it",
                None,
                "docs of NCCL, environment variables",
            )
    value, line = script.set.get("CUDA_LAUNCH_BLOCKING", ("", 0))
    if value not in ("", "0"):
        words = "makes the host wait for each kernel, so that nothing overlaps: it is for debugging; drop the line"
        yield Cause(
            "switched_off", f"line {line}: CUDA_LAUNCH_BLOCKING={value} {words}", None, "CUDA programming guide"
        )


def one_thread(script: BatchScript) -> Iterator[Cause]:
    """Find ``OMP_NUM_THREADS=1`` with several cores for each task."""
    value, line = script.set.get("OMP_NUM_THREADS", ("", 0))
    asked = _asked(script, "--cpus-per-task")
    if value == "1" and (asked[0] != "1" if asked else not any(cpus_not_passed(script))):
        cores = f"the {asked[0]} cores of line {asked[1]}" if asked else "the cores of a task"
        yield Cause(
            "one_thread",
            f"line {line}: OMP_NUM_THREADS=1 leaves {cores} idle in decoding and in computing on the CPU; write  "
            "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
        )


def launcher_in_launcher(script: BatchScript) -> Iterator[Cause]:
    """Find a launcher that starts many launchers."""
    for command in _runs(script):
        if len(command.launchers) < 2:
            continue
        first, *others = command.launchers
        each = command.starts[-1].option("--nproc-per-node") or ""
        if first == "srun":
            tasks = script.tasks_per_node(command.step)
            if tasks and tasks > 1 and each != "1":
                yield Cause(
                    "launcher_in_launcher",
                    f"line {command.line}: srun starts {tasks} times {others[0]} on each node, and each of "
                    f"these starts {each or 'its'} processes; write  srun --ntasks-per-node=1 {others[0]} ...",
                )
            continue
        start = next(one for one in command.starts if one.name == first)
        count, nodes = start.option("-np", "-n", "--ntasks", "--np"), script.nodes(None)
        if start.option(*_EACH_NODE) == "1" or "ppr:1:node" in (start.option("--map-by") or ""):
            continue
        if first not in ("mpirun", "mpiexec") or (count and count.isdigit() and nodes and int(count) > nodes):
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
    same_rank,
    switched_off,
    launcher_in_launcher,
    one_thread,
    data_at_home,
    no_gpu_bind,
)
"""Checks of a script, ordered by the cost of the problem, the most expensive first."""


def answer(name: str, script: BatchScript) -> Finding:
    """Return the problems in a script."""
    causes = tuple(cause for check in CHECKS for cause in check(script))
    count = len(causes)
    started = [one for one in script.commands if one.step or one.of_own]
    unread = next((one.line for one in started if not (one.understood or one.prepares)), None)
    headline = (
        f"{count} line{'' if count == 1 else 's'} to mend"
        if causes
        else f"none of {len(CHECKS)} usual mistakes is in it (cores, launchers, nodes, NCCL, threads, data, GPUs)"
    )
    if unread:
        other = "else " if causes else ""
        headline += f"; what starts in line {unread} is not understood, and nothing {other}is said of it"
    return Finding("script", name, headline, causes=causes)
