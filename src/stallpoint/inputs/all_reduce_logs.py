"""Times of all-reduces in the output of nccl-tests, rccl-tests, ``osu_allreduce`` and Intel MPI Benchmarks.

These programs print a table: for each message size, a line with averages over iterations. Prefixes that launchers put
before lines are skipped, and so is text between tables. Several tables in one file are repeats. Two kinds of lines are
errors in a table, since the run most likely failed: a line that reports a failure, and a line that begins with a digit
but has no measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document, without_launcher
from stallpoint.text import read_number


@dataclass(frozen=True)
class AllReduce:
    """The mean time of an all-reduce at one message size."""

    message_bytes: int
    seconds: float


@dataclass
class AllReduceRun:
    """One run of a benchmark: its ranks, their hosts, and the measured all-reduces in the order of the log."""

    program: str
    """Name of the format in `FORMATS`."""
    ranks: int | None = None
    """Number of ranks; None if the log does not show it."""
    hosts: Sequence[str] = ()
    """The node of each rank, where the log names it."""
    devices: Sequence[str] = ()
    """Device of each rank, such as `NVIDIA A100-SXM4-40GB`."""
    rows: list[AllReduce] = field(default_factory=list)
    collective: str = "all-reduce"
    places: Sequence[str] = ()
    """Host and device of each rank, if the log names them: runs on other devices are no repeats."""


LONGEST_LINE = 100_000
"""Maximum number of characters in a line; a file with a longer one is no log."""


def lines_of(file: str) -> Iterator[str]:
    """Yield the lines of a text file one at a time; `InputError` for a line that is too long."""
    try:
        with Path(file).open(encoding="utf-8") as text:
            for number, line in enumerate(iter(lambda: text.readline(LONGEST_LINE + 1), ""), start=1):
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{file}, line {number}: more than {LONGEST_LINE:,} characters")
                yield line
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as text: {error}") from None


def read_log(lines: Iterable[str], path: str, *, format: str, ranks: int) -> Iterator[AllReduce]:
    """Yield the all-reduces in the output `lines` of a program; `format` is a key of `FORMATS`.

    Raises `InputError`, which begins with `path` and the line's number: for an invalid line, for wrong results of the
    all-reduce, and if the number of workers is not `ranks`.
    """
    return _all_reduces(lines, path, format, FORMATS[format](ranks))


def read_runs(lines: Iterable[str], path: str, *, format: str) -> list[AllReduceRun]:
    """Return the runs in a program's output `lines`, each with its number of ranks; `format` is a key of `FORMATS`."""
    reader = FORMATS[format](None)
    reader.others = True
    runs: dict[int, AllReduceRun] = {}
    shown_rows: dict[int, list[_ShownValues]] = {}
    for row in _all_reduces(lines, path, format, reader):
        if reader.run not in runs:
            runs[reader.run] = reader.describe(format)
        runs[reader.run].rows.append(row)
        if reader.shown:
            shown_rows.setdefault(reader.run, []).append(reader.shown)
    for number, rows in shown_rows.items():
        collective, ranks = _collective_and_ranks(rows)
        hinted_name = reader.hinted.get(number, "") if " or " in collective else ""
        runs[number].collective = reader.named.get(number) or hinted_name or collective
        listed_ranks = runs[number].ranks or 0  # a shortened log lists fewer ranks than took part
        runs[number].ranks = ranks if ranks and ranks > 1.2 * listed_ranks else listed_ranks or None
    return list(runs.values())


@dataclass(frozen=True)
class _ShownValues:
    """Values in a row of nccl-tests that show which collective ran, and on how many ranks."""

    algbw: float
    """Algorithm bandwidth, GB/s."""
    busbw: float
    """Bus bandwidth, GB/s: algbw times 2 (n - 1) / n for all-reduces, (n - 1) / n if each rank has a part, else 1."""
    parts: float
    """Size over the bytes of the printed number of elements: the ranks if each has a part; 0 if none is printed."""
    is_reducing: bool
    has_root: bool


