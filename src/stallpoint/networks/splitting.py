"""Which fully-connected layers can be split over workers by their outputs (Krizhevsky 2014, "one weird trick").

They are consecutive last layers: between two of them every value is computed from one value of the layer before, so
that a worker with some outputs of a layer can compute all that depends on them. The graph is that of torch.fx.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import fx, nn
from torch.nn import functional

from stallpoint.errors import InputError
from stallpoint.networks.layers import layers
from stallpoint.networks.tracing import Tracer, following

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_VALUE_BY_VALUE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardtanh, nn.Hardswish, nn.Tanh, nn.Sigmoid,
    nn.Dropout, nn.Identity, torch.relu, torch.relu_, torch.tanh, torch.sigmoid, torch.dropout, functional.relu,
    functional.gelu, functional.silu, functional.dropout, "relu", "relu_", "tanh", "sigmoid",
)  # fmt: skip
"""Element-wise modules, functions and methods."""


def splittable(network: nn.Module) -> list[int]:
    """Return the positions among the layers of `network` of those that can be split, in the order in which they run.

    Raises `InputError` with the reason if there are none, or torch.fx cannot trace the network.
    """
    index = {id(layer.module): position for position, layer in enumerate(layers(network))}
    with following():
        graph = Tracer(set(index)).trace(network)
    calls = {node: network.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"}
    nodes = list(calls)
    behind = next(
        (position for position, node in enumerate(nodes) if isinstance(calls[node], _CONVOLUTIONS)), len(nodes)
    )
    candidates = [node for node in nodes[behind:] if isinstance(calls[node], nn.Linear)]
    if not candidates:
        raise InputError("it has no fully-connected layer behind a convolution")
    times = Counter(id(module) for module in calls.values())
    owners = Counter(id(weights) for module in network.modules() for weights in module.parameters(recurse=False))
    found: list[int] = []
    for node in _chain(candidates[-1], set(candidates), calls):
        layer = calls[node]
        if times[id(layer)] > 1 or any(owners[id(weights)] > 1 for weights in layer.parameters()):
            break
        found.append(index[id(layer)])
    if not found:
        raise InputError("its last fully-connected layer is used twice, or shares its weights")
    return found[::-1]


def _chain(last: fx.Node, candidates: set[fx.Node], calls: dict[fx.Node, nn.Module]) -> Iterator[fx.Node]:
    """Yield the consecutive fully-connected layers up to the `last` one, from it backwards."""
    here: fx.Node | None = last
    while here is not None:
        yield here
        (here,) = here.all_input_nodes
        while here is not None and len(here.users) == 1 and here not in candidates:
            what = type(calls[here]) if here in calls else here.target
            here = here.all_input_nodes[0] if what in _VALUE_BY_VALUE and len(here.all_input_nodes) == 1 else None
        if here is not None and (here not in candidates or len(here.users) > 1):
            here = None
