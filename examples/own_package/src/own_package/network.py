"""A network: two layers on small images."""

from torch import nn

from stallpoint.networks import RegisteredNetwork
from stallpoint.networks.inputs import Images
from stallpoint.networks.layers import Classifier

CLASSES, SIDE, HIDDEN = 10, 32, 64


def build() -> nn.Module:
    """Return the network, which is named by its layers."""
    return Classifier(
        flatten=nn.Flatten(),
        first=nn.Linear(3 * SIDE * SIDE, HIDDEN),
        relu=nn.ReLU(inplace=True),
        last=nn.Linear(HIDDEN, CLASSES),
    )


NETWORK = RegisteredNetwork(
    name="two-layers",
    build_function="own_package.network:build",
    takes=Images(SIDE, CLASSES),
    description="two fully-connected layers",
    source="this example",
    parameters=(3 * SIDE * SIDE + 1) * HIDDEN + (HIDDEN + 1) * CLASSES,
    multiply_adds=3 * SIDE * SIDE * HIDDEN + HIDDEN * CLASSES,
    max_stages=1,
)
