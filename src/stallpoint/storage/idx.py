"""Format ``idx``: images and labels as in MNIST and Fashion-MNIST (Debian's ``dataset-fashion-mnist``).

An IDX file is a header followed by values (https://yann.lecun.com/exdb/mnist, "The IDX file format"). The header has
two zero bytes, a byte for the type of the values, a byte for the number of dimensions, and each dimension's size as a
big-endian 32-bit number. A set is two files, ``NAME-images-idx3-ubyte`` and ``NAME-labels-idx1-ubyte``. Files
compressed by gzip (``.gz``) cannot be read sample by sample, and are decompressed into memory once.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.storage.images import ImageSet, Pixels, decode_image
from stallpoint.storage.samples import Extent, IndexEntry, Made, SampleShape

IMAGES, LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
_BYTE_TYPE = 8
_OFFSET = {IMAGES: 16, LABELS: 8}
"""Bytes before the first value."""
IMAGE_SIDE = 28
"""Rows and columns of images that are written."""
_SET_NAME = "train"
"""NAME of the sets that stallpoint writes."""


class IdxImages(ImageSet):
    """Grey images in an IDX file."""

    layout = (
        f"NAME{IMAGES} and NAME{LABELS}, grey, as MNIST is handed out, also with .gz; the path ends in NAME where a "
        "folder holds several"
    )

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        images = _set_file(path, IMAGES)
        self.path = images.parent if images else path
        self._content = _decompressed_bytes(images) if images and images.suffix == ".gz" else None
        self._shape = _header_sizes(images, 3)[1:] if images else (0, 0)

    @classmethod
    @override
    def exists_at(cls, path: Path) -> bool:
        """Return whether `path` is a folder, or the beginning of the name of a file of images."""
        return path.is_dir() or any(path.parent.glob(f"{path.name}{IMAGES}*"))

    @classmethod
    def count(cls, path: Path) -> int | None:
        """Return the number of images that the header of the image file states; None without the file."""
        images = _set_file(path, IMAGES) if cls.exists_at(path) else None
        return _header_sizes(images, 3)[0] if images else None

    @property
    @override
    def in_memory(self) -> bool:
        """Return whether the image file is compressed: samples are then read from memory."""
        return self._content is not None

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield the images of the file, one after another."""
        images, labels = _set_file(path, IMAGES), _set_file(path, LABELS)
        if not images:
            return
        if not labels:
            raise InputError(f"{images}: there are no labels, NAME{LABELS}, beside it")
        shape, count = _header_sizes(images, 3), _header_sizes(labels, 1)
        if shape[:1] != count:
            raise InputError(f"{images}: {shape[0]} images, but {labels.name} has {count[0]} labels")
        size = math.prod(shape[1:])
        for file, expected in ((images, _OFFSET[IMAGES] + shape[0] * size), (labels, _OFFSET[LABELS] + count[0])):
            actual_size = len(_decompressed_bytes(file)) if file.suffix == ".gz" else file.stat().st_size
            if actual_size != expected:
                raise InputError(f"{file}: has {actual_size:,} bytes where its header says {expected:,}")
        for number, label in enumerate(_decompressed_bytes(labels)[_OFFSET[LABELS] :]):
            yield IndexEntry(images.name, _OFFSET[IMAGES] + number * size, size, label)

    @classmethod
    @override
    def index(cls, path: Path, excluded: Collection[int] = ()) -> None:
        """Write no index: two files need no search, and their folder often belongs to the system.

        No sample is ever excluded, because any bytes are valid pixels.
        """

    @override
    def extent(self, index: int) -> Extent | None:
        """Return the sample's extent; None if the file is compressed."""
        return None if self.in_memory else super().extent(index)

    @override
    def read(self, index: int) -> bytes:
        if self._content is None:
            return super().read(index)
        extent = self._extent(index)
        return self._content[extent.offset : extent.offset + extent.size]

    @override
    def decode(self, index: int, data: bytes, size: int) -> Pixels:
        """Return the pixels as three equal channels, resized if the network takes another size."""
        grey_pixels: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8).reshape(self._shape)
        if grey_pixels.shape != (size, size):
            from PIL import Image  # imported on use, as only decoding needs Pillow

            grey_pixels = np.asarray(Image.fromarray(grey_pixels).resize((size, size), Image.Resampling.BILINEAR))
        return np.broadcast_to(grey_pixels, (3, size, size))

    @classmethod
    @override
    def stored(cls, data: bytes, name: str, shape: SampleShape | None) -> bytes:
        """Return a JPEG or PNG in grey (the mean of its colours), resized to `IMAGE_SIDE` x `IMAGE_SIDE` pixels."""
        grey_pixels: Pixels = decode_image(data, IMAGE_SIDE, name).mean(axis=0).astype(np.uint8)
        return grey_pixels.tobytes()

    @classmethod
    @override
    def begin(cls, path: Path, samples: int, shape: SampleShape | None) -> None:
        """Create the files of images and labels with their headers, in their final sizes."""
        path.mkdir(parents=True)
        for ending, sizes in ((IMAGES, (samples, IMAGE_SIDE, IMAGE_SIDE)), (LABELS, (samples,))):
            with (path / f"{_SET_NAME}{ending}").open("wb") as file:
                file.write(_encoded_header(*sizes))
                file.truncate(file.tell() + math.prod(sizes))

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        for ending, size, rows in (
            (IMAGES, IMAGE_SIDE * IMAGE_SIDE, [pixels for pixels, _ in part]),
            (LABELS, 1, [bytes([label % 256]) for _, label in part]),
        ):
            with (path / f"{_SET_NAME}{ending}").open("r+b") as file:
                file.seek(_OFFSET[ending] + first * size)
                file.writelines(rows)


