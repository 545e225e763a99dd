"""Tables printed by ``torch.profiler``'s ``key_averages().table()``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stallpoint.base.section import Cause, Finding
from stallpoint.inputs.documents import Document
from stallpoint_files.file_options import Options
from stallpoint_files.reader import FoundRecords, Reader

SENDING = ("nccl", "rccl", "all_reduce", "allreduce", "c10d::", "gloo:", "oneccl")
"""Words in the names of communicating operators and kernels."""
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "μs": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TIME = re.compile(r"([0-9.]+)(ms|us|μs|µs|ns|s)")


@dataclass(frozen=True)
class KeyAverage:
    """A row of the table: an operator or kernel."""

    name: str
    device_seconds: float
    """Self time on the device, s; 0 in tables without a device."""
    cpu_seconds: float
    calls: int


def recognised(document: Document) -> bool:
    """Return whether a text has the columns of a key_averages table."""
    return any(re.match(r"\s*Name\s{2}(?>.*?Self CPU).*# of Calls", line) for line in document.lines)


def read(document: Document) -> list[KeyAverage]:
    """Return the rows of the table; `InputError` if it has none."""
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


def answers(found: FoundRecords, _: Options) -> Iterator[Finding]:
    """Yield a finding with communication's share of the time and the longest operators."""
    for path, rows in found.of("key-averages"):
        on_device = any(row.device_seconds for row in rows)
        took = {row.name: row.device_seconds if on_device else row.cpu_seconds for row in rows}
        total = sum(took.values()) or 1.0
        communication = sum(seconds for name, seconds in took.items() if any(word in name.lower() for word in SENDING))
        first = sorted(took, key=lambda name: -took[name])[:3]
        largest = ", ".join(f"{name[:40]} {100 * took[name] / total:.0f} %" for name in first)
        where = "the device's" if on_device else "the CPU's"
        causes = (
            (
                Cause(
                    "communication",
                    "communication (transfer and waiting for other ranks, not told apart)",
                    round(communication / total, 3),
                    "of a sum over operators",
                ),
            )
            if communication / total > 0.1
            else ()
        )
        yield Finding(
            "key-averages",
            f"key_averages in {path.name}",
            f"{100 * communication / total:.0f} % of {where} time is communication",
            evidence="a sum, which does not say what hides what",
            causes=causes,
            fits=largest,
            ask=("a trace with prof.export_chrome_trace: it says what of the communication nothing hides",),
        )


READER = Reader("a key_averages table", recognised, read, answers)
