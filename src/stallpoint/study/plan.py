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


def _left_out(left_out: tuple[LeftOut, ...]) -> Iterator[str]:
    if not left_out:
        return
    yield f"  left out: {len(left_out)}"
    reasons: dict[str, list[LeftOut]] = {}
    for entry in left_out:
        reasons.setdefault(entry.reason, []).append(entry)
    for reason, entries in list(reasons.items())[:12]:
        example = ", ".join(
            f"{axis} {entries[0].axes[axis]}" for axis in ("network", "hardware", "nodes", "batch", "scaling")
        )
        yield f"    {len(entries):>5} × {reason} (such as {example})"
    if len(reasons) > 12:
        yield f"    and for {len(reasons) - 12} more reasons"