def _set_file(path: Path, ending: str) -> Path | None:
    """Return the set's file, compressed or not, of images or of labels (`ending` says which); None if it is missing."""
    folder, name = (path, "*") if path.is_dir() else (path.parent, path.name)
    found = [file for suffix in ("", ".gz") for file in sorted(folder.glob(f"{name}{ending}{suffix}"))]
    names = sorted({file.name.removesuffix(".gz").removesuffix(ending) for file in found})
    if len(names) > 1:
        raise InputError(f"{path}: holds {' and '.join(names)}; name one of them, such as {path / names[-1]}")
    return found[0] if found else None


def _decompressed_bytes(file: Path) -> bytes:
    """Return the decompressed bytes of the file, cached in this process while the file stays unchanged."""
    file_status = file.stat()
    return _cached_content(file, file_status.st_mtime_ns, file_status.st_size)


@lru_cache(4)
def _cached_content(file: Path, _modification_time: int, _file_size: int) -> bytes:
    return _read_content(file)


def _read_content(file: Path, size: int = -1) -> bytes:
    """Return the first `size` bytes of the decompressed file; all bytes if `size` is -1."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            return opened.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}: not a readable IDX file ({error})") from error


def _header_sizes(file: Path, dimension_count: int) -> tuple[int, ...]:
    """Return the dimensions' sizes; raise `InputError` unless the file has bytes in `dimension_count` dimensions."""
    content = _read_content(file, 4 + 4 * dimension_count)
    if content[:4] != bytes([0, 0, _BYTE_TYPE, dimension_count]) or len(content) < 4 + 4 * dimension_count:
        raise InputError(f"{file}: not an IDX file of bytes in {dimension_count} dimensions")
    return tuple(int(size) for size in np.frombuffer(content, ">u4", dimension_count, 4))


def _encoded_header(*sizes: int) -> bytes:
    return bytes([0, 0, _BYTE_TYPE, len(sizes)]) + np.array(sizes, ">u4").tobytes()
