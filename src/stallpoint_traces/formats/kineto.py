"""Traces of PyTorch's profiler (Kineto), in the Chrome trace event format: JSON, gzip'd or not, a file for each rank.

A trace of a gigabyte has millions of events. The file is read in pieces, which are cut between two events and
decoded into typed records of the needed fields; only columns are kept.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain, compress, islice
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec

from stallpoint.errors import InputError
from stallpoint.inputs.documents import open_bytes
from stallpoint_traces.formats.events import (
    CALL,
    COPY,
    FILL,
    KERNEL,
    MARK,
    OPERATOR,
    UNKNOWN,
    Columns,
    EventCommunication,
    Trace,
    rank_of,
)

PIECE = 512 * 1024
"""Bytes of JSON that are decoded at once."""
LONGEST_EVENT = 64 * 1024 * 1024
"""Largest size of an event, bytes."""

CATEGORIES = {
    "kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": FILL, "cuda_runtime": CALL, "cuda_driver": CALL,
    "hip_runtime": CALL, "cpu_op": OPERATOR, "user_annotation": MARK,
    "operator": OPERATOR, "runtime": CALL, "memcpy": COPY, "memset": FILL,
    "xpu_runtime": CALL, "mtia_runtime": CALL, "privateuse1_runtime": CALL, "privateuse1_driver": CALL,
    "mtia_ccp_events": KERNEL,
}  # fmt: skip
"""Kind of each category of events that is kept, in lower case: categories since 2022, before, and of other devices."""
_EXCLUDED = frozenset({
    "python_function", "overhead", "cuda_sync", "gpu_user_annotation", "trace", "external_correlation",
    "cpu_instant_event", "cuda_profiler_range", "mtia_insight", "collective_comm", "",
})  # fmt: skip
"""Categories whose events repeat or refine kept ones."""
_MARKS = re.compile(r"^(?:ProfilerStep#|Optimizer\.\w+#|enumerate\(DataLoader\))")
"""Names of PyTorch's marks, which were in the category of operators before 2022."""


class _Kinds(dict[str, int]):
    """Kind of each category in any spelling; `UNKNOWN` for unknown ones, `_DROPPED` for excluded ones."""

    def __missing__(self, category: str) -> int:
        written = category.lower()
        self[category] = kind = CATEGORIES.get(written, _DROPPED if written in _EXCLUDED else UNKNOWN)
        return kind


_DROPPED = UNKNOWN - 1


_KINDS = _Kinds()


_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers that fit a column: events with larger ones fail to decode, and are read one by one."""


class _Args(msgspec.Struct, gc=False):
    stream: _INT64 = UNKNOWN
    correlation: _INT64 = UNKNOWN
    collective: str = msgspec.field(default="", name="Collective name")
    elements: _INT64 = msgspec.field(default=UNKNOWN, name="In msg nelems")
    group_size: _INT64 = msgspec.field(default=UNKNOWN, name="Group size")
    dtype: str = ""
    group: str = msgspec.field(default="", name="Process Group Name")
    purpose: str = msgspec.field(default="", name="Process Group Description")
    members: str = msgspec.field(default="", name="Process Group Ranks")
    in_splits: str = msgspec.field(default="", name="In split size")
    out_splits: str = msgspec.field(default="", name="Out split size")


class _ArgsWithInputs(_Args, gc=False):
    shapes: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input type")


class _KinetoEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = float("nan")
    dur: float = -1.0
    pid: int | str = 0
    tid: int | str = 0
    args: _Args | None = None


class _EventWithInputs(_KinetoEvent, gc=False):
    args: _ArgsWithInputs | None = None


class _UntypedEvent(msgspec.Struct):
    """An event of any Kineto version: some versions write numbers as texts, and texts as numbers or lists."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    ts: Any = None
    dur: Any = None
    pid: Any = 0
    tid: Any = 0
    args: Any = None


_EVENTS, _UNTYPED = msgspec.json.Decoder(list[_KinetoEvent]), msgspec.json.Decoder(list[_UntypedEvent])
_WITH_INPUTS = msgspec.json.Decoder(list[_EventWithInputs])
_NOTHING = _Args()
_COLLECTIVES = ("gloo:", "mpi:", "ucc:", "nccl:")
"""Prefixes of torch.distributed's marks of collectives; the marks' inputs give the sizes."""
_QUOTED_COLLECTIVES = tuple(b'"' + name.encode() for name in _COLLECTIVES)
_INPUTS = b'"Input Dims"'
"""Key of an operator's input shapes, written with `record_shapes`."""
_EVENT_BORDER = re.compile(rb"\}\s*,\s*(?=\{)")
_NOT_JSON = re.compile(rb":\s*-?(?:inf|nan|infinity)\b", re.IGNORECASE)
_EVENTS_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')


def recognised(head: bytes) -> bool:
    """Return whether a file may be a Kineto trace; any JSON may, so that this format is tried last."""
    return head.lstrip()[:1] in (b"{", b"[")


