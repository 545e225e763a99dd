"""Nominal rates of links (``links.yaml``): bytes per second in one direction, before protocol overhead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stallpoint.errors import InputError
from stallpoint_files.texts.yaml_tables import yaml_table

GB = 1e9
_FILE = Path(__file__).with_name("links.yaml")


@dataclass(frozen=True)
class LinkRate:
    """A kind of link and its rate."""

    name: str
    bytes_per_second: float
    source: str
    """Standard or vendor's document that gives the rate."""
    reachable: float = 0.8
    """Fraction of the rate that a large all-reduce should reach (busbw of nccl-tests, see its PERFORMANCE.md)."""


@cache
def links() -> dict[str, LinkRate]:
    """Return the links by name as used in options: `25gbe`, `hdr`, `nvlink4`."""
    rows = yaml_table(_FILE)["links"].items()
    known = [LinkRate(name, GB * of["rate"], of["source"], of.get("reachable", 0.8)) for name, of in rows]
    return {row.name.lower().replace(" ", ""): row for row in known}


def link_named(text: str) -> LinkRate:
    """Return the link named by an option, or a link with the given Gbit/s; `InputError` lists the known names."""
    key = text.lower().replace(" ", "").replace("-", "")
    known = links()
    if key in known:
        return known[key]
    count, _, rest = key.partition("x")
    if rest in known and count.isdigit() and 0 < int(count) <= 64:  # several links, such as "4xhdr"
        one = known[rest]
        return LinkRate(f"{count} x {one.name}", int(count) * one.bytes_per_second, one.source)
    if gbit := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(gbit(/s)?|gb/s|g|gbps)?", key):
        value = float(gbit[1]) * (8 if gbit[2] == "gb/s" else 1)
        if 0 < value <= 1e5:
            return LinkRate(f"{value:g} Gbit/s", value * GB / 8, "as told")
    raise InputError(
        f"--link: {text} is no link that is known; a rate in Gbit/s (such as 100) or one of {', '.join(known)}"
    )


def inside_node(device: str) -> LinkRate | None:
    """Return the link within a node between GPUs named `device`; None if the name does not imply it."""
    inside = yaml_table(_FILE)["inside"].items()
    return next((links()[key] for pattern, key in inside if re.search(pattern, device)), None)


def nearest(bytes_per_second: float) -> LinkRate | None:
    """Return the slowest Ethernet with at least this rate, if the rate is close to its nominal rate; else None."""
    fit = [
        row for row in links().values() if row.name.endswith("GbE") and bytes_per_second <= 1.02 * row.bytes_per_second
    ]
    return fit[0] if fit and bytes_per_second >= 0.85 * fit[0].bytes_per_second else None
