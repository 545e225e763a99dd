"""Reading trace events as a viewer does."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]


def lanes(events: Sequence[Event]) -> dict[tuple[str, str], list[Event]]:
    """Complete events by the names of their process and thread."""
    named: dict[tuple[str, Any], str] = {}
    for event in events:
        if event["name"] in ("process_name", "thread_name"):
            key = (event["name"], event["pid"] if event["name"] == "process_name" else (event["pid"], event["tid"]))
            named[key] = event["args"]["name"]
    found = defaultdict(list)
    for event in (event for event in events if event["ph"] == "X"):
        place = named["process_name", event["pid"]], named["thread_name", (event["pid"], event["tid"])]
        found[place].append(event)
    return found


def check_nesting(events: Sequence[Event]) -> None:
    """An event lies within the one that was begun before it in its lane, or behind it."""
    for lane in lanes(events).values():
        open_until: list[float] = []
        for event in sorted(lane, key=lambda event: (event["ts"], -event["dur"])):
            end = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"] + 1e-6:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-6, event
            open_until.append(end)
