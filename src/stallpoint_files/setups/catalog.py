"""Chips and models known by name (``catalog.yaml``), with the data sheet or paper of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stallpoint_files.links.links import LinkRate, inside_node
from stallpoint_files.texts.yaml_tables import yaml_table

_FILE = Path(__file__).with_name("catalog.yaml")
TERA, GIGA = 1e12, 1e9
DECODER, ENCODER, VISION = "decoder", "encoder", "vision"
BYTES = {"fp8": 2, "half": 2, "tf32": 4, "fp32": 4}
"""Bytes of a parameter, and of its gradient, by the precision of products; 8-bit products use 16-bit parameters."""


@dataclass(frozen=True)
class Chip:
    """An accelerator."""

    name: str
    pattern: str
    peaks: Mapping[str, float]
    """Peak rate of dense products by precision (a name of `BYTES`), FLOP/s."""
    memory: float
    """Memory, bytes."""
    device: str
    """The chip's name as drivers report it."""
    source: str

    def peak(self, precision: str) -> float:
        """Return the peak in a precision, or in the next wider precision that the chip has, FLOP/s."""
        order = list(BYTES)
        known = [name for name in order[order.index(precision) :] if name in self.peaks]
        return self.peaks[known[0] if known else next(iter(self.peaks))]

    @property
    def inside(self) -> LinkRate | None:
        """Link between these chips within a node; None if unknown."""
        return inside_node(self.device)


@dataclass(frozen=True)
class KnownModel:
    """A network to train."""

    name: str
    parameters: float
    flops: float
    """Floating-point operations of training on one sample (on one token, if the unit is tokens/s)."""
    unit: str
    kind: str
    """`DECODER`, `ENCODER` or `VISION`."""
    source: str
    pattern: str = ""
    lora: bool = False
    tokens: int = 1
    """Tokens of a sample."""
    active: float = 0.0
    """Parameters that a token uses in a mixture of experts; 0 for other models, which use all."""


@cache
def chips() -> tuple[Chip, ...]:
    """Return all chips; a chip whose pattern matches part of another's name comes after that."""
    return tuple(
        Chip(
            name, one["pattern"], {kind: one[kind] * TERA for kind in BYTES if kind in one}, one["memory"] * GIGA,
            one["device"], one["source"],
        )
        for name, one in yaml_table(_FILE)["chips"].items()
    )  # fmt: skip


@cache
def models() -> tuple[KnownModel, ...]:
    """Return all models."""
    return tuple(_model(name, **one) for name, one in yaml_table(_FILE)["models"].items())


def decoder(name: str, parameters: float, *, lora: bool = False, active: float = 0.0) -> KnownModel:
    """Return a decoder with `parameters` parameters, whose rate is in tokens/s."""
    source = "Kaplan et al. 2020, section 2.1: 6 operations for each parameter and token, 4 where weights are frozen"
    return _model(name, "", parameters, "tokens/s", DECODER, source, lora=lora, active=active)


def _model(
    name: str,
    pattern: str,
    parameters: float,
    unit: str,
    kind: str,
    source: str,
    *,
    flops: float | None = None,
    tokens: int = 1,
    lora: bool = False,
    active: float = 0.0,
) -> KnownModel:
    flops = float(flops or (4 if lora else 6) * float(active or parameters) * tokens)
    return KnownModel(name, float(parameters), flops, unit, kind, source, pattern, lora, tokens, float(active))
