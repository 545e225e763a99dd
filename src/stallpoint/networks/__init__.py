"""Registry of the networks that can be trained.

The registry imports no tensor library, so that the check of a study takes an instant. The module of a network is
imported when the network is built. To add a network, write a function in a module here that returns an `nn.Module`. The
module maps ``(inputs, labels)`` to the loss, and consists of leaf modules (`stallpoint.networks.layers`). Then add an
entry at the end of `_CORE_NETWORKS`. A study can also name a network of its own (`stallpoint.networks.own`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from stallpoint import load
from stallpoint.errors import InputError
from stallpoint.extras import with_others
from stallpoint.networks.inputs import FASHION_MNIST_CLASSES, IMAGENET_CLASSES, Images, Inputs, Tokens
from stallpoint.networks.own import own_network

if TYPE_CHECKING:
    from torch import nn


class Network(Protocol):
    """Interface of a network before it is built."""

    @property
    def name(self) -> str:
        """Name of the network in studies, paths and charts."""

    @property
    def takes(self) -> Inputs:
        """Inputs of one sample."""

    def outline(self) -> nn.Module:
        """Return a network for a cheap trial run, which finds the layers and the shapes of their outputs."""

    def sketch(self) -> nn.Module:
        """Return a network that is cheap to build, for a list of its layers. The network may fail when it runs."""

    def build(self, seed: int) -> nn.Module:
        """Build the network in training mode; equal seeds give equal initial weights."""


@dataclass(frozen=True)
class RegisteredNetwork:
    """A network of the registry; its properties are known before it is built."""

    name: str
    build_function: str
    """Name (`stallpoint.load`) of the function that builds the network."""
    takes: Inputs
    description: str
    source: str
    parameters: int
    """Number of learned values."""
    multiply_adds: int
    """Multiplications (each with an addition) of the matrix products in one sample's forward pass."""
    max_stages: int
    """Maximum number of pipeline stages (`networks.cutting`); 1 if layers share weights."""
    arguments: tuple[int, ...] = ()
    """Arguments of `build_function`: the sizes in which networks of a family differ."""
    split_layers: int = 0
    """Number of fully-connected layers after convolutions whose outputs can be split over workers."""
    smallest_batch: int = 1
    """Minimum number of samples of a worker; 2 if batch normalisation gets maps of a single pixel."""

    @property
    def gradient_bytes(self) -> int:
        """Return the size of all layers' gradients, bytes."""
        return 4 * self.parameters

    def outline(self) -> nn.Module:
        """Build the network without values (on PyTorch's meta device): its layers and shapes need no memory."""
        import torch

        with torch.device("meta"):
            network: nn.Module = load(self.build_function)(*self.arguments)
        return network

    def sketch(self) -> nn.Module:
        return self.outline()

    def build(self, seed: int) -> nn.Module:
        """Build the network in training mode; equal seeds give equal initial weights."""
        from stallpoint.networks.layers import allocated_network, initialise

        network = allocated_network(self.outline())
        initialise(network, seed)
        return network


_ALEXNET = RegisteredNetwork(
    name="alexnet",
    build_function="networks.alexnet:alexnet",
    takes=Images(227, IMAGENET_CLASSES),
    parameters=60_965_224,
    multiply_adds=724_406_816,
    max_stages=8,
    split_layers=3,
    description="AlexNet in Caffe's one-tower form: grouped convolutions, local response normalisation",
    source="Krizhevsky, Sutskever & Hinton (2012); Caffe's bvlc_alexnet",
)

