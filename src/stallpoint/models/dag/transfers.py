"""All-reduce schemes message by message, for workers and links that differ, and as stages for those that do not.

A transfer of m bytes takes α + β·m of a link's time (Thakur, Rabenseifner & Gropp 2005, section 3). Ports are
full duplex. Schemes that send to partners keep the sender's port; where many send to one, its receiving port counts.
The workers of a node share its port to the network; inside the node each has its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stallpoint.errors import InputError
from stallpoint.models.dag.builders import Stage
from stallpoint.models.dag.graph import Kind, Task


@dataclass(frozen=True)
class Link:
    """Time of a transfer: alpha + beta · bytes."""

    alpha: float
    """s."""
    beta: float
    """s/byte."""

    def seconds(self, size: float) -> float:
        """Time for `size` bytes."""
        return self.alpha + self.beta * size


@dataclass(frozen=True)
class Cluster:
    """Workers by nodes: rank r is on node r // workers_per_node."""

    nodes: int
    workers_per_node: int
    network: Link
    inside: Link
    """Between workers of one node."""
    slower: Mapping[int, float] | None = None
    """Factor on the network time of transfers from or to these nodes."""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.workers_per_node < 1:
            raise InputError(f"cluster: {self.nodes} nodes with {self.workers_per_node} workers; at least one each")

    @property
    def ranks(self) -> int:
        """Workers in all."""
        return self.nodes * self.workers_per_node

    def node(self, rank: int) -> int:
        """Where a worker is."""
        return rank // self.workers_per_node

    def seconds(self, sender: int, receiver: int, size: float) -> float:
        """Time of a transfer of `size` bytes."""
        ends = (self.node(sender), self.node(receiver))
        if ends[0] == ends[1]:
            return self.inside.seconds(size)
        return self.network.seconds(size) * max((self.slower or {}).get(node, 1.0) for node in ends)


@dataclass(frozen=True)
class Transfer:
    """What one rank sends another in one round, as a share of the message."""

    sender: int
    receiver: int
    share: float
    incast: bool = False
    """The receiver's port is what is kept busy, not the sender's."""


Rounds = Sequence[Sequence[Transfer]]
"""A rank sends in a round once it has received and sent what it had to in the rounds before."""


def rounds(reduction: str, ranks: int) -> Rounds:
    """The transfers of an all-reduce over `ranks` by a preset's `reduction`; ``library`` is taken for a ring.

    Where a scheme needs a power of two, the ranks beyond it give their values to a partner first and get the
    result from it at the end.
    """
    if ranks < 1:
        raise InputError(f"all-reduce: {ranks} ranks; at least one is needed")
    if ranks == 1:
        return []
    schemes = {
        "library": _ring,
        "ring": _ring,
        "recursive-doubling": _recursive_doubling,
        "rabenseifner": _rabenseifner,
        "binary-tree": _binary_tree,
        "parameter-server": _parameter_server,
    }
    if reduction not in schemes:
        raise InputError(f"reduction: {reduction!r} is not one of {', '.join(schemes)}")
    return schemes[reduction](ranks)


