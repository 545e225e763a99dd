"""Traffic of a step between nodes, computed from the number of parameters: bytes, passes, and the link's least time.

In a ring of n workers, each node's link carries (n - 1)/n of all bytes for a gather or scatter, and twice that for an
all-reduce (Patarasu & Yuan 2009).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stallpoint.base.section import Cause
from stallpoint.text import in_words, number
from stallpoint_files.links.all_reduce_answers import rate
from stallpoint_files.links.links import LinkRate
from stallpoint_files.setups.catalog import BYTES, DECODER, GIGA
from stallpoint_files.setups.words import GATHERS, Setup, Sharding

PARAMETERS, GRADIENTS = "parameters_over_link", "gradients_over_link"
LARGEST_NODE = 8
"""Maximum number of workers that are assumed to be on one node if no text says otherwise."""
LORA_FRACTION = 0.01
"""Usual upper bound of the fraction of parameters that LoRA trains."""


@dataclass(frozen=True)
class LinkTraffic:
    """Traffic of one step through a node's link."""

    name: str
    """`PARAMETERS` or `GRADIENTS`."""
    total: float
    """Bytes of all parameters, or of all gradients."""
    passed: float
    """Bytes through a node's link for one pass over parameters or gradients."""
    passes: int
    """Number of passes in a step."""
    words: str

    def seconds(self, link: LinkRate) -> float:
        """Return the time of a step's traffic at the link's full rate, s."""
        return self.passed * self.passes / link.bytes_per_second


def traffic(setup: Setup) -> LinkTraffic | None:
    """Return the traffic of a step between nodes; None on one node, or if parameters or nodes are unknown."""
    nodes = setup.nodes
    if not setup.model or not nodes or nodes < 2:
        return None
    each = BYTES[setup.precision or ("half" if setup.model.kind == DECODER else "fp32")]
    total, workers = each * setup.model.parameters, setup.workers or nodes
    if setup.strategy in GATHERS:
        passes = 2 * setup.accumulation + (0 if setup.lora else setup.accumulation)
        kinds = "forward and backward" + ("" if setup.lora else ", and gradients")
        several = f" of each of {setup.accumulation} mini-batches" if setup.accumulation > 1 else ""
        return LinkTraffic(PARAMETERS, total, total * (workers - 1) / workers, passes, kinds + several)
    trained = LORA_FRACTION * total if setup.lora else total
    return LinkTraffic(GRADIENTS, trained, 2 * trained * (workers - 1) / workers, 1, f"2 x {workers - 1}/{workers}")


def causes(setup: Setup) -> Iterator[Cause]:
    """Yield what is slow by the description: parameters or gradients over the link, several kinds of chips, Gloo."""
    if setup.mixed:
        yield _several_chips(setup)
    sent = traffic(setup)
    if sent and (sent.name == PARAMETERS or setup.link):
        yield _over_link(setup, sent)
    elif setup.strategy in GATHERS and ((setup.nodes or 1) > 1 or setup.links or (setup.workers or 0) > LARGEST_NODE):
        yield Cause(
            PARAMETERS,
            f"{setup.strategy} gathers all parameters in each pass, over the link between nodes too; shard inside a "
            "node (hybrid sharding, ZeRO++ hpZ), or ZeRO-2",
        )
    if setup.gloo:
        yield Cause(
            "gloo",
            "Gloo moves gradients through host memory and TCP, not GPU to GPU: init_process_group('nccl')",
            None,
            "docs of torch.distributed: NCCL for distributed GPU training, Gloo for CPUs",
        )


def _over_link(setup: Setup, sent: LinkTraffic) -> Cause:
    link = setup.link
    amount = f"{number(sent.passed / GIGA)} GB"
    whole = f"{number(sent.total / GIGA)} GB"
    model = f"{number((setup.model.parameters if setup.model else 0) / 1e9)} billion parameters"
    if sent.name == PARAMETERS:
        words = f"each pass over the parameters sends {amount} of {whole} ({model}) through each node's link"
        if link:
            each = sent.passed / link.bytes_per_second
            every = _seconds(each * sent.passes)
            words += f": {_seconds(each)} at {link.name}; a step has {sent.passes} ({sent.words}), {every}"
        return Cause(PARAMETERS, f"{words}; {_advice(setup, sent)}")
    words = f"a step sends {sent.words} of {whole} of gradients between nodes"
    if link:
        words += f": {_seconds(sent.seconds(link))} at {link.name} ({rate(link.bytes_per_second)})"
    help_ = "gradients in 16 bits, fewer steps (accumulation, larger mini-batches), or a faster link"
    if setup.strategy in (Sharding.ZERO_1, Sharding.ZERO_2):
        help_ += f"; {setup.strategy} sends as much as DDP"
    return Cause(GRADIENTS, f"{words}; {help_}")


def _advice(setup: Setup, sent: LinkTraffic) -> str:
    chip = setup.chip
    if chip and sent.total > chip.memory:
        inside = setup.per_node and setup.per_node > 1 and sent.total / setup.per_node < chip.memory
        other = "shard inside a node (hybrid sharding, ZeRO++ hpZ)" if inside else "quantise what is frozen (QLoRA)"
        has = number(chip.memory / GIGA)
        return f"{other}; with ZeRO-2 each GPU holds all {number(sent.total / GIGA)} GB, and has {has}"
    return "shard inside a node (hybrid sharding, ZeRO++ hpZ), or ZeRO-2, which sends gradients alone"


def _several_chips(setup: Setup) -> Cause:
    kinds = {chip.name: chip for _, chip in setup.chips}
    slowest = min(kinds.values(), key=lambda chip: chip.peak("half"))
    fastest = max(kinds.values(), key=lambda chip: chip.peak("half"))
    names = " and ".join(f"{chip.name} ({number(chip.peak('half') / 1e12)} TFLOP/s)" for chip in kinds.values())
    return Cause(
        "several_chips",
        f"{names} in one job: with equal mini-batches all wait for {slowest.name}, up to "
        f"{number(fastest.peak('half') / slowest.peak('half'))} times as slow as {fastest.name}; give each kind a job "
        "of its own, or mini-batches in proportion",
        None,
        "; ".join(chip.source for chip in kinds.values()),
    )


def _seconds(value: float) -> str:
    return f"{number(value)} s" if value < 600 else in_words(value)
