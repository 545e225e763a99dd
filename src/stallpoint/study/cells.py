"""Cells, the experiments of a study: `Cell` is the base class; `study.kinds` has a subclass for each kind of job.

A cell has *axes*, of which its path below the raw folder of the study is made (``train/network~alexnet/nodes~2/...``),
and *settings*, which determine how it is measured. Two cells with the same axes are the same experiment; changing a
setting makes only this experiment stale.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from stallpoint.errors import InputError
from stallpoint.records.tables import ENERGY, ENVIRONMENTS, INSTRUMENTATION, PEAK_MEMORY, PROBES, VISITS, Table
from stallpoint.study import work
from stallpoint.study.workers import Placement

LATER = {"later": True}
"""Metadata of settings that were added later: a cell's JSON omits such a setting if it has its default value."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Base class of cells; its fields are those of every kind of cell: hardware, placement, visits, precision."""

    kind: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]

    hardware: str
    """Name of the hardware entry."""
    nodes: int
    """Number of nodes."""
    repeat: int
    """Number of the cell's repeat, from 1."""
    workers_per_node: int
    """Workers (MPI ranks) on each node."""
    device: str
    """``cpu`` or ``cuda``."""
    threads_per_worker: int
    seed: int
    precision: str
    """Precision of matrix products: ``float32``, ``tf32``, ``fp16`` (both only on CUDA) or ``bf16``."""
    anonymise: bool
    """Whether records have ``node0``, ``node1``, ... instead of host names."""
    visits: int = field(default=1, kw_only=True)
    """Smallest number of visits; other cells are visited in between."""
    visits_fixed: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether the number of visits is exactly `visits`, whatever precision is wanted."""
    cudnn: bool | None = field(default=None, kw_only=True, metadata=LATER)
    """Whether a GPU uses cuDNN; None for PyTorch's default."""
    onednn: bool | None = field(default=None, kw_only=True, metadata=LATER)
    """Whether a CPU uses oneDNN (MKL-DNN); None for PyTorch's default."""
    shared_cpus: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether other processes always run on the cell's CPUs and belong to what is measured, so are not watched."""

    @property
    def ranks(self) -> int:
        """Number of workers (MPI ranks)."""
        return self.nodes * self.workers_per_node

    @property
    def placement(self) -> Placement:
        """Number of nodes, and of workers on each."""
        return self.nodes, self.workers_per_node

    @property
    def value_bytes(self) -> int:
        """Bytes of a number in matrix products."""
        return 2 if self.precision in ("bf16", "fp16") else 4

    @property
    def scheme(self) -> str:
        """Reduction scheme of the MPI library; it must be set before MPI is initialised."""
        return "library"

    @property
    def storages(self) -> tuple[str, ...]:
        """Names of the storages that the cell reads."""
        return tuple(getattr(self, axis) for axis in self.axes if axis == "storage")

    @property
    def path(self) -> str:
        """Folder below the raw folder of the study, e.g. ``sgemm/network~alexnet/hardware~cpu/repeat~1``."""
        return "/".join([self.kind, *(f"{axis}~{getattr(self, axis)}" for axis in self.axes)])

    @classmethod
    def later(cls) -> dict[str, Any]:
        """Return the defaults of settings that were added later; a cell's JSON omits settings with these values."""
        return {one.name: one.default for one in fields(cls) if one.metadata == LATER}

    def to_json(self) -> str:
        """Return the cell as one line of JSON, from which a job reads it."""
        defaults = self.later()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values = {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}
        return json.dumps({"kind": self.kind, **values}, separators=(",", ":"))

    @property
    def like(self) -> tuple[str, ...]:
        """Values that determine a visit's time most: the cell's network, storage or backend, depending on its kind."""
        return tuple(getattr(self, axis) for axis in self.axes if axis == "network")

    def seconds(self, properties: work.KnownProperties) -> float:
        """Return the typical duration of a visit, s, from the assumed rates of `study.work`, without measurements."""
        return work.VISIT

    @property
    def recorded_ranks(self) -> int:
        """Number of ranks with rows in the cell's record."""
        return self.ranks

    def rows(self, table: Table, visits: int) -> tuple[int | None, str]:
        """Return the expected number of rows of `table` (None if unknown), and its explanation, such as ``8 ranks``.

        `visits` counts visits of single ranks. Some tables have a multiple of the expected number of rows.
        """
        if table in (VISITS, ENVIRONMENTS):
            return self.recorded_ranks, f"{self.recorded_ranks} ranks"
        if table in (ENERGY, INSTRUMENTATION, PEAK_MEMORY, PROBES):
            return visits, f"{visits} visits of ranks"
        return None, ""


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern of the names of entries, which become parts of paths."""
MAX_NAME_LENGTH = 200
"""Largest number of characters of a name; file systems allow 255."""
FIELDS_FROM_ZERO = ("prefetch", "seed", "warmup")
"""Integers that may be 0; all others are at least 1."""


def check_value(cell: type[Cell], name: str, value: Any) -> None:
    """Raise `InputError` unless `value` is valid for the field `name` of the class `cell`."""
    kind = _types(cell)[name]
    if not _has_type(value, kind):
        raise InputError(f"{name} of a {cell.kind} cell is {_short_text(value)}; {_type_in_words(kind)} is expected")
    if name in cell.axes and isinstance(value, str) and not (NAME.fullmatch(value) and len(value) <= MAX_NAME_LENGTH):
        raise InputError(
            f"{name} of a {cell.kind} cell is {_short_text(value)}; {MAX_NAME_LENGTH} letters, digits and . _ - at most"
        )
    if kind is int and value < (0 if name in FIELDS_FROM_ZERO else 1):
        raise InputError(
            f"{name} of a {cell.kind} cell is {value}; at least {0 if name in FIELDS_FROM_ZERO else 1} is expected"
        )


def _types(cell: type[Cell]) -> dict[str, Any]:
    if cell not in _KNOWN_TYPES:
        _KNOWN_TYPES[cell] = get_type_hints(cell)
    return _KNOWN_TYPES[cell]


_KNOWN_TYPES: dict[type[Cell], dict[str, Any]] = {}


def _has_type(value: Any, expected_type: Any) -> bool:
    from msgspec import ValidationError, convert  # msgspec is imported late: a user's script with a probe may lack it

    try:
        convert(value, expected_type)
    except ValidationError:
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _type_in_words(expected_type: Any) -> str:
    if get_origin(expected_type) in (Union, UnionType):
        return " or ".join(map(_type_in_words, get_args(expected_type)))
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    return words.get(expected_type, "a list" if get_origin(expected_type) is list else "a mapping")


def _short_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