def _collective_and_ranks(rows: Sequence[_ShownValues]) -> tuple[str, int | None]:
    """Return the collective and its number of ranks (None if unknown), from the row with the largest bandwidth."""
    row = max(rows, key=lambda row: row.algbw)
    factor = row.busbw / row.algbw if row.algbw else 0.0
    if not row.parts:  # a shortened table, which has only bandwidths
        if row.algbw >= 1 and 0 < factor < 1:
            return "all-gather, reduce-scatter or all-to-all", round(1 / (1 - factor))
        return "all-reduce", round(2 / (2 - factor)) if 1 < factor < 1.999 and row.algbw >= 1 else None
    parts = round(max(shown.parts for shown in rows))
    if row.has_root:
        return "reduce" if row.is_reducing else "broadcast", None
    if parts > 1:
        return "reduce-scatter" if row.is_reducing else "all-gather or all-to-all", parts
    if not row.is_reducing:
        return "send and receive", None
    return "all-reduce", round(2 / (2 - factor)) if 1 <= factor < 1.999 and row.algbw >= 1 else None


OSU_PATH = re.compile(r"\s*# OSU MPI(?:-\w+)? (?P<test>(?:Bi-Directional )?(?:Bandwidth|Latency)) Test")
"""Heading of an OSU benchmark between two ranks, which is no all-reduce."""


def recognised(document: Document) -> str:
    """Return the key in `FORMATS` of the format that has the document's columns; empty if there is none."""
    is_other_test = False
    for line in document.lines:
        if OSU_PATH.match(line):
            is_other_test = True
        elif line.lstrip().startswith("# OSU "):
            is_other_test = False
        for format, reader in FORMATS.items():
            if reader.heading.search(line) and not (is_other_test and format == "osu"):
                return format
    return "nccl-tests" if any(map(_NcclTestsReader.BARE_ROW.match, document.lines)) else ""


def _all_reduces(lines: Iterable[str], path: str, format: str, reader: _LogReader) -> Iterator[AllReduce]:
    found = False
    for number, line in enumerate(lines, start=1):
        try:
            rows = list(reader.rows(without_launcher(line).strip(), number))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        found |= bool(rows)
        yield from rows
    if not found and reader.other:
        raise InputError(f"{path}, line {reader.other[0]}: {reader.other[1]}")
    if not found:
        raise InputError(f"{path}: no all-reduce of {format} found; expected are its columns and a line for each size")


class _LogReader:
    """Reader of a log, line by line, the base class of all formats; an invalid line raises `ValueError`."""

    backend: ClassVar[str]
    """Backend of presets whose all-reduces the log stands for, unless the study says otherwise."""
    heading: ClassVar[re.Pattern[str]]
    """The line with the names of the columns, which may lack its ``#``."""

    def __init__(self, ranks: int | None) -> None:
        self._ranks = ranks
        self._columns: list[str] = []
        self.run = 0
        """Tables begun so far."""
        self.other: tuple[int, str] | None = None
        """Line that shows another benchmark than all-reduces, and the error for it."""
        self.shown: _ShownValues | None = None
        """Bandwidths in the last row."""
        self.others = False
        """Whether other collectives than all-reduces are read too."""
        self.named: dict[int, str] = {}
        """Names of collectives in the log, by the number of the table."""
        self.hinted: dict[int, str] = {}
        """Names of collectives near a table, used if its rows allow several collectives."""

    def rows(self, line: str, number: int = 0) -> Iterator[AllReduce]:
        """Yield the measurement in a line of the log, if the line has one."""
        if self.heading.search(line) or line.startswith("#"):
            self._read_remark(line, number)
        elif line and self._columns and (line[0].isdigit() or _FAILURE_WORDS.search(line)):
            yield from self._read_measurement(line)

    def describe(self, format: str) -> AllReduceRun:
        """Return the current run of the benchmark, without its rows."""
        return AllReduceRun(format, self._ranks)

    def _read_remark(self, line: str, number: int) -> None:
        raise NotImplementedError

    def _read_measurement(self, line: str) -> Iterator[AllReduce]:
        raise NotImplementedError

    def _fields_by_column(self, fields: Sequence[str]) -> dict[str, str]:
        """Return a line's fields by column name (of equal names the first); `ValueError` for too few or many fields."""
        if not (fields[0].isascii() and fields[0].isdigit()):
            raise ValueError(f"{' '.join(fields)!r} is not a measurement; take the line out if it means no harm")
        if len(fields) != len(self._columns):
            raise ValueError(f"{len(fields)} values for the {len(self._columns)} columns {' '.join(self._columns)}")
        return dict(reversed(list(zip(self._columns, fields, strict=True))))


