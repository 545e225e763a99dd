"""LeNet in Caffe's form, for grey images of 28 x 28 pixels, such as Fashion-MNIST's.

LeCun, Bottou, Bengio & Haffner: Gradient-Based Learning Applied to Document Recognition, Proc. IEEE 1998; names and
order of the layers are those of Caffe's examples/mnist/lenet_train_test.prototxt.
"""

from __future__ import annotations

from torch import nn

from stallpoint.networks.inputs import FASHION_MNIST_CLASSES
from stallpoint.networks.layers import Classifier


def lenet() -> nn.Module:
    """Return the network for grey images of 28 x 28 pixels."""
    return Classifier(
        conv1=nn.Conv2d(1, 20, kernel_size=5),
        pool1=nn.MaxPool2d(kernel_size=2, stride=2),
        conv2=nn.Conv2d(20, 50, kernel_size=5),
        pool2=nn.MaxPool2d(kernel_size=2, stride=2),
        flatten=nn.Flatten(),
        ip1=nn.Linear(50 * 4 * 4, 500),
        relu1=nn.ReLU(inplace=True),
        ip2=nn.Linear(500, FASHION_MNIST_CLASSES),
    )
