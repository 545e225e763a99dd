"""What a network is made of: a row for each layer with its type, parameters and work."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stallpoint.networks import Network
from stallpoint.networks.layers import layers
from stallpoint.networks.products import products

_SAMPLES = 2
"""Some networks cannot run on one."""


def describe(network: Network) -> list[dict[str, Any]]:
    """Rows of `records.NETWORK_LAYERS`."""
    outline = network.outline()
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
        }
        for index, layer in enumerate(layers(outline))
    ]
