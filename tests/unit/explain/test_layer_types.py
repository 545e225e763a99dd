import pytest

from stallpoint.archive.importing import layer_type
from stallpoint.networks import find_network
from stallpoint.networks.layers import layers


@pytest.mark.parametrize("network", ["alexnet", "googlenet", "resnet50"])
def test_names_of_our_networks_tell_their_types(network: str) -> None:
    for layer in layers(find_network(network).outline()):
        assert layer_type(layer.name, layer.gradient_bytes) == layer.type, layer.name


@pytest.mark.parametrize(
    ("name", "learns", "expected"),
    [
        ("conv1/7x7_s2", True, "convolution"),
        ("conv1/relu_7x7", False, "relu"),
        ("pool1/3x3_s2", False, "pooling"),
        ("pool1/norm1", False, "lrn"),
        ("inception_3a/3x3_reduce", True, "convolution"),
        ("inception_3a/pool_proj", True, "convolution"),
        ("inception_3a/output", False, "concat"),
        ("loss1/ave_pool", False, "pooling"),
        ("loss1/fc", True, "fully-connected"),
        ("loss1/drop_fc", False, "dropout"),
        ("loss3/classifier", True, "fully-connected"),
        ("loss3/loss3", False, "loss"),
        ("res2a_branch1", True, "convolution"),
        ("bn2a_branch2a", False, "batch-norm"),
        ("scale2a_branch2a", True, "batch-norm"),
        ("res2a_branch2a_relu", False, "relu"),
        ("res2a", False, "add"),
        ("fc1000", True, "fully-connected"),
        ("label_data_1_split", False, "other"),
    ],
)
def test_names_of_caffes_networks_tell_their_types(name: str, learns: bool, expected: str) -> None:
    assert layer_type(name, 1000 if learns else 0) == expected
