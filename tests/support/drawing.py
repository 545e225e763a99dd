"""A schedule drawn with characters, above an assertion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stallpoint.models.taskgraph.tasks import Task, TaskSchedule


def initials(task: Task) -> str:
    """``backward 3 of 0 on 2`` -> ``b3``."""
    words = task.name.split()
    return words[0][0] + (words[1] if len(words) > 1 and words[1][0].isdigit() else "")


def timeline(
    tasks: Sequence[Task], schedule: TaskSchedule, *, columns_per_second: float, label: Callable[[Task], str] = initials
) -> str:
    """One line for each stream, in the order of `tasks`; a task fills its span as ``[b3   ]``.

    Tasks too short for a bracket are shown by ``|``, those of no duration not at all.
    """
    rows: dict[str, list[tuple[int, int, str]]] = {}
    for task in tasks:
        begin, end = (round(float(at[task.name]) * columns_per_second) for at in (schedule.start, schedule.end))
        row = rows.setdefault(task.stream, [])
        if schedule.end[task.name] > schedule.start[task.name]:
            row.append((begin, end, label(task)))
    width = max((len(name) for name in rows), default=0)
    return "\n".join(f"{name:<{width}}  {_drawn(row)}".rstrip() for name, row in rows.items())


def _drawn(row: Sequence[tuple[int, int, str]]) -> str:
    line = ""
    for begin, end, text in sorted(row):
        line = line.ljust(begin)[:begin]
        room = end - begin - 2
        line += f"[{text[:room]:<{room}}]" if room >= 0 else "|" * (end - begin)
    return line
