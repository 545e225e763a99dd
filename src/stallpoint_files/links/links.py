"""Nominal rates of links: bytes per second in one direction, before protocol overhead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stallpoint.errors import InputError

GB = 1e9


@dataclass(frozen=True)
class LinkRate:
    """A kind of link and its rate."""

    name: str
    bytes_per_second: float
    source: str
    """Standard or vendor's document that gives the rate."""
    reachable: float = 0.8
    """Fraction of the rate that a large all-reduce should reach (busbw of nccl-tests, see its PERFORMANCE.md)."""


_ETHERNET = {1: "z", 10: "ae", 25: "by", 40: "ba", 50: "cd", 100: "ba", 200: "bs", 400: "bs"}
"""Amendment of IEEE 802.3 that introduced each rate in Gbit/s."""
_INFINIBAND = "InfiniBand Architecture Specification, Volume 2 (IBTA)"
_PCIE = "PCI Express Base Specification, Revision"
_ROWS = (
    *(LinkRate(f"{gbit} GbE", gbit * GB / 8, f"IEEE 802.3{part}") for gbit, part in _ETHERNET.items()),
    LinkRate("EDR", 12.5 * GB, f"{_INFINIBAND}: 4 lanes of 25 Gbit/s"),
    LinkRate("HDR100", 12.5 * GB, f"{_INFINIBAND}: 2 lanes of 50 Gbit/s"),
    LinkRate("HDR", 25 * GB, f"{_INFINIBAND}: 4 lanes of 50 Gbit/s"),
    LinkRate("NDR200", 25 * GB, f"{_INFINIBAND}: 2 lanes of 100 Gbit/s"),
    LinkRate("NDR", 50 * GB, f"{_INFINIBAND}: 4 lanes of 100 Gbit/s"),
    LinkRate("EFA p4d", 50 * GB, "Amazon EC2, instance types P4d and P4de: 4 network cards of 100 Gbit/s"),
    LinkRate("EFA p5", 400 * GB, "Amazon EC2, instance type P5: 3,200 Gbit/s"),
    LinkRate("PCIe 3", 15.75 * GB, f"{_PCIE} 3.0: 16 lanes of 8 GT/s, 128b/130b"),
    LinkRate("PCIe 4", 31.5 * GB, f"{_PCIE} 4.0: 16 lanes of 16 GT/s, 128b/130b"),
    LinkRate("PCIe 5", 63 * GB, f"{_PCIE} 5.0: 16 lanes of 32 GT/s, 128b/130b"),
    LinkRate("NVLink 2", 150 * GB, "NVIDIA Tesla V100 GPU Architecture (white paper): 6 links of 25 GB/s"),
    LinkRate("NVLink 3", 300 * GB, "NVIDIA A100 Tensor Core GPU Architecture (white paper): 12 links of 25 GB/s"),
    LinkRate("NVLink 4", 450 * GB, "NVIDIA H100 Tensor Core GPU Architecture (white paper): 18 links of 25 GB/s"),
    LinkRate("NVLink 5", 900 * GB, "NVIDIA Blackwell Architecture Technical Brief: 18 links of 50 GB/s"),
    LinkRate("Infinity Fabric MI300X", 448 * GB, "AMD CDNA 3 Architecture (white paper): 7 links of 64 GB/s", 0.7),
)
LINKS = {row.name.lower().replace(" ", ""): row for row in _ROWS}
"""Links by name as used in options: `25gbe`, `hdr`, `nvlink4`."""
_INSIDE = (
    (r"B200|GB200", "nvlink5"),
    (r"H100.*(SXM|HBM3)|H200|H800|GH200|H20\b", "nvlink4"),
    (r"A100-SXM|A800-SXM", "nvlink3"),
    (r"V100-SXM", "nvlink2"),
    (r"MI300X", "infinityfabricmi300x"),
    (r"RTX 50\d\d", "pcie5"),
    (r"A10G?\b|A40\b|L4\b|L40|RTX [34]0\d\d|RTX A\d|A100.*PCIe?", "pcie4"),
    (r"V100.*PCIe|T4\b|P100.*PCIe|RTX 20\d\d|GTX", "pcie3"),
)


def link_named(text: str) -> LinkRate:
    """Return the link named by an option, or a link with the given Gbit/s; `InputError` lists the known names."""
    key = text.lower().replace(" ", "").replace("-", "")
    if key in LINKS:
        return LINKS[key]
    count, _, rest = key.partition("x")
    if rest in LINKS and count.isdigit() and 0 < int(count) <= 64:  # several links, such as "4xhdr"
        one = LINKS[rest]
        return LinkRate(f"{count} x {one.name}", int(count) * one.bytes_per_second, one.source)
    if gbit := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(gbit(/s)?|gb/s|g|gbps)?", key):
        value = float(gbit[1]) * (8 if gbit[2] == "gb/s" else 1)
        if 0 < value <= 1e5:
            return LinkRate(f"{value:g} Gbit/s", value * GB / 8, "as told")
    raise InputError(
        f"--link: {text} is no link that is known; a rate in Gbit/s (such as 100) or one of {', '.join(LINKS)}"
    )


def inside_node(device: str) -> LinkRate | None:
    """Return the link within a node between GPUs named `device`; None if the name does not imply it."""
    return next((LINKS[key] for pattern, key in _INSIDE if re.search(pattern, device)), None)


def nearest(bytes_per_second: float) -> LinkRate | None:
    """Return the slowest Ethernet with at least this rate, if the rate is close to its nominal rate; else None."""
    fit = [row for row in _ROWS if row.name.endswith("GbE") and bytes_per_second <= 1.02 * row.bytes_per_second]
    return fit[0] if fit and bytes_per_second >= 0.85 * fit[0].bytes_per_second else None
