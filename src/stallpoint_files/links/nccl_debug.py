"""Logs of NCCL and RCCL with ``NCCL_DEBUG=INFO``: transport, NICs, GPUDirect, channels, rings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from stallpoint.inputs.documents import Document

_LINE = re.compile(r"^(?P<host>[\w.-]+):\d+:\d+ \[\d+\] (?P<file>\S+:\d+ )?NCCL (?P<level>INFO|WARN) (?P<text>.*)")
_PORT = re.compile(r"\[(\d+)\]\s*([\w.-]+?):(\d+)/(IB|RoCE|InfiniBand)", re.IGNORECASE)
_INTERFACE = re.compile(r"\[(\d+)\]\s*([\w.-]+):([0-9a-fA-F.:]+)<\d+>")
_CHANNEL = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? : (\d+)\[\S+?\] -> (\d+)\[\S+?\].{0,80} via (NET/[\w ]+/\S+|direct shared|\S+)"
)


@dataclass
class NcclLog:
    """Facts from the log of NCCL's start-up."""

    network: str = ""
    """``IB``, ``Socket`` or a plugin's name, from the line `Using network`."""
    ports: list[str] = field(default_factory=list)
    """Names of the InfiniBand and RoCE ports that NCCL found, such as ``mlx5_0``."""
    kinds: set[str] = field(default_factory=set)
    interfaces: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Names of the ports that channels use."""
    via: Counter[str] = field(default_factory=Counter)
    """Number of channels by transport, such as ``NET/IB``, ``NET/Socket``, ``P2P``, ``SHM``."""
    gdr: bool | None = None
    """Whether GPUDirect RDMA is used; None within a node, or if unknown."""
    settings: dict[str, str] = field(default_factory=dict)
    """Values of NCCL's environment variables, by name."""
    ranks: int = 0
    hosts: set[str] = field(default_factory=set)
    channels: int = 0
    speeds: list[float] = field(default_factory=list)
    """Rates of ports, B/s, as far as logged."""
    lines: dict[str, int] = field(default_factory=dict)
    """Number of the line that first mentions each fact."""
    algorithms: Counter[str] = field(default_factory=Counter)
    members: set[int] = field(default_factory=set)
    """Ranks that channels connect."""
    no_device: bool = False
    provider: str = ""
    """Libfabric's provider, if a plugin uses libfabric: ``efa``, ``tcp``."""
    efa_nics: int = 0
    version: str = ""
    warnings: list[str] = field(default_factory=list)


def recognised(document: Document) -> bool:
    """Return whether the document has lines of NCCL about its network."""
    pattern = re.compile(r"(?>.*?NCCL INFO ).*(NET/|Using network|Channel \d| nranks |set by environment)")
    return any("NCCL INFO " in line and pattern.match(line) for line in document.lines)


def _messages(line: str) -> list[str]:
    """Return the messages of NCCL in a line: several where somebody pasted them without their ends of lines."""
    return re.split(r" (?=\[\d+\] NCCL INFO )", line) if line.count("NCCL INFO ") > 1 else [line]


def read(document: Document) -> NcclLog:
    """Return the facts in the log; other lines are ignored."""
    log = NcclLog()
    every = ((number, one) for number, line in enumerate(document.lines, start=1) for one in _messages(line))
    for number, line in every:
        found = _LINE.match(line) or re.search(r"NCCL (?P<level>INFO|WARN) (?P<text>.*)", line)
        if found:
            if host := found.groupdict().get("host"):
                log.hosts.add(host)
            for name in _facts(log, found["text"], found["level"]):
                log.lines.setdefault(name, number)
        elif version := re.match(r"N?R?CCL version ([\w.+-]+)", line):
            log.version = version[1]
    return log


def _facts(log: NcclLog, text: str, level: str) -> Iterator[str]:
    """Add the facts of a line to the log, and yield their names."""
    if level == "WARN":
        log.warnings.append(text[:120])
        log.no_device |= "Failed to open libibverbs" in text
        return
    if network := re.match(r"Using (?:network|internal Network) (.+)", text):
        log.network = network[1].strip()
        yield "network"
    if "NET/IB : No device found" in text:
        log.no_device = True
        yield "no_device"
    if re.match(r"NET/IB\s*: Using", text):
        ports = _PORT.findall(text.partition("OOB")[0])
        log.ports = list(dict.fromkeys([*log.ports, *(name for _, name, _, _ in ports)]))
        log.kinds |= {"RoCE" if kind.lower() == "roce" else "IB" for *_, kind in ports}
        yield "ports"
    if re.match(r"NET/Socket\s*: Using", text):
        log.interfaces = list(dict.fromkeys([*log.interfaces, *(name for _, name, _ in _INTERFACE.findall(text))]))
        yield "interfaces"
    if libfabric := re.search(r"NET/OFI Selected [Pp]rovider is ([\w;]+).{0,80}?\(found (\d+) nics\)", text):
        log.provider, nics = libfabric[1], int(libfabric[2])
        log.network, log.efa_nics = log.network or log.provider, nics if log.provider.startswith("efa") else 0
        yield "provider"
    if speed := re.search(r"\bspeed=(\d+)", text):
        log.speeds.append(int(speed[1]) * 1e6 / 8)
    if channel := _CHANNEL.search(text):
        log.members |= {int(channel[1]), int(channel[2])}
        path = channel[3].replace("direct shared", "SHM").split("/")  # as NCCL called it until 2.10
        log.via["/".join(path[:2]) if path[0] == "NET" else path[0]] += 1
        if path[:2] == ["NET", "IB"]:
            if len(path) > 2 and path[2].isdigit() and int(path[2]) < len(log.ports):
                log.used.add(log.ports[int(path[2])])
            log.gdr = bool(log.gdr) or "GDRDMA" in path
            yield "channel"
        elif path[0] == "NET":
            log.gdr = bool(log.gdr) or "GDRDMA" in path
            yield "channel"
    if off := re.search(r"GPU Direct RDMA (Enabled|Disabled)", text):
        log.gdr = bool(log.gdr) or off[1] == "Enabled"
        yield "gdr"
    if setting := re.match(
        r"(?:Setting )?(NCCL_\w+) set (?:by environment )?to (\S+?)(?: by environment)?\.?$|"
        r"(NCCL_\w+) set by environment to (\S+?)\.?$",
        text,
    ):
        name, value = (setting[1], setting[2]) if setting[1] else (setting[3], setting[4])
        log.settings[name] = value.rstrip(".")
        yield name
    if size := re.search(r"\bnranks (\d+)\b", text):
        log.ranks = max(log.ranks, int(size[1]))
    if channels := re.match(r"(\d+) coll channels", text):
        log.channels = max(log.channels, int(channels[1]))
    if how := re.search(r"\b[Aa]lgo (\w+) [Pp]roto (\w+)", text):
        names = {"0": "TREE", "1": "RING"}, {"0": "LL", "1": "LL128", "2": "SIMPLE"}
        log.algorithms[f"{names[0].get(how[1], how[1])}/{names[1].get(how[2], how[2])}"] += 1
