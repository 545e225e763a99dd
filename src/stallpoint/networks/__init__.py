"""The networks that can be trained, by name.

This registry imports no tensor library, so that a study can be checked in an instant; a network's own
module is imported when it is built. To add a network, write a function in a module here that returns an
`nn.Module` mapping ``(inputs, labels)`` to its loss, made of leaf modules (see
`stallpoint.networks.layers`), and add one entry at the end of `NETWORKS`. A study can also name a network of its
own (`stallpoint.networks.own`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stallpoint.errors import InputError
from stallpoint.networks.inputs import FASHION_CLASSES, IMAGENET_CLASSES, Images, Inputs, Tokens
from stallpoint.networks.own import own_network

if TYPE_CHECKING:
    from torch import nn


class Network(Protocol):
    """Interface of a network before it is built."""

    @property
    def name(self) -> str:
        """Its name in studies, paths and charts."""

    @property
    def takes(self) -> Inputs:
        """Inputs of one sample."""

    def outline(self) -> nn.Module:
        """Return the network in the form that is cheapest to run, to find its layers and shapes."""

    def sketch(self) -> nn.Module:
        """Return the network in the form that is cheapest to build, to list its layers; it may be unable to run."""

    def build(self, seed: int) -> nn.Module:
        """Build the network in training mode with fresh weights, the same for the same seed."""


class Number(NamedTuple):
    """A published number."""

    text: str
    """Number as printed, with its digits, such as ``1.6e9``."""
    source: str


class Published(NamedTuple):
    """Published sizes of a network."""

    parameters: Number
    multiply_adds: Number


@dataclass(frozen=True)
class RegisteredNetwork:
    """A network of the registry, with properties known before it is built."""

    name: str
    build_function: str
    """``MODULE:FUNCTION`` that builds it, the module one of this package."""
    takes: Inputs
    description: str
    source: str
    parameters: int
    """Number of learned values."""
    multiply_adds: int
    """Multiplications (each with an addition) of the matrix products in one sample's forward pass."""
    max_stages: int
    """Largest number of pipeline stages (`networks.cutting`); 1 if layers share weights."""
    published: Published
    split_layers: int = 0
    """Fully-connected layers behind convolutions whose outputs can be split over workers (`networks.splitting`)."""
    smallest_batch: int = 1
    """Least number of samples of a worker; two if a single pixel is normalised over the mini-batch."""

    @property
    def gradient_bytes(self) -> int:
        """Gradients of all layers, bytes."""
        return 4 * self.parameters

    def outline(self) -> nn.Module:
        """Return the network without values (PyTorch's meta device): its layers and shapes cost nothing."""
        import torch

        module, _, function = self.build_function.partition(":")
        with torch.device("meta"):
            network: nn.Module = getattr(import_module(f"stallpoint.networks.{module}"), function)()
        return network

    def sketch(self) -> nn.Module:
        """Return the outline."""
        return self.outline()

    def build(self, seed: int) -> nn.Module:
        """Build the network in training mode with fresh weights, the same for the same seed."""
        from stallpoint.networks.layers import initialise, with_memory

        network = with_memory(self.outline())
        initialise(network, seed)
        return network


_OF_DECODERS = (
    "Narayanan et al., SC 2021, appendix: half of 24 s l h^2 (1 + s / 6h + V / 12lh), without the backward pass and "
    "what is computed again"
)

_ALEXNET = RegisteredNetwork(
    name="alexnet",
    build_function="alexnet:alexnet",
    takes=Images(227, IMAGENET_CLASSES),
    parameters=60_965_224,
    multiply_adds=724_406_816,
    max_stages=8,
    split_layers=3,
    published=Published(
        parameters=Number(
            "61.0e6", "Sze et al., Efficient Processing of Deep Neural Networks, Proc. IEEE 2017, Table II"
        ),
        multiply_adds=Number("724e6", "Sze et al., Table II"),
    ),
    description="AlexNet in Caffe's one-tower form: grouped convolutions, local response normalisation",
    source="Krizhevsky, Sutskever & Hinton (2012); Caffe's bvlc_alexnet",
)