def hierarchical(reduction: str, nodes: int, workers_per_node: int) -> Rounds:
    """Up a tree to the first worker of each node, an all-reduce among these, and down again."""
    tree = rounds("binary-tree", workers_per_node)
    up, down = tree[: len(tree) // 2], tree[len(tree) // 2 :]

    def everywhere(part: Rounds) -> list[list[Transfer]]:
        return [
            [_moved(t, 1, node * workers_per_node) for node in range(nodes) for t in transfers] for transfers in part
        ]

    leaders = [[_moved(t, workers_per_node, 0) for t in transfers] for transfers in rounds(reduction, nodes)]
    return [*everywhere(up), *leaders, *everywhere(down)]


def all_reduce(
    name: str, plan: Rounds, cluster: Cluster, size: float, ready: Sequence[str]
) -> tuple[list[Task], list[tuple[str, ...]]]:
    """Tasks of an all-reduce of `size` bytes, and for each rank those after which it has the result.

    `ready` names, by rank, the task after which its values are there.
    """
    waits: list[tuple[str, ...]] = [(task,) for task in ready]
    tasks = []
    for number, transfers in enumerate(plan):
        received: dict[int, list[str]] = {}
        sent: dict[int, list[str]] = {}
        for transfer in transfers:
            task = f"{name}, round {number}: {transfer.sender} to {transfer.receiver}"
            seconds = cluster.seconds(transfer.sender, transfer.receiver, transfer.share * size)
            tasks.append(Task(task, Kind.COMMUNICATION, seconds, _port(transfer, cluster), waits[transfer.sender]))
            sent.setdefault(transfer.sender, []).append(task)
            received.setdefault(transfer.receiver, []).append(task)
        for rank in {*sent, *received}:
            # What a rank sent came after all it had received before.
            waits[rank] = (*sent.get(rank, waits[rank]), *received.get(rank, ()))
    return tasks, waits


def stages(reduction: str, cluster: Cluster, size: float, *, levels: bool = False) -> tuple[Stage, ...]:
    """The same as the stages of a message when all workers and links are equal.

    `levels`: hierarchical. A server receives and sends at once, so these are stages of their own.
    """
    if cluster.slower:
        raise InputError("all-reduce: nodes differ; stages are for equal ones, `all_reduce` for others")
    if levels:
        up = math.ceil(math.log2(cluster.workers_per_node)) * cluster.inside.seconds(size)
        among = Cluster(cluster.nodes, 1, cluster.network, cluster.inside)
        inner = stages(reduction, among, size)
        return (Stage("node link", up), *inner, Stage("node link", up)) if up else inner
    plan, link = rounds(reduction, cluster.ranks), cluster.network if cluster.nodes > 1 else cluster.inside
    if reduction == "parameter-server":
        one = sum(link.seconds(transfer.share * size) for transfer in plan[0]) if plan else 0.0
        return Stage("server receives", one), Stage("server sends", one)
    return (Stage("network", sum(link.seconds(transfers[0].share * size) for transfers in plan)),)


def _port(transfer: Transfer, cluster: Cluster) -> str:
    busy = transfer.receiver if transfer.incast else transfer.sender
    direction = "in" if transfer.incast else "out"
    if cluster.node(transfer.sender) == cluster.node(transfer.receiver):
        return f"worker {busy} {direction}"
    return f"node {cluster.node(busy)} {direction}"


def _moved(transfer: Transfer, stride: int, offset: int) -> Transfer:
    sender, receiver = (offset + stride * rank for rank in (transfer.sender, transfer.receiver))
    return replace(transfer, sender=sender, receiver=receiver)


# --- schemes ------------------------------------------------------------------------------------------


def _ring(ranks: int) -> Rounds:
    one = [Transfer(rank, (rank + 1) % ranks, 1 / ranks) for rank in range(ranks)]
    return [one] * (2 * (ranks - 1))


def _recursive_doubling(ranks: int) -> Rounds:
    power = 1 << int(math.log2(ranks))
    steps = [[Transfer(rank, rank ^ (1 << step), 1) for rank in range(power)] for step in range(int(math.log2(power)))]
    return _folded(steps, ranks, power)


def _rabenseifner(ranks: int) -> Rounds:
    power = 1 << int(math.log2(ranks))
    count = int(math.log2(power))
    halving = [
        [Transfer(rank, rank ^ (power >> step + 1), 0.5 ** (step + 1)) for rank in range(power)]
        for step in range(count)
    ]
    return _folded([*halving, *reversed(halving)], ranks, power)


def _folded(steps: list[list[Transfer]], ranks: int, power: int) -> Rounds:
    beyond = range(power, ranks)
    if not beyond:
        return steps
    return [
        [Transfer(rank, rank - power, 1) for rank in beyond],
        *steps,
        [Transfer(rank - power, rank, 1) for rank in beyond],
    ]


def _binary_tree(ranks: int) -> Rounds:
    """Binomial: with every round up half of the ranks are done."""
    up = [
        [Transfer(rank + step, rank, 1, incast=True) for rank in range(0, ranks - step, 2 * step)]
        for step in _powers(ranks)
    ]
    down = [[Transfer(t.receiver, t.sender, 1) for t in transfers] for transfers in reversed(up)]
    return [*up, *down]


def _powers(ranks: int) -> Iterator[int]:
    step = 1
    while step < ranks:
        yield step
        step *= 2


def _parameter_server(ranks: int) -> Rounds:
    others = range(1, ranks)
    return [[Transfer(rank, 0, 1, incast=True) for rank in others], [Transfer(0, rank, 1) for rank in others]]
