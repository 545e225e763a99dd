"""Messages: what they are made of, when they go, and that real ranks reduce them in place."""

import time
from collections.abc import Mapping
from ipaddress import IPv4Interface
from itertools import count
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from resident_ranks import Ranks
from torch import nn

from stallpoint.errors import CannotRun
from stallpoint.measure import constants
from stallpoint.measure.clock import HostClock
from stallpoint.measure.jobs.operations import Operations
from stallpoint.measure.machine.node_addresses import allow_only, allowed_interfaces, common_network
from stallpoint.measure.synchronisation import Worker, begin
from stallpoint.measure.synchronisation.communicator import Communicator, ThroughHost
from stallpoint.measure.synchronisation.engine import Engine
from stallpoint.measure.synchronisation.fsdp import FullySharded
from stallpoint.measure.synchronisation.gradients import Bucket, Gradients
from stallpoint.measure.synchronisation.streams import HostStream
from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator
from stallpoint.measure.training.optimisers import Sgd
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer, layers
from stallpoint.strategies.presets import PRESETS, Preset

pytestmark = pytest.mark.ranks

CPU = torch.device("cpu")


def network(*sizes: tuple[int, int]) -> list[Layer]:
    """Fully-connected layers whose gradients are known: the n-th one's are all n + 1."""
    made = layers(nn.Sequential(*(nn.Linear(*size) for size in sizes)))
    leave_gradients(made)
    return made


def leave_gradients(made: list[Layer]) -> None:
    """As back-propagation does: in memory of their own."""
    for number, layer in enumerate(made):
        for parameter in layer.parameters:
            parameter.grad = torch.full_like(parameter, number + 1.0)


def test_small_gradients_are_packed_and_large_ones_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "IN_PLACE_BYTES", 100)
    made = network((2, 3), (10, 10), (3, 1))
    gradients = Gradients(made)
    assert gradients.order == [2, 1, 0]
    large = made[1].parameters[0].grad
    assert large is not None
    for number in gradients.order:
        gradients.complete(number)
    everything = gradients.spans(Bucket(0, (2, 1, 0)))
    assert [len(piece.values) for piece in everything] == [4 + 10 + 9, 100]
    assert everything[0].values.tolist() == [3.0] * 4 + [2.0] * 10 + [1.0] * 9
    assert everything[1].values.data_ptr() == large.data_ptr()
    assert [piece.offset for piece in everything] == [0, 23]
    middle = gradients.spans(Bucket(1, (1,)))
    assert [(piece.offset, len(piece.values)) for piece in middle] == [(4, 10), (23, 100)]
    for piece in everything:
        piece.values.mul_(2)
    for number, layer in enumerate(made):
        for parameter in layer.parameters:
            assert parameter.grad is not None
            assert (parameter.grad == 2 * (number + 1)).all(), "what is received is what the update sees"
    gradients.clear()
    assert all(parameter.grad is None for layer in made for parameter in layer.parameters)


class Noting:
    """An exchange that notes which messages it was given."""

    updates = False

    def __init__(self, sizes: Mapping[int, int], asked: list[str] | None = None) -> None:
        self.sizes = sizes
        self.asked = [] if asked is None else asked
        self.numbers: list[int] = []

    def send(self, message: Bucket) -> int:
        if message.number not in self.sizes:
            raise OSError("the network is down")
        self.numbers.append(message.number)
        self.asked.append(f"send {message.number}")
        return self.sizes[message.number]


def engine(exchange: Noting, plan: list[list[int]], *, during_backward: bool) -> Engine:
    return Engine(
        nn.Sequential(), Gradients(network((1, 1), (1, 1), (3, 1))), exchange, plan, HostClock(), CPU,
        during_backward=during_backward, replan=lambda _: None, end=lambda: None,
    )  # fmt: skip


@pytest.mark.parametrize("during_backward", [True, False])
def test_messages_go_in_their_order_whatever_the_layers_order(during_backward: bool) -> None:
    exchange = Noting({0: 100, 1: 60})
    sends = engine(exchange, [[2], [1, 0]], during_backward=during_backward)
    for _ in range(2):
        for layer in (0, 1, 2):
            sends.ready(layer)
        sends.finish()
        sent = sends.transfers()
        assert {layer: (one.bucket, one.bytes) for layer, one in sent.items()} == {2: (0, 100), 1: (1, 30), 0: (1, 30)}
        assert sent[2].start <= sent[2].end <= sent[1].start <= sent[1].end
    assert exchange.numbers == [0, 1, 0, 1]
    sends.close(wait=True)


