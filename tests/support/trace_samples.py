"""The training of `Planted` as other profilers would have written it, by public descriptions of their formats."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from planted_traces import Planted

Events = Iterable[dict[str, Any]]
PROCESS, THREAD = 77, 5
GLOBAL_PID = (9 << 48) | (PROCESS << 24)
"""Upper bits, which are a machine's, the process, and 24 bits for a thread."""


def nsight(planted: Planted, path: Path, *, sized: bool = True) -> Path:
    """``nsys export --type sqlite``: tables and columns of its *SQLite Export Schema Reference*."""
    strings: dict[str, int] = {}
    rows: dict[str, list[tuple[Any, ...]]] = {"NVTX_EVENTS": [], "RUNTIME": [], "KERNEL": []}
    events = planted.trace()["traceEvents"]
    sent = {event["args"]["correlation"]: event["args"] for event in events if "In msg nelems" in event["args"]}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings) + 1)

    for event in events:
        begin, end = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
        args, name, thread = event["args"], event["name"], GLOBAL_PID | THREAD
        if event["cat"] == "cuda_runtime":
            rows["RUNTIME"].append((begin, end, thread, args.get("correlation", 0), text(f"{name}_v7000")))
            if sized and args.get("correlation") in sent:
                size = 4 * sent[args["correlation"]]["In msg nelems"]
                told = json.dumps({"Message size [bytes]": size})
                rows["NVTX_EVENTS"].append((begin - 1, end + 1, 59, "ncclAllReduce", None, thread, told))
        elif event["cat"] == "kernel":
            names = text(name), text(name.partition("(")[0])
            rows["KERNEL"].append((begin, end, 0, args["stream"], args["correlation"], GLOBAL_PID, *names))
        else:
            # PyTorch's emit_nvtx tells sequence numbers in the names of operators.
            told = f"{name}, seq = 3" if event["cat"] == "cpu_op" else name
            rows["NVTX_EVENTS"].append((begin, end, 59, None, text(told), thread, None))
    rows["NVTX_EVENTS"].append((5, None, 75, "NCCL", None, GLOBAL_PID | THREAD, None))  # a domain, and no range
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT,
                                      jsonText TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
                                                     globalPid INT, demangledName INT, shortName INT);
            CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT);
            INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
            """
        )
        for table, of in rows.items():
            name = table if table == "NVTX_EVENTS" else f"CUPTI_ACTIVITY_KIND_{table}"
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(of[0]))})", of)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(at, value) for value, at in strings.items()])
    database.close()
    return path


def nccl_inspector(planted: Planted, path: Path, *, verbose: bool = True, markers: bool = False) -> Path:
    """NCCL Inspector's lines (plugins/profiler/inspector of NVIDIA/nccl); with `markers` as of version 4.3."""
    head = {
        "header": {"id": "0x7f8c", "rank": planted.rank, "n_ranks": planted.workers, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.3" if markers else "v4.0", "pid": 1},
    }
    stats = {"coll_records": 0, "coll_dropped_total": 2, "p2p_dropped_total": 0}
    lines: list[dict[str, Any]] = [{**head, "dump_stats": stats}] if markers else []
    for number, event in enumerate(_sent(planted)):
        begin, end = round(event["ts"]), round(event["ts"] + event["dur"])
        perf: dict[str, Any] = {
            "coll": "AllReduce", "coll_algo": "RING", "coll_proto": "LL", "coll_sn": number,
            "coll_msg_size_bytes": 4 * event["args"]["In msg nelems"], "coll_exec_time_us": end - begin,
        }  # fmt: skip
        channels = [
            {"channel_id": at, "kernel_start_ts": begin + at, "kernel_stop_ts": end - (at == 0)} for at in range(2)
        ]
        if verbose:
            perf["event_trace_ts"] = {"coll_start_ts": begin - 5, "coll_stop_ts": begin - 4, "kernel_events": channels}
        lines.append({**({} if markers else head), "coll_perf": perf})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def nccl_profiler(planted: Planted, path: Path) -> Path:
    """What NCCL's example plugin prints (plugins/profiler/example/print_event.cc of NVIDIA/nccl)."""
    lines = ["["]
    for number, event in enumerate(_sent(planted)):
        begin, end = event["ts"], event["ts"] + event["dur"]
        args = (
            f'"SeqNum": {number}, "CommHash": 12715772615376301750, "Rank": {planted.rank}, "Count": '
            f'{event["args"]["In msg nelems"]}, "Datatype": "ncclFloat32", "Algorithm": "RING", "Protocol": "LL", '
            '"nChannels": 1'
        )
        for category, name, phase, moment, told in (
            ("COLL_API", "AllReduce", "b", begin - 6, '"Stream": 0x262ca50'),
            ("COLL", "AllReduce", "b", begin - 5, args),
            ("GPU", "KernelCh", "b", begin, '"Channel": 0'),
            ("GPU", "KernelCh", "e", end, ""),
            ("COLL", "AllReduce", "e", end + 3, ""),
        ):
            more = f', "args": {{{told}}}' if told else ""
            lines.append(
                f'{{"name": "{name}", "cat": "{category}", "ph": "{phase}", "id": {number}, "pid": 1, "tid": 1, '
                f'"ts": {moment:f}{more}}},'
            )
    path.write_text("\n".join([*lines, "{}]"]))
    return path


def _sent(planted: Planted) -> list[dict[str, Any]]:
    return [event for event in planted.trace()["traceEvents"] if "In msg nelems" in event["args"]]


def _chakra_messages() -> tuple[Any, Any]:
    """`GlobalMetadata` and `Node` as far as they are used, by protobuf's own library: schema/protobuf/et_def.proto of
    mlcommons/chakra."""
    field = descriptor_pb2.FieldDescriptorProto
    text, wide, integer, boolean = field.TYPE_STRING, field.TYPE_UINT64, field.TYPE_INT64, field.TYPE_BOOL
    shapes: dict[str, list[tuple[str, int, Any, bool]]] = {
        "AttributeProto": [
            ("name", 1, text, False), ("int64_val", 9, integer, False), ("bool_val", 27, boolean, False),
            ("string_val", 29, text, False), ("double_val", 3, field.TYPE_DOUBLE, False),
            ("sint64_val", 17, field.TYPE_SINT64, False),
        ],
        "IOInfo": [("values", 1, text, False), ("shapes", 2, text, False)],
        "GlobalMetadata": [("version", 1, text, False), ("attr", 2, "AttributeProto", True)],
        "Node": [
            ("id", 1, wide, False), ("name", 2, text, False), ("type", 3, wide, False), ("ctrl_deps", 4, wide, True),
            ("data_deps", 5, wide, True), ("start_time_micros", 6, wide, False), ("duration_micros", 7, wide, False),
            ("inputs", 8, "IOInfo", False), ("attr", 10, "AttributeProto", True),
        ],
    }  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="Chakra", syntax="proto3")
    for name, of in shapes.items():
        message = file.message_type.add(name=name)
        for called, number, kind, repeated in of:
            one = message.field.add(name=called, number=number)
            one.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if isinstance(kind, str):
                one.type, one.type_name = field.TYPE_MESSAGE, f".Chakra.{kind}"
            else:
                one.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"Chakra.{name}") for name in ("GlobalMetadata", "Node"))
    return tuple(message_factory.GetMessageClass(of) for of in found)


