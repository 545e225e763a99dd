"""What stays in memory between visits is, at the beginning of each, as it was at first."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from stallpoint.measure import resident

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Known:
    """A network with everything a network can hold."""

    name: str = "one"

    def build(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
            network[2].weight = nn.Parameter(network[0].weight.detach().T.clone())
            network.register_buffer("passing", torch.zeros(2), persistent=False)
        return network


def state(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in (*network.named_parameters(), *network.named_buffers())}


def test_each_visit_begins_with_the_weights_and_buffers_that_the_seed_gives() -> None:
    fresh = state(Known().build(7))
    for _ in range(3):
        network = resident.network(Known(), 7, CPU)
        torch.testing.assert_close(state(network), fresh, rtol=0, atol=0)
        network(torch.randn(5, 3)).sum().backward()
        with torch.no_grad():
            for values in (*network.parameters(), *network.buffers()):
                values += 1
    assert resident.network(Known(), 7, CPU) is network


@pytest.mark.parametrize("other", [(Known("two"), 7), (Known(), 8)])
def test_another_network_or_seed_is_another(other: tuple[Known, int]) -> None:
    assert resident.network(*other, CPU) is not resident.network(Known(), 7, CPU)
    torch.testing.assert_close(state(resident.network(*other, CPU)), state(other[0].build(other[1])), rtol=0, atol=0)
