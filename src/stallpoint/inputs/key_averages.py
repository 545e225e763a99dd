"""Tables that ``torch.profiler``'s ``key_averages().table()`` prints."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stallpoint.inputs.documents import Document

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "μs": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TIME = re.compile(r"([0-9.]+)(ms|us|μs|µs|ns|s)")


@dataclass(frozen=True)
class KeyAverage:
    """An operator or kernel."""

    name: str
    device_seconds: float
    """On the device by itself; 0 in tables of the CPU alone."""
    cpu_seconds: float
    calls: int


def recognised(document: Document) -> bool:
    """Return whether the columns of such a table are there."""
    return any(re.match(r"\s*Name\s{2}(?>.*?Self CPU).*# of Calls", line) for line in document.lines)


def read(document: Document) -> list[KeyAverage]:
    """Return the rows of the table; `InputError` where it has none."""
    columns: list[str] = []
    rows = []
    for line in document.lines:
        cells = [cell for cell in re.split(r"\s{2,}", line.strip()) if cell]
        if cells[:1] == ["Name"] and "# of Calls" in cells:
            columns = cells
        elif columns and len(cells) == len(columns):
            named = dict(zip(columns, cells, strict=True))
            device = next((column for column in columns if re.match(r"Self (CUDA|XPU|HIP|MTIA|Device)$", column)), "")
            calls = named["# of Calls"]
            if calls.isdigit():
                rows.append(
                    KeyAverage(
                        cells[0], _seconds(named.get(device, "")), _seconds(named.get("Self CPU", "")), int(calls)
                    )
                )
    if not rows:
        raise document.error(1, "a key_averages table without rows; print it with row_limit=-1")
    return rows


def _seconds(text: str) -> float:
    found = _TIME.fullmatch(text)
    return float(found[1]) * _UNITS[found[2]] if found and found[1].count(".") <= 1 and found[1] != "." else 0.0
