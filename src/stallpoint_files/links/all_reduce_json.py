"""All-reduces in the JSON that nccl-tests write (``-J FILE``)."""

from __future__ import annotations

import json
from typing import Any

from stallpoint.errors import InputError
from stallpoint.inputs.all_reduce_logs import AllReduce, AllReduceRun
from stallpoint.inputs.documents import Document


def recognised(document: Document) -> bool:
    """Return whether the text is a JSON object with nccl-tests' results by message size."""
    begin = document.text.lstrip()[:1]
    return (
        begin == "{"
        and '"results"' in document.text
        and ('"in_place"' in document.text or '"out_of_place"' in document.text)
    )


def read(document: Document) -> list[AllReduceRun]:
    """Return the run in the file; `InputError` if it is cut off or has no times."""
    try:
        content = json.loads(document.text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise document.error(line, "the JSON of nccl-tests ends early or is broken; write it again with -J") from None
    devices = [one for one in _list(content, "devices") if isinstance(one, dict)]
    rows = [row for one in _list(content, "results") if isinstance(one, dict) and (row := _row(one))]
    if not rows:
        raise InputError(
            f'{document.path}: no result with a time; expected is "results": [{{"size": ..., "in_place": '
            '{"time": ...}}]'
        )
    ranks = len(devices) or None
    names = [str(one.get("device_info", "")) for one in devices]
    return [AllReduceRun("nccl-tests", ranks, [str(one.get("hostname", "")) for one in devices], names, rows)]


def _list(content: Any, name: str) -> list[Any]:
    found = content.get(name) if isinstance(content, dict) else None
    return found if isinstance(found, list) else []


def _row(one: dict[str, Any]) -> AllReduce | None:
    for place in ("in_place", "out_of_place"):
        times = one.get(place)
        took = times.get("time") if isinstance(times, dict) else None
        size = one.get("size")
        if isinstance(took, int | float) and isinstance(size, int) and 0 < took < 1e15 and 0 < size < 1e15:
            return AllReduce(size, 1e-6 * took)
    return None
