"""Format ``raw``: images decoded once, beforehand, and stored as pixels; nothing to decode while training.

So did Caffe-MPI and MXNet in Shi et al. (2018), section V, who convert the training set before.
``images.npy`` is uint8 [samples, 3, height, width], ``labels.npy`` int64 [samples].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Images, Inputs
from stallpoint.storage.arrays import array
from stallpoint.storage.images import ImageSet, Pixels, decode_image
from stallpoint.storage.samples import Entry, Shape


@dataclass(frozen=True)
class Squares(Shape):
    """The shape of generated images."""

    image_size: int = 256
    """Rows and columns; by default enough for 224- and 227-pixel inputs."""

    def __str__(self) -> str:
        return f"images of {self.image_size}x{self.image_size} pixels"

    def suits(self, takes: Inputs) -> bool:
        """Whether they are as large as the network's."""
        return isinstance(takes, Images) and self.image_size >= takes.size


class RawImages(ImageSet):
    """Pixels in one array file."""

    shape = Squares
    layout = "images.npy, uint8 [samples, 3, height, width], and labels.npy, int64 [samples]"
    keep_open = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._shape: tuple[int, ...] = array(path / "images.npy").shape[1:] if self.samples else (3, 0, 0)

    @staticmethod
    def scan(path: Path) -> Iterator[Entry]:
        """The images of the array, one after another."""
        if not (path / "images.npy").exists():
            return
        images, labels = array(path / "images.npy"), array(path / "labels.npy")
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != 3 or len(labels) != len(images):
            raise InputError(f"{path}: not a raw storage; expected {RawImages.layout}")
        size = int(np.prod(images.shape[1:]))
        for number, label in enumerate(labels):
            yield Entry("images.npy", images.offset + number * size, size, int(label))

    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        """The central [3, size, size] of the stored pixels, without a copy."""
        height, width = self._shape[1:]
        if size > min(height, width):
            raise InputError(f"{self.path}: images of {height}x{width} pixels are too small for a {size}-pixel input")
        top, left = (height - size) // 2, (width - size) // 2
        pixels: Pixels = np.frombuffer(data, np.uint8).reshape(self._shape)
        return pixels[:, top : top + size, left : left + size]

    @staticmethod
    def write(path: Path, images: Iterable[tuple[bytes, int]], samples: int, shape: Squares = Squares()) -> None:
        """Decode the JPEGs and write their pixels."""
        path.mkdir(parents=True)
        size = shape.image_size
        pixels = np.lib.format.open_memmap(
            path / "images.npy", mode="w+", dtype=np.uint8, shape=(samples, 3, size, size)
        )
        labels = np.empty(samples, np.int64)
        for number, (data, label) in enumerate(images):
            pixels[number] = decode_image(data, size, f"image {number}")
            labels[number] = label
        pixels.flush()
        np.save(path / "labels.npy", labels)
