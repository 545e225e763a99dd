"""Plan of a study for a dry run: what is run and what is excluded, in a few lines for any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS
from stallpoint.study.matrix import Excluded
from stallpoint.study.workers import Placement


def plan_of(name: str, cells: Mapping[str, Cell], excluded: tuple[Excluded, ...]) -> str:
    """Return the plan of a study for people."""
    return "\n".join(
        [
            f"study {name}: {len(cells)} cells",
            *_counts(cells.values()),
            *_excluded(excluded),
        ]
    )


def _counts(cells: Iterable[Cell]) -> Iterator[str]:
    counts = Counter((cell.kind, cell.hardware, cell.placement) for cell in cells)
    if not counts:
        return
    first = max(len("collectives"), *(len(kind) for kind, _, _ in counts)) + 2
    second = max(len("hardware"), *(len(hardware) for _, hardware, _ in counts)) + 2
    third = max(len("nodes"), *(len(nodes_and_workers(at)) for _, _, at in counts))
    yield f"  {'kind':<{first}}{'hardware':<{second}}{'nodes':>{third}}{'cells':>8}"
    for (kind, hardware, at), count in sorted(
        counts.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0])
    ):
        yield f"  {kind:<{first}}{hardware:<{second}}{nodes_and_workers(at):>{third}}{count:>8}"


def nodes_and_workers(at: Placement) -> str:
    """Return a placement as in the column ``nodes`` of a plan: ``4``, or ``4 × 8`` with 8 workers on each."""
    nodes, workers = at
    return str(nodes) if workers == 1 else f"{nodes} × {workers}"


def reasons(excluded: tuple[Excluded, ...]) -> list[str]:
    """Return the reasons for exclusions: the number of combinations of each, and one of them."""
    found: dict[str, list[Excluded]] = {}
    for entry in excluded:
        found.setdefault(entry.reason, []).append(entry)
    return [f"{len(entries)} × {reason} (such as {_example(entries[0])})" for reason, entries in found.items()]


def _example(entry: Excluded) -> str:
    several = ["workers_per_node"] if entry.axes["workers_per_node"] > 1 else []
    named = ("network", "hardware", "nodes", *several, "batch", "scaling")
    return ", ".join(f"{axis} {entry.axes[axis]}" for axis in named if axis in entry.axes)


def _excluded(excluded: tuple[Excluded, ...]) -> Iterator[str]:
    if not excluded:
        return
    yield f"  excluded: {len(excluded)}"
    why = reasons(excluded)
    yield from (f"    {'':<{5 - len(reason.split()[0])}}{reason}" for reason in why[:12])
    if len(why) > 12:
        yield f"    and for {len(why) - 12} more reasons"
