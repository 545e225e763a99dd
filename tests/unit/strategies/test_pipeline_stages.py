"""Pipelines: where networks are cut, that stages train as the whole does, and what is waiting and what transfer."""

from itertools import combinations, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from resident_ranks import Ranks
from small_pipeline import Trained, train, trains_as_whole
from torch import nn

from stallpoint.errors import CannotRun, InputError
from stallpoint.networks import find_network
from stallpoint.networks.cutting import Cutting
from stallpoint.networks.description import describe, pipeline_stages
from stallpoint.networks.inputs import Images
from stallpoint.networks.layers import Add, Classifier, WithLoss, layers
from stallpoint.networks.own import OwnNetwork
from stallpoint.records.tables import PHASES
from stallpoint.strategies.division import Cuts

HERE = Path(__file__).parents[2] / "support"


TOLERANCES = {"pipeline": 1e-6, "pipeline-1f1b": 1e-5}
"""Of gradients, as a part, by preset: they are added up in another order."""
Trainings = dict[int, list[Trained]]


@pytest.fixture(scope="module", params=TOLERANCES)
def preset(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trained(ranks: Ranks, preset: str) -> Trainings:
    """What each rank saw of training through 1, 2 and 3 stages."""
    return {stages: ranks(train, preset, count=stages) for stages in (1, 2, 3)}


@pytest.mark.ranks
@pytest.mark.parametrize("stages", [2, 3])
def test_stages_train_as_the_whole_network_does(trained: Trainings, preset: str, stages: int) -> None:
    trains_as_whole(trained[1], trained[stages], rtol=TOLERANCES[preset])


@pytest.mark.ranks
@pytest.mark.parametrize("stages", [2, 3])
def test_waiting_for_a_stage_is_neither_computing_nor_transfer(trained: Trainings, stages: int) -> None:
    for number, rank in enumerate(trained[stages]):
        for phases, columns in zip(rank.phases, rank.layers, strict=True):
            bubble = phases["iteration_time"] - sum(phases[name] for name in PHASES)
            assert bubble > 0, "the first stage waits for gradients, all others for what comes before"
            assert 0 < phases["communication"] <= phases["exposed_communication"] + 1e-9, "of which transfers are all"
            first, end = {2: (0, 4, 8), 3: (0, 4, 6, 8)}[stages][number : number + 2]
            for kind in ("forward", "backward"):
                computed = [name for name, seconds in zip(columns["layer"], columns[kind], strict=True) if seconds]
                assert computed == columns["layer"][first:end], "layers of other stages take nothing"
                assert sum(columns[kind]) <= phases[kind] + 1e-9
            assert columns["gradient_bytes"] == trained[1][0].layers[0]["gradient_bytes"]
            assert max(columns["bucket"]) == -1, "no gradients of weights are sent"


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=7), st.integers(1, 5))
def test_no_other_cut_leaves_the_largest_stage_less_work(counted: list[tuple[int, bool]], stages: int) -> None:
    work = [work for work, _ in counted]
    cuts = Cuts(tuple(work), (*(8 if cut else None for _, cut in counted[:-1]), None))
    if stages > cuts.max_stages:
        with pytest.raises(InputError, match=f"into {cuts.max_stages} at most"):
            cuts.starts(stages)
        return

    def largest(starts: tuple[int, ...]) -> int:
        return max(sum(work[a:b]) + b - a for a, b in pairwise((*starts, len(work))))

    places = [place for place, size in enumerate(cuts.activation_bytes, 1) if size]
    found = cuts.starts(stages)
    assert found[0] == 0
    assert set(found[1:]) <= set(places)
    assert len(found) == stages
    assert largest(found) == min(largest((0, *chosen)) for chosen in combinations(places, stages - 1))


def test_what_a_stage_hands_on_and_what_the_parts_compute() -> None:
    class Residual(nn.Module):
        """Cannot be cut inside, where the input goes around."""

        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.add = nn.Linear(12, 12), nn.Linear(12, 12), Add()

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return self.add(self.fc2(self.fc1(values)), values)

    torch.manual_seed(1)
    network = Classifier(
        flatten=nn.Flatten(), one=nn.Linear(12, 12), block=Residual(), relu=nn.ReLU(), out=nn.Linear(12, 4)
    )
    cutting = Cutting(network)
    names = [layer.name for layer in layers(network)]
    sizes = {names[start]: size for start, size in cutting.activation_bytes(Images(2)).items()}
    assert sizes == {"block.fc1": 48, "out": 48}
    inputs, labels = torch.randn(5, 3, 2, 2), torch.randint(4, (5,))
    values = inputs
    for first, end in pairwise([0, names.index("block.fc1"), names.index("out"), len(cutting)]):
        values = cutting.part(first, end)(values, labels)
    torch.testing.assert_close(values, network(inputs, labels), rtol=0, atol=0)


class OfBoth(nn.Linear):
    """Takes two tensors as one argument."""

    def forward(self, values: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return super().forward(values[0] + values[1])


class Halves(nn.Module):
    """Its second layer takes no tensor, its third one a tensor called as no other is."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.both, self.labels = nn.Linear(12, 8), OfBoth(4, 6), nn.Linear(6, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.labels(self.both(self.values(images.flatten(1)).chunk(2, 1)))


def test_a_stage_hands_on_one_tensor_and_nothing_else() -> None:
    network = WithLoss(Halves())
    names = [layer.name for layer in layers(network)]
    cutting = Cutting(network)
    assert {names[start]: size for start, size in cutting.activation_bytes(Images(2)).items()} == {"network.labels": 24}
    inputs, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    last = names.index("network.labels")
    values = cutting.part(0, last)(inputs, labels)
    torch.testing.assert_close(cutting.part(last, len(cutting))(values, labels), network(inputs, labels))


class Branches(nn.Module):
    """Does something else for other values, which nobody can follow without them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.fc1(images.flatten(1))
        return self.fc2(values) if values.sum() > 0 else values


def test_networks_that_cannot_be_cut_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    own = OwnNetwork("mine", "test_pipeline_stages", "Branches", Images(2))
    with pytest.raises(CannotRun, match=r"network mine cannot be cut into 2 stages: torch.fx cannot trace .* TraceErr"):
        pipeline_stages(own, 2)
    assert all(row["activation_bytes"] is None for row in describe(own))
    with pytest.raises(CannotRun, match="network lenet cannot be cut into 5 stages: it can be cut into 4 at most"):
        pipeline_stages(find_network("lenet"), 5)
