"""Synchronous SGD with every transfer a task of its own: workers, nodes and links may differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stallpoint.errors import InputError
from stallpoint.models.dag.builders import Costs, Message, s_sgd
from stallpoint.models.dag.graph import Task
from stallpoint.models.dag.transfers import Cluster, all_reduce, hierarchical, rounds
from stallpoint.presets import Preset


def s_sgd_by_transfer(
    costs: Sequence[Costs],
    preset: Preset,
    cluster: Cluster,
    messages: Sequence[tuple[Sequence[int], float]],
    *,
    prefetch: bool,
    levels: bool = False,
    iterations: int = 2,
) -> list[Task]:
    """Named tasks of `iterations`: ``update of 0 on 2``, ``all-reduce 3 of 0, round 1: 2 to 3`` and so on.

    `costs` by worker, without messages; `messages` are (layers as positions in forward order, bytes) in the order of
    sending. `levels`: the workers of a node reduce among themselves first. Each worker updates its own weights.
    """
    if len(costs) != cluster.ranks:
        raise InputError(f"DAG: costs of {len(costs)} workers, but the cluster has {cluster.ranks}")
    plan = (
        hierarchical(preset.reduction, cluster.nodes, cluster.workers_per_node)
        if levels
        else rounds(preset.reduction, cluster.ranks)
    )
    templates = [s_sgd(replace(one, messages=()), preset, prefetch=prefetch) for one in costs]
    tasks: list[Task] = []
    for i in range(iterations):
        arrived: list[list[str]] = [[] for _ in costs]
        for layers, size in messages:
            needed = min(layers) + 1 if preset.overlaps else 1
            ready = [f"backward {needed} of {i} on {worker}" for worker in range(len(costs))]
            name = f"all-reduce {Message(tuple(layers), ()).label} of {i}"
            transfers, done = all_reduce(name, plan, cluster, size, ready)
            tasks += transfers
            for worker, last in enumerate(done):
                arrived[worker] += last
        for worker, template in enumerate(templates):
            for task in template.tasks:
                after = [f"{name} of {i} on {worker}" for name in task.after]
                if i:
                    after += [f"{name} of {i - 1} on {worker}" for name, then in template.carried if then == task.name]
                if task.name == "update":
                    after += arrived[worker]
                own = "compute stream" if task.name == "update" else task.resource
                tasks.append(
                    replace(
                        task, name=f"{task.name} of {i} on {worker}", resource=f"{own} {worker}",
                        after=tuple(dict.fromkeys(after)),
                    )
                )  # fmt: skip
    return tasks