_FAILURE_WORDS = re.compile(
    r"fail|error|abort|exited|signal|killed|terminat|segmentation|traceback|cancel|not found", re.IGNORECASE
)
"""Words of lines that report a failed run."""


class _NcclTestsReader(_LogReader):
    """Reader of nccl-tests, such as ``all_reduce_perf``, which time operations out of place and in place.

    Training reduces in place: the in-place time is read if the log has it, else the time out of place. In a build
    without MPI, each process is a program of its own with a single rank: the log lists rank 0 several times.
    """

    backend = "torch"
    heading = re.compile(r"^\s*+#?\s*+size\s+(?:count\s|time\s+algbw\s+busbw\b)")

    def __init__(self, ranks: int | None) -> None:
        super().__init__(ranks)
        self._devices: list[tuple[int, str, str, str]] = []
        """Number, host, device's name and address of each rank."""
        self._skipped = False
        self._test = ""
        self._hint = ""
        """Collective named by a command above the table."""

    @override
    def rows(self, line: str, number: int = 0) -> Iterator[AllReduce]:
        if rank := self._RANK_LINE.match(line):
            if self._columns:
                self._end_table()
            self._devices.append((int(rank[1]), rank[2] or "", rank[4] or "", rank[3] or ""))
        elif not _NCCL_MESSAGE.search(line):
            if start := _NCCL_COMMAND.search(line):
                self._hint = _COLLECTIVES.get(start[1], "")
            bare_row = self.BARE_ROW.match(line) if self.others and not (self._columns or self._skipped) else None
            if bare_row:
                root = ["root"] if bare_row["root"] else []
                self._begin(["size", "count", "type", "redop", *root, *self._RESULTS, *self._RESULTS])
            yield from super().rows(line, number)

    BARE_ROW = re.compile(
        r"\s*\d+\s+\d+\s+[a-z]+\d*\s+[a-z]+(?P<root>\s+-?\d+)?(?:\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+[\w/.+-]+){2}\s*$"
    )
    """A row that is recognised without a heading, as after the heading was cut off."""
    _RESULTS = ("time", "algbw", "busbw", "#wrong")
    _RANK_LINE = re.compile(r"#?\s*Rank\s+(\d+)\s(?:.*?\bon\s+(\S+)\s+device\s+\S+\s+(\[[^][]*\])\s*(.*))?")

    @override
    def describe(self, format: str) -> AllReduceRun:
        return AllReduceRun(
            format,
            self._ranks or len(self._devices) or None,
            [host for _, host, _, _ in self._devices],
            [device.strip() for _, _, device, _ in self._devices],
            places=[f"{host} {place}" for _, host, _, place in self._devices],
        )

    def _end_table(self) -> None:
        """End the current table: the next table belongs to another run."""
        self._columns, self._devices, self._skipped = [], [], False

    @override
    def _read_remark(self, line: str, number: int) -> None:
        words = line.lstrip("# ").split()
        if words[:3] == ["Collective", "test", "starting:"]:
            self._end_table()
            # Names of nccl-tests' programs may have a suffix (NAME_SUFFIX in the Makefile): all_reduce_perf_mpi.
            program = words[3].partition("_perf")[0] if words[3:] else ""
            self._skipped = program != "all_reduce" and not (self.others and program in _COLLECTIVES)
            self._test = _COLLECTIVES.get(program, "")
            if self._skipped:
                self.other = number, f"a log of {' '.join(words[3:])}, expected is one of all_reduce_perf"
        elif words[:3] == ["Collective", "test", "concluded:"] and words[3:]:
            self.hinted[self.run] = _COLLECTIVES.get(words[3].partition("_perf")[0], "")
        elif words[:4] == ["Out", "of", "bounds", "values"] or words[:3] == ["Avg", "bus", "bandwidth"]:
            self._end_table()
        elif words[:1] == ["size"] and words[1] in ("count", "time") and not self._skipped:
            self._begin(words)

    def _begin(self, words: list[str]) -> None:
        """Begin a table with the column names `words`; the last column may be a time stamp of two words."""
        self._check_ranks()
        self.run += not self._columns
        if self._test:
            self.named[self.run] = self._test
        elif self._hint:
            self.hinted[self.run] = self._hint
        if "time" not in words:
            raise ValueError(f"no column time among {' '.join(words)}; the CPU's time (-C) is not the call's")
        names = [word.replace("error", "#wrong") for word in words if word != "timestamp"]
        out_of_place_end = names.index("time") + 1
        in_place_begin = names.index("time", out_of_place_end) if "time" in names[out_of_place_end:] else len(names)
        self._columns = [*names[:in_place_begin], *(f"in-place {name}" for name in names[in_place_begin:])]
        self._stamped = "timestamp" in words

    def _check_ranks(self) -> None:
        rank_numbers = [number for number, *_ in self._devices]
        joined_ranks = len(set(rank_numbers))
        if not rank_numbers or joined_ranks == len(rank_numbers) == (self._ranks or joined_ranks):
            return
        cause = f", though {len(rank_numbers)} processes started: built without MPI?" if joined_ranks == 1 else ""
        remedy = f"; nodes × workers_per_node are {self._ranks}" if self._ranks else "; build nccl-tests with MPI=1"
        raise ValueError(f"{joined_ranks} rank(s) took part{cause}{remedy}")

    @override
    def _read_measurement(self, line: str) -> Iterator[AllReduce]:
        fields = line.split()
        row = self._fields_by_column(fields[: len(self._columns)] if self._stamped else fields)
        is_reducing = row.get("redop", "sum") != "none"
        if not (is_reducing or self.others):
            raise ValueError("an operation without reduction (redop none) is no all-reduce")
        column_prefix = "in-place " if row.get("in-place time", "N/A") != "N/A" else ""
        wrong_text = row.get(f"{column_prefix}#wrong", "N/A")
        if wrong_text != "N/A" and _number(wrong_text, "#wrong", minimum=-math.inf) > _ROUNDING:
            raise ValueError(f"#wrong is {wrong_text}: the all-reduce gave wrong results")
        algbw, busbw = (read_number(row.get(f"{column_prefix}{name}", "")) for name in ("algbw", "busbw"))
        element_bytes = read_number(row.get("count", "")) * _TYPE_BYTES.get(row.get("type", ""), 0)
        parts = 0.0 if "count" not in row else read_number(row["size"]) / element_bytes if element_bytes > 0 else 1.0
        self.shown = _ShownValues(algbw, busbw, parts, is_reducing, row.get("root", "-1") not in ("-1", "N/A"))
        if size := _number(row["size"], "size"):
            yield AllReduce(int(size), 1e-6 * _positive_number(row[f"{column_prefix}time"], "time"))


