"""AlexNet of 2012, with layers named and ordered as in Caffe's bvlc_alexnet, and AlexNet's variant of 2014.

AlexNet of 2012: Krizhevsky, Sutskever & Hinton: ImageNet Classification with Deep Convolutional Neural Networks, NIPS
2012. Its gradients have the sizes in Shi et al. (2018), Table VI. Variant: Krizhevsky: One weird trick for
parallelizing convolutional neural networks, 2014 (arXiv:1404.5997), section 5.
"""

from __future__ import annotations

from torch import nn

from stallpoint.networks.layers import Classifier, normalisation, pooling

CLASSES = 1000


def _fully_connected_layers() -> dict[str, nn.Module]:
    return {
        "flatten": nn.Flatten(),
        "fc6": nn.Linear(256 * 6 * 6, 4096),
        "relu6": nn.ReLU(inplace=True),
        "drop6": nn.Dropout(0.5),
        "fc7": nn.Linear(4096, 4096),
        "relu7": nn.ReLU(inplace=True),
        "drop7": nn.Dropout(0.5),
        "fc8": nn.Linear(4096, CLASSES),
    }


def alexnet() -> nn.Module:
    """Return AlexNet of 2012 for images of 227 x 227 pixels; grouped convolutions replace the paper's two towers."""
    return Classifier(
        conv1=nn.Conv2d(3, 96, kernel_size=11, stride=4),
        relu1=nn.ReLU(inplace=True),
        norm1=normalisation(),
        pool1=pooling(),
        conv2=nn.Conv2d(96, 256, kernel_size=5, padding=2, groups=2),
        relu2=nn.ReLU(inplace=True),
        norm2=normalisation(),
        pool2=pooling(),
        conv3=nn.Conv2d(256, 384, kernel_size=3, padding=1),
        relu3=nn.ReLU(inplace=True),
        conv4=nn.Conv2d(384, 384, kernel_size=3, padding=1, groups=2),
        relu4=nn.ReLU(inplace=True),
        conv5=nn.Conv2d(384, 256, kernel_size=3, padding=1, groups=2),
        relu5=nn.ReLU(inplace=True),
        pool5=pooling(),
        **_fully_connected_layers(),
    )


def alexnet_without_lrn() -> nn.Module:
    """Return AlexNet of 2012 without its two normalisations, as trained by Shi et al. (2018, note of Table IV)."""
    layers = dict(alexnet().named_children())
    return Classifier(**{name: layer for name, layer in layers.items() if name not in ("norm1", "norm2", "loss")})


def one_weird_trick() -> nn.Module:
    """Return AlexNet's variant of 2014, without groups and normalisation, for images of 224 x 224 pixels."""
    return Classifier(
        conv1=nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2),
        relu1=nn.ReLU(inplace=True),
        pool1=pooling(),
        conv2=nn.Conv2d(64, 192, kernel_size=5, padding=2),
        relu2=nn.ReLU(inplace=True),
        pool2=pooling(),
        conv3=nn.Conv2d(192, 384, kernel_size=3, padding=1),
        relu3=nn.ReLU(inplace=True),
        conv4=nn.Conv2d(384, 256, kernel_size=3, padding=1),
        relu4=nn.ReLU(inplace=True),
        conv5=nn.Conv2d(256, 256, kernel_size=3, padding=1),
        relu5=nn.ReLU(inplace=True),
        pool5=pooling(),
        **_fully_connected_layers(),
    )
