"""Answers to Slurm's accounts: failures and power of nodes, as settings of a study."""

from __future__ import annotations

from statistics import NormalDist

from stallpoint.base.section import Finding
from stallpoint.text import number
from stallpoint_files.jobs.slurm_accounts import SlurmAccounts

DAY = 86400


def answer(name: str, accounts: SlurmAccounts) -> Finding:
    """Return the failures per node-day with their interval, and a node's power if energy is known."""
    days = accounts.node_seconds / DAY
    rate = accounts.failures / days
    low, high = (end / days for end in count_interval(accounts.failures))
    words = (
        f"{accounts.failures} of {accounts.jobs} jobs ended by a failed node in {number(days)} node-days: "
        f"{number(rate)} failures a node-day ({number(low)} to {number(high)})"
    )
    settings = f"failures: {{per_node_day: {rate:.3g}, counted: {accounts.failures}, ...}}"
    notes = ["jobs that a program ended are not counted"]
    power = ""
    if accounts.energy_node_seconds:
        watts = accounts.energy / accounts.energy_node_seconds
        part = 100 * accounts.energy_node_seconds / accounts.node_seconds
        power = f"a node draws {number(watts)} W, of the {part:.0f} % of node-time whose energy Slurm knows"
        settings += f", node_watts: {watts:.3g}"
    else:
        notes.append("no energy: ConsumedEnergyRaw is missing or 0, as without a plugin of AcctGatherEnergyType")
    # No setting without failures: a study cannot have a failure rate of 0.
    ask = (f"in the study's hardware entry:  {settings}",) if accounts.failures else ()
    return Finding(
        "failures", name, words, value=rate, low=low, high=high, unit="failures a node-day", evidence="counted",
        fits=power, ask=ask, notes=tuple(notes),
    )  # fmt: skip


def count_interval(count: int) -> tuple[float, float]:
    """Return the 90 % interval of the mean of a Poisson count (Jeffreys), by Wilson and Hilferty's cube root."""
    shape, z = count + 0.5, NormalDist().inv_cdf(0.95)
    low, high = (shape * max(0.0, 1 - 1 / (9 * shape) + sign * z / (3 * shape**0.5)) ** 3 for sign in (-1, 1))
    return (low if count else 0.0), high
