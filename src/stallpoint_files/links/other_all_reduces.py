"""All-reduces in the JSON that nccl-tests write (``-J FILE``), and in the tables of gloo's benchmark, of Ascend's
hccl_test and of Megatron's test."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

from stallpoint.errors import InputError
from stallpoint.inputs.all_reduce_logs import AllReduce, AllReduceRun
from stallpoint.inputs.documents import Document


class _Form(NamedTuple):
    """A table with the sizes of messages in its first column."""

    heading: re.Pattern[str]
    unit: float
    """Bytes of a unit of the first column."""
    column: int
    """Column of the time in µs, or of the size over it in GB/s."""
    ranks: re.Pattern[str]
    """Number of ranks: the product of all that it finds above the heading."""
    rated: bool = False


_FORMS = {
    "gloo": _Form(re.compile(r"elements +min \(us\).* avg \(GB/s\)"), 4, 5, re.compile(r"\bprocesses=(\d+)"), True),
    "hccl_test": _Form(
        re.compile(r"data_size\(Bytes\): *\|"), 1, 1, re.compile(r"\bmpi(?:run|exec)\b.{0,300}? -np? (\d+)\b")
    ),
    "megatron-allreduce": _Form(
        re.compile(r"size\(MB\) +tavg\(usec\)"), 1e6, 1, re.compile(r"--n(?:nodes|proc[-_]per[-_]node)[= ](\d+)")
    ),
}


def recognised(document: Document) -> bool:
    """Return whether the text is a JSON object with nccl-tests' results by message size, or has a table's heading."""
    text = document.text
    if any(form.heading.search(text) for form in _FORMS.values()):
        return bool(re.search("all_?reduce", text))
    return text.lstrip()[:1] == "{" and '"results"' in text and ('"in_place"' in text or '"out_of_place"' in text)


def read(document: Document) -> list[AllReduceRun]:
    """Return the run in the file; `InputError` if JSON is cut off or has no times."""
    for program, form in _FORMS.items():
        if found := form.heading.search(document.text):
            above, _, below = document.text[: found.start()], *document.text[found.start() :].partition("\n")[1:]
            said = [int(count) for count in form.ranks.findall(above)]
            rows = [row for line in below.split("\n") if (row := _row_of(line, form))]
            return [AllReduceRun(program, math.prod(said) if said else None, rows=rows)] if rows else []
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


def _row_of(line: str, form: _Form) -> AllReduce | None:
    """Return the all-reduce in a line of a table."""
    numbers = [float(one) for one in re.findall(r"\d+(?:\.\d+)?", line)] if re.match(r"\s*\d", line) else []
    if len(numbers) <= form.column or not numbers[0] * numbers[form.column]:
        return None
    size, value = form.unit * numbers[0], numbers[form.column]
    return AllReduce(round(size), size / value / 1e9 if form.rated else 1e-6 * value)


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