def read(path: Path) -> list[Trace]:
    """Return the trace in the file; `InputError` if there is none. Truncated or broken events are dropped and noted."""
    notes: list[str] = []
    chunks = _chunks(path, notes)
    head = next(chunks)
    columns, bad, seen, strange = Columns(), 0, 0, Counter[str]()
    for events in chunks:
        seen += len(events)
        kinds = [_KINDS[event.cat] for event in events]
        bad += _add_events(columns, events, kinds)
        if UNKNOWN in kinds:
            strange.update(event.cat for event in events if event.ph == "X" and _KINDS[event.cat] == UNKNOWN)
    if others := sum(strange.values()):
        categories = ", ".join(category for category, _ in strange.most_common(5))
        notes.append(f"{others:,} of {seen:,} events are of kinds not read ({categories})")
    if bad:
        notes.append(f"{bad} events without a time, or of a duration below 0, are excluded")
    if not len(columns):
        values = f" ({notes[-1]})" if strange else ""
        raise InputError(
            f"{path}: no event of a profiler among {seen}{values}; expected is a trace of torch.profiler (Kineto)"
        )
    info = head.get("distributedInfo")
    rank, world_size = (
        _integer(info.get(name)) if isinstance(info, dict) else UNKNOWN for name in ("rank", "world_size")
    )
    if rank < 0:
        rank = rank_of(path, notes)
    if world_size < 1:
        notes.append("the file does not say how many workers there were")
    found, first = columns.events(1e-6)
    found.kind[(found.kind == OPERATOR) & found.called(_MARKS)] = MARK
    began = first + 1e-9 * _real(head.get("baseTimeNanoseconds", 0))
    return [Trace(path, rank, max(world_size, 1), found, tuple(notes), began)]


def _chunks(path: Path, notes: list[str]) -> Iterator[Any]:
    """Yield the header (all before the events) as a dictionary, then lists of events."""
    try:
        with open_bytes(path) as file:
            yield from _decoded_pieces(path, file, notes)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _piece(file: IO[bytes], notes: list[str]) -> bytes:
    try:
        return file.read(PIECE)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        notes.append(f"the file is damaged ({error}); what follows is not read")
        return b""


def _decoded_pieces(path: Path, file: IO[bytes], notes: list[str]) -> Iterator[Any]:
    buffer = _piece(file, notes)
    found = _EVENTS_BEGIN.search(buffer)
    while (
        found is None and buffer.lstrip()[:1] == b"{" and len(buffer) < LONGEST_EVENT and (more := _piece(file, notes))
    ):
        buffer += more
        found = _EVENTS_BEGIN.search(buffer)
    if found is not None:
        yield _header(buffer[: found.start()])
        buffer = buffer[found.end() :]
    elif buffer.lstrip()[:1] == b"[":
        yield {}
        buffer = buffer.lstrip()[1:]
    else:
        raise InputError(f"{path}: no traceEvents; expected is a trace of torch.profiler (Kineto), JSON, gzip'd or not")
    while True:
        more = _piece(file, notes)
        if not more:
            yield from _last_events(buffer, notes)
            return
        for tried, cut in enumerate(islice(_cuts(buffer), _TRIED_CUTS)):
            events = _events(buffer[:cut])
            if events is not None:
                yield events
                buffer = buffer[cut:].lstrip().removeprefix(b",")
                break
            if not tried and _is_broken(buffer):
                yield from _last_events(buffer, notes)
                return
        buffer += more
        if len(buffer) > LONGEST_EVENT + 2 * PIECE:
            raise InputError(f"{path}: {len(buffer):,} bytes of traceEvents that are no list of events")


def _cuts(buffer: bytes) -> Iterator[int]:
    """Yield candidate positions between two events, last first: the last one is nearly always right."""
    near = max(0, len(buffer) - _SEARCHED_TAIL)
    found = [cut.start() + 1 for cut in _EVENT_BORDER.finditer(buffer, near)]
    yield from reversed(found)
    yield from reversed([cut.start() + 1 for cut in _EVENT_BORDER.finditer(buffer, 0, near + _OVERLAP)])


_TRIED_CUTS = 100
"""Maximum number of cuts that are tried: objects among an event's arguments look like events."""
_SEARCHED_TAIL = 32 * 1024
_OVERLAP = 64
"""Bytes that both searched parts share, to find a cut at their border (unless it has more white space)."""


