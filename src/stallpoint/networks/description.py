"""Description of a network: a row for each layer with type, parameters and work, and the layers that can be split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

import torch
from torch import fx, nn
from torch.nn import functional

from stallpoint.errors import CannotRun, InputError
from stallpoint.networks import Network
from stallpoint.networks.cutting import TRIAL_SAMPLES, Cutting, Tracer, tracing_errors
from stallpoint.networks.layers import layers
from stallpoint.networks.products import CONVOLUTIONS, products
from stallpoint.strategies.division import Cuts


def describe(network: Network) -> list[dict[str, Any]]:
    """Return the network's rows of `tables.NETWORK_LAYERS`."""
    outline = network.outline()
    try:
        activation_bytes = Cutting(outline).activation_bytes(network.takes)
    except InputError:  # torch.fx cannot trace the network, which then has no cuts
        activation_bytes = {}
    return _layer_rows(network, outline, activation_bytes)


def _layer_rows(network: Network, outline: nn.Module, activation_bytes: Mapping[int, int]) -> list[dict[str, Any]]:
    try:
        split_layers = splittable_layers(outline)
    except InputError:  # the network has no layers to split
        split_layers = []
    multiply_adds: Counter[str] = Counter()
    for product in products(outline, network.takes, TRIAL_SAMPLES):
        multiply_adds[product.layer] += product.multiply_adds
    return [
        {
            "network": network.name,
            "layer_index": index,
            "layer": layer.name,
            "layer_type": layer.type,
            "parameters": sum(parameter.numel() for parameter in layer.parameters),
            "gradient_bytes": layer.gradient_bytes,
            "multiply_adds": multiply_adds[layer.name] // TRIAL_SAMPLES,
            "activation_bytes": activation_bytes.get(index + 1),
            "outputs": cast(nn.Linear, layer.module).out_features if index in split_layers else None,
        }
        for index, layer in enumerate(layers(outline))
    ]


def pipeline_stages(network: Network, count: int) -> tuple[int, ...]:
    """Return the first layer of each of `count` pipeline stages; raise `CannotRun` if there cannot be that many."""
    try:
        return _network_cuts(cast(Hashable, network)).starts(count)
    except InputError as error:
        raise CannotRun(f"network {network.name} cannot be cut into {count} stages: {error}") from error


def split_of(network: Network) -> list[int]:
    """Return the layers that preset one-weird-trick splits by outputs; raise `CannotRun` if it can split no layer."""
    try:
        return _cached_layers(cast(Hashable, network))
    except InputError as error:
        raise CannotRun(f"network {network.name} has no outputs to split over workers: {error}") from error


@lru_cache
def _cached_layers(network: Hashable) -> list[int]:
    return splittable_layers(cast(Network, network).outline())


@lru_cache
def _network_cuts(network: Hashable) -> Cuts:
    described_network = cast(Network, network)
    outline = described_network.outline()
    # If torch.fx cannot trace the network, `Cutting` raises an error with the reason.
    rows = _layer_rows(described_network, outline, Cutting(outline).activation_bytes(described_network.takes))
    return Cuts(*(tuple(row[name] for row in rows) for name in ("multiply_adds", "activation_bytes", "outputs")))


_POINTWISE_OPS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardtanh, nn.Hardswish, nn.Tanh, nn.Sigmoid,
    nn.Dropout, nn.Identity, torch.relu, torch.relu_, torch.tanh, torch.sigmoid, torch.dropout, functional.relu,
    functional.gelu, functional.silu, functional.dropout, "relu", "relu_", "tanh", "sigmoid",
)  # fmt: skip
"""Element-wise modules, functions and methods."""


def splittable_layers(network: nn.Module) -> list[int]:
    """Return the positions of the layers whose outputs can be split over workers, in the order of running.

    These are the last fully-connected layers after convolutions. Raises `InputError` if no layer can be split.
    """
    layer_positions = {id(layer.module): position for position, layer in enumerate(layers(network))}
    with tracing_errors():
        graph = Tracer(set(layer_positions)).trace(network)
    modules = {node: network.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"}
    nodes = list(modules)
    first_convolution = next(
        (position for position, node in enumerate(nodes) if isinstance(modules[node], CONVOLUTIONS)), len(nodes)
    )
    candidates = [node for node in nodes[first_convolution:] if isinstance(modules[node], nn.Linear)]
    if not candidates:
        raise InputError("it has no fully-connected layer behind a convolution")
    call_counts = Counter(id(module) for module in modules.values())
    owner_counts = Counter(id(weights) for module in network.modules() for weights in module.parameters(recurse=False))
    found: list[int] = []
    for node in _layer_run(candidates[-1], set(candidates), modules):
        layer = modules[node]
        if call_counts[id(layer)] > 1 or any(owner_counts[id(weights)] > 1 for weights in layer.parameters()):
            break
        found.append(layer_positions[id(layer)])
    if not found:
        raise InputError("its last fully-connected layer is used twice, or shares its weights")
    return found[::-1]


def _layer_run(last_node: fx.Node, candidates: set[fx.Node], modules: dict[fx.Node, nn.Module]) -> Iterator[fx.Node]:
    """Yield `last_node`, then the fully-connected layers before it that only element-wise operations separate."""
    node: fx.Node | None = last_node
    while node is not None:
        yield node
        (node,) = node.all_input_nodes
        while node is not None and len(node.users) == 1 and node not in candidates:
            operation = type(modules[node]) if node in modules else node.target
            node = node.all_input_nodes[0] if operation in _POINTWISE_OPS and len(node.all_input_nodes) == 1 else None
        if node is not None and (node not in candidates or len(node.users) > 1):
            node = None
