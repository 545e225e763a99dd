"""Layers of a network: a row for each with its type, parameters and work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, cast

from torch import nn

from stallpoint.errors import CannotRun, InputError
from stallpoint.networks import Network
from stallpoint.networks.cutting import Cutting
from stallpoint.networks.layers import layers
from stallpoint.networks.products import products
from stallpoint.networks.splitting import splittable
from stallpoint.strategies.division import Cuts

_SAMPLES = 2
"""Samples of a run; some networks cannot run on one."""


def describe(network: Network) -> list[dict[str, Any]]:
    """Return rows of `tables.NETWORK_LAYERS`."""
    outline = network.outline()
    try:
        activation_bytes = Cutting(outline).activation_bytes(network.takes)
    except InputError:  # such a network cannot be cut
        activation_bytes = {}
    return _rows(network, outline, activation_bytes)


def _rows(network: Network, outline: nn.Module, activation_bytes: Mapping[int, int]) -> list[dict[str, Any]]:
    try:
        split = splittable(outline)
    except InputError:  # no layer's outputs can be split
        split = []
    multiply_adds: Counter[str] = Counter()
    for product in products(outline, network.takes, _SAMPLES):
        multiply_adds[product.layer] += product.multiply_adds
    return [
        {
            "network": network.name,
            "layer_index": index,
            "layer": layer.name,
            "layer_type": layer.type,
            "parameters": sum(parameter.numel() for parameter in layer.parameters),
            "gradient_bytes": layer.gradient_bytes,
            "multiply_adds": multiply_adds[layer.name] // _SAMPLES,
            "activation_bytes": activation_bytes.get(index + 1),
            "outputs": cast(nn.Linear, layer.module).out_features if index in split else None,
        }
        for index, layer in enumerate(layers(outline))
    ]


def pipeline_stages(network: Network, count: int) -> tuple[int, ...]:
    """Return the first layer of each of `count` pipeline stages; `CannotRun` says why the network cannot be cut so."""
    try:
        return _cuts(cast(Hashable, network)).starts(count)
    except InputError as error:
        raise CannotRun(f"network {network.name} cannot be cut into {count} stages: {error}") from error


def split_of(network: Network) -> list[int]:
    """Return the layers whose outputs preset one-weird-trick splits; `CannotRun` says why there are none."""
    try:
        return _splittable(cast(Hashable, network))
    except InputError as error:
        raise CannotRun(f"network {network.name} has no outputs to split over workers: {error}") from error


@lru_cache
def _splittable(network: Hashable) -> list[int]:
    return splittable(cast(Network, network).outline())


@lru_cache
def _cuts(network: Hashable) -> Cuts:
    known = cast(Network, network)
    outline = known.outline()
    # raises the reason why it cannot be traced
    rows = _rows(known, outline, Cutting(outline).activation_bytes(known.takes))
    return Cuts(*(tuple(row[name] for row in rows) for name in ("multiply_adds", "activation_bytes", "outputs")))