METADATA, NODE = _chakra_messages()
_COMPUTE, _COLLECTIVE = 4, 7


class Chakra:
    """An execution trace while it is written."""

    def __init__(self, said: str = "1.1.0-chakra.0.0.4") -> None:
        metadata = METADATA(version="0.0.4")
        metadata.attr.add(name="schema", string_val=said)
        self._messages = [metadata]

    def add(
        self, name: str, duration: int, after: Iterable[int] = (), *, on_host: bool = False, inputs: str = "",
        start: int = 0, stream: int = 7, size: int | None = None, called_by: Iterable[int] = (),
    ) -> int:  # fmt: skip
        """Add a node, µs; its id."""
        node = NODE(id=len(self._messages), name=name, duration_micros=duration, start_time_micros=start)
        node.type = _COMPUTE if size is None else _COLLECTIVE
        node.data_deps.extend(after)
        node.ctrl_deps.extend(called_by)
        node.attr.add(name="is_cpu_op", bool_val=on_host)
        node.attr.add(name="rf_id", int64_val=-1)
        node.attr.add(name="weight", double_val=0.5)
        node.attr.add(name="signed", sint64_val=-3)
        node.inputs.values = inputs
        if not on_host:
            node.attr.add(name="stream", int64_val=20 if size is not None else stream)
        if size is not None:
            for what, value in (("comm_type", 0), ("comm_size", size)):
                node.attr.add(name=what, int64_val=value)
            node.attr.add(name="pg_name", string_val="0")
        self._messages.append(node)
        return int(node.id)

    def write(self, path: Path) -> Path:
        """Each message behind its length."""
        out = bytearray()
        for message in self._messages:
            data = message.SerializeToString()
            size = len(data)
            while size >= 0x80:
                out.append(size & 0x7F | 0x80)
                size >>= 7
            out += bytes([size]) + data
        path.write_bytes(bytes(out))
        return path

    def write_json(self, path: Path) -> Path:
        """Each message after the other, by protobuf's own library."""
        path.write_text("".join(json_format.MessageToJson(message) for message in self._messages))
        return path


GROUPS = """['[{\\"pg_name\\": \\"0\\", \\"pg_desc\\": \\"default_pg\\", \\"ranks\\": [], \\"group_size\\": 4}]']"""
"""What PyTorch's execution trace says of its process groups, in the inputs of a node."""


def chakra(planted: Planted, path: Path, *, timed: bool, grouped: bool = True) -> Path:
    """An iteration of it: host operators take 1 µs, kernels depend on what started them and was before them."""
    trace = Chakra()
    if grouped:
        trace.add("## process_group:init ##", 0, on_host=True, inputs=GROUPS)

    def kernel(name: str, seconds: float, after: Iterable[int], start: float, size: int | None = None) -> int:
        caller = trace.add("aten::op", 1, on_host=True, start=round(start) - 1 if timed else 0)
        took = round(1e6 * seconds)
        return trace.add(name, took, [caller, *after], start=round(start) if timed else 0, size=size)

    begun = 1000.0
    done = kernel("forward_gemm", planted.forward, (), begun)
    begun += 1e6 * planted.forward
    each, free, sent = 1e6 * planted.backward / len(planted.message_bytes), 0.0, []
    for size in planted.message_bytes:
        trace.add("autograd::engine::evaluate_function: MmBackward0", 1, on_host=True,
                  start=round(begun) - 1 if timed else 0)  # fmt: skip
        done = kernel("backward_gemm", 1e-6 * each, [done], begun)
        begun += each
        free = max(free, begun)
        sent.append(kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", planted.message(size), [done], free, size))
        free += 1e6 * planted.message(size)
    kernel("optimizer", planted.update, [done, *sent], max(begun, free))
    return trace.write_json(path) if path.suffix == ".json" else trace.write(path)
