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
    """A table of times by size of message; headings stand between bars, or two spaces apart."""

    sizes: str
    """Heading of the sizes, and of the times in µs, or of rates of the size in GB/s."""
    unit: float
    """Bytes of a unit of `sizes`."""
    values: str
    ranks: re.Pattern[str]
    """Number of ranks: the product of all that it finds above the heading."""

    def columns(self, line: str) -> tuple[int, int] | None:
        """Return the columns of sizes and values; None if the line is not the heading."""
        names = re.split(r":?\s*\|\s*|\s{2,}", line.strip())
        both = self.sizes in names and self.values in names
        return (names.index(self.sizes), names.index(self.values)) if both else None


_FORMS = {
    "gloo": _Form("elements", 4, "avg (GB/s)", re.compile(r"\bprocesses=(\d+)")),
    "hccl_test": _Form(
        "data_size(Bytes)", 1, "aveg_time(us)", re.compile(r"\bmpi(?:run|exec)\b.{0,300}? -np? (\d+)\b")
    ),
    "megatron-allreduce": _Form(
        "size(MB)", 1e6, "tavg(usec)", re.compile(r"--n(?:nodes|proc[-_]per[-_]node)[= ](\d+)")
    ),
}


def recognised(document: Document) -> bool:
    """Return whether the text is a JSON object with nccl-tests' results by message size, or has a table's heading."""
    text = document.text
    if re.search("all_?reduce", text) and any(form.sizes in text and form.values in text for form in _FORMS.values()):
        return any(form.columns(line) for line in document.lines for form in _FORMS.values())
    return text.lstrip()[:1] == "{" and '"results"' in text and ('"in_place"' in text or '"out_of_place"' in text)


def read(document: Document) -> list[AllReduceRun]:
    """Return the run in the file; `InputError` if JSON is cut off or has no times."""
    for program, form in _FORMS.items():
        for number, heading in enumerate(document.lines):
            if columns := form.columns(heading):
                above, below = "\n".join(document.lines[:number]), document.lines[number + 1 :]
                said = [int(count) for count in form.ranks.findall(above)]
                rows = [row for one in below if (row := _row_of(one, form, *columns))]
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


def _row_of(line: str, form: _Form, sizes: int, values: int) -> AllReduce | None:
    """Return the all-reduce in a line of a table."""
    numbers = [float(one) for one in re.findall(r"\d+(?:\.\d+)?", line)] if re.match(r"\s*\d", line) else []
    if len(numbers) <= max(sizes, values) or not numbers[sizes] * numbers[values]:
        return None
    size, value = form.unit * numbers[sizes], numbers[values]
    return AllReduce(round(size), size / value / 1e9 if "GB/s" in form.values else 1e-6 * value)


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