def _header(text: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text.rstrip().rstrip(b",") + b"}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _events(text: bytes) -> list[_KinetoEvent] | None:
    """Return a comma-separated list of events; None if the text does not end with a complete one."""
    for mended in _without_invalid(text):
        listed = b"[" + mended + b"]"
        try:
            try:
                if _INPUTS in listed and any(name in listed for name in _QUOTED_COLLECTIVES):
                    return list(_WITH_INPUTS.decode(listed))
                return _EVENTS.decode(listed)
            except msgspec.ValidationError:
                return [_typed(event) for event in _UNTYPED.decode(listed)]
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return None


def _typed(event: _UntypedEvent) -> _KinetoEvent:
    """Return the event with fields of the right types; invalid times are nan, or below 0."""
    values = event.args if isinstance(event.args, dict) else {}
    args: dict[str, Any] = {}
    for field in msgspec.structs.fields(_ArgsWithInputs):
        value = values.get(field.encode_name)
        if field.name in ("shapes", "types"):
            args[field.name] = msgspec.Raw(msgspec.json.encode(value))
        else:
            args[field.name] = _text(value) if field.type is str else _integer(value)
    return _EventWithInputs(
        _text(event.ph), _text(event.cat), _text(event.name), _real(event.ts), _real(event.dur), str(event.pid),
        str(event.tid), _ArgsWithInputs(**args),
    )  # fmt: skip


def _without_invalid(text: bytes) -> Iterator[bytes]:
    """Yield the text unchanged, then with profilers' invalid JSON replaced: infinities, bytes that are no UTF-8."""
    yield text
    if _NOT_JSON.search(text):
        yield (text := _NOT_JSON.sub(b": null", text))
    try:
        text.decode()
    except UnicodeDecodeError:
        yield text.decode("utf-8", "replace").encode()


def _last_events(buffer: bytes, notes: list[str]) -> Iterator[list[_KinetoEvent]]:
    """Yield the events up to the end of the list; of a truncated list, all complete events."""
    *_, text = _without_invalid(buffer)
    broken = _list_end(text)
    if broken is not None and broken.ended and (events := _events(text[: broken.at])) is not None:
        yield events
        return
    notes.append("the file ends in the middle of an event; what follows is not read")
    whole = len(text) if broken is None else broken.at
    for cut in islice(chain([len(text)] if broken is None else [], _cuts(text[:whole])), _TRIED_CUTS):
        if (events := _events(text[:cut])) is not None:
            yield events
            return


class _ListEnd(NamedTuple):
    at: int
    """Position of the list's end, or of the first byte that is not JSON."""
    ended: bool
    """Whether the list ended there."""


def _is_broken(buffer: bytes) -> bool:
    """Return whether JSON is invalid before the buffer's last bytes, where any event may be cut off."""
    *_, text = _without_invalid(buffer)
    broken = _list_end(text)
    return broken is not None and not broken.ended and broken.at < len(text) - _OVERLAP


def _list_end(text: bytes) -> _ListEnd | None:
    """Return where a list of events ends or becomes invalid; None if it continues to the end of the text."""
    listed = b"[" + text + b"]"
    try:
        msgspec.json.decode(listed, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        found = re.search(r"(trailing characters )?\(byte (\d+)\)", str(error))
        if found is None:
            return _ListEnd(len(text), False)  # the file was cut off
        at = int(found[2]) - 1  # msgspec numbers trailing bytes from 1, but other bytes from 0
        return _ListEnd(listed.rindex(b"]", 0, at) - 1, True) if found[1] else _ListEnd(max(at, 0), False)
    return None


def _add_events(columns: Columns, events: list[_KinetoEvent], kinds: list[int]) -> int:
    """Add the events with known `kinds`; return the number of events excluded for impossible times."""
    known = [kind >= 0 and event.ph == "X" for event, kind in zip(events, kinds, strict=True)]
    events, kinds = list(compress(events, known)), list(compress(kinds, known))
    possible = [event.dur >= 0 and event.ts == event.ts for event in events]
    if bad := possible.count(False):
        events, kinds = list(compress(events, possible)), list(compress(kinds, possible))
    args = [event.args or _NOTHING for event in events]
    if any(isinstance(event, _EventWithInputs) for event in events[:1]):  # a piece's events have all inputs or none
        args = [_args_with_size(event) for event in events]
    text, thread = columns.texts, columns.threads
    columns.add(
        len(events),
        {
            "kind": kinds,
            "name": [text[event.name] for event in events],
            "start": [event.ts for event in events],
            "seconds": [event.dur for event in events],
            "thread": [thread[event.pid, event.tid] for event in events],
            "stream": [own.stream for own in args],
            "correlation": [own.correlation for own in args],
            "message": [
                columns.payloads[_message(own)] if own.collective or own.elements != UNKNOWN else 0 for own in args
            ],
        },
    )
    return bad


def _message(args: _Args) -> EventCommunication:
    return EventCommunication(
        args.collective, args.elements, args.group_size, args.dtype, args.group, args.purpose, args.members,
        args.in_splits, args.out_splits,
    )  # fmt: skip


def _args_with_size(event: _KinetoEvent) -> _Args:
    """Return an event's arguments; the mark of a collective takes its size from the inputs (`record_shapes`)."""
    args = event.args
    if not isinstance(args, _ArgsWithInputs):
        return _NOTHING
    if not event.name.startswith(_COLLECTIVES) or args.elements != UNKNOWN:
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
    """Return the number of values of a shape, or of a list of shapes; None if `shape` is neither."""
    if not isinstance(shape, list) or not shape:
        return None
    if isinstance(shape[0], list):
        parts = [_elements(one) for one in shape]
        return None if None in parts else sum(filter(None, parts))
    return math.prod(shape) if all(isinstance(size, int) for size in shape) else None


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _integer(value: Any) -> int:
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else UNKNOWN


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
