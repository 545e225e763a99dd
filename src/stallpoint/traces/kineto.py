"""Traces of PyTorch's profiler (Kineto), in the Chrome trace event format: JSON, gzip'd or not, a file for each rank.

A trace of a gigabyte has millions of events. The file is read in pieces, each cut between two events and decoded into
typed records that hold what is asked for; what is kept are columns.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError

PIECE = 1024 * 1024
"""Bytes of JSON that are decoded at once."""
LONGEST_EVENT = 64 * 1024 * 1024
"""Bytes without an end of an event: no event is as long."""

KERNEL, COPY, FILL, CALL, OPERATOR, MARK = range(6)
KINDS = {
    "kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": FILL, "cuda_runtime": CALL, "cuda_driver": CALL,
    "hip_runtime": CALL, "cpu_op": OPERATOR, "user_annotation": MARK,
}  # fmt: skip
"""Categories of events that are kept, in lower case -> what they are here."""
UNKNOWN = -1


@dataclass(frozen=True)
class Events:
    """Events as columns, by start; each [events]. Whole numbers are `UNKNOWN` where a trace does not tell them."""

    kind: npt.NDArray[np.int8]
    """One of `KINDS`."""
    name: npt.NDArray[np.int32]
    """Place among `texts`."""
    start: npt.NDArray[np.float64]
    """s, since the first event."""
    seconds: npt.NDArray[np.float64]
    thread: npt.NDArray[np.int32]
    """The same for events of one thread of the host, or of one stream of a device."""
    stream: npt.NDArray[np.int64]
    correlation: npt.NDArray[np.int64]
    """The same for a call and what it starts on a device."""
    sequence: npt.NDArray[np.int64]
    """The same for an operator of the forward pass and its gradient's."""
    collective: npt.NDArray[np.int32]
    """Kind of collective, such as ``allreduce``, as NCCL calls it; place among `texts`, of which the first is empty."""
    elements: npt.NDArray[np.int64]
    """What each rank hands in, in values of `dtype`."""
    group_size: npt.NDArray[np.int64]
    dtype: npt.NDArray[np.int32]
    """Place among `texts`."""
    group: npt.NDArray[np.int32]
    """Name of the process group; place among `texts`."""
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end(self) -> npt.NDArray[np.float64]:
        """s, since the first event."""
        return self.start + self.seconds

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Events:
        """Some of them."""
        return Events(**{name: of[chosen] for name, of in vars(self).items() if name != "texts"}, texts=self.texts)

    def text(self, column: npt.NDArray[np.int32]) -> list[str]:
        """What a column of places among `texts` says."""
        return [self.texts[place] for place in column]

    def called(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """Which have a name that the pattern is found in."""
        return np.array([pattern.search(text) is not None for text in self.texts], np.bool_)[self.name]


@dataclass(frozen=True)
class Trace:
    """The trace of one rank."""

    path: Path
    rank: int
    world_size: int
    events: Events
    notes: tuple[str, ...]
    """What is wrong with the file, or missing in it."""


class _Args(msgspec.Struct, gc=False):
    stream: int = UNKNOWN
    correlation: int = UNKNOWN
    sequence: int = msgspec.field(default=UNKNOWN, name="Sequence number")
    collective: str = msgspec.field(default="", name="Collective name")
    elements: int = msgspec.field(default=UNKNOWN, name="In msg nelems")
    group_size: int = msgspec.field(default=UNKNOWN, name="Group size")
    dtype: str = ""
    group: str = msgspec.field(default="", name="Process Group Name")
    shapes: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input type")


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = float("nan")
    dur: float = -1.0
    pid: int | str = 0
    tid: int | str = 0
    args: _Args | None = None


class _Loose(msgspec.Struct):
    """Any event: some versions write numbers as texts, and texts as numbers or lists."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    ts: Any = None
    dur: Any = None
    pid: Any = 0
    tid: Any = 0
    args: Any = None


_EVENTS, _LOOSE = msgspec.json.Decoder(list[_Event]), msgspec.json.Decoder(list[_Loose])
_NOTHING = _Args()
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_NOT_JSON = re.compile(rb":\s*-?(?:inf|nan|infinity)\b", re.IGNORECASE)
_HEAD = re.compile(rb'"traceEvents"\s*:\s*\[')


def read(path: Path) -> Trace:
    """The trace in the file; `InputError` where there is none. What is cut off or broken is left out and noted."""
    notes: list[str] = []
    pieces = _pieces(path, notes)
    head = next(pieces)
    columns = _Columns()
    for events in pieces:
        columns.add(events)
    if columns.bad:
        notes.append(f"{columns.bad} events without a time, or of a duration below 0, are left out")
    if not columns.kept:
        raise InputError(
            f"{path}: no event of a profiler among {columns.seen}; expected is a trace of torch.profiler (Kineto)"
        )
    info = head.get("distributedInfo")
    rank, world_size = (_whole(info.get(name)) if isinstance(info, dict) else -1 for name in ("rank", "world_size"))
    if rank < 0:
        found = re.search(r"rank[-_.]?(\d+)", path.name)
        rank = int(found[1]) if found else 0
        notes.append(f"the file does not say its rank; {'its name says' if found else 'taken is'} {rank}")
    if world_size < 1:
        notes.append("the file does not say how many workers there were")
    return Trace(path, rank, max(world_size, 1), columns.events(), tuple(notes))


def _pieces(path: Path, notes: list[str]) -> Iterator[Any]:
    """First what stands before the events, as a dictionary; then lists of events."""
    try:
        with _opened(path) as file:
            yield from _decoded(path, file, notes)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path) if packed else path.open("rb"))


def _read(file: IO[bytes], notes: list[str]) -> bytes:
    try:
        return file.read(PIECE)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        notes.append(f"the file is damaged ({error}); what follows is left out")
        return b""


def _decoded(path: Path, file: IO[bytes], notes: list[str]) -> Iterator[Any]:
    buffer = _read(file, notes)
    found = _HEAD.search(buffer)
    while (
        found is None and buffer.lstrip()[:1] == b"{" and len(buffer) < LONGEST_EVENT and (more := _read(file, notes))
    ):
        buffer += more
        found = _HEAD.search(buffer)
    if found is not None:
        yield _header(buffer[: found.start()])
        buffer = buffer[found.end() :]
    elif buffer.lstrip()[:1] == b"[":
        yield {}
        buffer = buffer.lstrip()[1:]
    else:
        raise InputError(f"{path}: no traceEvents; expected is a trace of torch.profiler (Kineto), JSON, gzip'd or not")
    while True:
        more = _read(file, notes)
        cuts = [cut.start() + 1 for cut in _BETWEEN.finditer(buffer)]
        if not more:
            yield from _last(buffer, cuts, notes)
            return
        for cut in reversed(cuts):
            events = _events(buffer[:cut])
            if events is not None:
                yield events
                buffer = buffer[cut:].lstrip().removeprefix(b",")
                break
        buffer += more
        if len(buffer) > LONGEST_EVENT + 2 * PIECE:
            raise InputError(f"{path}: {len(buffer):,} bytes of traceEvents that are no list of events")


def _header(text: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text.rstrip().rstrip(b",") + b"}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _events(text: bytes) -> list[_Event] | None:
    """Events one after another, with commas between; None where the text does not end with one."""
    for mended in _mended(text):
        listed = b"[" + mended + b"]"
        try:
            try:
                return _EVENTS.decode(listed)
            except msgspec.ValidationError:
                return [_strict(event) for event in _LOOSE.decode(listed)]
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return None


def _strict(event: _Loose) -> _Event:
    """The event as its fields should be; not a number, or below 0, where a time is none."""
    said = event.args if isinstance(event.args, dict) else {}
    args: dict[str, Any] = {}
    for field in msgspec.structs.fields(_Args):
        value = said.get(field.encode_name)
        if field.name in ("shapes", "types"):
            args[field.name] = msgspec.Raw(msgspec.json.encode(value))
        else:
            args[field.name] = _text(value) if field.name in _TEXTS else _whole(value)
    return _Event(
        _text(event.ph), _text(event.cat), _text(event.name), _real(event.ts), _real(event.dur), str(event.pid),
        str(event.tid), _Args(**args),
    )  # fmt: skip


def _mended(text: bytes) -> Iterator[bytes]:
    """As it is; then without what profilers write that is no JSON: infinities, and bytes that are no UTF-8."""
    yield text
    if _NOT_JSON.search(text):
        yield (text := _NOT_JSON.sub(b": null", text))
    try:
        text.decode()
    except UnicodeDecodeError:
        yield text.decode("utf-8", "replace").encode()


def _last(buffer: bytes, cuts: list[int], notes: list[str]) -> Iterator[list[_Event]]:
    """The events up to the end of the list, or as many as are whole."""
    ends = [end.start() for end in re.finditer(rb"\]", buffer)]
    for end in reversed(ends):
        if (events := _events(buffer[:end])) is not None:
            yield events
            return
    notes.append("the file ends in the middle of an event; what follows is left out")
    for cut in reversed(cuts):
        if (events := _events(buffer[:cut])) is not None:
            yield events
            return


class _Codes(dict[Any, int]):
    """A number for each value, from 0 on in the order in which they come."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


class _Columns:
    """The columns of events, a piece at a time."""

    def __init__(self) -> None:
        self.seen = self.kept = self.bad = 0
        self._texts, self._threads = _Codes({"": 0}), _Codes()
        self._pieces: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _TYPES}

    def add(self, events: list[_Event]) -> None:
        """Add those that are kept, and count those that have no time that can be."""
        known = [event for event in events if event.ph == "X" and event.cat.lower() in KINDS]
        kept = [event for event in known if event.dur >= 0 and event.ts == event.ts]
        self.seen, self.kept, self.bad = (
            self.seen + len(events),
            self.kept + len(kept),
            self.bad + len(known) - len(kept),
        )
        args = [_sized(event) for event in kept]
        text, thread = self._texts.__getitem__, self._threads.__getitem__
        columns: dict[str, Iterable[Any]] = {
            "kind": [KINDS[event.cat.lower()] for event in kept],
            "name": [text(event.name) for event in kept],
            "start": [event.ts for event in kept],
            "seconds": [event.dur for event in kept],
            "thread": [thread((event.pid, event.tid)) for event in kept],
            **{name: map(attrgetter(name), args) for name in _NUMBERS},
            **{name: map(text, map(attrgetter(name), args)) for name in _TEXTS},
        }
        for name, values in columns.items():
            self._pieces[name].append(np.fromiter(values, _TYPES[name], len(kept)))

    def events(self) -> Events:
        """All that were added."""
        whole = {name: np.concatenate(self._pieces.pop(name)) for name in _TYPES}
        order = np.argsort(whole["start"], kind="stable")
        whole = {name: values[order] for name, values in whole.items()}
        whole["start"] = (whole["start"] - whole["start"][0]) / 1e6
        whole["seconds"] = whole["seconds"] / 1e6
        return Events(**whole, texts=tuple(self._texts))