@pytest.mark.parametrize("during_backward", [True, False])
def test_what_goes_wrong_on_the_way_is_raised_where_it_is_waited_for(during_backward: bool) -> None:
    sends = engine(Noting({0: 1}), [[2], [1, 0]], during_backward=during_backward)
    for layer in (2, 1, 0):
        sends.ready(layer)
    with pytest.raises(OSError, match="the network is down"):
        sends.finish()
    sends.close(wait=False)


class NotingStream(HostStream):
    """A stream that notes what is asked of it, and marks in seconds that count up."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked
        self.seconds = count()

    def note(self) -> int:
        return self._mark("note")

    def mark(self) -> int:
        return self._mark("mark")

    def wait(self, written: int) -> None:
        self.asked.append(f"wait for {written // 10**9}")

    def join(self) -> None:
        self.asked.append("join")

    def drain(self) -> None:
        pytest.fail("the host waits for the messages of an iteration")

    def _mark(self, what: str) -> int:
        second = next(self.seconds)
        self.asked.append(f"{what} {second}")
        return second * 10**9


@pytest.mark.parametrize(
    ("during_backward", "asked"),
    [
        (True, "note 0,wait for 0,mark 1,send 0,mark 2,note 3,wait for 3,mark 4,send 1,mark 5,join"),
        (False, "note 0,wait for 0,mark 1,send 0,mark 2,wait for 0,mark 3,send 1,mark 4,join"),
    ],
)
def test_messages_wait_for_gradients_and_the_update_for_messages_in_the_devices_own_order(
    during_backward: bool, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr("stallpoint.measure.synchronisation.engine.stream_for", lambda _: NotingStream(done))
    exchange = Noting({0: 100, 1: 60}, done)
    sends = engine(exchange, [[2], [1, 0]], during_backward=during_backward)
    sends._clock._start = 0  # type: ignore[attr-defined]
    sends.ready(2)
    while during_backward and "mark 2" not in done:
        time.sleep(0.001)
    sends.ready(1)
    sends.ready(0)
    sends.finish()
    assert ",".join(done) == asked
    sent = sends.transfers()
    assert [(sent[layer].start, sent[layer].end) for layer in (2, 1, 0)] == (
        [(1, 2), (4, 5), (4, 5)] if during_backward else [(1, 2), (3, 4), (3, 4)]
    )
    sends.close(wait=True)


class Doubling:
    """A communicator of which two ranks have the same values; it keeps what it is given."""

    ranks, rank = 2, 0

    def __init__(self) -> None:
        self.given: list[torch.Tensor] = []

    def all_reduce(self, values: torch.Tensor) -> int:
        self.given.append(values)
        values *= 2
        return values.nbytes


def test_copied_messages_travel_in_memory_of_their_own() -> None:
    inner = Doubling()
    copied = ThroughHost(cast(Communicator, inner), fresh=True)
    values = torch.arange(6.0)
    assert [copied.all_reduce(values) for _ in range(3)] == [24] * 3
    assert values.tolist() == [0, 8, 16, 24, 32, 40]
    assert len({values.data_ptr(), *(given.data_ptr() for given in inner.given)}) == 4


def interfaces(**addresses: str) -> dict[str, IPv4Interface]:
    return {name: IPv4Interface(address) for name, address in addresses.items()}


def test_ranks_meet_in_the_first_network_all_are_in() -> None:
    first = interfaces(docker0="172.17.0.1/16", eth0="10.0.0.1/24", ib0="10.1.0.1/16", lo="127.0.0.1/8")
    second = interfaces(docker1="172.18.0.1/16", enp3="10.0.0.2/24", ib0="10.1.0.2/16", lo="127.0.0.1/8")
    assert common_network([first, second], same_node=False) == ["eth0", "enp3"]
    assert common_network([first, first], same_node=True) == ["lo", "lo"]
    assert common_network([first, interfaces(lo="127.0.0.1/8")], same_node=False) == []


def test_an_address_that_two_nodes_have_is_no_place_to_meet() -> None:
    bridge = {"docker0": "172.17.0.1/16", "lo": "127.0.0.1/8"}
    for net, name in (("10.0.0.{}/24", "eth0"), ("142.132.0.{}/32", "enp7s0"), ("10.{}.1.5/24", "bond0")):
        nodes = [interfaces(**bridge, **{name: net.format(number)}) for number in (1, 2)]
        assert common_network(nodes, same_node=False) == [name, name]
    assert common_network([interfaces(**bridge)] * 2, same_node=False) == []


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, ["eth0", "eth1", "ib0", "docker0", "lo"]),
        ({"NCCL_SOCKET_IFNAME": "eth"}, ["eth0", "eth1"]),
        ({"NCCL_SOCKET_IFNAME": "=ib0"}, ["ib0"]),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, ["eth0", "eth1", "ib0"]),
        ({"NCCL_SOCKET_IFNAME": "ib", "GLOO_SOCKET_IFNAME": "eth1"}, ["eth1"]),
        (allow_only("ib0,eth1"), ["eth1", "ib0"]),
        ({**allow_only("ib0"), "GLOO_SOCKET_IFNAME": ""}, ["ib0"]),
        (allow_only(""), ["eth0", "eth1", "ib0", "docker0", "lo"]),
    ],
)
def test_the_sites_variables_choose_interfaces(variables: dict[str, str], names: list[str]) -> None:
    found = interfaces(
        eth0="10.0.0.1/24", eth1="10.1.0.1/24", ib0="10.2.0.1/16", docker0="172.17.0.1/16", lo="127.0.0.1/8"
    )
    assert list(allowed_interfaces(found, variables)) == names


def test_a_process_group_that_a_failed_visit_has_left_is_in_nobodys_way() -> None:
    communicators = [TorchCommunicator(World.start(1), CPU) for _ in range(2)]
    values = torch.ones(2)
    assert communicators[-1].all_reduce(values) == values.nbytes
    communicators[-1].close()


class Outside(nn.Module):
    """Computes with weights of a block, but not in the block."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(2))

    def forward(self, values: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(values, cast(nn.Linear, self.first[0]).weight).sum()


def test_a_network_that_fsdp_cannot_wrap_is_told_so() -> None:
    sharded = FullySharded(Outside(), World.start(1), HostClock(), CPU, PRESETS["fsdp"].preset, per_node=1)
    sharded.start(layers(sharded.network), lambda _: None)
    with pytest.raises(CannotRun, match="FSDP2 cannot wrap this network: a layer computes outside of its block's"):
        sharded.forward(torch.ones(1, 2), torch.zeros(1))
    sharded.close(wait=True)


def test_an_operation_that_a_library_does_not_have_is_told_before_others_wait() -> None:
    def lacks(*_: torch.Tensor) -> int:
        raise RuntimeError("ProcessGroupGloo does not support reduce_scatter\nmore of it")

    names = ("all_gather", "reduce_scatter", "all_to_all", "pass_on")
    library = SimpleNamespace(ranks=2, **dict.fromkeys(names, lacks))
    operations = Operations(cast(Communicator, library), 1024, CPU)
    with pytest.raises(CannotRun, match=r"no reduce-scatter \(ProcessGroupGloo does not support reduce_scatter\);"):
        operations("reduce-scatter", 1024)


def sent_before_the_last_layer_is_ready(world: World, when: str) -> set[int]:
    """Layers whose message goes while another layer is not ready yet; checks what is received in the end."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    worker = Worker(model, layers(model), world, HostClock(), CPU, Sgd(model.parameters()).step, Sgd)
    synchronisation = begin(Preset(start=when), worker).synchronisation
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, number + 10.0 * world.rank)
    synchronisation.ready(1)
    while when == "layer-ready" and not synchronisation.transfers():
        time.sleep(0.001)
    time.sleep(0.1)  # in which a message that should not go could
    sent = set(synchronisation.transfers())
    synchronisation.ready(0)
    synchronisation.finish()
    assert set(synchronisation.transfers()) == {0, 1}
    for number, parameter in enumerate(model.parameters()):
        assert (parameter.grad == 2.0 * number + 10).all(), (number, parameter.grad)
    synchronisation.close(wait=True)
    return sent


def test_messages_of_ready_layers_go_during_the_backward_pass(ranks: Ranks) -> None:
    assert ranks(sent_before_the_last_layer_is_ready, "layer-ready", count=2) == [{1}] * 2
    assert ranks(sent_before_the_last_layer_is_ready, "after-backward", count=2) == [set()] * 2
