"""Fully-connected layers split by their outputs: which those are, and that they train as the whole network does."""

from collections.abc import Mapping

import pytest
import torch
from resident_ranks import Ranks
from small_outputs import CLASSES, SAMPLES, WAYS, WIDE, Trained, network, train_all
from torch import nn
from torch.nn import functional

from stallpoint.errors import CannotRun, InputError
from stallpoint.measure.synchronisation.outputs import shares
from stallpoint.networks import find_network
from stallpoint.networks.description import describe, split_of, splittable_layers
from stallpoint.networks.layers import Add, Classifier, WithLoss, layers
from stallpoint.records.tables import PHASES

SPLIT = ("wide.weight", "wide.bias", "fc.weight", "fc.bias")
Found = Mapping[tuple[str, int], list[Trained]]


@pytest.fixture(scope="module")
def trained(ranks: Ranks) -> Found:
    """What each rank saw, of each way and number of ranks."""
    found = {count: ranks(train_all, count=count) for count in (1, 2, 3)}
    return {(way, count): [one[way] for one in found[count]] for count in found for way in found[count][0]}


@pytest.mark.ranks
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_split_layers_train_as_the_whole_network_does(trained: Found, way: str, count: int) -> None:
    (whole,), parts = trained[way, 1], trained[way, count]
    for name, values in whole.weights.items():
        of_ranks = [part.weights[name] for part in parts]
        if name in SPLIT:
            assert [len(part) for part in of_ranks] == shares(len(values), count)
            torch.testing.assert_close(torch.cat(of_ranks), values, rtol=1e-5, atol=1e-6)
        else:
            for part in of_ranks:
                torch.testing.assert_close(part, values, rtol=1e-5, atol=1e-6)
    for iteration, phases in enumerate(whole.phases):
        mean = sum(part.phases[iteration]["loss"] for part in parts) / count
        assert mean == pytest.approx(phases["loss"], rel=1e-5)


@pytest.mark.ranks
@pytest.mark.parametrize("count", [2, 3])
def test_each_rank_holds_its_share_of_the_split_layers(trained: Found, count: int) -> None:
    sizes = {name: weights.nbytes for name, weights in network(CLASSES).named_parameters()}
    everywhere = sum(size for name, size in sizes.items() if name not in SPLIT)
    for rank, part in enumerate(trained["layer by layer", count]):
        own = [24 * 4 * shares(WIDE, count)[rank], WIDE * 4 * shares(CLASSES, count)[rank]]
        biases = 4 * (shares(WIDE, count)[rank] + shares(CLASSES, count)[rank])
        assert set(part.held.values()) == {everywhere + sum(own) + biases}, "weights, gradients, momenta"


@pytest.mark.ranks
@pytest.mark.parametrize("count", [2, 3])
def test_gradients_of_split_layers_are_not_sent_and_what_is_gathered_is_waited_for(trained: Found, count: int) -> None:
    sizes = [layer.gradient_bytes for layer in layers(network(CLASSES))]
    for part in trained["layer by layer", count]:
        for phases, columns in zip(part.phases, part.layers, strict=True):
            of = dict(zip(columns["layer"], range(len(columns["layer"])), strict=True))
            assert columns["gradient_bytes"] == sizes, "of whole layers"
            sent = {name: columns["bucket_bytes"][place] for name, place in of.items()}
            assert {name for name, size in sent.items() if size} == {"conv", "conv2"}
            assert all(sent[name] == sizes[of[name]] for name in ("conv", "conv2"))
            exchanged = 0.0
            for side in ("gather", "gather_again"):
                known = {name for name, place in of.items() if columns[f"{side}_start"][place] is not None}
                assert known == {"wide", "fc", "loss"}
                exchanged += sum(
                    columns[f"{side}_end"][of[name]] - columns[f"{side}_start"][of[name]] for name in known
                )
            assert 0 < exchanged <= phases["exposed_communication"]
            assert exchanged <= phases["communication"] + 1e-9
            assert phases["iteration_time"] == pytest.approx(sum(phases[name] for name in PHASES), abs=1e-4)
            assert columns["gradient_ready"][of["fc"]] is not None


@pytest.mark.ranks
@pytest.mark.parametrize("count", [2, 3])
def test_as_many_bytes_are_sent_as_the_layers_take(trained: Found, count: int) -> None:
    taken = [24 * SAMPLES * 4, *(count * max(shares(outputs, count)) * SAMPLES * 4 for outputs in (WIDE, CLASSES))]
    for part in trained["layer by layer", count]:
        assert part.sent == {"all_gather": [size // count for size in taken], "reduce_scatter": taken[::-1]}


@pytest.mark.ranks
def test_a_dropped_value_is_dropped_on_all_workers(trained: Found) -> None:
    first, *others = (part.seen for part in trained["dropout", 3])
    assert first.shape == (SAMPLES, WIDE)
    assert all(torch.equal(first, other) for other in others)
    dropped = (first == 0).float()
    assert 0.5 < dropped.mean() < 0.95, "half of them, and what the ReLU leaves nothing of"
    widths = shares(WIDE, 3)
    assert not torch.equal(*(part[:, : widths[-1]] for part in dropped.split(widths, dim=1)[:2])), "drawn apart"


def test_the_last_layers_of_alexnet_are_split() -> None:
    rows = describe(find_network("alexnet"))
    assert {row["layer"]: row["outputs"] for row in rows if row["outputs"]} == {"fc6": 4096, "fc7": 4096, "fc8": 1000}
    assert [rows[place]["layer"] for place in split_of(find_network("alexnet"))] == ["fc6", "fc7", "fc8"]


def test_networks_without_such_layers_say_why() -> None:
    with pytest.raises(
        CannotRun, match="network squeezenet has no outputs to split over workers: it has no fully-connected layer behi"
    ):
        split_of(find_network("squeezenet"))
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    two.weight = one.weight
    tied = Classifier(conv=nn.Conv2d(3, 4, 1), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), one=one, two=two)
    with pytest.raises(InputError, match="its last fully-connected layer is used twice, or shares its weights"):
        splittable_layers(tied)


class Around(nn.Module):
    """Values go around a layer, and through functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 2)
        self.first, self.add = nn.Linear(4, 4), Add()
        self.second, self.third = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.conv(images).flatten(1)
        values = self.add(values, self.first(values))
        logits: torch.Tensor = self.third(functional.dropout(functional.relu(self.second(values)).tanh(), 0.5))
        return logits


def test_layers_before_one_that_joins_values_are_not_split() -> None:
    around = WithLoss(Around())
    names = [layer.name for layer in layers(around)]
    assert [names[place] for place in splittable_layers(around)] == ["network.second", "network.third"]


@pytest.mark.parametrize(("outputs", "ranks", "expected"), [(10, 4, [3, 3, 2, 2]), (8, 4, [2] * 4), (2, 3, [1, 1, 0])])
def test_shares_differ_by_one_at_most(outputs: int, ranks: int, expected: list[int]) -> None:
    assert shares(outputs, ranks) == expected
