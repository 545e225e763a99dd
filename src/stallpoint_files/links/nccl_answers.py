"""Answers to logs of NCCL: the path between nodes, and hardware that NCCL leaves idle."""

from __future__ import annotations

from collections.abc import Iterator

from stallpoint.base.section import Cause, Finding
from stallpoint.text import listed, number
from stallpoint_files.file_options import Options
from stallpoint_files.links.links import LinkRate
from stallpoint_files.links.nccl_debug import NcclLog
from stallpoint_files.reader import FoundRecords


def rate_of(log: NcclLog) -> LinkRate | None:
    """Return the total rate of the NICs in use; None if the log does not give it."""
    if not log.speeds or ("IB" not in log.network and not log.used):
        return None
    ports = len(log.used) or min(len(log.speeds), len(log.ports)) or 1
    one = sorted(log.speeds)[len(log.speeds) // 2]
    return LinkRate(
        f"{ports} NIC{'' if ports == 1 else 's'} of {number(8 * one / 1e9)} Gbit/s", ports * one, "the log's speed="
    )


def answer(name: str, log: NcclLog) -> Finding:
    """Return the finding on the transport, with the reasons why it is slower than possible."""
    causes = tuple(_causes(log))
    between = _uses_network(log)
    ranks = f", {log.ranks} ranks" if log.ranks else ""
    subject = f"NCCL in {name}{ranks}" + (f" on {len(log.hosts)} nodes" if len(log.hosts) > 1 else "")
    path = log.via.most_common(1)[0][0] if _without_network(log) else log.network or next(iter(log.via), "")
    asks = []
    if not path:
        headline = "it does not say which network is used"
        asks.append("the start of the run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH")
    elif causes:
        headline = f"the path between workers is {path}, and not the best there is"
    else:
        headline = f"the path between workers is {path}; nothing slower than it need be is named"
        if not between and len(log.hosts) < 2:
            asks.append("a log of two nodes: this one has no channel that crosses the network")
    facts = [
        f"ports {', '.join(log.ports)}" if log.ports else "",
        f"interfaces {', '.join(log.interfaces)}" if log.interfaces else "",
        f"{log.efa_nics} EFA NIC{'' if log.efa_nics == 1 else 's'}" if log.efa_nics else "",
        f"{log.channels} channels" if log.channels else "",
        listed([f"{count} connections by {via}" for via, count in log.via.most_common(4)]),
        "" if log.gdr is None else f"GPUDirect {'on' if log.gdr else 'off'}",
        f"{log.algorithms.most_common(1)[0][0]} most often" if log.algorithms else "",
    ]
    return Finding(
        "transport",
        subject,
        headline,
        causes=causes,
        evidence="as logged",
        fits="; ".join(filter(None, facts)),
        ask=tuple(asks),
        notes=tuple(f"NCCL warns: {text}" for text in list(dict.fromkeys(log.warnings))[:2]),
    )


def _uses_network(log: NcclLog) -> bool:
    return any(via.startswith("NET") for via in log.via)


def _without_network(log: NcclLog) -> bool:
    """Return whether all ranks are connected without a network."""
    return bool(log.via) and not _uses_network(log) and len(log.members) >= log.ranks > 0


def _at(log: NcclLog, name: str) -> str:
    return f"line {log.lines[name]}: " if name in log.lines else ""


def _causes(log: NcclLog) -> Iterator[Cause]:
    settings = log.settings
    socket = not _without_network(log) and ("socket" in log.network.lower() or any("Socket" in via for via in log.via))
    other = bool(log.provider) and not log.provider.startswith("efa")
    if other:
        yield Cause(
            "provider",
            f"{_at(log, 'provider')}the plugin's provider is {log.provider}, not efa: all that crosses nodes goes "
            "through the kernel's TCP; FI_PROVIDER=efa, an instance and a container with EFA devices (fi_info -p efa)",
        )
    if settings.get("NCCL_IB_DISABLE", "0") not in ("0", ""):
        yield Cause(
            "ib_disabled",
            f"{_at(log, 'NCCL_IB_DISABLE')}NCCL_IB_DISABLE={settings['NCCL_IB_DISABLE']}: InfiniBand and RoCE "
            "are switched off; unset it",
        )
    elif socket and log.ports:
        yield Cause(
            "socket",
            f"{_at(log, 'network')}NET/Socket is used although {len(log.ports)} port(s) are there "
            f"({', '.join(log.ports)}): unset NCCL_NET, and look at NCCL_IB_HCA",
        )
    elif socket:
        why = (
            "no InfiniBand device was found (in a container: --device /dev/infiniband, ulimit -l unlimited, libibverbs)"
        )
        why = why if log.no_device else "no other network was tried"
        names = f" ({', '.join(log.interfaces)})" if log.interfaces else ""
        yield Cause(
            "socket",
            f"{_at(log, 'network')}NET/Socket{names}: all that crosses nodes goes through the kernel's TCP; {why}; on "
            "AWS the plugin aws-ofi-nccl",
        )
    unused = [port for port in log.ports if port not in log.used]
    if log.used and unused:
        chosen = settings.get("NCCL_IB_HCA")
        why = (
            f"NCCL_IB_HCA={chosen} names them"
            if chosen
            else "the topology puts them too far from the GPUs, or ranks see one GPU each"
        )
        yield Cause(
            "idle_nics",
            f"{len(unused)} of {len(log.ports)} NICs are used by no channel in it ({', '.join(unused[:8])}); {why}",
            round(len(unused) / len(log.ports), 3),
        )
    elif (chosen := settings.get("NCCL_IB_HCA")) and len(log.ports) == 1 and not chosen.startswith("^"):
        yield Cause(
            "one_nic",
            f"{_at(log, 'NCCL_IB_HCA')}NCCL_IB_HCA={chosen} leaves one NIC ({log.ports[0]}); unset it where the node "
            "has more",
        )
    if log.gdr is False and not socket and not other:
        mend = "load nvidia-peermem (or a kernel with DMA-BUF), and look at NCCL_NET_GDR_LEVEL"
        if any(port.startswith("hfi1") for port in log.ports):
            mend = "on Omni-Path that takes a driver hfi1 that was built with GPUDirect (modinfo hfi1)"
        yield Cause("no_gpudirect", f"GPUDirect RDMA is off: messages go through the host's memory; {mend}")
    for name, what in (
        ("NCCL_P2P_DISABLE", "GPUs of a node do not reach each other by NVLink or PCIe"),
        ("NCCL_SHM_DISABLE", "GPUs of a node exchange through the network"),
    ):
        if settings.get(name, "0") not in ("0", ""):
            yield Cause(name.lower(), f"{_at(log, name)}{name}={settings[name]}: {what}; unset it")
    if log.via["SHM"] and not log.via["P2P"] and settings.get("NCCL_P2P_DISABLE", "0") == "0":
        yield Cause(
            "no_p2p",
            "GPUs of a node exchange through the host's memory (SHM), not directly: no NVLink, or access control "
            "services (ACS) or virtualisation forbid it",
        )
    interface = settings.get("NCCL_SOCKET_IFNAME", "")
    if socket and interface.lstrip("=").startswith(("docker", "lo", "virbr")):
        yield Cause(
            "interface", f"{_at(log, 'NCCL_SOCKET_IFNAME')}NCCL_SOCKET_IFNAME={interface} is no network between nodes"
        )


def answers(found: FoundRecords, _: Options) -> Iterator[Finding]:
    """Yield the answers to logs of NCCL; benchmarks' logs with only NCCL's start-up are left to their own reader."""
    for path, log in found.of("nccl-debug"):
        finding = answer(path.name, log)
        if finding.causes or log.via or path not in [other for other, _ in found.of("all-reduce")]:
            yield finding