NETWORKS: dict[str, RegisteredNetwork] = {
    network.name: network
    for network in (
        _ALEXNET,
        RegisteredNetwork(
            name="googlenet",
            build_function="googlenet:googlenet",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=13_378_280,
            multiply_adds=1_591_044_096,
            max_stages=6,
            split_layers=1,
            published=Published(
                parameters=Number(
                    "13.4e6", "Shi et al. (2018), Table IV: ~53 million, which are bytes (4 for a parameter)"
                ),
                multiply_adds=Number(
                    "1.6e9", "Szegedy et al., CVPR 2015, section 1: a budget of 1.5 billion multiply-adds"
                ),
            ),
            description="GoogLeNet as trained, with both auxiliary classifiers, without batch normalisation",
            source="Szegedy et al. (2015); Caffe's bvlc_googlenet",
        ),
        RegisteredNetwork(
            name="resnet50",
            build_function="resnet:resnet50",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=25_557_032,
            multiply_adds=3_857_973_248,
            max_stages=19,
            split_layers=1,
            published=Published(
                parameters=Number("25557032", "torchvision, ResNet50_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("3.9e9", "Sze et al., Table II; He et al., CVPR 2016, Table 1, says 3.8e9"),
            ),
            description="ResNet-50, first version: the stride is in a block's first 1x1 convolution",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
        RegisteredNetwork(
            name="vgg16",
            build_function="vgg:vgg16",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=138_357_544,
            multiply_adds=15_470_264_320,
            max_stages=16,
            split_layers=3,
            published=Published(
                parameters=Number("138357544", "torchvision, VGG16_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number(
                    "15.47e9", "torchvision, VGG16_Weights.IMAGENET1K_V1: GFLOPS, which are multiply-adds"
                ),
            ),
            description="VGG-16, configuration D: 13 convolutions of 3x3 and three fully-connected layers",
            source="Simonyan & Zisserman (2015), Table 1",
        ),
        RegisteredNetwork(
            name="vit-b-16",
            build_function="vit_b_16:vit_b_16",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=86_567_656,
            multiply_adds=17_563_828_224,
            max_stages=29,
            split_layers=1,
            published=Published(
                parameters=Number("86567656", "torchvision, ViT_B_16_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("17.56e9", "torchvision, ViT_B_16_Weights.IMAGENET1K_V1: GFLOPS"),
            ),
            description="ViT-B/16: patches of 16x16 pixels, a class token, 12 encoder blocks, a linear classifier",
            source="Dosovitskiy et al. (2021), Table 1",
        ),
        RegisteredNetwork(
            name="gpt2-small",
            build_function="gpt2:gpt2_small",
            takes=Tokens(length=1024, vocabulary=50257),
            parameters=124_439_808,
            multiply_adds=145_824_153_600,
            max_stages=1,
            published=Published(
                parameters=Number("124439808", "Hugging Face, openai-community/gpt2: GPT2LMHeadModel.num_parameters()"),
                multiply_adds=Number("145824153600", "karpathy/nanoGPT, transformer_sizing.ipynb: forward_total / 2"),
            ),
            description="GPT-2 small (124M): 12 decoder blocks; the output layer shares the embedding's weights",
            source="Radford et al. (2019), section 2.3; openai/gpt-2, models/124M",
        ),
        RegisteredNetwork(
            name="alexnet-owt",
            build_function="alexnet:one_weird_trick",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=61_100_840,
            multiply_adds=714_188_480,
            max_stages=8,
            split_layers=3,
            published=Published(
                parameters=Number("61100840", "torchvision, AlexNet_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("0.71e9", "torchvision, AlexNet_Weights.IMAGENET1K_V1: GFLOPS"),
            ),
            description="AlexNet's later variant: no groups, no local response normalisation, fewer filters",
            source="Krizhevsky (2014), section 5; torchvision's alexnet",
        ),
        replace(
            _ALEXNET,
            name="alexnet-no-lrn",
            build_function="alexnet:without_lrn",
            description="alexnet without local response normalisation, which learns nothing and multiplies no matrices",
            source="Shi et al. (2018), Table IV, note",
        ),
        RegisteredNetwork(
            name="vgg19",
            build_function="vgg:vgg19",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=143_667_240,
            multiply_adds=19_632_062_464,
            max_stages=19,
            split_layers=3,
            published=Published(
                parameters=Number("143667240", "torchvision, VGG19_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("19.63e9", "torchvision, VGG19_Weights.IMAGENET1K_V1: GFLOPS"),
            ),
            description="VGG-19, configuration E: 16 convolutions of 3x3 and three fully-connected layers",
            source="Simonyan & Zisserman (2015), Table 1",
        ),
        RegisteredNetwork(
            name="resnet101",
            build_function="resnet:resnet101",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=44_549_160,
            multiply_adds=7_570_194_432,
            max_stages=36,
            split_layers=1,
            published=Published(
                parameters=Number("44549160", "torchvision, ResNet101_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("7.6e9", "He et al., CVPR 2016, Table 1"),
            ),
            description="ResNet-101, first version like resnet50",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
        RegisteredNetwork(
            name="resnet152",
            build_function="resnet:resnet152",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=60_192_808,
            multiply_adds=11_282_415_616,
            max_stages=53,
            split_layers=1,
            published=Published(
                parameters=Number("60192808", "torchvision, ResNet152_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("11.3e9", "He et al., CVPR 2016, Table 1"),
            ),
            description="ResNet-152, first version like resnet50",
            source="He, Zhang, Ren & Sun (2016), Table 1",
        ),
        RegisteredNetwork(
            name="inception-v3",
            build_function="inception_v3:inception_v3",
            takes=Images(299, IMAGENET_CLASSES),
            parameters=27_161_264,
            multiply_adds=5_718_899_296,
            max_stages=18,
            split_layers=1,
            published=Published(
                parameters=Number("27161264", "torchvision, Inception_V3_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("5.7e9", "torchvision, Inception_V3_Weights.IMAGENET1K_V1: GFLOPS"),
            ),
            description="Inception-v3 as trained, with its auxiliary classifier; mini-batches of two samples at least",
            smallest_batch=2,
            source="Szegedy et al. (2016), Table 1; torchvision's inception_v3",
        ),
        RegisteredNetwork(
            name="squeezenet",
            build_function="squeezenet:squeezenet",
            takes=Images(224, IMAGENET_CLASSES),
            parameters=1_248_424,
            multiply_adds=818_924_576,
            max_stages=18,
            published=Published(
                parameters=Number("1248424", "torchvision, SqueezeNet1_0_Weights.IMAGENET1K_V1: num_params"),
                multiply_adds=Number("0.82e9", "torchvision, SqueezeNet1_0_Weights.IMAGENET1K_V1: GFLOPS"),
            ),
            description="SqueezeNet 1.0: eight fire modules and no fully-connected layer",
            source="Iandola et al. (2016), Table 1",
        ),
        RegisteredNetwork(
            name="lenet",
            build_function="lenet:lenet",
            takes=Images(28, FASHION_CLASSES, channels=1),
            parameters=431_080,
            multiply_adds=2_293_000,
            max_stages=4,
            split_layers=2,
            published=Published(
                parameters=Number(
                    "431e3", "Han, Pool, Tran & Dally, Learning both Weights and Connections, NIPS 2015, Table 4"
                ),
                multiply_adds=Number("2293e3", "the same: 4586K FLOP, two for each multiplication"),
            ),
            description="LeNet in Caffe's form, for grey images of 28x28 pixels: two convolutions, two other layers",
            source="LeCun et al. (1998); Caffe's examples/mnist",
        ),
        RegisteredNetwork(
            name="gpt2-medium",
            build_function="gpt2:gpt2_medium",
            takes=Tokens(length=1024, vocabulary=50257),
            parameters=354_823_168,
            multiply_adds=413_475_536_896,
            max_stages=1,
            published=Published(
                parameters=Number("354823168", "Hugging Face, openai-community/gpt2-medium: num_parameters()"),
                multiply_adds=Number("413475536896", _OF_DECODERS),
            ),
            description="GPT-2 medium (355M): as gpt2-small, with 24 wider blocks",
            source="Radford et al. (2019), section 2.3; openai/gpt-2, models/355M",
        ),
        RegisteredNetwork(
            name="gpt2-large",
            build_function="gpt2:gpt2_large",
            takes=Tokens(length=1024, vocabulary=50257),
            parameters=774_030_080,
            multiply_adds=887_285_350_400,
            max_stages=1,
            published=Published(
                parameters=Number("774030080", "Hugging Face, openai-community/gpt2-large: num_parameters()"),
                multiply_adds=Number("887285350400", _OF_DECODERS),
            ),
            description="GPT-2 large (774M): as gpt2-small, with 36 wider blocks",
            source="Radford et al. (2019), section 2.3; openai/gpt-2, models/774M",
        ),
        RegisteredNetwork(
            name="stories-15m",
            build_function="llama:stories_15m",
            takes=Tokens(length=256, vocabulary=32000),
            parameters=15_191_712,
            multiply_adds=4_114_612_224,
            max_stages=1,
            published=Published(
                parameters=Number("15e6", "karpathy/llama2.c, README: stories15M"),
                multiply_adds=Number("4.1e9", "karpathy/llama2.c, model.py: estimate_mfu, a third of its half"),
            ),
            description="a small Llama: six blocks; the output layer shares the embedding's weights",
            source="Touvron et al. (2023), section 2.2; sizes of karpathy/llama2.c, stories15M",
        ),
        RegisteredNetwork(
            name="tiny-llama",
            build_function="llama:tiny_llama",
            takes=Tokens(length=2048, vocabulary=32000),
            parameters=1_100_048_384,
            multiply_adds=2_496_449_740_800,
            max_stages=47,
            published=Published(
                parameters=Number("1.1e9", "Zhang et al., TinyLlama, 2024, Table 2"),
                multiply_adds=Number(
                    "2.50e12",
                    "Chowdhery et al., PaLM, 2022, appendix B: a third of 6 N + 12 L H Q T for each token, halved",
                ),
            ),
            description="TinyLlama (1.1B): 22 blocks in Llama 2's form, four groups of eight heads",
            source="Zhang et al. (2024), TinyLlama, Table 2; Touvron et al. (2023)",
        ),
    )
}


class Trained(Protocol):
    """A cell that has a network: one of the registry, or (`own_network`) the study's own."""

    @property
    def network(self) -> str:
        """The name of the network."""
        ...

    @property
    def own_network(self) -> dict[str, Any] | None:
        """The description of a network of the study's own."""
        ...


def network_of(cell: Trained) -> Network:
    """Return the network of a cell: one of the registry, or the study's own."""
    return find(cell.network) if cell.own_network is None else own_network(cell.network, cell.own_network)


def find(name: str) -> RegisteredNetwork:
    """Return the registered network called `name`; `InputError` lists the known ones."""
    try:
        return NETWORKS[name]
    except KeyError:
        raise InputError(f"network {name!r}: unknown; known networks are {', '.join(NETWORKS)}") from None
