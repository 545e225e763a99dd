"""PyTorch's FSDP2 (`fully_shard`): each rank keeps a share of the weights, blocks are gathered when they are needed.

A network is sharded block by block (`stallpoint.messages.blocks`). FSDP2 gathers a block before its forward pass, frees
it, gathers it again before its backward pass, and sums and scatters its gradients behind that. What it sends goes
through its own hooks for custom collectives, which note when each begins and ends; the calls are its own. All-gathers
are asynchronous and are waited for where the weights are needed; on a CPU, which has no streams, the rank waits for
each reduce-scatter as well. Gradients are summed: the mean is taken beforehand, by the scaled loss.

With hybrid sharding the shares are summed over the nodes by an all-reduce behind each reduce-scatter, as FSDP2's own
two-dimensional mesh does it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from stallpoint.errors import CannotRun
from stallpoint.measure.clock import Clock, Mark
from stallpoint.measure.operations import Operations
from stallpoint.measure.optimiser import local
from stallpoint.measure.synchronisation.interface import Gathered, Sent, Synchronisation
from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator, all_gather, reduce_scatter
from stallpoint.measure.world import World
from stallpoint.messages import block_paths, blocks
from stallpoint.networks.layers import Layer, layers
from stallpoint.presets import Preset


@dataclass
class _Collective:
    """One that was sent; without an end until it has ended."""

    group: int
    backward: bool
    """Whether it was sent in a backward pass."""
    start: Mark
    end: Mark = None


class FullySharded(Synchronisation):
    """A `Synchronisation` by `fully_shard`. `network` is not changed: what is trained is a sharded copy of it.

    `per_node` ranks share a node, in their order. Raises `CannotRun` for a network that it cannot wrap.
    """

    updates = False

    def __init__(
        self, network: nn.Module, world: World, clock: Clock, device: torch.device, preset: Preset, per_node: int
    ) -> None:
        if not hasattr(FSDPModule, "set_custom_all_gather"):
            raise CannotRun(
                "backend fsdp needs PyTorch 2.8 or newer, whose collectives can be timed; use ddp or zero-1"
            )
        self._communicator = TorchCommunicator(world, device)
        operations = Operations(self._communicator, 4, device)
        for name in preset.operations:
            operations(name, 4)
        self._clock, self._preset, self._device = clock, preset, device
        self.shards = per_node if preset.sharding == "node" else world.size
        mesh = init_device_mesh(
            device.type, (world.size // self.shards, self.shards), mesh_dim_names=("replicate", "shard")
        )
        self._between = mesh["replicate"].get_group()
        self._gathers: list[_Collective] = []
        self._reduces: list[_Collective] = []
        self._futures: list[torch.futures.Future[Any]] = []
        self._parameters: list[list[nn.Parameter]] = []
        try:
            self.network = self._sharded(network, mesh["shard"])
        except (RuntimeError, ValueError, NotImplementedError) as error:
            raise CannotRun(f"FSDP2 cannot wrap this network: {_first_line(error)}") from error

    def start(self, of: Sequence[Layer], waiting: Callable[[bool], None]) -> None:
        """The layers of the sharded network, and what is told when it begins and ends to wait."""
        place = {id(weights): index for index, layer in enumerate(of) for weights in layer.parameters}
        self._layers = [
            sorted({place[id(weights)] for weights in group if id(weights) in place}) for group in self._parameters
        ]
        self._bytes = [layer.gradient_bytes for layer in of]
        self._waiting = waiting

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Gradients stay, whole, on their ranks."""
        self._root.set_requires_gradient_sync(False)
        yield
        self._root.set_requires_gradient_sync(True)

    def ready(self, layer: int) -> None:
        """Its gradients are summed and scattered already."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The loss; raises `CannotRun` where a layer is called in a way that FSDP2 does not see."""
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

    def finish(self) -> None:
        """The backward pass waits for what it sends; what was noted of it is complete now."""
        for future in self._futures:
            future.wait()

    def sent(self) -> Mapping[int, Sent]:
        """The reduce-scatter (and all-reduce) of each layer's gradients."""
        found: dict[int, Sent] = {}
        for number, message in enumerate(self._reduces):
            start, end = self._clock.seconds(message.start), self._clock.seconds(message.end)
            for layer in self._layers[message.group]:
                found[layer] = Sent(number, self._bytes[layer], start, end)
        return found

    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """Every all-gather of each layer's weights."""
        found: dict[int, list[Gathered]] = {}
        for one in self._gathers:
            took = Gathered(one.backward, self._clock.seconds(one.start), self._clock.seconds(one.end))
            for layer in self._layers[one.group]:
                found.setdefault(layer, []).append(took)
        return found

    def clear(self) -> None:
        """Forget the gradients and what was sent."""
        self.network.zero_grad(set_to_none=True)
        for noted in (self._gathers, self._reduces, self._futures):
            noted.clear()

    def close(self, *, wait: bool) -> None:
        """Leave the process group."""
        if wait:
            self._communicator.close()

    def _sharded(self, network: nn.Module, mesh: Any) -> nn.Module:
        """A copy of `network` of which this rank has its share: made without memory, sharded, and then filled."""
        values = {id(one): one for one in (*network.parameters(), *network.buffers())}
        without = {key: _without_memory(one) for key, one in values.items()}
        sharded = copy.deepcopy(network, dict(without))
        of = layers(sharded)
        known = [layer.name for layer in of], [layer.gradient_bytes for layer in of]
        names = {id(weights): name for name, weights in sharded.named_parameters()}
        named = [
            [names[id(weights)] for layer in members for weights in of[layer].parameters] for members in blocks(*known)
        ]
        wrapped = [sharded.get_submodule(path) for path in block_paths(*known)]
        for module in wrapped:
            if module is not sharded:
                fully_shard(module, mesh=mesh, reshard_after_forward=self._preset.reshard)
        self._root = fully_shard(sharded, mesh=mesh)
        sharded.to_empty(device=self._device)
        self._fill(sharded, network, mesh.get_local_rank())
        self._parameters = [[sharded.get_parameter(name) for name in group] for group in named]
        self._look_ahead([module for module in wrapped if module is not sharded])
        for number, module in enumerate(wrapped):
            assert isinstance(module, FSDPModule)
            module.set_custom_all_gather(_AllGather(self, number))
            module.set_custom_reduce_scatter(_ReduceScatter(self, number))
            if self._between.size() > 1:
                module.set_all_reduce_hook(self._between_nodes)
        return sharded

    def _look_ahead(self, wrapped: Sequence[nn.Module]) -> None:
        """Which blocks are gathered ahead of others, in forward and in backward order."""
        ahead = self._preset.gather_ahead
        of: list[FSDPModule] = [module for module in wrapped if isinstance(module, FSDPModule)]
        for place, module in enumerate(of):
            module.set_modules_to_forward_prefetch(of[place + 1 : place + 1 + ahead])
            # Of no block FSDP2 makes the one before; itself is there already.
            module.set_modules_to_backward_prefetch(of[max(0, place - ahead) : place][::-1] or [module])

    @torch.no_grad()
    def _fill(self, sharded: nn.Module, network: nn.Module, rank: int) -> None:
        """Give the sharded copy its values of the whole `network`."""
        whole = dict(network.named_parameters())
        for name, weights in sharded.named_parameters():
            share = local(weights)
            parts = torch.chunk(whole[name].detach(), self.shards)
            if share.numel():
                share.copy_(parts[rank])
        held = dict(network.named_buffers())
        for name, buffer in sharded.named_buffers():
            buffer.copy_(held[name])

    def _begin(self, among: list[_Collective], group: int) -> _Collective:
        in_backward = torch._C._current_graph_task_id() >= 0
        among.append(_Collective(group, in_backward, self._clock.mark()))
        return among[-1]

    def _between_nodes(self, values: torch.Tensor) -> None:
        """Sum a share over the nodes, as a part of the message that ended just before."""
        self._blocks(True)
        dist.all_reduce(values, group=self._between)
        self._reduces[-1].end = self._clock.mark()
        self._blocks(False)

    def _blocks(self, begins: bool) -> None:
        """Computing waits for what is sent, where there are no streams."""
        if self._device.type == "cpu":
            self._waiting(begins)