_HOST_COLLECTIVE = ("gloo:", "mpi:", "ucc:")


def _sized(event: _Event) -> _Args:
    """The arguments; of a collective of the host's threads with its size, which its inputs tell (`record_shapes`)."""
    args = event.args or _NOTHING
    if not event.name.startswith(_HOST_COLLECTIVE) or args.elements != UNKNOWN:
        return args
    try:
        shapes, types = (msgspec.json.decode(of) for of in (args.shapes, args.types))
    except msgspec.DecodeError:
        return args
    if not (isinstance(shapes, list) and shapes and isinstance(types, list) and types):
        return args
    elements = _elements(shapes[0])
    return args if elements is None else msgspec.structs.replace(args, elements=elements, dtype=_text(types[0]))


def _elements(shape: Any) -> int | None:
    """Values of a tensor, or of a list of tensors; None where that is no shape."""
    if not isinstance(shape, list) or not shape:
        return None
    if isinstance(shape[0], list):
        parts = [_elements(one) for one in shape]
        return None if None in parts else sum(filter(None, parts))
    return math.prod(shape) if all(isinstance(size, int) for size in shape) else None


_NUMBERS = ("stream", "correlation", "sequence", "elements", "group_size")
_TEXTS = ("collective", "dtype", "group")
_TYPES: dict[str, Any] = {
    "kind": np.int8, "name": np.int32, "start": np.float64, "seconds": np.float64, "thread": np.int32,
    **dict.fromkeys(_NUMBERS, np.int64), **dict.fromkeys(_TEXTS, np.int32),
}  # fmt: skip


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _whole(value: Any) -> int:
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else UNKNOWN


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
