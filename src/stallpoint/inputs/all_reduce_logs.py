"""All-reduce times from what other programs print: ``all_reduce_perf`` of nccl-tests and ``osu_allreduce``.

Both print averages over their iterations, one line for each message size. Before the names of the columns anything
may stand (launchers and libraries say much); after them a line that is neither a measurement nor a remark is an error,
for it most likely says that the run did not end well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stallpoint.errors import InputError
from stallpoint.text import read_number


@dataclass(frozen=True)
class AllReduce:
    """The mean time of an all-reduce at one message size."""

    message_bytes: int
    seconds: float


LONGEST_LINE = 100_000
"""Characters; what is longer is no log."""


def lines_of(file: str) -> Iterator[str]:
    """The lines of a text, one after the other."""
    try:
        with Path(file).open(encoding="utf-8") as text:
            for number, line in enumerate(iter(lambda: text.readline(LONGEST_LINE + 1), ""), start=1):
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{file}, line {number}: more than {LONGEST_LINE:,} characters")
                yield line
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as text: {error}") from None


def read_log(lines: Iterable[str], path: str, *, format: str, ranks: int) -> Iterator[AllReduce]:
    """The all-reduces in the lines that the program `format` printed, in its order.

    Raises `InputError` naming `path`, the line and what is wrong with it; also where the log shows that other than
    `ranks` workers took part, or that results were wrong.
    """
    found = False
    reader: _Reader = FORMATS[format](ranks)
    for number, line in enumerate(lines, start=1):
        try:
            rows = list(reader.rows(line.strip()))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        found |= bool(rows)
        yield from rows
    if not found:
        raise InputError(f"{path}: no all-reduce of {format} found; expected are its columns and a line for each size")


class _Reader:
    """Reads one log, line by line; what a line cannot mean is a `ValueError`."""

    backend: ClassVar[str]
    """Backend of presets that its all-reduces stand for, unless the study says otherwise."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._columns: list[str] = []

    def rows(self, line: str) -> Iterator[AllReduce]:
        """The measurement in the line, if it is one."""
        if line.startswith("#"):
            self._remark(line)
        elif line and self._columns:
            yield from self._measurement(line)

    def _remark(self, line: str) -> None:
        raise NotImplementedError

    def _measurement(self, line: str) -> Iterator[AllReduce]:
        raise NotImplementedError

    def _named(self, fields: Sequence[str]) -> dict[str, str]:
        """Fields by the first column of each name; as many as there are columns."""
        if not (fields[0].isascii() and fields[0].isdigit()):
            raise ValueError(f"{' '.join(fields)!r} is not a measurement; take the line out if it means no harm")
        if len(fields) != len(self._columns):
            raise ValueError(f"{len(fields)} values for the {len(self._columns)} columns {' '.join(self._columns)}")
        return dict(reversed(list(zip(self._columns, fields, strict=True))))


class _NcclTests(_Reader):
    """``all_reduce_perf``: times out of place and, which training does, in place.

    The time of a size is that in place, out of place where the log has none in place. Each of the program's ranks is
    named in a remark; a build without MPI starts many programs of one process each, which this shows.
    """

    backend = "torch"

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self._devices: list[int] = []

    def _remark(self, line: str) -> None:
        words = line.lstrip("#").split()
        if words[:3] == ["Collective", "test", "starting:"] and words[3:] != ["all_reduce_perf"]:
            raise ValueError(f"a log of {' '.join(words[3:])}, expected is one of all_reduce_perf")
        if rank := re.match(r"#\s+Rank\s+(\d+)\s", line):
            self._devices.append(int(rank[1]))
        if words[:2] == ["size", "count"]:
            self._begin(words)

    def _begin(self, words: list[str]) -> None:
        """The names of the columns; the last one may be a time stamp (two words in each line)."""
        self._check_ranks()
        if "time" not in words:
            raise ValueError(f"no column time among {' '.join(words)}; the CPU's time (-C) is not the call's")
        names = [word.replace("error", "#wrong") for word in words if word != "timestamp"]
        first = names.index("time") + 1
        second = names.index("time", first) if "time" in names[first:] else len(names)
        self._columns = [*names[:second], *(f"in-place {name}" for name in names[second:])]
        self._stamped = "timestamp" in words

    def _check_ranks(self) -> None:
        together = len(set(self._devices))
        if not self._devices or together == len(self._devices) == self._ranks:
            return
        alone = f", though {len(self._devices)} processes started: built without MPI?" if together == 1 else ""
        raise ValueError(f"{together} rank(s) took part{alone}; nodes × workers_per_node are {self._ranks}")

    def _measurement(self, line: str) -> Iterator[AllReduce]:
        if re.search(r"\bNCCL (INFO|WARN|TRACE)\b", line):
            return
        fields = line.split()
        row = self._named(fields[: len(self._columns)] if self._stamped else fields)
        if row.get("redop", "sum") == "none":
            raise ValueError("an operation without reduction (redop none) is no all-reduce")
        prefix = "in-place " if row.get("in-place time", "N/A") != "N/A" else ""
        wrong = row.get(f"{prefix}#wrong", "N/A")
        if wrong != "N/A" and _number(wrong, "#wrong", least=-math.inf) > _ROUNDING:
            raise ValueError(f"#wrong is {wrong}: the all-reduce gave wrong results")
        if size := _number(row["size"], "size"):
            yield AllReduce(int(size), 1e-6 * _positive(row[f"{prefix}time"], "time"))


_ROUNDING = 1e-3
"""Old versions print the largest error instead of the number of wrong values; float16 rounds by so much."""


class _Osu(_Reader):
    """``osu_allreduce``: the mean over ranks, and with ``-f`` also the least and the largest.

    An all-reduce ends when its slowest rank does, so the largest is taken where it is printed.
    """

    backend = "mpi"

    def _remark(self, line: str) -> None:
        if re.match(r"#\s*OSU\s", line) and not re.search(r"\bAllreduce Latency Test\b", line):
            raise ValueError(f"{line.lstrip('# ')!r}: expected is the Allreduce Latency Test")
        if re.match(r"#\s*Size\b", line):
            self._columns = re.split(r"\s{2,}|\t", line.lstrip("# "))
            for column in ("Size", "Avg Latency(us)"):
                if column not in self._columns:
                    raise ValueError(f"no column {column!r} among {', '.join(self._columns)}")

    def _measurement(self, line: str) -> Iterator[AllReduce]:
        row = self._named(line.split())
        if row.get("Validation", "Pass") != "Pass":
            raise ValueError(f"validation says {row['Validation']}: the all-reduce gave wrong results")
        column = "Max Latency(us)" if "Max Latency(us)" in row else "Avg Latency(us)"
        yield AllReduce(int(_positive(row["Size"], "Size")), 1e-6 * _positive(row[column], column))


FORMATS: dict[str, type[_Reader]] = {"nccl-tests": _NcclTests, "osu": _Osu}
"""Readers by the names of the configuration."""
PROFILER = "profiler"
"""The format of what is no log, but a profiler's traces (`profiled`)."""


_MOST = 1e15
"""No size in bytes and no time in µs is as large: a petabyte, thirty years."""


def _number(text: str, column: str, *, least: float = 0) -> float:
    value = read_number(text)
    if not least <= value <= _MOST:
        raise ValueError(f"{column} is {text!r}, expected is a number")
    return value


def _positive(text: str, column: str) -> float:
    if value := _number(text, column):
        return value
    raise ValueError(f"{column} is {text!r}, expected is a number above 0")