class _AllGather(AllGather):
    """FSDP2's own all-gather, noted; always asynchronous."""

    def __init__(self, sharded: FullySharded, group: int) -> None:
        self._sharded, self._group = sharded, group

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As FSDP2 does."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work:
        """Begin."""
        noted = self._sharded._begin(self._sharded._gathers, self._group)
        work = all_gather(output_tensor, input_tensor, group=group, async_op=True)
        assert work is not None

        def ended(done: torch.futures.Future[Any]) -> None:
            noted.end = self._sharded._clock.mark()

        self._sharded._futures.append(work.get_future().then(ended))
        return _Waited(work, self._sharded._waiting)


class _ReduceScatter(ReduceScatter):
    """FSDP2's own reduce-scatter, noted."""

    def __init__(self, sharded: FullySharded, group: int) -> None:
        self._sharded, self._group = sharded, group

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As FSDP2 does."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Sum, whatever `op` says: the mean was taken. On a CPU that waits for it, on a GPU its stream does."""
        self._sharded._blocks(True)
        noted = self._sharded._begin(self._sharded._reduces, self._group)
        work: dist.Work | None = reduce_scatter(output_tensor, input_tensor, group=group, async_op=async_op)
        noted.end = self._sharded._clock.mark()
        self._sharded._blocks(False)
        return work


class _Waited(dist.Work):
    """An asynchronous collective; says when its rank begins and ends to wait for it."""

    def __init__(self, work: dist.Work, waiting: Callable[[bool], None]) -> None:
        super().__init__()
        self._work, self._says = work, waiting

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it has ended."""
        self._says(True)
        done = bool(self._work.wait())
        self._says(False)
        return done


def _without_memory(values: torch.Tensor) -> torch.Tensor:
    """The same on PyTorch's meta device."""
    empty = torch.empty_like(values, device="meta")
    return nn.Parameter(empty, requires_grad=values.requires_grad) if isinstance(values, nn.Parameter) else empty


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
