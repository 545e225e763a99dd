"""Chakra execution traces: the graph of a rank's operations, usually of one iteration, as protobuf messages.

Format: schema/protobuf/et_def.proto of mlcommons/chakra: `GlobalMetadata`, then a `Node` for each operator, kernel and
communication, each after its length, or all as JSON. PyTorch's converter writes durations and dependencies of nodes,
but no starts: a node then begins as soon as its dependencies have ended and its thread or stream is free.
"""

from __future__ import annotations

import heapq
import json
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stallpoint.errors import InputError
from stallpoint.inputs.documents import HEAD_BYTES, open_bytes
from stallpoint.records.protobuf import Span, fields, integers, records, varint
from stallpoint_traces.formats.events import (
    BYTE,
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

_COLLECTIVES = {
    0: "AllReduce", 1: "Reduce", 2: "AllGather", 5: "Broadcast", 6: "AllToAll", 7: "ReduceScatter", 8: "ReduceScatter",
}  # fmt: skip
"""NCCL's name of each `CollectiveCommType`."""
_SEND, _RECEIVE, _COLLECTIVE = 5, 6, 7
"""`NodeType` of nodes that communicate."""
_ID, _NAME, _TYPE, _CONTROL, _DATA, _START, _DURATION, _INPUTS, _ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 8, 10
_MARKS = re.compile(r"^ProfilerStep#|^Optimizer\.(?:step|zero_grad)#|^enumerate\(DataLoader\)|^## ")
"""Names of nodes that are marks by PyTorch or the program, not operators."""
_WAIT_CALL = "cudaDeviceSynchronize"
"""Name given to calls in which the host waits for the device."""
_STEPS = re.compile(r"^ProfilerStep#|^Optimizer\.step#")
_NCCL = re.compile(r"^nccl.*Kernel")
_GROUP = re.compile(r'"pg_name"\s*:\s*"([^"]*)"(?:(?!"pg_name")[^{}])*?"(?:group_size|pg_size)"\s*:\s*(\d+)')
"""Name and size of a process group in the inputs of PyTorch's node ``process_group:init``."""


def recognised(head: bytes) -> bool:
    """Return whether a file begins as an execution trace, in protobuf or JSON.

    Protobuf begins with the length of a message and `GlobalMetadata`, which may be empty, or longer than the head.
    """
    if _JSON.match(head):
        return True
    try:
        size, offset = varint(head, 0, len(head))
        for number, value in fields(head, (offset, offset + size)):
            if number not in (1, 2) or not isinstance(value, tuple):
                return False
            if value[1] >= len(head):
                return True
    except ValueError:
        return False
    except IndexError:  # the head ends within a number
        return True
    return offset + size <= len(head)


MAX_BYTES = 2**30
"""Maximum size of a file, bytes: the complete trace is held in memory."""
_JSON = re.compile(
    rb'\s*\{\s*"schema"\s*:\s*"|\s*\{(?=.*"(?:ctrlDeps|dataDeps|durationMicros|stringVal)"\s*:)(?!.*"traceEvents")',
    re.DOTALL,
)
"""Beginning of PyTorch's execution trace, or of protobuf messages as JSON."""


@dataclass
class _Node:
    id: int = 0
    name: str = ""
    type: int = 0
    control: list[int] = field(default_factory=list)
    data: list[int] = field(default_factory=list)
    start: int = 0
    """Start, µs; 0 if unknown."""
    duration: int = 0
    inputs: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def communicates(self) -> bool:
        return self.type in (_SEND, _RECEIVE, _COLLECTIVE)

    @property
    def on_host(self) -> bool:
        return bool(self.attributes.get("is_cpu_op", not self.communicates)) and not self.communicates

    @property
    def lane(self) -> tuple[str, int]:
        """Thread or stream; its nodes run one after the other."""
        return ("host", self.attributes.get("tid", 0)) if self.on_host else ("device", self.stream)

    @property
    def stream(self) -> int:
        known = self.attributes.get("stream", UNKNOWN)
        return int(known) if known >= 0 else (1 if self.communicates else 0)


def read(path: Path) -> list[Trace]:
    """Return the trace in the file; `InputError` if it is invalid or incomplete."""
    try:
        with open_bytes(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(f"{path}: more than {MAX_BYTES // 2**20} MiB; trace fewer iterations")
        listed = _in_json(data.decode()) if _JSON.match(data[:HEAD_BYTES]) else _in_protobuf(data)
        nodes = {node.id: node for node in listed}
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, struct.error) as error:
        raise InputError(f"{path}: no whole execution trace of Chakra: {error}") from None
    if not nodes:
        raise InputError(f"{path}: an execution trace of Chakra without nodes")
    if not any(node.duration for node in nodes.values()):
        raise InputError(
            f"{path}: no node has a duration (duration_micros), as in a simulator's workload and in PyTorch's own "
            "execution trace, so that nothing of it can be timed; give a trace of torch.profiler, or what Chakra's "
            "converter makes with one"
        )
    notes: list[str] = []
    if told := [node.start for node in nodes.values() if node.start]:
        starts = {at: float(node.start or min(told)) for at, node in nodes.items()}
    else:
        starts = _starts_by_dependencies(nodes)
        if len(starts) < len(nodes):
            raise InputError(f"{path}: {len(nodes) - len(starts)} nodes depend on one another in a circle")
        notes.append(
            "it does not say when anything began: each begins as soon as what it depends on has ended, so that no "
            "waiting of the host is in it"
        )
    sizes = _group_sizes(nodes)
    columns = Columns()
    _add_nodes(columns, nodes, starts, sizes)
    if not any(_STEPS.search(node.name) for node in nodes.values()):
        begin = min(starts.values())
        end = max(starts[at] + node.duration for at, node in nodes.items())
        done = max((starts[at] + node.duration for at, node in nodes.items() if node.on_host), default=begin)
        columns.add_row(MARK, "ProfilerStep#0", begin, end - begin, ("host", 0))
        columns.add_row(CALL, _WAIT_CALL, done, end - done, ("host", 0))
        notes.append("no iteration is marked; all of it is taken for one, which ends when the device has done all")
    rank = rank_of(path, notes)
    if not sizes:
        notes.append("the file does not say how many workers there were")
    world_size, (events, _) = max(sizes.values(), default=1), columns.events(1e-6)
    return [Trace(path, rank, world_size, events, tuple(notes), graph=True)]


def _in_protobuf(data: bytes) -> Iterator[_Node]:
    _, *spans = records(data)
    return (_node(data, span) for span in spans)


def _in_json(text: str) -> Iterator[_Node]:
    """Yield nodes from protobuf's JSON messages (whose 64-bit numbers are texts), or from PyTorch's JSON object."""
    offset = 0
    while offset < len(text):
        message, offset = _DECODER.raw_decode(text, offset)
        offset = len(text) - len(text[offset:].lstrip())
        for row in message.get("nodes", [message] if "id" in message else ()):
            of = {name.replace("_", "").lower(): value for name, value in row.items()}
            type_ = of.get("type", 0)
            attributes = {one["name"]: _json_value(one) for one in of.get("attr", ())}
            yield _Node(
                int(of["id"]), of.get("name", ""), _TYPES[type_] if type_ in _TYPES else int(type_),
                [int(one) for one in np.atleast_1d(of.get("ctrldeps", []))],
                [int(one) for one in np.atleast_1d(of.get("datadeps", []))],
                int(of.get("starttimemicros", 0)), int(of.get("durationmicros", 0)),
                str(of.get("inputs", {}).get("values", "")), attributes,
            )  # fmt: skip


_DECODER = json.JSONDecoder()
_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": _SEND, "COMM_RECV_NODE": _RECEIVE, "COMM_COLL_NODE": _COLLECTIVE}


def _json_value(row: dict[str, Any]) -> Any:
    for name, value in row.items():
        if name.endswith(("Val", "_val")):
            return int(value) if "int" in name.lower() else value
    return None


def _node(data: bytes, span: Span) -> _Node:
    node = _Node()
    for number, value in fields(data, span):
        if isinstance(value, tuple):
            if number == _NAME:
                node.name = _text(data, value)
            elif number in (_CONTROL, _DATA):
                (node.control if number == _CONTROL else node.data).extend(integers(data, value))
            elif number == _ATTRIBUTE:
                name, held = _attribute(data, value)
                node.attributes[name] = held
            elif number == _INPUTS:
                node.inputs = next((_text(data, of) for at, of in fields(data, value) if at == 1 and _is_span(of)), "")
        elif number in (_CONTROL, _DATA):
            (node.control if number == _CONTROL else node.data).append(value)
        elif number == _ID:
            node.id = value
        elif number == _TYPE:
            node.type = value
        elif number == _START:
            node.start = value
        elif number == _DURATION:
            node.duration = value
    return node


def _is_span(value: int | Span) -> bool:
    return isinstance(value, tuple)


def _text(data: bytes, span: int | Span) -> str:
    return data[span[0] : span[1]].decode("utf-8", "replace") if isinstance(span, tuple) else ""


def _attribute(data: bytes, span: Span) -> tuple[str, Any]:
    """Return an attribute's name and value (None for lists)."""
    name = ""
    held: Any = None
    for number, value in fields(data, span):
        if isinstance(value, int):
            # Negative integers are in the upper half of 64 bits, or zigzag-encoded in sint32 and sint64.
            held = (value >> 1) ^ -(value & 1) if number in (15, 17) else value - (value >> 63 << 64)
        elif number == 1:
            name = _text(data, value)
        elif number == 29:
            held = _text(data, value)
        elif number in _FIXED_WIDTH:
            (held,) = struct.unpack_from(_FIXED_WIDTH[number], data, value[0])
    return name, held


_FIXED_WIDTH = {3: "<d", 5: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
"""Format of an attribute's value by field number, for fields of fixed width."""


def _group_sizes(nodes: dict[int, _Node]) -> dict[str, int]:
    """Return the number of ranks of each process group that PyTorch lists."""
    listed = (node.inputs.replace("\\", "") for node in nodes.values() if "process_group:init" in node.name)
    return {name: int(size) for text in listed for name, size in _GROUP.findall(text)}


def _starts_by_dependencies(nodes: dict[int, _Node]) -> dict[int, float]:
    """Return the earliest start of each node by data dependencies, µs; nodes in or after a cycle are excluded.

    Ready nodes run in the order of their ids, which rise in the order of execution. Control dependencies only record
    which operator called which.
    """
    missing = {at: {one for one in node.data if one in nodes} for at, node in nodes.items()}
    followers: dict[int, list[int]] = defaultdict(list)
    for at, before in missing.items():
        for one in before:
            followers[one].append(at)
    ready = [at for at, before in missing.items() if not before]
    heapq.heapify(ready)
    earliest = dict.fromkeys(nodes, 0.0)
    free: dict[tuple[str, int], float] = defaultdict(float)
    starts: dict[int, float] = {}
    while ready:
        at = heapq.heappop(ready)
        node = nodes[at]
        starts[at] = max(earliest[at], free[node.lane])
        free[node.lane] = end = starts[at] + node.duration
        for one in followers[at]:
            earliest[one] = max(earliest[one], end)
            missing[one].discard(at)
            if not missing[one]:
                heapq.heappush(ready, one)
    return starts


def _add_nodes(columns: Columns, nodes: dict[int, _Node], starts: dict[int, float], sizes: dict[str, int]) -> None:
    ends = {at: starts[at] + node.duration for at, node in nodes.items()}
    # A mark ends with the last node within it.
    within = dict(ends)
    for at in sorted(nodes, reverse=True):
        for parent in nodes[at].control:
            if parent in within and nodes[at].on_host:
                within[parent] = max(within[parent], within[at])
    for at, node in nodes.items():
        before = [one for one in (*node.control, *node.data) if one in nodes]
        callers = [one for one in before if nodes[one].on_host]
        reached = max((ends[one] for one in callers), default=0.0)
        if node.on_host:
            if any(not nodes[one].on_host and ends[one] > reached for one in before):
                columns.add_row(CALL, _WAIT_CALL, reached, max(0.0, starts[at] - reached), node.lane)
            mark = _MARKS.search(node.name)
            end = within[at] if mark else ends[at]
            columns.add_row(MARK if mark else OPERATOR, node.name, starts[at], end - starts[at], node.lane)
            continue
        called = min(reached, starts[at]) if callers else starts[at]
        thread = nodes[callers[0]].lane if callers else ("host", 0)
        columns.add_row(CALL, "cudaLaunchKernel", called, 0.0, thread, correlation=at)
        kind = COPY if node.name.startswith("Memcpy") else FILL if node.name.startswith("Memset") else KERNEL
        name, message = node.name, EventCommunication()
        if node.communicates:
            group = str(node.attributes.get("pg_name", ""))
            what = (
                "SendRecv" if node.type != _COLLECTIVE else _COLLECTIVES.get(node.attributes.get("comm_type", -1), "")
            )
            name = node.name if _NCCL.search(node.name) else f"ncclKernel_{what}({node.name})"
            size = int(node.attributes.get("comm_size", UNKNOWN))
            message = EventCommunication(what, size, sizes.get(group, UNKNOWN), BYTE, group)
        columns.add_row(
            kind, name, starts[at], node.duration, node.lane, stream=node.stream, correlation=at, message=message
        )
