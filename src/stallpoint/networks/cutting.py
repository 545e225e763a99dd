"""Cutting of a network into pipeline stages, by the graph of torch.fx.

A network is cut before a layer with parameters, so that every stage has parameters, and only where a single tensor
crosses the cut: a skip connection would be a second tensor. Layers that share weights are never separated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Inputs
from stallpoint.networks.layers import layers

TRIAL_SAMPLES = 2
"""Number of samples of a trial run, as some networks cannot run on a single sample."""


@dataclass(frozen=True)
class _Cut:
    """A cut before a node, and the tensor that crosses it."""

    position: int
    values: fx.Node


class Cutting:
    """The possible cuts of `network` into pipeline stages. Raises `InputError` if torch.fx cannot trace the network."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._layers = layers(network)
        self._index = {id(layer.module): index for index, layer in enumerate(self._layers)}
        with tracing_errors():
            self._graph = Tracer(set(self._index)).trace(network)
        self._nodes = list(self._graph.nodes)
        self._inputs = [node for node in self._nodes if node.op == "placeholder"]
        if len(self._inputs) != 2:
            raise InputError(f"its forward pass takes {len(self._inputs)} arguments, not only inputs and labels")
        self._cuts = self._possible_cuts()

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._layers)

    def activation_bytes(self, takes: Inputs) -> dict[int, int]:
        """Return the bytes of a sample's activations before each layer that can begin a stage, in single precision.

        The network is run once, which takes no time on PyTorch's meta device. Only tensors of real numbers can cross a
        cut. Raises `InputError` if the traced graph does not run.
        """
        device = next(self._network.parameters()).device
        interpreter = _ValueCounter(fx.GraphModule(self._network, self._graph))
        with tracing_errors(), torch.no_grad(), device:
            interpreter.run(*takes.example(TRIAL_SAMPLES, device))
        of, cuts = interpreter.of, self._cuts.items()
        return {start: 4 * of[cut.values] // TRIAL_SAMPLES for start, cut in cuts if cut.values in of}

    def part(self, first: int, end: int) -> fx.GraphModule:
        """Return the layers from `first` to before `end` as a module, which shares its layers with the network.

        It maps values that enter layer `first`, and the labels, to the values that enter layer `end`, or to the loss.
        """
        first_cut = self._cuts.get(first, _Cut(0, self._inputs[0]))
        end_cut = self._cuts.get(end)
        graph = fx.Graph()
        copies = {first_cut.values: graph.placeholder("values"), self._inputs[1]: graph.placeholder("labels")}

        def copy(node: fx.Node) -> fx.Node:
            if node not in copies:
                copies[node] = graph.node_copy(node, copy)
            return copies[node]

        for node in self._nodes[first_cut.position : end_cut.position if end_cut else None]:
            if node.op == "output":
                graph.output(fx.node.map_arg(node.args[0], copy))
            elif node.op != "placeholder":
                copy(node)
        if end_cut:
            graph.output(copy(end_cut.values))
        return fx.GraphModule(self._network, graph)

    def _possible_cuts(self) -> dict[int, _Cut]:
        """Return all possible cuts, keyed by the first layer after each cut."""
        positions = {node: position for position, node in enumerate(self._nodes)}
        last_uses = {node: max(map(positions.__getitem__, node.users), default=-1) for node in self._nodes}
        calls = {
            position: self._index[id(module)]
            for position, node in enumerate(self._nodes)
            if node.op == "call_module" and id(module := self._network.get_submodule(str(node.target))) in self._index
        }
        found = {}
        for position, start in calls.items():
            before, after = ({calls[at] for at in calls if (at < position) == side} for side in (True, False))
            outputs = [node for node in self._nodes[:position] if last_uses[node] >= position and node.op != "get_attr"]
            values = [node for node in outputs if node is not self._inputs[1]]
            has_weights = self._layers[start].parameters and any(self._layers[layer].parameters for layer in before)
            is_in_order = max(before, default=start) < start == min(after)
            if has_weights and is_in_order and len(values) == 1 and not self._weights(before) & self._weights(after):
                found[start] = _Cut(position, values[0])
        return found

    def _weights(self, layers: set[int]) -> set[int]:
        return {id(weights) for layer in layers for weights in self._layers[layer].module.parameters()}


class _ValueCounter(fx.Interpreter):
    """Interpreter that records how many floating-point values each node returns."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.of: dict[fx.Node, int] = {}

    @override
    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) and found.is_floating_point():
            self.of[n] = found.numel()
        return found


@contextmanager
def tracing_errors() -> Iterator[None]:
    """Turn all errors in the block, which traces or runs a traced graph, into an `InputError`."""
    try:
        yield
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"torch.fx cannot trace its forward pass: {type(error).__name__}: {reason}") from error


class Tracer(fx.Tracer):
    """Tracer that records each layer as one call and does not look inside; `layer_ids` are ids of modules."""

    def __init__(self, layer_ids: set[int]) -> None:
        super().__init__()
        self._leaves = layer_ids

    @override
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return id(m) in self._leaves