_COLLECTIVES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send and receive",
    "gather": "gather",
    "scatter": "scatter",
}
"""Collectives by the names of nccl-tests' programs."""
_TYPE_BYTES = {
    **dict.fromkeys(("int8", "uint8", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
_NCCL_MESSAGE = re.compile(r"\bNCCL (INFO|WARN|TRACE|version)\b")
_NCCL_COMMAND = re.compile(r"(?:^|[\s/])([a-z_]+)_perf(?:_\w+)?\s+-")
_ROUNDING = 1e-3
"""Largest error by rounding in float16; old versions print it instead of the number of wrong values."""


_OSU_COMMAND = re.compile(
    r"\b(?:mpirun|mpiexec|srun|flux run|prun|jsrun)\s+-|\s-(?:n|np)[ =]?\d.*\bosu_\w+|\bosu_\w+.*\s-x\b"
)
"""A command that starts a test."""


def _started_ranks(line: str) -> int | None:
    """Return the number of ranks in a launcher's command: the total, or else ranks per node times nodes."""
    if total := re.search(r"\s(?:-n|-np|--ntasks|--n)[ =]?(\d+)\b", line):
        return int(total[1])
    nodes, per_node = (
        re.search(rf"\s(?:{option})[ =]?(\d+)\b", line)
        for option in ("-N|--nodes", "--n?tasks-per-node|-ppn|-npernode")
    )
    return int(nodes[1]) * int(per_node[1]) if nodes and per_node else None


class _OsuReader(_LogReader):
    """Reader of ``osu_allreduce``, which prints the mean time of ranks, and with ``-f`` the largest time as well.

    The largest time is read if it is printed: an all-reduce ends when its slowest rank ends.
    """

    backend = "mpi"
    heading = re.compile(r"^#\s*Size\s{2}.*\(us\)")

    def __init__(self, ranks: int | None) -> None:
        super().__init__(ranks)
        self._skipped = False
        self._asked: int | None = None

    @override
    def rows(self, line: str, number: int = 0) -> Iterator[AllReduce]:
        if _OSU_COMMAND.search(line):
            self._columns, self._asked = [], _started_ranks(line)
        else:
            yield from super().rows(line, number)

    @override
    def describe(self, format: str) -> AllReduceRun:
        return AllReduceRun(format, self._ranks or self._asked)

    @override
    def _read_remark(self, line: str, number: int) -> None:
        if re.match(r"#\s*OSU\s", line):
            self._columns = []
            self._skipped = not re.search(r"\bAllreduce Latency Test\b", line)
            if self._skipped:
                self.other = number, f"{line.lstrip('# ')!r}: expected is the Allreduce Latency Test"
        if re.match(r"#\s*Size\b", line) and not self._skipped:
            self.run += 1
            self._columns = re.split(r"\s{2,}|\t", line.lstrip("# "))
            for column in ("Size", "Avg Latency(us)"):
                if column not in self._columns:
                    raise ValueError(f"no column {column!r} among {', '.join(self._columns)}")

    @override
    def _read_measurement(self, line: str) -> Iterator[AllReduce]:
        row = self._fields_by_column(line.split())
        if row.get("Validation", "Pass") != "Pass":
            raise ValueError(f"validation says {row['Validation']}: the all-reduce gave wrong results")
        column = "Max Latency(us)" if "Max Latency(us)" in row else "Avg Latency(us)"
        yield AllReduce(int(_positive_number(row["Size"], "Size")), 1e-6 * _positive_number(row[column], column))


class _ImbReader(_LogReader):
    """Reader of ``Allreduce`` in Intel MPI Benchmarks; the largest time is read, as the slowest rank ends last."""

    backend = "mpi"
    heading = re.compile(r"^\s*#bytes\s+#repetitions\s+t_min\[usec\]")

    def __init__(self, ranks: int | None) -> None:
        super().__init__(ranks)
        self._benchmark, self._processes = "", 0

    @override
    def describe(self, format: str) -> AllReduceRun:
        return AllReduceRun(format, self._ranks or self._processes or None)

    @override
    def _read_remark(self, line: str, number: int) -> None:
        words = line.lstrip("# ")
        if benchmark := re.match(r"Benchmarking\s+(\S+)", words):
            self._columns, self._benchmark = [], benchmark[1]
            if benchmark[1] != "Allreduce":
                self.other = number, f"a log of {benchmark[1]}, expected is one of Allreduce"
        elif processes := re.match(r"processes = (\d+)", words):
            self._processes = int(processes[1])
            if self._benchmark == "Allreduce" and self._ranks not in (None, self._processes):
                raise ValueError(f"{self._processes} rank(s) took part; nodes × workers_per_node are {self._ranks}")
        elif self.heading.search(line) and self._benchmark == "Allreduce":
            self.run += 1
            self._columns = line.split()
            if "t_max[usec]" not in self._columns:
                raise ValueError(f"no column t_max[usec] among {' '.join(self._columns)}")

    @override
    def _read_measurement(self, line: str) -> Iterator[AllReduce]:
        row = self._fields_by_column(line.split())
        if size := _number(row["#bytes"], "#bytes"):
            yield AllReduce(int(size), 1e-6 * _positive_number(row["t_max[usec]"], "t_max[usec]"))


FORMATS: dict[str, type[_LogReader]] = {"nccl-tests": _NcclTestsReader, "osu": _OsuReader, "imb": _ImbReader}
"""Readers by the names of the configuration."""


_MAX_AMOUNT = 1e15
"""Bound of sizes in bytes and times in µs: a petabyte, thirty years."""


def _number(text: str, column: str, *, minimum: float = 0) -> float:
    value = read_number(text)
    if not minimum <= value <= _MAX_AMOUNT:
        raise ValueError(f"{column} is {text!r}, expected is a number")
    return value


def _positive_number(text: str, column: str) -> float:
    if value := _number(text, column):
        return value
    raise ValueError(f"{column} is {text!r}, expected is a number above 0")
