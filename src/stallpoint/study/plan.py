"""What a dry run says of a study: what will be run and what is left out, in a few lines however large it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stallpoint.cells import Cell
from stallpoint.kinds import KINDS
from stallpoint.study.matrix import LeftOut

if TYPE_CHECKING:
    from stallpoint.study import Archive, Study


def plan_of(study: Study) -> str:
    """The plan of a study, for people."""
    return "\n".join(
        [
            f"study {study.name}: {len(study.cells)} cells",
            *_counts(study.cells.values()),
            *map(_archive, study.archives),
            *_left_out(study.left_out),
        ]
    )


def _counts(cells: Iterable[Cell]) -> Iterator[str]:
    counts = Counter((cell.kind, cell.hardware, cell.nodes) for cell in cells)
    if not counts:
        return
    first = max(len("collectives"), *(len(kind) for kind, _, _ in counts)) + 2
    second = max(len("hardware"), *(len(hardware) for _, hardware, _ in counts)) + 2
    yield f"  {'kind':<{first}}{'hardware':<{second}}{'nodes':>5}{'cells':>8}"
    for (kind, hardware, nodes), count in sorted(
        counts.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0])
    ):
        yield f"  {kind:<{first}}{hardware:<{second}}{nodes:>5}{count:>8}"


def _archive(archive: Archive) -> str:
    return f"  from {archive.path}: {len(archive.cells)} cells, as hardware {', '.join(archive.hardware)}"


def reasons(left_out: tuple[LeftOut, ...]) -> list[str]:
    """Why combinations are left out: for each reason how many, and one of them."""
    found: dict[str, list[LeftOut]] = {}
    for entry in left_out:
        found.setdefault(entry.reason, []).append(entry)
    return [f"{len(entries)} × {reason} (such as {_example(entries[0])})" for reason, entries in found.items()]


def _example(entry: LeftOut) -> str:
    named = ("network", "hardware", "nodes", "batch", "scaling")
    return ", ".join(f"{axis} {entry.axes[axis]}" for axis in named if axis in entry.axes)


def _left_out(left_out: tuple[LeftOut, ...]) -> Iterator[str]:
    if not left_out:
        return
    yield f"  left out: {len(left_out)}"
    why = reasons(left_out)
    yield from (f"    {'':<{5 - len(reason.split()[0])}}{reason}" for reason in why[:12])
    if len(why) > 12:
        yield f"    and for {len(why) - 12} more reasons"
