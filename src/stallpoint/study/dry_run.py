"""What a dry run says of a study: what will be run and what is left out, in a few lines however large it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from stallpoint.study.cells import Cell
from stallpoint.study.kinds import KINDS
from stallpoint.study.matrix import LeftOut
from stallpoint.study.workers import Place


def plan_of(name: str, cells: Mapping[str, Cell], archives: Iterable[str], left_out: tuple[LeftOut, ...]) -> str:
    """Return the plan of a study for people; `archives` are further ones, each in words."""
    return "\n".join(
        [
            f"study {name}: {len(cells)} cells",
            *_counts(cells.values()),
            *(f"  from {archive}" for archive in archives),
            *_left_out(left_out),
        ]
    )


def _counts(cells: Iterable[Cell]) -> Iterator[str]:
    counts = Counter((cell.kind, cell.hardware, cell.place) for cell in cells)
    if not counts:
        return
    first = max(len("collectives"), *(len(kind) for kind, _, _ in counts)) + 2
    second = max(len("hardware"), *(len(hardware) for _, hardware, _ in counts)) + 2
    third = max(len("nodes"), *(len(in_place(at)) for _, _, at in counts))
    yield f"  {'kind':<{first}}{'hardware':<{second}}{'nodes':>{third}}{'cells':>8}"
    for (kind, hardware, at), count in sorted(
        counts.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0])
    ):
        yield f"  {kind:<{first}}{hardware:<{second}}{in_place(at):>{third}}{count:>8}"


def in_place(at: Place) -> str:
    """A place as the column ``nodes`` of a plan says it: ``4``, or ``4 × 8`` with 8 workers on each."""
    nodes, workers = at
    return str(nodes) if workers == 1 else f"{nodes} × {workers}"


def reasons(left_out: tuple[LeftOut, ...]) -> list[str]:
    """Why combinations are left out: for each reason how many, and one of them."""
    found: dict[str, list[LeftOut]] = {}
    for entry in left_out:
        found.setdefault(entry.reason, []).append(entry)
    return [f"{len(entries)} × {reason} (such as {_example(entries[0])})" for reason, entries in found.items()]


def _example(entry: LeftOut) -> str:
    several = ["workers_per_node"] if entry.axes["workers_per_node"] > 1 else []
    named = ("network", "hardware", "nodes", *several, "batch", "scaling")
    return ", ".join(f"{axis} {entry.axes[axis]}" for axis in named if axis in entry.axes)


def _left_out(left_out: tuple[LeftOut, ...]) -> Iterator[str]:
    if not left_out:
        return
    yield f"  left out: {len(left_out)}"
    why = reasons(left_out)
    yield from (f"    {'':<{5 - len(reason.split()[0])}}{reason}" for reason in why[:12])
    if len(why) > 12:
        yield f"    and for {len(why) - 12} more reasons"
