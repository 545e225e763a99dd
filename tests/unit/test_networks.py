import math
import subprocess
import sys
from collections import Counter

import pytest
import torch

from stallpoint.errors import InputError
from stallpoint.networks import NETWORKS, Network, find
from stallpoint.networks.layers import Layer, layers

# Shi et al. (2018), Table VI: bytes of the gradients of each layer of AlexNet that learns.
TABLE_VI = {
    "conv1": 139_776,
    "conv2": 1_229_824,
    "conv3": 3_540_480,
    "conv4": 2_655_744,
    "conv5": 1_770_496,
    "fc6": 151_011_328,
    "fc7": 67_125_248,
    "fc8": 16_388_000,
}


def types(name: str) -> Counter[str]:
    return Counter(layer.type for layer in layers(find(name).outline()))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_networks_are_as_large_as_registered(network: Network) -> None:
    found = layers(network.outline())
    assert sum(layer.gradient_bytes for layer in found) == network.gradient_bytes
    assert max(layer.gradient_bytes for layer in found) == network.largest_layer_bytes


def test_alexnet_has_the_gradient_sizes_of_shi_table_vi() -> None:
    found = {layer.name: layer.gradient_bytes for layer in layers(find("alexnet").outline())}
    assert {name: size for name, size in found.items() if size} == TABLE_VI


def test_alexnet_normalises_after_the_first_two_activations() -> None:
    names = [layer.name for layer in layers(find("alexnet").outline())]
    assert names[:8] == ["conv1", "relu1", "norm1", "pool1", "conv2", "relu2", "norm2", "pool2"]
    assert types("alexnet")["lrn"] == 2


def test_googlenet_has_the_layers_of_keuper_table_ii_and_its_auxiliary_classifiers() -> None:
    found = types("googlenet")
    assert found["convolution"] == 59
    assert found["fully-connected"] == 1 + 2 * 2
    assert found["concat"] == 9
    assert found["lrn"] == 2
    assert found["batch-norm"] == 0


def test_resnet50_has_50_layers_that_multiply_matrices_besides_its_projections() -> None:
    found = types("resnet50")
    assert found["convolution"] == found["batch-norm"] == 49 + 4
    assert found["fully-connected"] == 1
    assert found["add"] == 16


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_layers_are_listed_in_the_order_in_which_they_run(network: Network) -> None:
    outline = network.outline()
    order: list[str] = []

    def note(layer: Layer) -> None:
        layer.module.register_forward_hook(lambda *_: order.append(layer.name))

    for layer in layers(outline):
        note(layer)
    images = torch.zeros(2, 3, network.image_size, network.image_size, device="meta")
    loss = outline(images, torch.zeros(2, dtype=torch.int64, device="meta"))
    assert loss.shape == ()
    assert order == [layer.name for layer in layers(outline)]


def test_the_same_seed_gives_the_same_weights() -> None:
    first, again, other = (find("googlenet").build(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv1.conv.weight"], other["conv1.conv.weight"])


def test_googlenet_starts_at_the_loss_of_a_guess_with_auxiliary_losses_weighted() -> None:
    network = find("googlenet").build(seed=1)
    losses: dict[str, float] = {}
    for name in ("loss1", "loss2", "loss3"):
        hook = lambda _module, _inputs, output, name=name: losses.update({name: output.item()})  # noqa: E731
        network.get_submodule(name).register_forward_hook(hook)
    torch.manual_seed(0)
    total = network(torch.randn(1, 3, 224, 224), torch.tensor([7]))
    guess = math.log(1000)
    assert losses == pytest.approx({"loss1": 0.3 * guess, "loss2": 0.3 * guess, "loss3": guess}, rel=0.2)
    assert total.item() == pytest.approx(sum(losses.values()))


def test_an_unknown_network_is_named_beside_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"alexnt.*alexnet, googlenet, resnet50"):
        find("alexnt")


def test_names_are_known_without_loading_a_tensor_library_or_mpi() -> None:
    program = """
import sys
import stallpoint.measure, stallpoint.networks, stallpoint.presets
assert stallpoint.networks.NETWORKS and stallpoint.presets.PRESETS
sys.exit(", ".join({"torch", "mpi4py", "numpy"} & set(sys.modules)) or None)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
