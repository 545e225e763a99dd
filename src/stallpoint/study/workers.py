"""Placements of workers on nodes, and the scaling curves that placements form.

A scaling curve fills one node before it adds nodes: 1, 2, 4 workers on one node, then 2, 4, ... full nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

Placement: TypeAlias = tuple[int, int]
"""Number of nodes, and number of workers on each node."""


def curves_of(placements: Iterable[Placement]) -> dict[int, list[Placement]]:
    """Return the scaling curves of `placements`, each a sorted list, by the number of workers on a full node.

    There is a curve for each number of workers per node that occurs on several nodes, and for the largest number that
    occurs on one node. A placement on one node is on every curve whose full node has at least as many workers.
    """
    distinct_placements = set(placements)
    on_node = [workers for nodes, workers in distinct_placements if nodes == 1]
    full = {workers for nodes, workers in distinct_placements if nodes > 1} | ({max(on_node)} if on_node else set())
    return {
        per_node: sorted(
            [(1, workers) for workers in on_node if workers <= per_node]
            + [(nodes, workers) for nodes, workers in distinct_placements if nodes > 1 and workers == per_node]
        )
        for per_node in sorted(full)
    }


def placement_at(ranks: int, per_node: int) -> Placement:
    """Return the placement of `ranks` workers on the curve whose full nodes have `per_node` workers.

    >>> placement_at(2, 4), placement_at(8, 4)
    ((1, 2), (2, 4))
    """
    return (1, ranks) if ranks <= per_node else (ranks // per_node, per_node)


def nearest(placements: Iterable[Placement], target: Placement) -> Placement:
    """Return the placement that is most similar to `target` by workers per node; among equals, by number of nodes.

    >>> nearest([(2, 1), (1, 4), (2, 4)], (8, 3))
    (2, 4)
    """

    def difference(placement: Placement) -> tuple[float, float]:
        nodes, workers = (abs(math.log(one / target_size)) for one, target_size in zip(placement, target, strict=True))
        return workers, nodes

    return min(placements, key=difference)


def counts(nodes: Iterable[int], per_node: int) -> list[int]:
    """Return worker counts, rising: powers of two on one node, then the workers of each number of full `nodes`.

    >>> counts([1, 2], 8), counts([1, 2, 4], 1)
    ([1, 2, 4, 8, 16], [1, 2, 4])
    """
    counts_on_node = [2**power for power in range(per_node.bit_length()) if 2**power < per_node]
    return sorted({*counts_on_node, *([per_node] if per_node > 1 else []), *(n * per_node for n in nodes)})


def placement_in_words(ranks: int, per_node: int, *, is_one_machine: bool = False) -> str:
    """Return words for a placement: ``4 nodes`` if each node has one worker, else ``8 workers (2 nodes)``.

    If all nodes are processes of one machine (`is_one_machine`), the words are ``4 processes``.

    >>> placement_in_words(1, 1), placement_in_words(8, 4), placement_in_words(2, 4)
    ('1 node', '8 workers (2 nodes)', '2 workers (1 node)')
    """
    if per_node == 1:
        return _with_noun(ranks, *(("process", "processes") if is_one_machine else ("node", "nodes")))
    return f"{_with_noun(ranks, 'worker', 'workers')} ({_with_noun(placement_at(ranks, per_node)[0], 'node', 'nodes')})"


def nodes_and_workers(placement: Placement) -> str:
    """Return a placement's text in tables: ``4`` is 4 nodes with one worker each, ``4 × 8`` 4 nodes with 8 workers."""
    nodes, workers = placement
    return str(nodes) if workers == 1 else f"{nodes} × {workers}"


def _with_noun(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"
