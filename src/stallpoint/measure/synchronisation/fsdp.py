"""PyTorch's FSDP2 (`fully_shard`): each rank keeps a share of the weights, and gathers blocks when needed.

A network is sharded block by block (`strategies.buckets.blocks`). FSDP2 gathers a block's weights before its forward
pass and frees them afterwards. Before the block's backward pass it gathers them again; after it, a reduce-scatter sums
the block's gradients. `shard_timing` times these collectives. All-gathers are asynchronous: a GPU's stream, or the CPU,
waits where weights are needed. On a CPU the rank also waits for each reduce-scatter. The loss is divided by the number
of ranks, so that the sum of gradients is a mean. With hybrid sharding, an all-reduce then sums shares over nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from typing_extensions import override

from stallpoint.errors import CannotRun
from stallpoint.measure.clock import IterationClock
from stallpoint.measure.jobs.operations import Operations
from stallpoint.measure.synchronisation.interface import (
    Gathered,
    Synchronisation,
    Transfer,
    Worker,
    WorkerPart,
    parameters,
)
from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
from stallpoint.measure.training.optimisers import local
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer, layers
from stallpoint.strategies.buckets import block_paths
from stallpoint.strategies.families.sharded_family import ShardedOptions
from stallpoint.strategies.presets import Preset


class FullySharded(Synchronisation):
    """Synchronisation by `fully_shard`.

    A sharded copy of `network` is trained; `network` itself is not changed. `per_node` consecutive ranks share a node.
    Raises `CannotRun` for a network that FSDP2 cannot wrap.
    """

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> WorkerPart:
        sharded = cls(worker.network, worker.world, worker.clock, worker.device, preset, worker.per_node)
        parts = layers(sharded.network)
        sharded.start(parts, worker.waiting)
        return WorkerPart(sharded, sharded.network, parts, parts, parameters(parts), copied=True)

    def __init__(
        self,
        network: nn.Module,
        world: World,
        clock: IterationClock,
        device: torch.device,
        preset: Preset,
        per_node: int,
    ) -> None:
        if not hasattr(FSDPModule, "set_custom_all_gather"):
            raise CannotRun(
                "backend fsdp needs PyTorch 2.9 or newer, whose collectives can be timed; use ddp or zero-1"
            )
        self._communicator = TorchCommunicator(world, device)
        operations = Operations(self._communicator, 4, device)
        for name in preset.operations:
            operations(name, 4)
        self._clock, self._preset, self._device = clock, preset, device
        self.shards = preset.strategy.shards((world.size // per_node, per_node))
        mesh = init_device_mesh(
            device.type, (world.size // self.shards, self.shards), mesh_dim_names=("replicate", "shard")
        )
        self._between = mesh["replicate"].get_group()
        try:
            self.network = self._sharded(network, mesh["shard"])
        except (RuntimeError, ValueError, NotImplementedError) as error:
            raise CannotRun(f"FSDP2 cannot wrap this network: {_first_line(error)}") from error

    def start(self, sharded_layers: Sequence[Layer], waiting: Callable[[bool], None]) -> None:
        """Begin to time the sharded network's layers; `waiting` is called when a wait begins and ends."""
        from stallpoint.measure.training.shard_timing import ShardTiming  # `shard_timing` needs PyTorch 2.9

        self._timing = ShardTiming(
            self.network, sharded_layers, self._clock.mark, waiting, self._device, asynchronous=True, summed=True
        )

    @contextmanager
    @override
    def accumulating(self) -> Iterator[None]:
        """Keep unsharded gradients on their ranks within the block."""
        self._root.set_requires_gradient_sync(False)
        yield
        self._root.set_requires_gradient_sync(True)

    @override
    def ready(self, layer: int) -> None:
        """Do nothing: FSDP2 has already reduce-scattered the layer's gradients."""

    @override
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the loss; raises `CannotRun` if a layer computes where FSDP2 has not gathered its weights."""
        try:
            loss: torch.Tensor = self.network(*inputs)
        except RuntimeError as error:
            if "DTensor" not in str(error):
                raise
            raise CannotRun(
                "FSDP2 cannot wrap this network: a layer computes outside of its block's forward pass, where its "
                f"weights are not gathered ({_first_line(error)})"
            ) from error
        return loss

    @override
    def finish(self) -> None:
        """Wait until the end of each collective is noted; the backward pass has already waited for the results."""
        self._timing.settle()

    @override
    def transfers(self) -> Mapping[int, Transfer]:
        """Return the reduce-scatter (and all-reduce) of each layer's gradients."""
        return self._timing.transfers(self._clock.seconds)

    @override
    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """Return every all-gather of each layer's weights."""
        return self._timing.gathered(self._clock.seconds)

    @override
    def clear(self) -> None:
        super().clear()
        self._timing.clear()

    @override
    def close(self, *, wait: bool) -> None:
        if wait:
            self._communicator.close()

    def _sharded(self, network: nn.Module, mesh: Any) -> nn.Module:
        """Return a copy of `network` with this rank's share of the weights; it gets memory only after sharding."""
        values = {id(one): one for one in (*network.parameters(), *network.buffers())}
        empty_tensors = {key: _without_memory(one) for key, one in values.items()}
        sharded = copy.deepcopy(network, dict(empty_tensors))
        parts = layers(sharded)
        sizes = [layer.name for layer in parts], [layer.gradient_bytes for layer in parts]
        wrapped = [sharded.get_submodule(path) for path in block_paths(*sizes)]
        for module in wrapped:
            if module is not sharded:
                fully_shard(module, mesh=mesh, reshard_after_forward=self._preset.family(ShardedOptions).reshard)
        self._root = fully_shard(sharded, mesh=mesh)
        sharded.to_empty(device=self._device)
        self._fill(sharded, network, mesh.get_local_rank())
        self._look_ahead([module for module in wrapped if module is not sharded])
        for module in wrapped if self._between.size() > 1 else ():
            assert isinstance(module, FSDPModule)
            module.set_all_reduce_hook(self._between_nodes)
        return sharded

    def _look_ahead(self, wrapped: Sequence[nn.Module]) -> None:
        """Set for each block which next blocks FSDP2 gathers in advance, in the forward and the backward pass."""
        count = self._preset.family(ShardedOptions).gather_ahead
        modules: list[FSDPModule] = [module for module in wrapped if isinstance(module, FSDPModule)]
        for index, module in enumerate(modules):
            module.set_modules_to_forward_prefetch(modules[index + 1 : index + 1 + count])
            # To gather no block in advance, the list names this block itself, which is gathered already.
            # With an empty list FSDP2 would gather the previous block in advance, by default.
            module.set_modules_to_backward_prefetch(modules[max(0, index - count) : index][::-1] or [module])

    @torch.no_grad()
    def _fill(self, sharded: nn.Module, network: nn.Module, rank: int) -> None:
        """Copy this rank's share of the weights, and all buffers, from the complete `network`."""
        full = dict(network.named_parameters())
        for name, weights in sharded.named_parameters():
            share = local(weights)
            parts = torch.chunk(full[name].detach(), self.shards)
            if share.numel():
                share.copy_(parts[rank])
        buffers = dict(network.named_buffers())
        for name, buffer in sharded.named_buffers():
            buffer.copy_(buffers[name])

    def _between_nodes(self, values: torch.Tensor) -> None:
        """Sum this rank's share of a block's gradients over the nodes; the time counts for the block's bucket."""
        self._timing.extend_last_bucket(lambda: dist.all_reduce(values, group=self._between))


def _without_memory(values: torch.Tensor) -> torch.Tensor:
    """Return a tensor or parameter like `values` without memory, on PyTorch's meta device."""
    empty = torch.empty_like(values, device="meta")
    return nn.Parameter(empty, requires_grad=values.requires_grad) if isinstance(values, nn.Parameter) else empty


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