_CORE_NETWORKS = {
    network.name: network
    for network in (
        _ALEXNET,
        RegisteredNetwork(
            name="googlenet",
            build_function="networks.googlenet:googlenet",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=13_378_280,
            multiply_adds=1_591_044_096,
            max_stages=6,
            split_layers=1,
            description="GoogLeNet as trained, with both auxiliary classifiers, without batch normalisation",
            source="Szegedy et al. (2015); Caffe's bvlc_googlenet",
        ),
        RegisteredNetwork(
            name="resnet50",
            build_function="networks.resnet:resnet",
            arguments=(3, 4, 6, 3),
            takes=Images(224, IMAGENET_CLASSES),
            parameters=25_557_032,
            multiply_adds=3_857_973_248,
            max_stages=19,
            split_layers=1,
            description="ResNet-50, first version: the stride is in a block's first 1x1 convolution",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
        RegisteredNetwork(
            name="vgg16",
            build_function="networks.vgg:vgg",
            arguments=(2, 2, 3, 3, 3),
            takes=Images(224, IMAGENET_CLASSES),
            parameters=138_357_544,
            multiply_adds=15_470_264_320,
            max_stages=16,
            split_layers=3,
            description="VGG-16, configuration D: 13 convolutions of 3x3 and three fully-connected layers",
            source="Simonyan & Zisserman (2015), Table 1",
        ),
        RegisteredNetwork(
            name="vit-b-16",
            build_function="networks.vit_b_16:vit_b_16",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=86_567_656,
            multiply_adds=17_563_828_224,
            max_stages=29,
            split_layers=1,
            description="ViT-B/16: patches of 16x16 pixels, a class token, 12 encoder blocks, a linear classifier",
            source="Dosovitskiy et al. (2021), Table 1",
        ),
        RegisteredNetwork(
            name="gpt2-small",
            build_function="networks.gpt2:gpt2",
            arguments=(768, 12, 12),
            takes=Tokens(length=1024, vocabulary=50257),
            parameters=124_439_808,
            multiply_adds=145_824_153_600,
            max_stages=1,
            description="GPT-2 small (124M): 12 decoder blocks; the output layer shares the embedding's weights",
            source="Radford et al. (2019), section 2.3; openai/gpt-2, models/124M",
        ),
        RegisteredNetwork(
            name="alexnet-owt",
            build_function="networks.alexnet:one_weird_trick",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=61_100_840,
            multiply_adds=714_188_480,
            max_stages=8,
            split_layers=3,
            description="AlexNet's later variant: no groups, no local response normalisation, fewer filters",
            source="Krizhevsky (2014), section 5; torchvision's alexnet",
        ),
        replace(
            _ALEXNET,
            name="alexnet-no-lrn",
            build_function="networks.alexnet:alexnet_without_lrn",
            description="alexnet without local response normalisation, which learns nothing and multiplies no matrices",
            source="Shi et al. (2018), Table IV, note",
        ),
        RegisteredNetwork(
            name="vgg19",
            build_function="networks.vgg:vgg",
            arguments=(2, 2, 4, 4, 4),
            takes=Images(224, IMAGENET_CLASSES),
            parameters=143_667_240,
            multiply_adds=19_632_062_464,
            max_stages=19,
            split_layers=3,
            description="VGG-19, configuration E: 16 convolutions of 3x3 and three fully-connected layers",
            source="Simonyan & Zisserman (2015), Table 1",
        ),
        RegisteredNetwork(
            name="resnet101",
            build_function="networks.resnet:resnet",
            arguments=(3, 4, 23, 3),
            takes=Images(224, IMAGENET_CLASSES),
            parameters=44_549_160,
            multiply_adds=7_570_194_432,
            max_stages=36,
            split_layers=1,
            description="ResNet-101, first version like resnet50",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
        RegisteredNetwork(
            name="resnet152",
            build_function="networks.resnet:resnet",
            arguments=(3, 8, 36, 3),
            takes=Images(224, IMAGENET_CLASSES),
            parameters=60_192_808,
            multiply_adds=11_282_415_616,
            max_stages=53,
            split_layers=1,
            description="ResNet-152, first version like resnet50",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
        RegisteredNetwork(
            name="inception-v3",
            build_function="networks.inception_v3:inception_v3",
            takes=Images(299, IMAGENET_CLASSES),
            parameters=27_161_264,
            multiply_adds=5_718_899_296,
            max_stages=18,
            split_layers=1,
            description="Inception-v3 as trained, with its auxiliary classifier; mini-batches of two samples at least",
            smallest_batch=2,
            source="Szegedy et al. (2016), Table 1; torchvision's inception_v3",
        ),
        RegisteredNetwork(
            name="squeezenet",
            build_function="networks.squeezenet:squeezenet",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=1_248_424,
            multiply_adds=818_924_576,
            max_stages=18,
            description="SqueezeNet 1.0: eight fire modules and no fully-connected layer",
            source="Iandola et al. (2016), Table 1",
        ),
        RegisteredNetwork(
            name="lenet",
            build_function="networks.lenet:lenet",
            takes=Images(28, FASHION_MNIST_CLASSES, channels=1),
            parameters=431_080,
            multiply_adds=2_293_000,
            max_stages=4,
            split_layers=2,
            description="LeNet in Caffe's form, for grey images of 28x28 pixels: two convolutions, two other layers",
            source="LeCun et al. (1998); Caffe's examples/mnist",
        ),
        RegisteredNetwork(
            name="gpt2-medium",
            build_function="networks.gpt2:gpt2",
            arguments=(1024, 16, 24),
            takes=Tokens(length=1024, vocabulary=50257),
            parameters=354_823_168,
            multiply_adds=413_475_536_896,
            max_stages=1,
            description="GPT-2 medium (355M): as gpt2-small, with 24 wider blocks",
            source="Radford et al. (2019), section 2.3; openai/gpt-2, models/355M",
        ),
        RegisteredNetwork(
            name="gpt2-large",
            build_function="networks.gpt2:gpt2",
            arguments=(1280, 20, 36),
            takes=Tokens(length=1024, vocabulary=50257),
            parameters=774_030_080,
            multiply_adds=887_285_350_400,
            max_stages=1,
            description="GPT-2 large (774M): as gpt2-small, with 36 wider blocks",
            source="Radford et al. (2019), section 2.3; openai/gpt-2, models/774M",
        ),
        RegisteredNetwork(
            name="stories-15m",
            build_function="networks.llama:stories_15m",
            takes=Tokens(length=256, vocabulary=32000),
            parameters=15_191_712,
            multiply_adds=4_114_612_224,
            max_stages=1,
            description="a small Llama: six blocks; the output layer shares the embedding's weights",
            source="Touvron et al. (2023), section 2.2; sizes of karpathy/llama2.c, stories15M",
        ),
        RegisteredNetwork(
            name="tiny-llama",
            build_function="networks.llama:tiny_llama",
            takes=Tokens(length=2048, vocabulary=32000),
            parameters=1_100_048_384,
            multiply_adds=2_496_449_740_800,
            max_stages=47,
            description="TinyLlama (1.1B): 22 blocks in Llama 2's form, four groups of eight heads",
            source="Zhang et al. (2024), TinyLlama, Table 2; Touvron et al. (2023)",
        ),
    )
}
NETWORKS: dict[str, RegisteredNetwork] = with_others("networks", _CORE_NETWORKS)
"""Networks of this and other packages (entry point ``stallpoint.networks``), by their names in a study."""


def network_of(name: str, own_entry: dict[str, Any] | None) -> Network:
    """Return the registered network called `name`, or the study's own network, which `own_entry` describes."""
    return find_network(name) if own_entry is None else own_network(name, own_entry)


def find_network(name: str) -> RegisteredNetwork:
    """Return the registered network called `name`; raise `InputError` listing the known networks if there is none."""
    try:
        return NETWORKS[name]
    except KeyError:
        raise InputError(f"network {name!r}: unknown; known networks are {', '.join(NETWORKS)}") from None
